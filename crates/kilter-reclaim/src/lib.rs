//! Proactive reclaim: apps in the background give memory up before anything has to be killed.
//!
//! [`once`] reclaims from a process or a cgroup now and tells what it really did. Advice is given with
//! `process_madvise(2)` in small calls, so that a target never waits for long and a cancelled or dying
//! one ends the work at once.
//!
//! Limits: the kernel's return value counts bytes walked, so the truth is read from the process's own
//! counters. Pages that other processes map too stay. Nothing needs undoing: what was paged out comes
//! back when it is touched.
#![forbid(unsafe_code)]

mod account;
mod act;
mod apps;
mod cgroup;
mod config;
mod daemon;
mod maps;
pub mod once;
mod pace;
mod params;
mod policy;
mod processes;
mod ranges;
mod standing;
mod status;
mod swap;
mod target;
mod usage;
mod watch;
mod work;

pub use cgroup::{Cgroup, CgroupError};
pub use config::{CONFIG, Cached, Config, Glob, Rule, load};
pub use daemon::{Call, Callers, Daemon, DaemonError};
pub use params::{PARAMETERS, Tuning, defaults};
pub use policy::{Memory, Mode};
pub use ranges::{Hint, Hints};
pub use target::{State, Target, TargetError};
