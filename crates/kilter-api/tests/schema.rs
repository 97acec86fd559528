//! `schema/` is generated from here: a JSON schema and a sample of every message that crosses a
//! process. This test fails when the files have drifted; with `UPDATE_SCHEMA=1` it writes them.

use kilter_api::*;
use schemars::{JsonSchema, schema_for};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::PathBuf;

fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../schema")
}

fn check(path: PathBuf, wanted: &serde_json::Value) {
    let text = format!("{}\n", serde_json::to_string_pretty(wanted).unwrap());
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &text).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        found,
        text,
        "{} has drifted: UPDATE_SCHEMA=1 cargo test -p kilter-api",
        path.display()
    );
}

/// Checks the schema of a message and its samples, and that each sample survives a round trip.
fn message<T>(name: &str, samples: &[T])
where
    T: JsonSchema + Serialize + DeserializeOwned + PartialEq + Debug,
{
    check(
        dir().join(format!("{name}.json")),
        &serde_json::to_value(schema_for!(T)).unwrap(),
    );
    for (number, sample) in samples.iter().enumerate() {
        let json = serde_json::to_value(sample).unwrap();
        assert_eq!(serde_json::from_value::<T>(json.clone()).unwrap(), *sample);
        check(
            dir().join("samples").join(format!("{name}.{number}.json")),
            &json,
        );
    }
}

fn settings() -> Settings {
    BTreeMap::from([("vm.swappiness".to_owned(), "10".to_owned())])
}

fn command() -> Vec<String> {
    vec!["make".to_owned(), "-j2".to_owned()]
}

fn metrics() -> Vec<Metric> {
    let metric = |name: &str, source, direction, unit: &str| Metric {
        name: name.to_owned(),
        source,
        direction,
        unit: unit.to_owned(),
    };
    vec![
        metric(
            "wall_s",
            MetricSource::Record {
                field: "wall_s".into(),
            },
            Direction::Min,
            "s",
        ),
        metric(
            "time",
            MetricSource::Regex {
                pattern: "Time: ([0-9.]+)".into(),
            },
            Direction::Min,
            "",
        ),
        metric(
            "iops",
            MetricSource::Json {
                pointer: "/jobs/0/read/iops".into(),
            },
            Direction::Max,
            "1/s",
        ),
    ]
}

fn fingerprint() -> Fingerprint {
    Fingerprint {
        id: "9f3c2a10".into(),
        kernel: "6.12.107-amd64".into(),
        arch: "x86_64".into(),
        os: "Debian GNU/Linux 12 (bookworm)".into(),
        cpu: "AMD EPYC".into(),
        cpus: 2,
        memory_kib: 24_684_092,
        cgroup: "v2".into(),
        virtualisation: "kvm".into(),
        cpufreq: "none".into(),
        sched_ext: String::new(),
        boot_id: "7c80e8d7-1c12-4174-89b6-c2bab764ccce".into(),
    }
}

fn record(outcome: Outcome) -> RunRecord {
    RunRecord {
        command: command(),
        settings: settings(),
        started: "2026-01-02T03:04:05.678Z".into(),
        started_boottime_s: 1234.5,
        outcome,
        wall_s: 1.25,
        user_s: 1.0,
        sys_s: 0.5,
        max_rss_kib: 4096,
        voluntary_switches: 10,
        involuntary_switches: 2,
        minor_faults: 300,
        major_faults: 1,
        machine: MachineDelta {
            steal_s: 0.01,
            load_1m: 0.5,
            pressure: Some(Pressure {
                cpu_some_s: 0.1,
                memory_some_s: 0.0,
                memory_full_s: 0.0,
                io_some_s: 0.02,
                io_full_s: 0.01,
            }),
        },
        counters: BTreeMap::from([(
            "instructions".to_owned(),
            Counter {
                value: 1e9,
                running: 1.0,
            },
        )]),
        metrics: BTreeMap::from([("wall_s".to_owned(), 1.25)]),
        stdout_tail: "Time: 1.25\n".into(),
        stderr_tail: String::new(),
        fingerprint: Some(fingerprint()),
        warnings: vec!["vm.swappiness: asked 10, the kernel keeps 12".into()],
    }
}

