//! What to run, and how.

use crate::{CpuList, Credentials};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Time between `SIGTERM` and `SIGKILL` unless a job says otherwise.
pub const GRACE: Duration = Duration::from_secs(2);

/// The longest timeout that is taken: 100 days.
const LONGEST: f64 = 8_640_000.0;

/// One command to run and measure.
#[derive(Clone, Debug)]
pub struct Job {
    /// The command and its arguments; executed, never given to a shell. A first word without a
    /// slash is looked up in `PATH`.
    pub command: Vec<OsString>,
    /// CPUs to pin it to; all that kilter itself may use when absent.
    pub cpus: Option<CpuList>,
    /// The user to become; kilter's own when absent. Needs root.
    pub user: Option<Credentials>,
    /// Where it reads from.
    pub stdin: Stdin,
    /// Where it writes to.
    pub output: Output,
    /// Ends the whole process group after this long.
    pub timeout: Option<Duration>,
    /// Time that the process group has between `SIGTERM` and `SIGKILL`.
    pub grace: Duration,
    /// Whether to end it, as on `SIGPIPE`, once nobody reads kilter's own standard output any more.
    pub for_reader: bool,
    /// Whether to open perf counters for it. Every task that it creates then costs a little more.
    pub counters: bool,
    /// Whose `proc` tells the state of the machine; `/` but for tests.
    pub root: PathBuf,
}

impl Job {
    /// A job with everything inherited, no timeout and no counters.
    #[must_use]
    pub fn new(command: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            command: command.into_iter().map(Into::into).collect(),
            cpus: None,
            user: None,
            stdin: Stdin::Inherit,
            output: Output::Inherit,
            timeout: None,
            grace: GRACE,
            for_reader: false,
            counters: false,
            root: PathBuf::from("/"),
        }
    }
}

/// Where the command reads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdin {
    /// kilter's own standard input. Where that is the terminal that kilter is in the foreground
    /// of, the command becomes the foreground and gets Ctrl-C and Ctrl-Z itself.
    Inherit,
    /// `/dev/null`.
    Null,
}

/// Where the command writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// kilter's own standard output and standard error.
    Inherit,
    /// Both streams to kilter's standard error, so that standard output stays free for data.
    ToStderr,
    /// Both streams into memory, bounded by [`crate::CAPTURE_LIMIT`].
    Capture,
    /// Into memory, and on to kilter's own streams.
    Tee,
}

/// A timeout that cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a timeout of {0} s is not possible; more than 0 and at most 8640000 s (100 days)")]
pub struct TimeoutError(f64);

/// Checks a timeout in seconds.
///
/// # Errors
/// Not a number, not above 0, or longer than 100 days.
pub fn timeout_from_secs(seconds: f64) -> Result<Duration, TimeoutError> {
    if !(seconds > 0.0 && seconds <= LONGEST) {
        return Err(TimeoutError(seconds));
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| TimeoutError(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_positive_and_finite() {
        assert_eq!(timeout_from_secs(0.5), Ok(Duration::from_millis(500)));
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(timeout_from_secs(wrong).is_err(), "{wrong}");
        }
    }
}
