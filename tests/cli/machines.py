"""Small trees of ``/proc`` and ``/sys``, one a kind of machine, as plain files.

A plain file keeps what is written to it: it shows no choices in brackets and zeroes no partner.
What needs those belongs to the simulated kernel of the Rust tests, or to the real one.
"""

from __future__ import annotations

VM = {
    "proc/sys/vm/swappiness": "60",
    "proc/sys/vm/vfs_cache_pressure": "100",
    "proc/sys/vm/dirty_ratio": "20",
    "proc/sys/vm/dirty_bytes": "0",
    "proc/sys/vm/dirty_background_ratio": "10",
    "proc/sys/vm/dirty_background_bytes": "0",
    "proc/sys/vm/dirty_expire_centisecs": "3000",
    "proc/sys/vm/dirty_writeback_centisecs": "500",
    "proc/sys/vm/min_free_kbytes": "67584",
    "proc/sys/vm/page-cluster": "3",
    "proc/sys/vm/stat_interval": "1",
    "proc/sys/vm/watermark_scale_factor": "10",
    "proc/sys/vm/compaction_proactiveness": "20",
    "proc/sys/vm/overcommit_memory": "0",
}

KERNEL = {
    "proc/sys/kernel/sched_autogroup_enabled": "1",
    "proc/sys/kernel/sched_cfs_bandwidth_slice_us": "5000",
    "proc/sys/kernel/sched_rt_period_us": "1000000",
    "proc/sys/kernel/sched_rt_runtime_us": "950000",
    "proc/sys/kernel/numa_balancing": "0",
}

DISK = {
    "sys/block/vda/queue/scheduler": "none [mq-deadline] kyber bfq",
    "sys/block/vda/queue/nr_requests": "256",
    "sys/block/vda/queue/read_ahead_kb": "128",
    "sys/block/vda/queue/iostats": "1",
    "sys/block/vda/queue/add_random": "0",
    "sys/block/vda/queue/rq_affinity": "1",
    "sys/block/vda/queue/nomerges": "0",
    "sys/block/vda/queue/wbt_lat_usec": "75000",
    "sys/block/vda/queue/iosched/read_expire": "500",
    "sys/block/loop0/queue/read_ahead_kb": "128",
}

THP = {
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never",
    "sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs": "10000",
}

CFS_SCHED = {
    "sys/kernel/debug/sched/latency_ns": "12000000",
    "sys/kernel/debug/sched/min_granularity_ns": "1500000",
    "sys/kernel/debug/sched/wakeup_granularity_ns": "2000000",
    "sys/kernel/debug/sched/migration_cost_ns": "500000",
    "sys/kernel/debug/sched/nr_migrate": "32",
    "sys/kernel/debug/sched/tunable_scaling": "1",
    "sys/kernel/debug/sched/features": (
        "GENTLE_FAIR_SLEEPERS START_DEBIT NO_NEXT_BUDDY LAST_BUDDY CACHE_HOT_BUDDY "
        "WAKEUP_PREEMPTION NO_HRTICK TTWU_QUEUE"
    ),
}

EEVDF_SCHED = {
    "sys/kernel/debug/sched/base_slice_ns": "2800000",
    "sys/kernel/debug/sched/migration_cost_ns": "500000",
    "sys/kernel/debug/sched/nr_migrate": "32",
    "sys/kernel/debug/sched/tunable_scaling": "1",
    "sys/kernel/debug/sched/preempt": "none voluntary (full) lazy",
    "sys/kernel/debug/sched/features": (
        "PLACE_LAG PLACE_DEADLINE_INITIAL PLACE_REL_DEADLINE RUN_TO_PARITY NO_NEXT_BUDDY "
        "WAKEUP_PREEMPTION NO_HRTICK TTWU_QUEUE"
    ),
}

# A small board or a container guest: nothing but a few sysctls.
BARE = {
    "proc/sys/vm/swappiness": "60",
    "proc/sys/vm/overcommit_memory": "0",
}

POLICY = "sys/devices/system/cpu/cpufreq/policy0"

# What tweak scripts for phones write to.
PHONE = {
    f"{POLICY}/scaling_governor": "performance",
    f"{POLICY}/scaling_available_governors": "interactive performance schedutil",
    f"{POLICY}/scaling_available_frequencies": "300000 1324800 1516800 1785600 ",
    f"{POLICY}/schedutil/hispeed_load": "90",
    f"{POLICY}/schedutil/hispeed_freq": "0",
    "sys/module/cpu_boost/parameters/input_boost_freq": "0:0",
    "sys/module/cpu_boost/parameters/input_boost_ms": "40",
    "proc/sys/kernel/sched_upmigrate": "95 95",
    "proc/sys/kernel/sched_downmigrate": "85 85",
    "dev/stune/top-app/schedtune.boost": "10",
    "dev/stune/top-app/schedtune.prefer_idle": "1",
    "proc/sys/net/ipv4/tcp_ecn": "2",
    "proc/sys/net/ipv4/tcp_fastopen": "1",
    "proc/sys/net/ipv4/tcp_syncookies": "1",
}

MACHINES: dict[str, dict[str, str]] = {
    "cfs": VM | KERNEL | DISK | THP | CFS_SCHED,
    "eevdf": VM | KERNEL | DISK | THP | EEVDF_SCHED,
    "bare": BARE,
    "phone": VM | KERNEL | DISK | THP | CFS_SCHED | PHONE,
}

FILES_OF_KNOBS = {
    "sched.": "sys/kernel/debug/sched/",
    "thp.": "sys/kernel/mm/transparent_hugepage/",
    "block.vda.": "sys/block/vda/queue/",
    "vm.": "proc/sys/vm/",
    "kernel.": "proc/sys/kernel/",
}


def file_of(knob: str) -> str:
    """The file of a knob in these trees, relative to the root."""
    for prefix, directory in FILES_OF_KNOBS.items():
        if knob.startswith(prefix):
            return directory + knob.removeprefix(prefix).replace(".", "/")
    raise ValueError(f"no file is known for {knob}")
