//! What a run has cost.

use crate::capture::{Captured, TAIL_LIMIT};
use crate::warning::Warning;
use kilter_api::{Counter, MachineDelta, Outcome, RunRecord, Settings};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

/// Everything that was measured of one command.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The command.
    pub command: Vec<OsString>,
    /// When it began.
    pub started: jiff::Timestamp,
    /// `CLOCK_BOOTTIME` when it began.
    pub started_boottime: Duration,
    /// How it ended.
    pub outcome: Outcome,
    /// The signal by which the user ended it; set exactly when the outcome is `Interrupted`.
    pub signal: Option<i32>,
    /// From just before the spawn until the end was seen, by `CLOCK_MONOTONIC`.
    pub wall: Duration,
    /// What the command used.
    pub usage: Usage,
    /// What the machine went through meanwhile.
    pub machine: MachineDelta,
    /// The counters that ran.
    pub counters: BTreeMap<String, Counter>,
    /// Its standard output, if captured.
    pub stdout: Captured,
    /// Its standard error, if captured.
    pub stderr: Captured,
    /// Reasons for doubt.
    pub warnings: Vec<Warning>,
}

/// What the kernel accounts to the command and those descendants that were waited for, by it or by
/// a descendant that was. A process left behind, or one whose parent ignores `SIGCHLD`, is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in kernel mode.
    pub sys: Duration,
    /// Largest resident set of any one process, in KiB. Below some 2 MiB it may be that of the copy
    /// of kilter that the command began as.
    pub max_rss_kib: u64,
    /// Times a process gave up the CPU by itself.
    pub voluntary_switches: u64,
    /// Times a process was preempted.
    pub involuntary_switches: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
}

impl Usage {
    pub(crate) fn from_rusage(usage: &libc::rusage) -> Self {
        let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
        let time = |value: libc::timeval| {
            let micros = u64::try_from(value.tv_usec).unwrap_or(0);
            Duration::from_secs(u64::try_from(value.tv_sec).unwrap_or(0))
                + Duration::from_micros(micros)
        };
        Self {
            user: time(usage.ru_utime),
            sys: time(usage.ru_stime),
            max_rss_kib: count(usage.ru_maxrss),
            voluntary_switches: count(usage.ru_nvcsw),
            involuntary_switches: count(usage.ru_nivcsw),
            minor_faults: count(usage.ru_minflt),
            major_faults: count(usage.ru_majflt),
        }
    }
}

impl Measured {
    /// As the record that kilter prints: without metrics and fingerprint, which the caller adds.
    /// `settings` are the values that were in force.
    #[must_use]
    pub fn record(&self, settings: Settings) -> RunRecord {
        let Usage {
            user,
            sys,
            max_rss_kib,
            ..
        } = self.usage;
        let words = self
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned());
        RunRecord {
            command: words.collect(),
            settings,
            started: self.started.to_string(),
            started_boottime_s: self.started_boottime.as_secs_f64(),
            outcome: self.outcome.clone(),
            wall_s: self.wall.as_secs_f64(),
            user_s: user.as_secs_f64(),
            sys_s: sys.as_secs_f64(),
            max_rss_kib,
            voluntary_switches: self.usage.voluntary_switches,
            involuntary_switches: self.usage.involuntary_switches,
            minor_faults: self.usage.minor_faults,
            major_faults: self.usage.major_faults,
            machine: self.machine.clone(),
            counters: self.counters.clone(),
            metrics: BTreeMap::new(),
            stdout_tail: self.stdout.tail(TAIL_LIMIT),
            stderr_tail: self.stderr.tail(TAIL_LIMIT),
            fingerprint: None,
            warnings: self.warnings.iter().map(ToString::to_string).collect(),
        }
    }
}
