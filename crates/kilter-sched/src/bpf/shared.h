/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the scheduler and its loader both see. Every field has 8 bytes, so that both lay it out
 * alike; layout.rs mirrors this file and a test compares the two. */
#ifndef KILTER_SHARED_H
#define KILTER_SHARED_H

typedef unsigned long long kilter_u64;
typedef long long kilter_s64;

/* Buckets of a histogram: bucket n counts values from 2^n to 2^(n+1) - 1, bucket 0 also 0. */
#define HRRN_BUCKETS 64
#define HRRN_MAX_CPUS 1024
#define HRRN_REASON_LEN 128
#define HRRN_MESSAGE_LEN 1024
#define HRRN_DUMP_LEN 32768

#define HRRN_FAULT_STALL 1 /* pick nothing, until the kernel's watchdog ends the scheduler */
#define HRRN_FAULT_QUEUE 2 /* put a task into a queue that does not exist: a wrong call */

/* May change while the scheduler runs. */
struct hrrn_params {
	kilter_u64 generation;	     /* raised by the loader after each change */
	kilter_u64 max_lifetime_ns;  /* start and sum are reset this often */
	kilter_s64 latency_ns;	     /* added to a new task's start */
	kilter_u64 wakeup_threshold; /* percent of the running task's R, before its slice
				      * is over; 0: never preempt */
	kilter_u64 max_wait_ns;	     /* a task that waited longer comes first; 0: no cap */
	kilter_u64 slice_ns;	     /* a task that ran less is preempted by no tick */
};

/* Fixed when the scheduler is loaded; each is 0 or 1 unless said otherwise. */
struct hrrn_config {
	kilter_u64 cpus;	  /* CPU numbers lie below this */
	kilter_u64 exact;	  /* compare R without rounding */
	kilter_u64 reset_at_pick; /* reset waiting tasks too */
	kilter_u64 classes;	  /* SCHED_BATCH and SCHED_IDLE have their meaning */
	kilter_u64 kthreads;	  /* woken kernel threads come first */
	kilter_u64 spread;	  /* new tasks go to the shortest queue */
	kilter_u64 per_uid;	  /* R between users first */
	kilter_u64 fault;	  /* for tests: one of HRRN_FAULT_*, or 0 */
};

/* Counters of one CPU. */
struct hrrn_stats {
	kilter_u64 picks;	     /* tasks picked from this CPU's queue */
	kilter_u64 scanned;	     /* queued tasks looked at for them */
	kilter_u64 scanned_max;	     /* most for one pick */
	kilter_u64 kept;	     /* the running task was higher than all that waited */
	kilter_u64 capped;	     /* picked because they had waited too long */
	kilter_u64 races;	     /* the picked task was gone; the first in the queue was taken */
	kilter_u64 pulls;	     /* tasks pulled from another CPU's queue */
	kilter_u64 idle_placed;	     /* woken tasks put on an idle CPU */
	kilter_u64 preempted_tick;   /* by the tick, a waiting task being higher */
	kilter_u64 preempted_wakeup; /* by a woken task */
	kilter_u64 preempted_kthread; /* by a woken kernel thread */
	kilter_u64 resets;	     /* of start and sum */
	kilter_u64 queued;	     /* waiting now, as last seen */
	kilter_u64 queued_max;	     /* most ever seen */
	kilter_u64 wait_max_ns;	     /* longest wait for a CPU */
	kilter_u64 generation;	     /* of the parameters last seen */
	kilter_u64 generation_ns;    /* when they were first seen (CLOCK_MONOTONIC) */
	kilter_u64 waits[HRRN_BUCKETS];	 /* waits for a CPU, in ns */
	kilter_u64 ratios[HRRN_BUCKETS]; /* R of picked tasks */
};

/* Why the scheduler ended, as the kernel told it. */
struct hrrn_exit {
	kilter_u64 kind;
	kilter_s64 code;
	char reason[HRRN_REASON_LEN];
	char message[HRRN_MESSAGE_LEN];
	char dump[HRRN_DUMP_LEN];
};

#endif
