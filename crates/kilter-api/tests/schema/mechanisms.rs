//! The scheduler, reclaim, groups.

use super::*;

fn memory_use(resident_bytes: u64, swapped_bytes: u64) -> MemoryUse {
    MemoryUse {
        resident_bytes,
        anon_bytes: resident_bytes / 2,
        swapped_bytes,
    }
}

fn reclaimed() -> ReclaimOnce {
    ReclaimOnce {
        pid: Some(42),
        name: "browser".into(),
        processes: 1,
        method: "process_madvise".into(),
        anon: "pageout".into(),
        file: "cold".into(),
        before: memory_use(400 << 20, 0),
        after: memory_use(100 << 20, 300 << 20),
        reclaimed_bytes: 300 << 20,
        walked_bytes: 380 << 20,
        zram_grew_bytes: Some(100 << 20),
        swap_cache_grew_bytes: 0,
        gained_bytes: 200 << 20,
        shared_bytes: 20 << 20,
        seconds: 0.5,
        cpu_s: 0.4,
        scan_s: 0.001,
        scan: "maps".into(),
        mappings: 120,
        calls: 380,
        call_bytes: 1 << 20,
        workers: 1,
        skipped: vec![SkippedRanges {
            reason: "special".into(),
            ranges: 2,
            bytes: 8192,
        }],
        ended: "whole".into(),
        warnings: vec!["swap is full".into()],
        ..ReclaimOnce::default()
    }
}

fn reclaim_daemon() -> ReclaimDaemon {
    ReclaimDaemon {
        pid: 42,
        since: "2026-03-01T12:00:00Z".into(),
        policy: "pressure".into(),
        params: [("idle_s".to_owned(), 60)].into(),
        within: Some("/apps".into()),
        memory: ReclaimMemory {
            total_bytes: 1 << 30,
            available_bytes: 1 << 28,
            swap_total_bytes: 1 << 30,
            swap_free_bytes: 1 << 29,
            zram_ratio: Some(2.5),
            pressure_events: 3,
        },
        wakes: vec!["pressure (/proc/pressure/memory)".into()],
        stopped: Some("there is no swap".into()),
        total: ReclaimTotals {
            pageouts: 1,
            ..ReclaimTotals::default()
        },
        apps: vec![ReclaimApp {
            name: "browser".into(),
            pid: 7,
            cgroup: Some("/app-browser.scope".into()),
            pids: vec![7, 8],
            state: "paged-out".into(),
            why: "it is frozen".into(),
            cached_s: Some(30.5),
            memory: memory_use(1 << 20, 1 << 28),
            last_action: "pageout".into(),
            last_action_s: Some(3.0),
            chain: vec![DecisionStep {
                question: "frozen?".into(),
                answer: "yes".into(),
                decides: true,
            }],
            ..ReclaimApp::default()
        }],
        troubles: vec!["the kernel tells of no memory pressure".into()],
    }
}

fn scheduler() -> SchedStatus {
    let total = SchedCounters {
        picks: 3,
        scanned: 5,
        queued: 1,
        wait_max_ns: 4_000_000,
        waits: vec![0, 2, 1],
        ratios: vec![0, 0, 0, 0, 3],
        ..SchedCounters::default()
    };
    SchedStatus {
        supported: true,
        loaded: Some("hrrn".into()),
        hrrn: Some(SchedRun {
            pid: 42,
            since: "2026-03-01T12:00:00Z".into(),
            start_s: 0.25,
            options: [("policy".to_owned(), "seed".to_owned())].into(),
            params: [("latency_us".to_owned(), -500)].into(),
            change_seen_ms: Some(0.5),
            cpus: vec![total.clone()],
            total,
        }),
    }
}

#[test]
fn scheduling() {
    message("sched-status", &[SchedStatus::default(), scheduler()]);
}

#[test]
fn reclaiming() {
    let group = ReclaimOnce {
        pid: None,
        cgroup: Some("/apps".into()),
        zram_grew_bytes: None,
        ..reclaimed()
    };
    message("reclaim-once", &[reclaimed(), group]);
    let daemon = Some(reclaim_daemon());
    let statuses = [ReclaimStatus::default(), ReclaimStatus { daemon }];
    message("reclaim-status", &statuses);
    let event = ReclaimEvent {
        app: "browser".into(),
        pid: 7,
        cgroup: "/".into(),
        action: "pageout".into(),
        why: "20 % of memory is available".into(),
        reclaimed_bytes: 1 << 28,
        seconds: 0.4,
        cpu_s: 0.3,
        cut_short: false,
    };
    message("reclaim-event", &[event]);
}

#[test]
fn groups() {
    let group = GroupInfo {
        group: "kilter-1000".into(),
        uid: Some(1000),
        user: Some("alice".into()),
        weight: 300,
        idle: false,
        max_percent: Some(150.0),
        processes: 2,
        tasks: 3,
        cpu_percent: 12.5,
        throttled: 4,
        throttled_s: 0.25,
    };
    let overflow = GroupInfo {
        group: "kilter-overflow".into(),
        uid: None,
        user: None,
        max_percent: None,
        ..group.clone()
    };
    message(
        "groups-status",
        &[GroupsStatus {
            hierarchy: "/sys/fs/cgroup".into(),
            version: "v2".into(),
            autogroup: true,
            interval_s: 1.0,
            groups: vec![group, overflow],
        }],
    );
    let task = |uid, share_percent, work| DemoTask {
        uid,
        share_percent,
        work,
    };
    message(
        "groups-demo",
        &[GroupsDemo {
            cpu: 1,
            seconds: 5.0,
            autogroup: true,
            before: vec![task(64_101, 80.0, 8000), task(64_102, 20.0, 2000)],
            after: vec![task(64_101, 50.0, 5000), task(64_102, 50.0, 5000)],
            speedup: 2.5,
        }],
    );
}
