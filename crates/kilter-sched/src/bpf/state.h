/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the scheduler remembers of tasks, users and CPUs, and its counters. */
#ifndef KILTER_STATE_H
#define KILTER_STATE_H

volatile struct hrrn_params params SEC(".data.params");
volatile const struct hrrn_config config SEC(".rodata.config");
struct hrrn_exit ended SEC(".data.ended");

/* CPUs with the same number share a last-level cache. */
volatile const u32 cache_of[HRRN_MAX_CPUS] SEC(".rodata.caches");

/* Order of claims: a lower class always comes first. */
enum class {
	CLASS_PROMPT, /* woken kernel threads */
	CLASS_NORMAL,
	CLASS_IDLE, /* SCHED_IDLE */
	CLASS_NOBODY,
};

struct task {
	u64 start;     /* the claim's beginning: age counts from here */
	u64 life;      /* when start was set */
	u64 base;      /* CPU time at that moment */
	u64 queued_at; /* 0 while not waiting */
	u32 uid;
	u32 woken; /* queued by a wake-up and not by a preemption */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task);
} tasks SEC(".maps");

/* A user's claim, made of all their tasks' CPU time. */
struct user {
	u64 start;
	u64 sum;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u32);
	__type(value, struct user);
} users SEC(".maps");

/* A claim on a CPU, with all that decides between two. */
struct claim {
	struct hrrn_ratio task;
	struct hrrn_ratio user;
	u32 class;
	u32 uid;
};

/* What a look through a queue found. */
struct found {
	struct claim best;
	u64 scanned;
};

/* Who runs on a CPU: enough to compare with, without touching the task; and what it is picking. */
struct cpu {
	u64 start;
	u64 sum;    /* at `run_at` */
	u64 run_at; /* 0 while nothing of ours runs */
	u64 capped; /* the last pick was for a long wait */
	u32 weight;
	u32 class;
	u32 uid;
	u32 tick; /* the tick asked for a pick */
	struct found found;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HRRN_MAX_CPUS);
	__type(key, u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct hrrn_stats);
} stats SEC(".maps");

/* The kernel's value of an enumerator, resolved when the program is loaded. */
#define ENUM(type, value) bpf_core_enum_value(enum type, value)

static __always_inline u64 clock_now(void)
{
	return bpf_ksym_exists(scx_bpf_now) ? scx_bpf_now() : bpf_ktime_get_ns();
}

static __always_inline struct hrrn_stats *counters(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&stats, &zero);
}

#define COUNT(field)                                  \
	do {                                          \
		struct hrrn_stats *__s = counters();  \
		if (__s)                              \
			__s->field++;                 \
	} while (0)

/* Not static: the verifier then looks at its 64 ways once, and not wherever it is called. */
__noinline u32 bucket(u64 value)
{
	u32 n = 0;

#pragma unroll
	for (int shift = 32; shift; shift >>= 1) {
		if (value >> shift) {
			value >>= shift;
			n += shift;
		}
	}
	return n;
}

static __always_inline struct cpu *cpu_of(s32 number)
{
	u32 key = number;

	return bpf_map_lookup_elem(&cpus, &key);
}

static __always_inline struct task *task_of(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, 0, 0);
}

static __always_inline struct user *user_of(u32 uid, u64 now)
{
	struct user *user = bpf_map_lookup_elem(&users, &uid);

	if (!user) {
		struct user fresh = { .start = now };

		bpf_map_update_elem(&users, &uid, &fresh, BPF_NOEXIST);
		user = bpf_map_lookup_elem(&users, &uid);
	}
	return user;
}

/* The kernel counts CPU time itself; ours is the difference since the last reset. */
static __always_inline u64 sum_of(struct task_struct *p, struct task *task)
{
	return p->se.sum_exec_runtime - task->base;
}

static __always_inline bool reset_if_due(struct task_struct *p, struct task *task, u64 now)
{
	if (!hrrn_life_over(now, task->life, params.max_lifetime_ns))
		return false;
	task->start = now;
	task->life = now;
	task->base = p->se.sum_exec_runtime;
	COUNT(resets);
	return true;
}

static __always_inline u32 class_of(struct task_struct *p, bool woken)
{
	if (config.kthreads && woken && (p->flags & PF_KTHREAD))
		return CLASS_PROMPT;
	if (config.classes && p->policy == SCHED_IDLE)
		return CLASS_IDLE;
	return CLASS_NORMAL;
}

static __always_inline bool higher(struct hrrn_ratio a, struct hrrn_ratio b)
{
	return config.exact ? hrrn_higher_exact(a, b) : hrrn_higher_seed(a, b);
}

/* A user's R. Users have no nice value: all weigh as a task of nice 0 does. */
static __always_inline struct hrrn_ratio user_ratio(u32 uid, u64 now)
{
	struct user *user = user_of(uid, now);
	struct hrrn_ratio none = { .claim = 1, .served = 1 };

	if (!user)
		return none;
	if (hrrn_life_over(now, user->start, params.max_lifetime_ns)) {
		user->start = now;
		user->sum = 0;
	}
	return hrrn_ratio(now, user->start, user->sum, 20);
}

static __always_inline bool comes_first(struct claim *a, struct claim *b)
{
	if (a->class != b->class)
		return a->class < b->class;
	if (config.per_uid && a->uid != b->uid) {
		if (higher(a->user, b->user))
			return true;
		if (higher(b->user, a->user))
			return false;
	}
	return higher(a->task, b->task);
}

static __always_inline void claim_of(struct claim *claim, struct task_struct *p,
				     struct task *task, bool woken, u64 now)
{
	claim->class = class_of(p, woken);
	claim->uid = task->uid;
	claim->task = hrrn_ratio(now, task->start, sum_of(p, task), hrrn_weight(p->prio));
	if (config.per_uid)
		claim->user = user_ratio(task->uid, now);
}

#endif
