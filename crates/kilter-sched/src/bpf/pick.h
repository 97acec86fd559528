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

static __always_inline bool overdue(struct task_struct *p, u64 now)
{
	struct task *task = task_of(p);

	return task && task->queued_at && params.max_wait_ns &&
	       (s64)(now - task->queued_at) > (s64)params.max_wait_ns;
}

/* Looks at one task; whether it is the best so far. */
static __always_inline bool look_at(struct task_struct *p, struct found *f, u64 now)
{
	struct task *task = task_of(p);
	struct claim claim = {};

	if (!task)
		return false;
	if (config.reset_at_pick)
		reset_if_due(p, task, now);
	claim_of(&claim, p, task, task->woken, now);
	if (!comes_first(&claim, &f->best))
		return false;
	f->best = claim;
	return true;
}

/*
 * Moves the best task of a queue to the CPU `here`; 0 if nobody there beats `found.best`, which the
 * caller has set. Not static: the verifier then looks at it once.
 *
 * The first in the list has waited longest. If that is too long, it comes first without a look at
 * the others: whenever a tick asks, so that a crowd goes round in turn; otherwise at every other pick,
 * so that a crowd does not shut out woken tasks.
 */
__noinline int pick(u64 queue, s32 here, u64 now)
{
	bool pulling = queue != (u64)here, capped = false, moved = false;
	struct task_struct *p, *best = NULL;
	struct cpu *cpu = cpu_of(here);
	struct bpf_iter_scx_dsq it;
	struct found *f;

	if (!cpu)
		return 0;
	f = &cpu->found;
	f->scanned = 0;
	bpf_iter_scx_dsq_new(&it, queue, 0);
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		if (++f->scanned > SCAN_MAX)
			break;
		if (pulling && !may_run_on(p, here))
			continue;
		if (look_at(p, f, now))
			best = p;
		if (f->scanned > 1 || pulling || (cpu->capped && !cpu->tick) || !overdue(p, now))
			continue;
		best = p;
		capped = true;
		COUNT(capped);
		break;
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