fn knob(state: KnobState) -> Knob {
    Knob {
        name: "vm.swappiness".into(),
        state,
        virtual_device: false,
        offered: Vec::new(),
        spec: KnobSpec {
            name: "vm.swappiness".into(),
            summary: "Balance between swapping and dropping file pages".into(),
            why: "Above 100 swap counts as cheaper than the file system.".into(),
            value: ValueKind::Int { min: 0, max: 200 },
            unit: String::new(),
            default: "60".into(),
            search: Some(Search::Linear {
                min: 0,
                max: 200,
                step: 10,
            }),
            risk: Risk::Memory,
            blinds: vec!["vmstat".into()],
            couplings: Couplings {
                resets: vec!["vm.other".into()],
                ..Couplings::default()
            },
            paths: vec![PathSpec {
                file: "/proc/sys/vm/swappiness".into(),
                era: "all".into(),
                format: Format::Plain,
                offers: String::new(),
                appears_with: String::new(),
            }],
            by_hand: String::new(),
            successor: String::new(),
            sources: vec!["Documentation/admin-guide/sysctl/vm.rst".into()],
        },
    }
}

fn verdict(verdict: Verdict) -> VerdictRecord {
    VerdictRecord {
        verdict,
        metric: "wall_s".into(),
        direction: Direction::Min,
        ratio: 0.95,
        low: 0.93,
        high: 0.97,
        confidence: 0.95,
        region_percent: 1.0,
        blocks: 10,
        looks: 7,
        more_blocks: (verdict == Verdict::Inconclusive).then_some(30),
        base_median: 1.3,
        arm_median: 1.25,
    }
}

fn evidence() -> Evidence {
    Evidence {
        when: "2026-01-02T03:04:05Z".into(),
        machine: "9f3c2a10".into(),
        kernel: "6.12.107-amd64".into(),
        boot_id: "7c80e8d7-1c12-4174-89b6-c2bab764ccce".into(),
        command: command(),
        base: Settings::new(),
        arm: settings(),
        old: BTreeMap::from([("vm.swappiness".to_owned(), "60".to_owned())]),
        study: "make".into(),
        workload: "hackbench".into(),
        runs: 40,
        cpu: "AMD EPYC 7763".into(),
        version: "0.1.0".into(),
        imported: false,
        verdict: verdict(Verdict::Better),
    }
}

fn known() -> KnownEvidence {
    KnownEvidence {
        evidence: Evidence {
            imported: true,
            ..evidence()
        },
        same_machine: true,
        same_kernel: false,
    }
}

fn context() -> LabContext {
    LabContext {
        kilter: vec!["/usr/bin/kilter".into()],
        batch_options: vec!["--as-root".into()],
        json: false,
        seed: 42,
    }
}

fn question() -> Question {
    Question {
        alpha: 0.05,
        detect_percent: 2.0,
        region_percent: 1.0,
        objectives: 1,
        guards: vec![Guard {
            metric: "p99".into(),
            bound: Bound::AtMost,
            percent: 5.0,
        }],
        require_better: true,
    }
}

fn options() -> RunOptions {
    RunOptions {
        metrics: metrics(),
        prepare: vec!["make".into(), "clean".into()],
        cleanup: Vec::new(),
        timeout_s: Some(60.0),
        settle_s: 0.5,
        cpus: Some("0-1".into()),
    }
}

fn arm(label: &str, settings: Settings) -> Arm {
    Arm {
        label: label.into(),
        settings,
        command: command(),
    }
}

#[test]
fn batch() {
    let request = RunRequest {
        id: 7,
        settings: settings(),
        command: command(),
        metrics: metrics(),
        timeout_s: Some(10.0),
        ..RunRequest::default()
    };
    message("run-request", &[request]);
    let ran = |outcome| BatchReply {
        id: 7,
        result: BatchResult::Ran {
            record: Box::new(record(outcome)),
        },
    };
    let not_run = BatchReply {
        id: 8,
        result: BatchResult::NotRun {
            error: "vm.swappiness: refused".into(),
            hint: Some("kilter knobs show vm.swappiness".into()),
        },
    };
    message(
        "batch-reply",
        &[
            ran(Outcome::Exited { code: 0 }),
            ran(Outcome::Signalled { signal: 9 }),
            ran(Outcome::TimedOut),
            ran(Outcome::Interrupted),
            not_run,
        ],
    );
    message("run-record", &[record(Outcome::Exited { code: 1 })]);
}

#[test]
fn knobs() {
    let present = KnobState::Present {
        value: "60".into(),
        path: "/proc/sys/vm/swappiness".into(),
        writable: true,
    };
    let absent = KnobState::Unavailable(Unavailable {
        reason: UnavailableReason::LockedDown,
        detail: "locked down".into(),
    });
    let details = KnobDetails {
        knob: knob(present.clone()),
        evidence: vec![known()],
    };
    message("knob", &[knob(present), knob(absent)]);
    message("knob-details", &[details]);
}

