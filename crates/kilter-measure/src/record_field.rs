//! The numbers of a record, by name.

use kilter_api::RunRecord;

/// Names of the numbers that every record may have. Counters have any name after [`COUNTERS`].
pub(crate) const NAMES: [&str; 17] = [
    "wall_s",
    "user_s",
    "sys_s",
    "max_rss_kib",
    "voluntary_switches",
    "involuntary_switches",
    "minor_faults",
    "major_faults",
    "started_boottime_s",
    "machine.steal_s",
    "machine.load_1m",
    "machine.pressure.cpu_some_s",
    "machine.pressure.memory_some_s",
    "machine.pressure.memory_full_s",
    "machine.pressure.io_some_s",
    "machine.pressure.io_full_s",
    "counters.NAME",
];

/// What a counter's name starts with: `counters.instructions`.
pub(crate) const COUNTERS: &str = "counters.";

/// Whether a record can have a number of this name.
pub(crate) fn is_known(field: &str) -> bool {
    match field.strip_prefix(COUNTERS) {
        Some(counter) => !counter.is_empty(),
        None => NAMES.contains(&field),
    }
}

/// The number of this name, if this record has it. A counter that was opened for user mode alone
/// (`instructions:u`) answers to its plain name as well.
pub(crate) fn value(record: &RunRecord, field: &str) -> Option<f64> {
    if let Some(counter) = field.strip_prefix(COUNTERS) {
        let counters = &record.counters;
        let counter = counters
            .get(counter)
            .or_else(|| counters.get(&format!("{counter}:u")))?;
        return Some(counter.value);
    }
    let machine = &record.machine;
    let pressure = || machine.pressure.as_ref();
    Some(match field {
        "wall_s" => record.wall_s,
        "user_s" => record.user_s,
        "sys_s" => record.sys_s,
        "max_rss_kib" => record.max_rss_kib as f64,
        "voluntary_switches" => record.voluntary_switches as f64,
        "involuntary_switches" => record.involuntary_switches as f64,
        "minor_faults" => record.minor_faults as f64,
        "major_faults" => record.major_faults as f64,
        "started_boottime_s" => record.started_boottime_s,
        "machine.steal_s" => machine.steal_s,
        "machine.load_1m" => machine.load_1m,
        "machine.pressure.cpu_some_s" => pressure()?.cpu_some_s,
        "machine.pressure.memory_some_s" => pressure()?.memory_some_s,
        "machine.pressure.memory_full_s" => pressure()?.memory_full_s,
        "machine.pressure.io_some_s" => pressure()?.io_some_s,
        "machine.pressure.io_full_s" => pressure()?.io_full_s,
        _ => return None,
    })
}

/// Why a known field is not in this record.
pub(crate) fn why_missing(record: &RunRecord, field: &str) -> String {
    if !field.starts_with(COUNTERS) {
        return "this kernel has no pressure-stall information (boot with psi=1)".to_owned();
    }
    let names: Vec<_> = record.counters.keys().map(String::as_str).collect();
    if names.is_empty() {
        "no counter could be opened here, or counters were not asked for".to_owned()
    } else {
        format!("it has the counters {}", names.join(", "))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use kilter_api::{Counter, MachineDelta, Outcome, Pressure};
    use serde_json::Value;
    use std::collections::BTreeMap;

    /// A record in which no two numbers are equal.
    pub(crate) fn record() -> RunRecord {
        RunRecord {
            command: vec!["true".into()],
            settings: BTreeMap::new(),
            started: String::new(),
            started_boottime_s: 1.5,
            outcome: Outcome::Exited { code: 0 },
            wall_s: 2.5,
            user_s: 3.5,
            sys_s: 4.5,
            max_rss_kib: 5,
            voluntary_switches: 6,
            involuntary_switches: 7,
            minor_faults: 8,
            major_faults: 9,
            machine: MachineDelta {
                steal_s: 10.5,
                load_1m: 11.5,
                pressure: Some(Pressure {
                    cpu_some_s: 12.5,
                    memory_some_s: 13.5,
                    memory_full_s: 14.5,
                    io_some_s: 15.5,
                    io_full_s: 16.5,
                }),
            },
            counters: BTreeMap::from([(
                "cycles".into(),
                Counter {
                    value: 17.5,
                    running: 1.0,
                },
            )]),
            metrics: BTreeMap::new(),
            stdout_tail: String::new(),
            stderr_tail: String::new(),
            fingerprint: None,
            warnings: Vec::new(),
        }
    }

    fn numbers(prefix: &str, value: &Value, into: &mut BTreeMap<String, f64>) {
        match value {
            Value::Number(number) => {
                into.insert(prefix.to_owned(), number.as_f64().unwrap());
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    let dot = if prefix.is_empty() { "" } else { "." };
                    numbers(&format!("{prefix}{dot}{name}"), value, into);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn every_number_of_a_record_has_a_name() {
        let record = record();
        let mut all = BTreeMap::new();
        numbers("", &serde_json::to_value(&record).unwrap(), &mut all);
        all.retain(|name, _| !name.starts_with(COUNTERS) && !name.starts_with("outcome."));
        let named: BTreeMap<_, _> = NAMES
            .iter()
            .filter(|name| !name.starts_with(COUNTERS))
            .map(|name| ((*name).to_owned(), value(&record, name).unwrap()))
            .collect();
        assert_eq!(named, all);
        assert_eq!(value(&record, "counters.cycles"), Some(17.5));
    }

    #[test]
    fn counters_of_user_mode_answer_to_the_plain_name() {
        let mut record = record();
        record.counters = BTreeMap::from([(
            "cycles:u".into(),
            Counter {
                value: 3.0,
                running: 1.0,
            },
        )]);
        assert_eq!(value(&record, "counters.cycles"), Some(3.0));
        assert_eq!(value(&record, "counters.cycles:u"), Some(3.0));
        assert_eq!(value(&record, "counters.instructions"), None);
        assert!(why_missing(&record, "counters.instructions").contains("cycles:u"));
    }

    #[test]
    fn unknown_names_are_unknown() {
        for name in ["", "wall", "counters.", "machine", "metrics.x", "wall_s.x"] {
            assert!(!is_known(name), "{name}");
            assert_eq!(value(&record(), name), None);
        }
    }
}
