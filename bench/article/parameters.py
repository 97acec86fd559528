"""The article's parameters, by the names that kilter has for them."""

from __future__ import annotations

FEATURES = (
    "GENTLE_FAIR_SLEEPERS",
    "START_DEBIT",
    "NEXT_BUDDY",
    "LAST_BUDDY",
    "CACHE_HOT_BUDDY",
    "WAKEUP_PREEMPTION",
    "HRTICK",
    "DOUBLE_TICK",
    "LB_BIAS",
    "NONTASK_CAPACITY",
    "TTWU_QUEUE",
    "SIS_AVG_CPU",
    "SIS_PROP",
    "WARN_DOUBLE_CLOCK",
    "RT_PUSH_IPI",
    "RT_RUNTIME_SHARE",
    "LB_MIN",
    "ATTACH_AGE_LOAD",
    "WA_IDLE",
    "WA_WEIGHT",
    "WA_BIAS",
)

NUMBERS = {
    "kernel.sched_autogroup_enabled": (0, 1),
    "kernel.sched_cfs_bandwidth_slice_us": (1, 1_000_000_000),
    "kernel.sched_child_runs_first": (0, 1),
    "sched.latency_ns": (100_000, 1_000_000_000),
    "sched.migration_cost_ns": (0, 1_000_000_000),
    "sched.min_granularity_ns": (100_000, 1_000_000_000),
    "sched.nr_migrate": (1, 128),
    "kernel.sched_rr_timeslice_ms": (1, 1000),
    "kernel.sched_time_avg_ms": (1, 1000),
    "sched.wakeup_granularity_ns": (0, 1_000_000_000),
}

ALL = {f"sched.features.{name}": (0, 1) for name in FEATURES} | NUMBERS
"""Each with its range. 31 of them."""

SWITCHES = {name for name, ends in ALL.items() if ends == (0, 1)}

RETRY = ("sched.latency_ns", "sched.min_granularity_ns", "sched.wakeup_granularity_ns")

FIXED = {"kernel.sched_schedstats": "0", "sched.tunable_scaling": "0"}
