//! The scheduler's arithmetic, called on the host: the very functions that are compiled into BPF.
//!
//! Times are nanoseconds. A response ratio is a fraction, `claim / served`, with `claim` = age ×
//! weight and `served` = CPU time + 1.

/// A response ratio.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// Age × weight.
    pub claim: u64,
    /// CPU time + 1; never 0.
    pub served: u64,
}

unsafe extern "C" {
    safe fn kilter_hrrn_weight(prio: i32) -> u64;
    safe fn kilter_hrrn_age(now: u64, start: u64) -> u64;
    safe fn kilter_hrrn_start(now: u64, latency_ns: i64) -> u64;
    safe fn kilter_hrrn_life_over(now: u64, life: u64, max_lifetime_ns: u64) -> i32;
    safe fn kilter_hrrn_ratio(now: u64, start: u64, sum: u64, weight: u64, ratio: &mut Ratio);
    safe fn kilter_hrrn_higher_seed(a: &Ratio, b: &Ratio) -> i32;
    safe fn kilter_hrrn_higher_exact(a: &Ratio, b: &Ratio) -> i32;
    safe fn kilter_hrrn_higher_by(a: &Ratio, b: &Ratio, percent: u64) -> i32;
}

/// `140 - prio` for kernel priorities 100 (nice −20) to 139 (nice 19); others count as the nearer
/// of the two.
pub fn weight(prio: i32) -> u64 {
    kilter_hrrn_weight(prio)
}

/// Time since `start`, running and sleeping included; 1 if `start` lies in the future.
pub fn age(now: u64, start: u64) -> u64 {
    kilter_hrrn_age(now, start)
}

/// When the claim of a task that is created now begins.
pub fn start(now: u64, latency_ns: i64) -> u64 {
    kilter_hrrn_start(now, latency_ns)
}

/// Whether a task whose start was set at `life` is due for a reset.
pub fn life_over(now: u64, life: u64, max_lifetime_ns: u64) -> bool {
    kilter_hrrn_life_over(now, life, max_lifetime_ns) != 0
}

/// The response ratio of a task that has had `sum` of CPU time since `start`.
pub fn ratio(now: u64, start: u64, sum: u64, weight: u64) -> Ratio {
    let mut ratio = Ratio {
        claim: 0,
        served: 1,
    };
    kilter_hrrn_ratio(now, start, sum, weight, &mut ratio);
    ratio
}

impl Ratio {
    /// The seed's order: by quotient, and where that is equal, by remainder.
    pub fn is_higher_by_the_seed(&self, other: &Ratio) -> bool {
        kilter_hrrn_higher_seed(self, other) != 0
    }

    /// The right order, without rounding.
    pub fn is_higher(&self, other: &Ratio) -> bool {
        kilter_hrrn_higher_exact(self, other) != 0
    }

    /// Whether the quotient is above `percent` hundredths of the other's.
    pub fn is_higher_by(&self, other: &Ratio, percent: u64) -> bool {
        kilter_hrrn_higher_by(self, other, percent) != 0
    }
}
