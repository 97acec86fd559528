//! The scheduler's counters, for people and programs.

use crate::layout;

/// Counts by powers of two: entry n counts values from 2ⁿ to 2ⁿ⁺¹ − 1, entry 0 also 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram(pub [u64; layout::BUCKETS]);

/// Counters since the scheduler was started, of one CPU or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Tasks picked from a queue.
    pub picks: u64,
    /// Queued tasks that were looked at for that.
    pub scanned: u64,
    /// Most that were looked at for one pick.
    pub scanned_max: u64,
    /// Times that the running task was higher than all that waited.
    pub kept: u64,
    /// Picks for having waited too long.
    pub capped: u64,
    /// Picks that another CPU was faster with.
    pub races: u64,
    /// Tasks that an idle CPU pulled from another's queue.
    pub pulls: u64,
    /// Woken and new tasks put on an idle CPU at once.
    pub idle_placed: u64,
    /// Preemptions by the tick.
    pub preempted_tick: u64,
    /// Preemptions by a woken task.
    pub preempted_wakeup: u64,
    /// Preemptions by a woken kernel thread.
    pub preempted_kthread: u64,
    /// Resets of start and sum.
    pub resets: u64,
    /// Tasks waiting now.
    pub queued: u64,
    /// Most tasks that ever waited on a CPU.
    pub queued_max: u64,
    /// The longest wait for a CPU, in nanoseconds.
    pub wait_max_ns: u64,
    /// Waits for a CPU, in nanoseconds.
    pub waits: Histogram,
    /// Response ratios of picked tasks.
    pub ratios: Histogram,
    /// The newest parameters that were seen.
    pub generation: u64,
    /// When they were first seen (CLOCK_MONOTONIC, nanoseconds).
    pub generation_ns: u64,
}

impl From<&layout::Stats> for Stats {
    fn from(raw: &layout::Stats) -> Self {
        Stats {
            picks: raw.picks,
            scanned: raw.scanned,
            scanned_max: raw.scanned_max,
            kept: raw.kept,
            capped: raw.capped,
            races: raw.races,
            pulls: raw.pulls,
            idle_placed: raw.idle_placed,
            preempted_tick: raw.preempted_tick,
            preempted_wakeup: raw.preempted_wakeup,
            preempted_kthread: raw.preempted_kthread,
            resets: raw.resets,
            queued: raw.queued,
            queued_max: raw.queued_max,
            wait_max_ns: raw.wait_max_ns,
            waits: Histogram(raw.waits),
            ratios: Histogram(raw.ratios),
            generation: raw.generation,
            generation_ns: raw.generation_ns,
        }
    }
}

impl Default for Stats {
    fn default() -> Self {
        let zero = [0; size_of::<layout::Stats>()];
        (&layout::value::<layout::Stats>(&zero).expect("as many bytes")).into()
    }
}

impl Stats {
    /// The sum over CPUs; of maxima the greatest, of the parameters seen the newest.
    pub fn total<'a>(cpus: impl IntoIterator<Item = &'a Stats>) -> Stats {
        cpus.into_iter().fold(Stats::default(), |mut sum, cpu| {
            sum.add(cpu);
            sum
        })
    }

    fn add(&mut self, cpu: &Stats) {
        for (sum, more) in [
            (&mut self.picks, cpu.picks),
            (&mut self.scanned, cpu.scanned),
            (&mut self.kept, cpu.kept),
            (&mut self.capped, cpu.capped),
            (&mut self.races, cpu.races),
            (&mut self.pulls, cpu.pulls),
            (&mut self.idle_placed, cpu.idle_placed),
            (&mut self.preempted_tick, cpu.preempted_tick),
            (&mut self.preempted_wakeup, cpu.preempted_wakeup),
            (&mut self.preempted_kthread, cpu.preempted_kthread),
            (&mut self.resets, cpu.resets),
            (&mut self.queued, cpu.queued),
        ] {
            *sum += more;
        }
        for (most, here) in [
            (&mut self.scanned_max, cpu.scanned_max),
            (&mut self.queued_max, cpu.queued_max),
            (&mut self.wait_max_ns, cpu.wait_max_ns),
        ] {
            *most = (*most).max(here);
        }
        if cpu.generation > self.generation {
            (self.generation, self.generation_ns) = (cpu.generation, cpu.generation_ns);
        } else if cpu.generation == self.generation && cpu.generation_ns != 0 {
            self.generation_ns = match self.generation_ns {
                0 => cpu.generation_ns,
                first => first.min(cpu.generation_ns),
            };
        }
        self.waits.add(&cpu.waits);
        self.ratios.add(&cpu.ratios);
    }
}

impl Histogram {
    fn add(&mut self, other: &Histogram) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The upper end of the bucket in which the given share (0 to 1) of values is reached; none if
    /// there is no value.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.0.iter().enumerate().find_map(|(n, count)| {
            seen += count;
            (seen >= wanted).then(|| u64::MAX >> (63 - n))
        })
    }

    /// What was counted since an earlier reading.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut difference = self.clone();
        for (count, before) in difference.0.iter_mut().zip(earlier.0) {
            *count = count.saturating_sub(before);
        }
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(counts: &[(usize, u64)]) -> Histogram {
        let mut histogram = Stats::default().waits;
        for &(bucket, count) in counts {
            histogram.0[bucket] = count;
        }
        histogram
    }

    #[test]
    fn quantiles_are_ends_of_buckets() {
        let waits = histogram(&[(0, 1), (10, 98), (20, 1)]);
        assert_eq!(waits.quantile(0.0), Some(1));
        assert_eq!(waits.quantile(0.5), Some(2047));
        assert_eq!(waits.quantile(1.0), Some((1 << 21) - 1));
        assert_eq!(histogram(&[(63, 1)]).quantile(0.5), Some(u64::MAX));
        assert_eq!(histogram(&[]).quantile(0.5), None);
        assert_eq!(waits.since(&histogram(&[(10, 90)])).0[10], 8);
    }

    #[test]
    fn totals_add_counts_and_keep_maxima() {
        let cpu = |picks, wait_max_ns, generation, generation_ns| Stats {
            picks,
            wait_max_ns,
            generation,
            generation_ns,
            ..Stats::default()
        };
        let total = Stats::total(&[cpu(1, 7, 2, 50), cpu(2, 5, 2, 40), cpu(4, 0, 1, 10)]);
        assert_eq!(
            (
                total.picks,
                total.wait_max_ns,
                total.generation,
                total.generation_ns
            ),
            (7, 7, 2, 40)
        );
    }
}
