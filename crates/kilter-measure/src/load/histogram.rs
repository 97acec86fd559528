//! A log-linear histogram: latencies from nanoseconds to minutes in bounded memory.

use serde::Serialize;

/// Buckets per power of two; a percentile is off by at most 1/256, half a bucket.
const STEPS: u64 = 128;
const STEP_BITS: u32 = STEPS.trailing_zeros();

/// Larger values count into the last bucket: 2^41 ns are 37 minutes.
const TOP_BIT: u32 = 40;
const BUCKETS: usize = ((TOP_BIT - STEP_BITS + 2) as usize) * STEPS as usize;

/// Counts of values, in 35 KiB.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    max: u64,
}

/// The tail of a distribution, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// The largest, exact.
    pub max: f64,
    /// How many values there were.
    pub count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            count: 0,
            max: 0,
        }
    }
}

impl Histogram {
    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.count += 1;
        self.max = self.max.max(value);
    }

    /// Adds all values of another one.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// How many values were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest value that at least this share (0 to 1) of all values do not exceed, to half a
    /// bucket; 0 when empty.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((share * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle(index).min(self.max);
            }
        }
        self.max
    }

    /// The percentiles of nanoseconds in microseconds; nothing when empty.
    #[must_use]
    pub fn percentiles_us(&self) -> Option<Percentiles> {
        let us = |nanos: u64| nanos as f64 / 1e3;
        let at = |share| us(self.quantile(share));
        let (p50, p90, p99, p99_9) = (at(0.5), at(0.9), at(0.99), at(0.999));
        let (max, count) = (us(self.max), self.count);
        (count > 0).then_some(Percentiles {
            p50,
            p90,
            p99,
            p99_9,
            max,
            count,
        })
    }
}

fn bucket(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let top = value.ilog2();
    if top > TOP_BIT {
        return BUCKETS - 1;
    }
    let step = (value >> (top - STEP_BITS)) - STEPS;
    (u64::from(top - STEP_BITS + 1) * STEPS + step) as usize
}

/// The value in the middle of a bucket.
fn middle(index: usize) -> u64 {
    let (octave, step) = (index as u64 / STEPS, index as u64 % STEPS);
    if octave == 0 {
        return step;
    }
    let width = 1 << (octave - 1);
    (STEPS + step) * width + width / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_values_are_exact() {
        let mut histogram = Histogram::default();
        (0..100).for_each(|value| histogram.record(value));
        assert_eq!(histogram.quantile(0.5), 49);
        assert_eq!(histogram.quantile(0.99), 98);
        assert_eq!(histogram.quantile(1.0), 99);
        assert_eq!(histogram.quantile(0.0), 0);
    }

    #[test]
    fn an_empty_one_has_no_percentiles() {
        assert_eq!(Histogram::default().percentiles_us(), None);
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }

    #[test]
    fn huge_values_are_counted_and_kept_as_the_maximum() {
        let mut histogram = Histogram::default();
        histogram.record(u64::MAX);
        assert_eq!(
            histogram.percentiles_us().unwrap().max,
            u64::MAX as f64 / 1e3
        );
    }

    proptest! {
        #[test]
        fn quantiles_are_near_those_of_the_sorted_values(
            mut values in prop::collection::vec(0_u64..1 << 40, 1..300),
            share in 0.0_f64..=1.0,
        ) {
            let mut parts = [Histogram::default(), Histogram::default()];
            for (index, value) in values.iter().enumerate() {
                parts[index % 2].record(*value);
            }
            let [mut histogram, other] = parts;
            histogram.merge(&other);
            values.sort_unstable();
            let rank = ((share * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1] as f64;
            let found = histogram.quantile(share) as f64;
            prop_assert!((found - exact).abs() <= exact / 256.0 + 1.0, "{} {}", found, exact);
            prop_assert_eq!(histogram.count(), values.len() as u64);
        }

        #[test]
        fn buckets_are_ordered_and_hold_their_middle(value in any::<u64>()) {
            prop_assert!(bucket(value) < BUCKETS);
            prop_assert!(bucket(value) <= bucket(value.saturating_add(1)));
            if value < 1 << 41 {
                prop_assert_eq!(bucket(middle(bucket(value))), bucket(value));
            }
        }
    }
}
