//! The only door from kilter to the kernel's files.
//!
//! Whatever changes the system passes through here: [`Kernel`] reads and writes files below an
//! injected root and follows no link out of the trees it knows; [`Store`] journals every change
//! before it is made, holds the layers that are in force, and undoes them, whoever died. Pillars
//! describe a change as a [`Transaction`] and never write a kernel file themselves.
//!
//! Limits: nothing here knows what a knob means. Ranges, couplings and reasons come from the
//! catalog, compiled into the transaction by the caller.

mod advise;
mod again;
mod cgroup;
mod config;
mod control;
mod guardian;
mod holder;
mod journal;
mod kernel;
mod layer;
mod memory;
mod moving;
mod parameters;
mod path;
mod process;
mod realtime;
mod report;
mod store;
#[cfg(test)]
mod tests;
mod undo;
mod users;
mod value;

pub use advise::{Advice, Pages, RANGES_AT_MOST, advise, scan_pages};
pub use again::Again;
pub use cgroup::{CgroupVersion, CpuTree, CpuTreeError, Door, HeldTree, Move, PREFIX};
pub use config::{ConfigError, ConfigProblem, load_config, parse_config};
pub use control::{Changes, Control};
pub use guardian::Guardian;
pub use holder::{say_ready, wait_for_go};
pub use journal::Entry;
pub use kernel::{FileError, Files, Kernel, Refusal};
pub use layer::{Begun, LayerError, Step, Transaction, Written};
pub use memory::{forget_code, forget_heap};
pub use moving::MoveError;
pub use parameters::{Parameter, ParameterError, Parameters};
pub use path::{KernelPath, PathError};
pub use process::{boot_id, is_alive, is_root, this_process};
pub use realtime::Realtime;
pub use store::{Experiment, Lock, Store, StoreError, make_dir};
pub use users::{known_uid, name_of, uid_of};
pub use value::{ValueError, parse as parse_value, words, written as text_to_write};
