//! Highest Response Ratio Next as a sched_ext scheduler.
//!
//! The policy runs in the kernel (`src/bpf/`); this crate loads it, changes its parameters while it
//! runs, reads its counters and tells why it ended. Nothing here survives the process: when it
//! ends, however it ends, the kernel goes back to its own scheduler.
//!
//! Limits: without the feature `bpf`, or where clang was missing when it was built,
//! [`Scheduler::start`] only says so.

pub mod arithmetic;
mod ended;
#[cfg_attr(not(scheduler), allow(dead_code))]
mod layout;
mod options;
pub mod params;
mod refusal;
#[cfg(scheduler)]
mod scheduler;
mod stats;
#[cfg(scheduler)]
mod support;
#[cfg(scheduler)]
mod topology;
#[cfg(not(scheduler))]
mod unbuilt;

pub use ended::{Ended, How};
pub use options::{Compare, Fault, Options};
pub use params::PARAMETERS;
pub use refusal::Refusal;
#[cfg(scheduler)]
pub use scheduler::{Scheduler, StartError};
pub use stats::{Histogram, Stats};
#[cfg(not(scheduler))]
pub use unbuilt::{Scheduler, StartError};
