//! `schema/` is generated from here: a JSON schema and a sample of every message that crosses a
//! process. This test fails when the files have drifted; with `UPDATE_SCHEMA=1` it writes them.

use kilter_api::*;
use schemars::{JsonSchema, schema_for};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::PathBuf;

mod experiments;
mod mechanisms;
mod settings;

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
