/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the scheduler uses of the kernel, and no more: CO-RE fits these declarations to the running
 * kernel's own by name, so only the fields that are read need to be here, in any order. Values of
 * enumerators differ between kernels; those written here are never used (see ENUM in hrrn.bpf.c).
 */
#ifndef KILTER_TYPES_H
#define KILTER_TYPES_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
/* Names that libbpf's headers use. */
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef short __s16;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

/* Of the kernel's interface to user space, which never changes. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_NOEXIST = 1,
	SCHED_BATCH = 3,
	SCHED_IDLE = 5,
	PF_KTHREAD = 0x00200000,
	ENOMEM = 12,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Whole, and not only named: the kernel compares the kinds of a function's arguments. */
struct cpumask {
	unsigned long bits[1];
};

typedef struct {
	u32 val;
} kuid_t;

struct cred {
	kuid_t uid;
};

struct sched_entity {
	u64 sum_exec_runtime;
};

struct sched_ext_entity {
	u32 flags;
	u64 slice;
};

struct task_struct {
	u32 flags;
	int prio;
	struct sched_entity se;
	struct sched_ext_entity scx;
	u32 policy;
	int nr_cpus_allowed;
	const struct cpumask *cpus_ptr;
	u16 migration_disabled;
	int pid;
	const struct cred *cred;
};

struct scx_init_task_args {
	bool fork;
};

enum scx_exit_kind {
	SCX_EXIT_NONE,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
	char *dump;
};

#pragma clang attribute pop

/* On the stack, so never relocated. */
struct bpf_iter_num {
	u64 __opaque[1];
} __attribute__((aligned(8)));

struct bpf_iter_scx_dsq {
	u64 __opaque[6];
} __attribute__((aligned(8)));

enum scx_enq_flags {
	SCX_ENQ_WAKEUP = 1ULL,
	SCX_ENQ_PREEMPT = 1ULL << 32,
};

enum scx_dsq_id_flags {
	SCX_DSQ_LOCAL = 1ULL << 63 | 2,
	SCX_DSQ_LOCAL_ON = 3ULL << 62,
};

enum scx_kick_flags {
	SCX_KICK_PREEMPT = 2,
};

enum scx_ent_flags {
	SCX_TASK_QUEUED = 1,
};

enum scx_wake_flags {
	SCX_WAKE_FORK = 4,
};

/* The callbacks and settings that are used. What user space sets before loading comes first: the
 * loader knows this order (struct OpsSettings in loader.rs). */
struct sched_ext_ops {
	u64 flags;
	u64 hotplug_seq;
	u32 timeout_ms;
	u32 exit_dump_len;
	char name[128];
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*tick)(struct task_struct *p);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
};

/* Kernel functions. Weak: with another signature in this kernel's BTF, or absent. */
#define KFUNC extern __attribute__((section(".ksyms")))
#define KFUNC_WEAK extern __attribute__((section(".ksyms"), weak))

KFUNC s32 scx_bpf_create_dsq(u64 dsq_id, s32 node);
KFUNC s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags,
				 bool *is_idle);
KFUNC void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags);
KFUNC bool scx_bpf_dsq_move_to_local(u64 dsq_id);
KFUNC bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id,
			    u64 enq_flags);
KFUNC s32 scx_bpf_dsq_nr_queued(u64 dsq_id);
KFUNC s32 scx_bpf_task_cpu(const struct task_struct *p);
KFUNC bool scx_bpf_test_and_clear_cpu_idle(s32 cpu);
KFUNC bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask);
KFUNC int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags);
KFUNC struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it);
KFUNC void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it);
/* Since 6.14. */
KFUNC_WEAK u64 scx_bpf_now(void);
/* Defective in the BTF of some kernels (7.1, 7.2.12 of Debian). */
KFUNC_WEAK void scx_bpf_kick_cpu(s32 cpu, u64 flags);
/* Since 6.19; before, and in defective BTF, the field is written directly. */
KFUNC_WEAK bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice);

#endif
