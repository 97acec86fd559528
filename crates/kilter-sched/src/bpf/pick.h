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

static __always_inline void count_pick(struct found *f, bool pulled)
{
	struct hrrn_stats *s = counters();

	if (!s)
		return;
	s->picks++;
	s->scanned += f->scanned;
	if (f->scanned > s->scanned_max)
		s->scanned_max = f->scanned;
	if (pulled)
		s->pulls++;
	s->ratios[bucket(f->best.task.claim / f->best.task.served) & (HRRN_BUCKETS - 1)]++;
}

/* Looks at one task; 1: the best so far, 2: the one that has waited longest, 3: both. */
static __always_inline int look_at(struct task_struct *p, struct found *f, u64 now)
{
	struct task *task = task_of(p);
	struct claim claim = {};
	int verdict = 0;

	if (!task)
		return 0;
	if (config.reset_at_pick)
		reset_if_due(p, task, now);
	claim_of(&claim, p, task, task->woken, now);
	if (comes_first(&claim, &f->best)) {
		f->best = claim;
		f->woken = task->woken;
		verdict |= 1;
	}
	if (task->queued_at && task->queued_at < f->oldest_at) {
		f->oldest_at = task->queued_at;
		verdict |= 2;
	}
	return verdict;
}

/*
 * Moves the best task of a queue to the CPU `here`; 0 if nobody there beats `found.best`, which the
 * caller has set. Not static: the verifier then looks at it once.
 */
__noinline int pick(u64 queue, s32 here, u64 now)
{
	struct task_struct *p, *best = NULL, *oldest = NULL;
	bool pulling = queue != (u64)here, capped = false, moved = false;
	struct cpu *cpu = cpu_of(here);
	struct bpf_iter_scx_dsq it;
	struct found *f;

	if (!cpu)
		return 0;
	f = &cpu->found;
	f->oldest_at = ~0ULL;
	f->scanned = 0;
	f->woken = 0;
	bpf_iter_scx_dsq_new(&it, queue, 0);
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		int verdict;

		if (++f->scanned > SCAN_MAX)
			break;
		if (pulling && !may_run_on(p, here))
			continue;
		verdict = look_at(p, f, now);
		if (verdict & 1)
			best = p;
		if (verdict & 2)
			oldest = p;
	}
	/* But every other pick goes to a woken task: those who have waited long must not shut them
	 * out. */
	if (oldest && params.max_wait_ns && !pulling && !(cpu->capped && f->woken) &&
	    now - f->oldest_at > params.max_wait_ns) {
		best = oldest;
		capped = true;
		COUNT(capped);
	}
	if (best)
		moved = scx_bpf_dsq_move(&it, best, ENUM(scx_dsq_id_flags, SCX_DSQ_LOCAL), 0);
	bpf_iter_scx_dsq_destroy(&it);
	cpu->capped = capped;
	if (moved) {
		count_pick(f, pulling);
	} else if (best && !pulling) {
		/* Taken by another CPU meanwhile. */
		COUNT(races);
		moved = scx_bpf_dsq_move_to_local(queue);
	}
	return moved;
}

#endif
