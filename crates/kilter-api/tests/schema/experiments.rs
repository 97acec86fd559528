//! Runs, verdicts, and what the lab is asked for.

use super::*;

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
}

#[test]
fn workload() {
    let workload = Workload {
        name: "hackbench".into(),
        summary: "Messages".into(),
        why: "Scheduler".into(),
        command: command(),
        metrics: metrics(),
        ..Workload::default()
    };
    message(
        "workload",
        &[WorkloadInfo {
            workload,
            installed: true,
        }],
    );
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
