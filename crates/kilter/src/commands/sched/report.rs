//! The scheduler's state as a message, and as lines for people.

use crate::cli::{CompareBy, FaultOf, Hrrn, Policy};
use crate::say;
use kilter_api::{SchedCounters, SchedRun};
use kilter_kernel::{ParameterError, Parameters};
use kilter_sched::{Compare, Fault, Histogram, Options, Stats};
use std::collections::BTreeMap;

/// What the flags ask for.
pub fn options(hrrn: &Hrrn) -> Result<Options, ParameterError> {
    let mut options = match hrrn.policy {
        Policy::Seed => Options::seed(),
        Policy::Kilter => Options::default(),
    };
    options.reset_at_pick &= !hrrn.no_reset_at_pick;
    options.classes &= !hrrn.no_classes;
    options.kthreads &= !hrrn.no_kthreads;
    options.spread &= !hrrn.no_spread;
    options.per_uid = hrrn.per_uid;
    options.timeout_ms = hrrn.timeout_ms;
    options.fault = hrrn.fault.map(|fault| match fault {
        FaultOf::Stall => Fault::Stall,
        FaultOf::Queue => Fault::Queue,
    });
    if hrrn.compare == CompareBy::Exact {
        options.compare = Compare::Exact;
    }
    for (name, value) in [
        ("max_lifetime_ms", hrrn.params.max_lifetime_ms),
        ("latency_us", hrrn.params.latency_us),
        ("wakeup_threshold", hrrn.params.wakeup_threshold),
        ("max_wait_ms", hrrn.params.max_wait_ms),
        ("slice_us", hrrn.params.slice_us),
    ] {
        if let Some(value) = value {
            options.params.set(name, &value.to_string())?;
        }
    }
    Ok(options)
}