#[test]
fn verdicts() {
    message("evidence", &[evidence()]);
    message("known-evidence", &[known()]);
    let document = EvidenceDocument {
        kilter_evidence: EvidenceDocument::FORMAT,
        evidence: vec![evidence()],
    };
    message("evidence-document", &[document]);
    message(
        "evidence-imported",
        &[EvidenceImported { new: 3, known: 1 }],
    );
    message(
        "verdict",
        &[Verdict::Worse, Verdict::NoDifference, Verdict::Inconclusive].map(verdict),
    );
    let hold = HoldInfo {
        profile: "desktop".into(),
        unit: Some("/etc/systemd/system/kilter-hold-desktop.service".into()),
        pid: Some(812),
        since: "2026-07-01T12:00:00Z".into(),
        policy: HoldPolicy::Yield,
        revert_on_stop: true,
        set_again: 2,
        drifted: vec![HoldDrift {
            knob: "vm.swappiness".into(),
            held: "10".into(),
            value: "60".into(),
            noticed: "2026-07-01T12:30:00Z".into(),
            by: "/etc/sysctl.d/99-mine.conf:3 asks for it".into(),
        }],
        gone: vec!["block.sdb.iostats".into()],
    };
    message("hold-info", &[hold]);
    let profile = Profile {
        name: "make".into(),
        summary: "Found by kilter tune".into(),
        include: Vec::new(),
        set: BTreeMap::from([(
            "vm.swappiness".to_owned(),
            ProfileValue {
                value: "10".into(),
                why: "3 % faster".into(),
            },
        )]),
        evidence: Some(ProfileEvidence {
            study: "make".into(),
            command: command(),
            fixed: Settings::new(),
            kernel: "6.12.107-amd64".into(),
            machine: "9f3c2a10".into(),
            when: "2026-01-02T03:04:05Z".into(),
            verdict: verdict(Verdict::Better),
        }),
    };
    message("profile", &[profile]);
}

