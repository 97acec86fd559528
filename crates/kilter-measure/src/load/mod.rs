//! Built-in load generators, for machines on which nothing can be installed.
//!
//! [`MessagingOptions`] does what hackbench does: many senders write short messages to many
//! receivers, and the time until all have arrived tells how well the scheduler spreads and switches
//! tasks. [`WakeupOptions`] does what schbench does: message threads wake workers, and the tails of
//! the wake-up and request latencies tell how long a runnable task waits. [`AudioOptions`] does what
//! SynthMark does: a synthesizer is rendered against the deadlines of audio hardware.
//!
//! They are programs rather than library calls: they are made to be the only thing that their
//! process does (`kilter load …`). Whatever they start ends with them, also when they are killed.

mod audio;
mod cores;
mod histogram;
mod messaging;
mod synth;
mod wakeup;
mod workers;

pub use audio::{AudioOptions, LatencymarkResult, VoicemarkResult};
pub use cores::Cores;
pub use histogram::{Histogram, Percentiles};
pub use messaging::{MessagingOptions, MessagingResult, Transport, Workers};
pub use wakeup::{WakeupOptions, WakeupResult};

use std::io;
use std::ops::RangeInclusive;

/// Why a load could not be generated.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// An option is outside its range.
    #[error("{option} = {value} is not possible; {allowed}")]
    Option {
        /// Its name.
        option: &'static str,
        /// What was asked for.
        value: String,
        /// What is possible.
        allowed: String,
    },
    /// The kernel refused something.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
    /// A worker failed, or was ended from outside.
    #[error("a {worker} {problem}")]
    Worker {
        /// `sender`, `receiver`, `worker` or `message thread`.
        worker: &'static str,
        /// How it ended.
        problem: String,
    },
    /// Nothing was measured.
    #[error("no {0} was completed in the running time; make it longer, or the requests shorter")]
    Nothing(&'static str),
}

impl LoadError {
    fn system(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { doing, source }
    }
}

fn check<T: PartialOrd + std::fmt::Display>(
    option: &'static str,
    value: T,
    allowed: RangeInclusive<T>,
) -> Result<(), LoadError> {
    // Written so that a NaN, which is in no range, is refused.
    if allowed.contains(&value) {
        return Ok(());
    }
    let allowed = format!("from {} to {}", allowed.start(), allowed.end());
    Err(LoadError::Option {
        option,
        value: value.to_string(),
        allowed,
    })
}
