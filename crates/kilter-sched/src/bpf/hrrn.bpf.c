// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Highest Response Ratio Next on sched_ext.
 *
 * Every CPU has a queue of its own, which is a list: to enqueue is O(1), to pick looks at every
 * waiting task. A task stays with its CPU until another goes idle and pulls it; nothing is balanced
 * periodically. The tick preempts whenever somebody waits, a woken task when its response ratio is
 * higher than the running one's.
 *
 * Each departure from that is a field of struct hrrn_config or a parameter, and can be turned off.
 */
#include "types.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "hrrn.h"
#include "shared.h"
#include "state.h"
#include "pick.h"

char _license[] SEC("license") = "GPL";

/* The kernel's own slice only bounds how long a CPU may stay tickless: the tick decides. */
#define SLICE_NS 20000000ULL

static __always_inline void set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice);
	else
		p->scx.slice = slice;
}

/* Tells the loader that these parameters are in force. */
static __always_inline void acknowledge(struct hrrn_stats *s)
{
	u64 generation = params.generation;

	if (s->generation != generation) {
		s->generation = generation;
		s->generation_ns = bpf_ktime_get_ns();
	}
}

static __always_inline void note_queue(s32 cpu)
{
	struct hrrn_stats *s = counters();
	s32 queued = scx_bpf_dsq_nr_queued(cpu);

	if (!s || queued < 0)
		return;
	s->queued = queued;
	if (s->queued > s->queued_max)
		s->queued_max = s->queued;
}

static __always_inline s32 shortest_queue(struct task_struct *p, s32 cpu)
{
	s32 fewest = scx_bpf_dsq_nr_queued(cpu), at = cpu, i;

	bpf_for(i, 0, config.cpus)
	{
		s32 queued = scx_bpf_dsq_nr_queued(i);

		if (queued >= 0 && queued < fewest && bpf_cpumask_test_cpu(i, p->cpus_ptr)) {
			fewest = queued;
			at = i;
		}
	}
	return at;
}

SEC("struct_ops")
s32 BPF_PROG(hrrn_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	if (idle) {
		COUNT(idle_placed);
		scx_bpf_dsq_insert(p, ENUM(scx_dsq_id_flags, SCX_DSQ_LOCAL), SLICE_NS, 0);
		return cpu;
	}
	if (config.spread && (wake_flags & ENUM(scx_wake_flags, SCX_WAKE_FORK)))
		return shortest_queue(p, cpu);
	return cpu;
}

/* Whether a woken task may take the CPU from the one that runs. */
static __always_inline bool preempts(struct task_struct *p, struct task *task, struct cpu *cpu,
				     u64 now)
{
	struct claim mine = {}, theirs = {};
	u64 threshold = params.wakeup_threshold;

	if (!cpu->run_at || cpu->class == CLASS_NOBODY)
		return false;
	claim_of(&mine, p, task, true, now);
	theirs.class = cpu->class;
	theirs.uid = cpu->uid;
	theirs.task = hrrn_ratio(now, cpu->start, cpu->sum + (now - cpu->run_at), cpu->weight);
	if (config.per_uid)
		theirs.user = user_ratio(cpu->uid, now);
	if (mine.class == CLASS_PROMPT)
		return higher(mine.task, theirs.task);
	if (mine.class != theirs.class)
		return mine.class < theirs.class;
	if (!threshold || (config.classes && p->policy == SCHED_BATCH))
		return false;
	/* The threshold guards the beginning of a turn; after its slice any higher R takes it. */
	if (params.slice_ns && now - cpu->run_at >= params.slice_ns)
		threshold = 100;
	if (threshold == 100)
		return comes_first(&mine, &theirs);
	if (config.per_uid && mine.uid != theirs.uid)
		return hrrn_higher_by(mine.user, theirs.user, threshold);
	return hrrn_higher_by(mine.task, theirs.task, threshold);
}

SEC("struct_ops")
void BPF_PROG(hrrn_enqueue, struct task_struct *p, u64 enq_flags)
{
	bool woken = enq_flags & ENUM(scx_enq_flags, SCX_ENQ_WAKEUP);
	s32 number = scx_bpf_task_cpu(p);
	struct cpu *cpu = cpu_of(number);
	struct task *task = task_of(p);
	u64 now = clock_now();

	if (!cpu || !task) {
		scx_bpf_dsq_insert(p, ENUM(scx_dsq_id_flags, SCX_DSQ_LOCAL), SLICE_NS, enq_flags);
		return;
	}
	task->queued_at = now;
	task->woken = woken;
	if (config.per_uid)
		task->uid = p->cred->uid.val;
	if (config.reset_at_pick)
		reset_if_due(p, task, now);

	/* Tasks that may run on one CPU only come here without having been offered an idle one. */
	if (woken && p->nr_cpus_allowed == 1 && scx_bpf_test_and_clear_cpu_idle(number)) {
		COUNT(idle_placed);
		scx_bpf_dsq_insert(p, ENUM(scx_dsq_id_flags, SCX_DSQ_LOCAL), SLICE_NS, enq_flags);
		return;
	}
	if (woken && preempts(p, task, cpu, now)) {
		if (class_of(p, true) == CLASS_PROMPT)
			COUNT(preempted_kthread);
		else
			COUNT(preempted_wakeup);
		if (!bpf_ksym_exists(scx_bpf_kick_cpu)) {
			scx_bpf_dsq_insert(p, ENUM(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON) | number,
					   SLICE_NS,
					   enq_flags | ENUM(scx_enq_flags, SCX_ENQ_PREEMPT));
			return;
		}
		scx_bpf_dsq_insert(p, number, SLICE_NS, enq_flags);
		scx_bpf_kick_cpu(number, ENUM(scx_kick_flags, SCX_KICK_PREEMPT));
		return;
	}
	if (config.fault == HRRN_FAULT_QUEUE)
		number = HRRN_MAX_CPUS;
	scx_bpf_dsq_insert(p, number, SLICE_NS, enq_flags);
}

