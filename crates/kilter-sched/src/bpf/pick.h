/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Choosing the next task from a CPU's queue: every queued task is looked at once. */
#ifndef KILTER_PICK_H
#define KILTER_PICK_H

/* The kernel refuses no iteration, but the queue's lock is taken for each step and the CPU's own
 * is held for all: beyond this many, the first ones have to do. */
#define SCAN_MAX 4096

static __always_inline bool may_run_on(struct task_struct *p, s32 cpu)
{
	if (bpf_core_field_exists(p->migration_disabled) && p->migration_disabled)
		return false;
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

static __always_inline void count_pick(u64 scanned, struct claim *winner, bool pulled)
{
	struct hrrn_stats *s = counters();

	if (!s)
		return;
	s->picks++;
	s->scanned += scanned;
	if (scanned > s->scanned_max)
		s->scanned_max = scanned;
	if (pulled)
		s->pulls++;
	s->ratios[bucket(winner->task.claim / winner->task.served)]++;
}

/* What a look through a queue found. */
struct found {
	struct claim best;
	u64 oldest_at;
	u64 scanned;
	s32 here;   /* the CPU that picks */
	u32 pulling; /* from another CPU's queue */
};

/* Looks at one task; 1: the best so far, 2: the one that has waited longest, 3: both. */
static __always_inline int look_at(struct task_struct *p, struct found *f, u64 now)
{
	struct task *task = task_of(p);
	struct claim claim = {};
	int verdict = 0;

	if (!task || (f->pulling && !may_run_on(p, f->here)))
		return 0;
	if (config.reset_at_pick)
		reset_if_due(p, task, now);
	claim_of(&claim, p, task, task->woken, now);
	if (comes_first(&claim, &f->best)) {
		f->best = claim;
		verdict |= 1;
	}
	if (task->queued_at && task->queued_at < f->oldest_at) {
		f->oldest_at = task->queued_at;
		verdict |= 2;
	}
	return verdict;
}

/* Moves the best task of a queue to this CPU; false if `f->best` stays unbeaten. */
static __always_inline bool pick(u64 queue, struct found *f, struct cpu *cpu, u64 now)
{
	struct task_struct *p, *best = NULL, *oldest = NULL;
	struct bpf_iter_scx_dsq it;
	bool capped = false, moved = false;

	bpf_iter_scx_dsq_new(&it, queue, 0);
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		int verdict = look_at(p, f, now);

		if (verdict & 1)
			best = p;
		if (verdict & 2)
			oldest = p;
		if (++f->scanned >= SCAN_MAX)
			break;
	}
	/* Every other pick at most: those who have waited long must not shut out the woken. */
	if (oldest && params.max_wait_ns && !f->pulling && !cpu->capped &&
	    now - f->oldest_at > params.max_wait_ns) {
		best = oldest;
		capped = true;
	}
	if (best)
		moved = scx_bpf_dsq_move(&it, best, ENUM(scx_dsq_id_flags, SCX_DSQ_LOCAL), 0);
	bpf_iter_scx_dsq_destroy(&it);
	cpu->capped = capped;
	if (capped)
		COUNT(capped);
	if (moved)
		count_pick(f->scanned, &f->best, f->pulling);
	else if (best && !f->pulling) {
		/* Taken by another CPU meanwhile. */
		COUNT(races);
		moved = scx_bpf_dsq_move_to_local(queue);
	}
	return moved;
}

#endif
