//! What a reader should know before believing a run's numbers.

use crate::CAPTURE_LIMIT;
use std::fmt;

/// One of a command's output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdout => "standard output",
            Self::Stderr => "standard error",
        })
    }
}

/// Something that makes a run's numbers doubtful.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Warning {
    /// The middle of an output was dropped.
    #[error(
        "{stream} had {total} bytes; only the first and last {} KiB were kept to look for metrics: \
         make the command write less, or print the numbers last",
        CAPTURE_LIMIT / 2 / 1024
    )]
    OutputCut {
        /// The stream.
        stream: Stream,
        /// Bytes that the command wrote.
        total: u64,
    },
    /// The run was stopped and continued (Ctrl-Z).
    #[error("the run was suspended for {seconds:.1} s, which wall_s includes: repeat it")]
    Suspended {
        /// How long.
        seconds: f64,
    },
    /// The command ended, members of its process group did not.
    #[error(
        "the command left processes running in its process group {pgid}; what they use is not \
         counted here and disturbs later runs: make it wait for them, or end them by \
         'kill -- -{pgid}'"
    )]
    LeftBehind {
        /// The process group.
        pgid: i32,
    },
    /// The hypervisor took a large part of the CPUs.
    #[error(
        "the hypervisor took {steal_s:.2} s of CPU time away, {percent:.0} % of what the machine \
         has: repeat the run, or use a quieter machine"
    )]
    Stolen {
        /// Seconds, over all CPUs.
        steal_s: f64,
        /// Share of the CPUs' time.
        percent: f64,
    },
    /// The largest resident set may be kilter's own, before the command was executed.
    #[error(
        "max_rss_kib is only an upper bound: the kernel counts the {floor_kib} KiB that kilter had \
         itself when it started the command"
    )]
    RssFloor {
        /// Resident set of the copy of kilter that the command began as, in KiB.
        floor_kib: u64,
    },
}