/* Pulls from the CPUs that share this one's last-level cache, then from the others. */
static __always_inline void pull(s32 here, struct cpu *cpu, u64 now)
{
	u32 mine = cache_of[here & (HRRN_MAX_CPUS - 1)];
	s32 i;

	bpf_for(i, 0, 2 * config.cpus)
	{
		bool far = i >= config.cpus;
		s32 from = (here + 1 + i) % config.cpus;

		if (from == here || far == (cache_of[from & (HRRN_MAX_CPUS - 1)] == mine))
			continue;
		if (scx_bpf_dsq_nr_queued(from) <= 0)
			continue;
		cpu->found.best.class = CLASS_NOBODY;
		if (pick(from, here, now))
			return;
	}
}

SEC("struct_ops")
void BPF_PROG(hrrn_dispatch, s32 number, struct task_struct *prev)
{
	struct hrrn_stats *s = counters();
	struct cpu *cpu = cpu_of(number);
	bool running = prev && (prev->scx.flags & ENUM(scx_ent_flags, SCX_TASK_QUEUED));
	u64 now = clock_now();
	struct task *task;

	if (!cpu || !s || config.fault == HRRN_FAULT_STALL)
		return;
	acknowledge(s);
	cpu->found.best.class = CLASS_NOBODY;
	if (running && (task = task_of(prev)))
		claim_of(&cpu->found.best, prev, task, false, now);
	if (pick(number, number, now)) {
		if (running && cpu->tick)
			s->preempted_tick++;
	} else if (running) {
		set_slice(prev, SLICE_NS);
		s->kept++;
	} else {
		pull(number, cpu, now);
	}
	cpu->tick = 0;
	note_queue(number);
}

SEC("struct_ops")
void BPF_PROG(hrrn_tick, struct task_struct *p)
{
	s32 number = scx_bpf_task_cpu(p);
	struct cpu *cpu = cpu_of(number);
	struct hrrn_stats *s = counters();
	struct task *task = task_of(p);
	u64 now = clock_now();

	if (!cpu || !task || !s)
		return;
	acknowledge(s);
	if (reset_if_due(p, task, now)) {
		cpu->start = now;
		cpu->sum = 0;
		cpu->run_at = now;
	}
	if (scx_bpf_dsq_nr_queued(number) > 0 && now - cpu->run_at >= params.slice_ns) {
		cpu->tick = 1;
		set_slice(p, 0);
	}
}

SEC("struct_ops")
void BPF_PROG(hrrn_running, struct task_struct *p)
{
	struct cpu *cpu = cpu_of(scx_bpf_task_cpu(p));
	struct hrrn_stats *s = counters();
	struct task *task = task_of(p);
	u64 now = clock_now();

	if (!cpu || !task || !s)
		return;
	if (task->queued_at) {
		s64 waited = now - task->queued_at;

		if (waited < 0)
			waited = 0;
		s->waits[bucket(waited) & (HRRN_BUCKETS - 1)]++;
		if (waited > s->wait_max_ns)
			s->wait_max_ns = waited;
		task->queued_at = 0;
	}
	cpu->start = task->start;
	cpu->sum = sum_of(p, task);
	cpu->run_at = now;
	cpu->weight = hrrn_weight(p->prio);
	cpu->class = class_of(p, task->woken);
	cpu->uid = task->uid;
}

SEC("struct_ops")
void BPF_PROG(hrrn_stopping, struct task_struct *p, bool runnable)
{
	struct cpu *cpu = cpu_of(scx_bpf_task_cpu(p));
	u64 now = clock_now();
	struct user *user;

	if (!cpu)
		return;
	if (config.per_uid && cpu->run_at && (user = user_of(cpu->uid, now)))
		__sync_fetch_and_add(&user->sum, now - cpu->run_at);
	cpu->run_at = 0;
	cpu->class = CLASS_NOBODY;
}

SEC("struct_ops")
s32 BPF_PROG(hrrn_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task *task = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	u64 now = clock_now();

	if (!task)
		return -ENOMEM;
	task->start = args->fork ? hrrn_start(now, params.latency_ns) : now;
	task->life = now;
	task->base = p->se.sum_exec_runtime;
	task->uid = p->cred->uid.val;
	return 0;
}

SEC("struct_ops.s")
s32 BPF_PROG(hrrn_init)
{
	s32 i, error;

	bpf_for(i, 0, config.cpus)
	{
		error = scx_bpf_create_dsq(i, -1);
		if (error)
			return error;
	}
	return 0;
}

SEC("struct_ops")
void BPF_PROG(hrrn_exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(ended.reason, sizeof(ended.reason), info->reason);
	bpf_probe_read_kernel_str(ended.message, sizeof(ended.message), info->msg);
	bpf_probe_read_kernel_str(ended.dump, sizeof(ended.dump), info->dump);
	ended.code = info->exit_code;
	/* Last, and ordered: the loader takes the rest as whole once it sees this. */
	__sync_val_compare_and_swap(&ended.kind, 0, info->kind);
}

SEC(".struct_ops.link")
struct sched_ext_ops hrrn = {
	.select_cpu = (void *)hrrn_select_cpu,
	.enqueue = (void *)hrrn_enqueue,
	.dispatch = (void *)hrrn_dispatch,
	.tick = (void *)hrrn_tick,
	.running = (void *)hrrn_running,
	.stopping = (void *)hrrn_stopping,
	.init_task = (void *)hrrn_init_task,
	.init = (void *)hrrn_init,
	.exit = (void *)hrrn_exit,
	.name = "hrrn",
};
