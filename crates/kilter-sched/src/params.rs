//! The parameters that may change while the scheduler runs.

use crate::layout;

/// One parameter.
#[derive(Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, unit included: `max_lifetime_ms`.
    pub name: &'static str,
    /// Smallest value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
    /// The value of the default policy.
    pub default: i64,
    /// The seed's value, which `--policy seed` starts with.
    pub seed: i64,
    /// What it sets, in one line.
    pub summary: &'static str,
}

/// All parameters, in the order in which they are shown.
pub const PARAMETERS: [Parameter; 5] = [
    Parameter {
        name: "max_lifetime_ms",
        min: 1,
        max: 3_600_000,
        default: 10_000,
        seed: 10_000,
        summary: "How long age and CPU time of a task count before both begin anew",
    },
    Parameter {
        name: "latency_us",
        min: -1_000_000_000,
        max: 1_000_000_000,
        default: 0,
        seed: 0,
        summary: "How much later (or earlier) than its creation a new task's claim begins",
    },
    Parameter {
        name: "wakeup_threshold",
        min: 0,
        max: 1_000_000,
        default: 200,
        seed: 100,
        summary: "Percent of the running task's R that a woken task needs to preempt it before its slice is over; 0: never",
    },
    Parameter {
        name: "max_wait_ms",
        min: 0,
        max: 10_000,
        default: 500,
        seed: 0,
        summary: "A task that has waited longer comes first; 0: no cap",
    },
    Parameter {
        name: "slice_us",
        min: 0,
        max: 100_000,
        default: 1_000,
        seed: 0,
        summary: "No tick preempts a task that has run for less; after it any higher R does; 0: no slice",
    },
];

/// A value for each parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    values: [i64; PARAMETERS.len()],
}

/// A parameter or a value that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// No such parameter.
    #[error("`{0}` is no parameter of hrrn; there are: {list}", list = names().join(", "))]
    Unknown(String),
    /// Not a whole number.
    #[error("{name}={value}: not a whole number")]
    NoNumber {
        /// The parameter.
        name: &'static str,
        /// What was given.
        value: String,
    },
    /// Outside the range.
    #[error("{name}={value}: it must lie from {min} to {max}")]
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// What was given.
        value: i64,
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
}

fn names() -> Vec<&'static str> {
    PARAMETERS.iter().map(|parameter| parameter.name).collect()
}

impl Default for Params {
    fn default() -> Self {
        Params {
            values: PARAMETERS.each_ref().map(|parameter| parameter.default),
        }
    }
}

impl Params {
    /// The seed's values.
    pub fn seed() -> Self {
        Params {
            values: PARAMETERS.each_ref().map(|parameter| parameter.seed),
        }
    }

    /// A value by the parameter's name.
    pub fn get(&self, name: &str) -> Result<i64, ParamError> {
        Ok(self.values[position(name)?])
    }

    /// Sets a value; refused outside the parameter's range.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), ParamError> {
        let at = position(name)?;
        let Parameter { name, min, max, .. } = PARAMETERS[at];
        let value = text.trim().parse().map_err(|_| ParamError::NoNumber {
            name,
            value: text.trim().to_owned(),
        })?;
        if !(min..=max).contains(&value) {
            return Err(ParamError::OutOfRange {
                name,
                value,
                min,
                max,
            });
        }
        self.values[at] = value;
        Ok(())
    }

    /// Parameters with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Parameter, i64)> + '_ {
        PARAMETERS.iter().zip(self.values)
    }

    /// As the scheduler takes them.
    #[cfg_attr(not(scheduler), allow(dead_code))]
    pub(crate) fn layout(&self, generation: u64) -> layout::Params {
        let [lifetime_ms, latency_us, threshold, wait_ms, slice_us] = self.values;
        layout::Params {
            generation,
            max_lifetime_ns: lifetime_ms.unsigned_abs() * 1_000_000,
            latency_ns: latency_us * 1_000,
            wakeup_threshold: threshold.unsigned_abs(),
            max_wait_ns: wait_ms.unsigned_abs() * 1_000_000,
            slice_ns: slice_us.unsigned_abs() * 1_000,
        }
    }
}

fn position(name: &str) -> Result<usize, ParamError> {
    PARAMETERS
        .iter()
        .position(|parameter| parameter.name == name)
        .ok_or_else(|| ParamError::Unknown(name.to_owned()))
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
            seed,
            ..
        } in PARAMETERS
        {
            assert!((min..=max).contains(&default), "{name}");
            assert!((min..=max).contains(&seed), "{name}");
        }
    }

    #[test]
    fn values_are_checked_and_scaled() {
        let mut params = Params::default();
        params.set("latency_us", "-500000000").unwrap();
        params.set("max_lifetime_ms", " 60000\n").unwrap();
        assert_eq!(params.get("latency_us"), Ok(-500_000_000));
        let layout = params.layout(3);
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
        let mut params = Params::default();
        for Parameter { name, max, .. } in PARAMETERS {
            params.set(name, &max.to_string()).unwrap();
        }
        // Age × weight of the oldest task there can be.
        assert!(params.layout(0).max_lifetime_ns.checked_mul(40).is_some());
    }
}