/// Options by their names on the command line.
pub fn named(options: &Options) -> BTreeMap<String, String> {
    let yes = |on: bool| if on { "yes" } else { "no" };
    let compare = match options.compare {
        Compare::Seed => "seed",
        Compare::Exact => "exact",
    };
    [
        ("compare", compare),
        ("per-uid", yes(options.per_uid)),
        ("reset-at-pick", yes(options.reset_at_pick)),
        ("classes", yes(options.classes)),
        ("kthreads", yes(options.kthreads)),
        ("spread", yes(options.spread)),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// Parameters by name.
pub fn params(params: &Parameters) -> BTreeMap<String, i64> {
    params
        .iter()
        .map(|(parameter, value)| (parameter.name.to_owned(), value))
        .collect()
}

/// Counters as a message.
pub fn counters(stats: &Stats) -> SchedCounters {
    SchedCounters {
        picks: stats.picks,
        scanned: stats.scanned,
        scanned_max: stats.scanned_max,
        kept: stats.kept,
        capped: stats.capped,
        races: stats.races,
        pulls: stats.pulls,
        idle_placed: stats.idle_placed,
        preempted_tick: stats.preempted_tick,
        preempted_wakeup: stats.preempted_wakeup,
        preempted_kthread: stats.preempted_kthread,
        resets: stats.resets,
        queued: stats.queued,
        queued_max: stats.queued_max,
        wait_max_ns: stats.wait_max_ns,
        waits: buckets(&stats.waits),
        ratios: buckets(&stats.ratios),
    }
}

fn buckets(histogram: &Histogram) -> Vec<u64> {
    let used = histogram.0.iter().rposition(|&count| count > 0);
    histogram.0[..used.map_or(0, |last| last + 1)].to_vec()
}

/// A share of values of a histogram lies at or below this; none if it is empty.
pub fn quantile(buckets: &[u64], share: f64) -> Option<u64> {
    let mut histogram = Histogram([0; 64]);
    for (count, &given) in histogram.0.iter_mut().zip(buckets) {
        *count = given;
    }
    histogram.quantile(share)
}

/// What was counted from one reading to the next. Maxima and lengths are the later one's.
pub fn since(now: &SchedCounters, before: &SchedCounters) -> SchedCounters {
    let less = |now: u64, before: u64| now.saturating_sub(before);
    let buckets = |now: &[u64], before: &[u64]| {
        let earlier = before.iter().chain(std::iter::repeat(&0));
        now.iter().zip(earlier).map(|(&n, &b)| less(n, b)).collect()
    };
    SchedCounters {
        picks: less(now.picks, before.picks),
        scanned: less(now.scanned, before.scanned),
        kept: less(now.kept, before.kept),
        capped: less(now.capped, before.capped),
        races: less(now.races, before.races),
        pulls: less(now.pulls, before.pulls),
        idle_placed: less(now.idle_placed, before.idle_placed),
        preempted_tick: less(now.preempted_tick, before.preempted_tick),
        preempted_wakeup: less(now.preempted_wakeup, before.preempted_wakeup),
        preempted_kthread: less(now.preempted_kthread, before.preempted_kthread),
        resets: less(now.resets, before.resets),
        waits: buckets(&now.waits, &before.waits),
        ratios: buckets(&now.ratios, &before.ratios),
        ..now.clone()
    }
}

/// Nanoseconds in a unit that fits.
pub fn time(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        _ if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

/// Entries looked at for one pick, on average.
pub fn scanned_per_pick(counters: &SchedCounters) -> f64 {
    match counters.picks {
        0 => 0.0,
        picks => counters.scanned as f64 / picks as f64,
    }
}

/// One line about a stretch of time.
pub fn line(now: &SchedRun, before: &SchedRun, seconds: f64) -> String {
    let c = since(&now.total, &before.total);
    let rate = |count: u64| (count as f64 / seconds).round();
    let wait = |share| quantile(&c.waits, share).map_or_else(|| "-".to_owned(), time);
    format!(
        "picks/s {} scanned/pick {:.1} | preempted/s tick {} wakeup {} kthread {} | pulls/s {} capped/s {} | wait p50 {} p99 {} max {} | queued {}",
        rate(c.picks),
        scanned_per_pick(&c),
        rate(c.preempted_tick),
        rate(c.preempted_wakeup),
        rate(c.preempted_kthread),
        rate(c.pulls),
        rate(c.capped),
        wait(0.5),
        wait(0.99),
        time(c.wait_max_ns),
        c.queued,
    )
}

/// A state in full.
pub fn print(run: &SchedRun) {
    say::line(format!(
        "{} (process {}, since {}, started in {})",
        say::bold("hrrn"),
        run.pid,
        run.since,
        time((run.start_s * 1e9) as u64)
    ));
    let words = run.options.iter().map(|(name, on)| format!("{name}: {on}"));
    say::line(format!("  {}", words.collect::<Vec<_>>().join(", ")));
    let rows: Vec<Vec<String>> = run
        .params
        .iter()
        .map(|(name, value)| vec![format!("  hrrn.{name}"), value.to_string()])
        .collect();
    say::table(&rows);
    let mut rows = vec![heads()];
    rows.extend(
        run.cpus
            .iter()
            .enumerate()
            .map(|(cpu, counters)| row(&cpu.to_string(), counters)),
    );
    rows.push(row("all", &run.total));
    say::table(&rows);
}

/// Heads of the columns of [`row`].
pub fn heads() -> Vec<String> {
    [
        "CPU", "queued", "picks", "scanned", "tick", "wakeup", "kthread", "pulls", "capped",
        "wait p50", "p99", "max",
    ]
    .map(str::to_owned)
    .into()
}

/// One CPU's counters as cells.
pub fn row(name: &str, c: &SchedCounters) -> Vec<String> {
    let wait = |share| quantile(&c.waits, share).map_or_else(|| "-".to_owned(), time);
    vec![
        name.to_owned(),
        c.queued.to_string(),
        c.picks.to_string(),
        format!("{:.1}", scanned_per_pick(c)),
        c.preempted_tick.to_string(),
        c.preempted_wakeup.to_string(),
        c.preempted_kthread.to_string(),
        c.pulls.to_string(),
        c.capped.to_string(),
        wait(0.5),
        wait(0.99),
        time(c.wait_max_ns),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_of_counts_and_not_of_maxima() {
        let reading = |picks, waits: &[u64], wait_max_ns| SchedCounters {
            picks,
            waits: waits.to_vec(),
            wait_max_ns,
            ..SchedCounters::default()
        };
        let c = since(&reading(9, &[1, 5, 2], 70), &reading(4, &[1, 2], 70));
        assert_eq!(
            (c.picks, c.waits.as_slice(), c.wait_max_ns),
            (5, [0, 3, 2].as_slice(), 70)
        );
        assert_eq!(quantile(&c.waits, 0.5), Some(3));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn times_have_units() {
        for (ns, wanted) in [
            (7, "7 ns"),
            (1_500, "1.5 µs"),
            (2_000_000, "2.0 ms"),
            (3 << 30, "3.22 s"),
        ] {
            assert_eq!(time(ns), wanted);
        }
    }
}
