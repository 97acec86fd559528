//! The parameters that may change while the scheduler runs.

use crate::layout;
use kilter_kernel::{Parameter, Parameters};

/// All parameters, in the order in which they are shown.
pub const PARAMETERS: [Parameter; 5] = [
    Parameter {
        name: "max_lifetime_ms",
        min: 1,
        max: 3_600_000,
        default: 10_000,
        summary: "How long age and CPU time of a task count before both begin anew",
    },
    Parameter {
        name: "latency_us",
        min: -1_000_000_000,
        max: 1_000_000_000,
        default: 0,
        summary: "How much later (or earlier) than its creation a new task's claim begins",
    },
    Parameter {
        name: "wakeup_threshold",
        min: 0,
        max: 1_000_000,
        default: 200,
        summary: "Percent of the running task's R that a woken task needs to preempt it before its slice is over; 0: never",
    },
    Parameter {
        name: "max_wait_ms",
        min: 0,
        max: 10_000,
        default: 500,
        summary: "A task that has waited longer comes first; 0: no cap",
    },
    Parameter {
        name: "slice_us",
        min: 0,
        max: 100_000,
        default: 1_000,
        summary: "No tick preempts a task that has run for less; after it any higher R does; 0: no slice",
    },
];

/// The seed's values, in the same order; `--policy seed` starts with them.
const SEED: [i64; PARAMETERS.len()] = [10_000, 0, 100, 0, 0];

/// Kilter's values.
pub fn defaults() -> Parameters {
    Parameters::new(&PARAMETERS)
}

/// The seed's values.
pub fn seed() -> Parameters {
    let mut params = defaults();
    for (parameter, value) in PARAMETERS.iter().zip(SEED) {
        params
            .set(parameter.name, &value.to_string())
            .expect("the seed's values lie in their ranges");
    }
    params
}

/// As the scheduler takes them.
#[cfg_attr(not(scheduler), allow(dead_code))]
pub(crate) fn layout(params: &Parameters, generation: u64) -> layout::Params {
    let value = |name| params.get(name).expect("a parameter");
    layout::Params {
        generation,
        max_lifetime_ns: value("max_lifetime_ms").unsigned_abs() * 1_000_000,
        latency_ns: value("latency_us") * 1_000,
        wakeup_threshold: value("wakeup_threshold").unsigned_abs(),
        max_wait_ns: value("max_wait_ms").unsigned_abs() * 1_000_000,
        slice_ns: value("slice_us").unsigned_abs() * 1_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_lie_in_their_ranges() {
        for Parameter {
            name,
            min,
            max,
            default,
            ..
        } in PARAMETERS
        {
            assert!((min..=max).contains(&default), "{name}");
        }
        let seed: Vec<i64> = seed().iter().map(|(_, value)| value).collect();
        assert_eq!(seed, SEED);
    }

    #[test]
    fn values_are_checked_and_scaled() {
        let mut params = defaults();
        params.set("latency_us", "-500000000").unwrap();
        params.set("max_lifetime_ms", " 60000\n").unwrap();
        assert_eq!(params.get("latency_us"), Ok(-500_000_000));
        let layout = layout(&params, 3);
        assert_eq!(layout.latency_ns, -500_000_000_000);
        assert_eq!(layout.max_lifetime_ns, 60_000_000_000);
        assert_eq!(layout.generation, 3);
        for (name, value, said) in [
            ("max_lifetime_ms", "0", "from 1 to 3600000"),
            ("max_lifetime_ms", "ten", "whole number"),
            ("max_life", "1", "max_lifetime_ms, latency_us"),
        ] {
            let error = params.set(name, value).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        assert_eq!(params.get("max_lifetime_ms"), Ok(60_000), "left as it was");
    }

    #[test]
    fn the_largest_values_do_not_overflow() {
        let mut params = defaults();
        for Parameter { name, max, .. } in PARAMETERS {
            params.set(name, &max.to_string()).unwrap();
        }
        // Age × weight of the oldest task there can be.
        assert!(layout(&params, 0).max_lifetime_ns.checked_mul(40).is_some());
    }
}
