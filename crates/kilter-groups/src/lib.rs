//! A CPU group for each user: a user's share does not depend on how many tasks others start.
//!
//! [`Daemon`] sweeps every process into the group of its real uid, then follows the kernel's events
//! about changed uids, children that were born meanwhile, and, now and then, everybody again.
//! Groups lie directly below the root of the cpu controller's hierarchy, since a nested one would
//! share its parent's weight. Everything is taken back by the journal in `kilter-kernel`.
//!
//! Limits: kernel threads, real-time and deadline tasks, and whoever is in a group that is not
//! kilter's stay where they are.
#![forbid(unsafe_code)]

mod config;
mod connector;
mod daemon;
mod groups;
mod policy;
mod probe;
mod process;
mod status;

pub use config::{CONFIG, Config, DEFAULT_WEIGHT, Rule, Share, load, range};
pub use connector::{Connector, Received, UidEvent};
pub use daemon::{Daemon, DaemonError, Ended};
pub use groups::{Fate, Groups, OVERFLOW, Swept};
pub use kilter_kernel::ConfigError;
pub use policy::{Fold, Policy, folds};
pub use probe::{Subscription, SubscriptionError, subscribe};
pub use process::Proc;
pub use status::{Systemd, autogroup, status, systemd};
