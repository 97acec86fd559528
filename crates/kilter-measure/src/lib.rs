//! Runs a command and measures it, reads the state of the machine, and generates load.
//!
//! [`run()`] spawns one [`Job`] and returns what it cost: wall clock, CPU time, memory, counters, and
//! what the whole machine went through meanwhile. [`Metrics`] reads numbers from the command's
//! output. [`fingerprint()`] says on what machine a number was taken. [`load`] holds the built-in
//! load generators.
//!
//! ```
//! use kilter_measure::{Job, Output, Signals, run};
//!
//! let signals = Signals::take()?;
//! let mut job = Job::new(["echo", "42"]);
//! job.output = Output::Capture;
//! let measured = run(&job, &signals, |_process_group| ())?;
//! assert_eq!(&*measured.stdout.bytes(), b"42\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate judges nothing and changes no setting. It starts no thread outside [`load`], so that
//! nothing of kilter runs beside the workload: one thread sleeps in `poll` until the command ends,
//! writes, or is to be ended.

mod capture;
mod child;
mod counters;
mod cpus;
mod credentials;
mod drain;
mod exec;
mod fingerprint;
mod group;
mod job;
pub mod load;
mod machine;
mod measured;
mod metrics;
mod record_field;
mod run;
pub mod sandbox;
mod signals;
mod spawn;
mod terminal;
mod virtualisation;
mod warning;
mod watch;

pub use capture::{CAPTURE_LIMIT, Captured, TAIL_LIMIT};
pub use counters::Counters;
pub use cpus::{CpuList, CpuListError};
pub use credentials::{Credentials, CredentialsError, invoking_user};
pub use fingerprint::{fingerprint, identity_under};
pub use job::{GRACE, Job, Output, Stdin, TimeoutError, timeout_from_secs};
pub use machine::MachineState;
pub use measured::{Measured, Usage};
pub use metrics::{MetricError, Metrics};
pub use run::run;
pub use signals::Signals;
pub use spawn::SpawnError;
pub use warning::{Stream, Warning};

use std::path::Path;

/// The text of a file below `root`, or nothing where it cannot be read.
fn read_below(root: &Path, path: &str) -> Option<String> {
    let bytes = std::fs::read(root.join(path)).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