#[test]
fn lab_requests() {
    let compare = CompareRequest {
        context: context(),
        options: options(),
        base: arm("current", Settings::new()),
        arms: vec![arm("vm.swappiness=10", settings())],
        question: question(),
        old: BTreeMap::from([("vm.swappiness".to_owned(), "60".to_owned())]),
        workload: "hackbench".into(),
        blocks: Some(10),
        max_runs: Some(200),
        budget_s: Some(300.0),
        export: Some("/tmp/runs.csv".into()),
    };
    let present = KnobState::Present {
        value: "60".into(),
        path: "/proc/sys/vm/swappiness".into(),
        writable: true,
    };
    let tune = TuneRequest {
        context: context(),
        options: options(),
        study: "make".into(),
        storage: "sqlite:////var/lib/kilter/studies.db".into(),
        state_dir: "/var/lib/kilter/studies".into(),
        command: command(),
        knobs: vec![knob(present)],
        fixed: settings(),
        at_most: vec![("vm.dirty_background_ratio".into(), "vm.dirty_ratio".into())],
        known: BTreeMap::from([("vm.dirty_ratio".to_owned(), "20".to_owned())]),
        trials: Some(64),
        budget_s: Some(600.0),
        question: question(),
        workload: String::new(),
        evidence: vec![evidence()],
        report: Some("/tmp/make.html".into()),
    };
    let report = ReportRequest {
        context: context(),
        study: "make".into(),
        storage: "sqlite:////var/lib/kilter/studies.db".into(),
        format: ReportFormat::Md,
        output: None,
    };
    let audit = AuditRequest {
        context: context(),
        options: options(),
        profile: "ktweak".into(),
        lines: vec![AuditLine {
            knob: "vm.swappiness".into(),
            old: "60".into(),
            new: "10".into(),
            why: "keep anonymous memory".into(),
        }],
        left_out: vec![("sched.tunable_scaling".into(), "not here".into())],
        command: command(),
        question: question(),
        workload: String::new(),
        max_runs: Some(400),
        budget_s: None,
    };
    let selftest = SelftestRequest {
        context: context(),
        options: options(),
        command: command(),
        question: question(),
        runs: 400,
        budget_s: Some(120.0),
    };
    let appswitch = AppswitchRequest {
        context: context(),
        question: question(),
        arms: vec!["none".into(), "kilter".into()],
        apps: 10,
        switches: 30,
        app_mib: 80,
        limit_mib: 480,
        swap_mib: 800,
        think_s: 0.5,
        killer: Killer::Earlyoom,
        blocks: Some(5),
        budget_s: None,
        export: Some("/tmp/runs.csv".into()),
    };
    let startup = StartupRequest {
        context: context(),
        question: question(),
        kinds: vec!["index".into()],
        app_mib: 256,
        swap_mib: 512,
        blocks: None,
        budget_s: Some(60.0),
    };
    message(
        "lab-request",
        &[
            LabRequest::Compare(compare),
            LabRequest::Tune(Box::new(tune)),
            LabRequest::Audit(Box::new(audit)),
            LabRequest::Selftest(selftest),
            LabRequest::Report(report),
            LabRequest::Appswitch(appswitch),
            LabRequest::Startup(startup),
        ],
    );
}

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
fn holding() {
    let change = Change {
        knob: "vm.swappiness".into(),
        path: "/proc/sys/vm/swappiness".into(),
        old: "60".into(),
        appears_with: String::new(),
        new: "10".into(),
        effective: Some("10".into()),
    };
    let later = Change {
        knob: "block.vda.bfq.slice_idle".into(),
        path: "/sys/block/vda/queue/iosched/slice_idle".into(),
        old: String::new(),
        appears_with: "block.vda.scheduler=bfq".into(),
        new: "0".into(),
        effective: None,
    };
    let skipped = Skipped {
        knob: "mglru.enabled".into(),
        because: Unavailable {
            reason: UnavailableReason::Absent,
            detail: "not here".into(),
        },
    };
    message(
        "plan",
        &[Plan {
            name: "desktop".into(),
            changes: vec![change, later],
            skipped: vec![skipped],
        }],
    );
    message(
        "imported",
        &[Imported {
            profile: Profile {
                name: "mine".into(),
                ..Profile::default()
            },
            saved: Some("/etc/kilter/profiles/mine.toml".into()),
            left_out: vec![LeftOut {
                from: "mine.conf:3".into(),
                what: "net.ipv4.ip_forward = 1".into(),
                reason: "no knob of the catalog's".into(),
            }],
        }],
    );
    message(
        "why",
        &[Why {
            knob: "vm.swappiness".into(),
            state: KnobState::Present {
                value: "10".into(),
                path: "/proc/sys/vm/swappiness".into(),
                writable: true,
            },
            setters: vec![Setter {
                by: SetterKind::Sysctl,
                place: "/etc/sysctl.d/90-mine.conf".into(),
                line: Some(3),
                value: "10".into(),
                agrees: true,
            }],
            tuners: vec!["tuned".into()],
            default: "60".into(),
        }],
    );
    let value = |now| HeldValue {
        knob: "vm.swappiness".into(),
        path: "/proc/sys/vm/swappiness".into(),
        original: "60".into(),
        held: "10".into(),
        now,
    };
    let layer = LayerInfo {
        id: 1,
        name: "desktop".into(),
        since: "2026-01-02T03:04:05Z".into(),
        owner: Some(Owner {
            pid: 42,
            start_ticks: 1000,
        }),
        alive: true,
        values: vec![
            value(Held::InForce),
            value(Held::Covered),
            value(Held::Drifted { value: "30".into() }),
            value(Held::Gone),
        ],
    };
    message(
        "status",
        &[Status {
            layers: vec![layer],
            experiment: Some(42),
        }],
    );
    let file = |outcome| RestoredFile {
        knob: "vm.swappiness".into(),
        path: "/proc/sys/vm/swappiness".into(),
        was_set: true,
        outcome,
    };
    let outcomes = [
        Restored::Restored { value: "60".into() },
        Restored::Covered,
        Restored::LeftAlone {
            found: "30".into(),
            original: "60".into(),
        },
        Restored::Gone,
        Restored::Vanished,
        Restored::Failed {
            error: "busy".into(),
            original: "60".into(),
        },
    ];
    message(
        "reverted",
        &[Reverted {
            layers: vec!["desktop".into()],
            files: outcomes.map(file).into(),
        }],
    );
    let checks = [
        CheckState::Works,
        CheckState::Limited,
        CheckState::Impossible,
    ]
    .map(|state| Check {
        name: "vm knobs".into(),
        state,
        detail: "all here".into(),
        hint: String::new(),
    });
    message(
        "doctor",
        &[DoctorReport {
            fingerprint: fingerprint(),
            checks: checks.into(),
        }],
    );
    message("sched-status", &[SchedStatus::default(), scheduler()]);
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
    let workload = Workload {
        name: "hackbench".into(),
        summary: "Messages".into(),
        why: "Scheduler".into(),
        command: command(),
        metrics: metrics(),
        ..Workload::default()
    };
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
    message(
        "workload",
        &[WorkloadInfo {
            workload,
            installed: true,
        }],
    );
}
