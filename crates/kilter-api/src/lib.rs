//! The messages that kilter's parts exchange, as JSON.
//!
//! Every `--json` output, every line of `kilter run --batch` and every request that the binary
//! hands to the Python lab is one of these types. They hold data and no behaviour, and they depend
//! on no other crate of the workspace. `schema/` holds their JSON schemas and samples, generated
//! from here; both languages test against them.
//!
//! Two conventions hold throughout. A knob's *value* is always a string in the form that kilter
//! writes to the kernel (`"60"`, `"mq-deadline"`, `"NEXT_BUDDY"` is on when its value is `"1"`).
//! A quantity carries its unit in its name (`wall_s`, `max_rss_kib`).
#![forbid(unsafe_code)]

mod doctor;
mod groups;
mod hold;
mod knob;
mod lab;
mod layer;
mod plan;
mod profile;
mod reclaim;
mod run;
mod sched;
mod verdict;
mod why;
mod workload;

pub use doctor::*;
pub use groups::*;
pub use hold::*;
pub use knob::*;
pub use lab::*;
pub use layer::*;
pub use plan::*;
pub use profile::*;
pub use reclaim::*;
pub use run::*;
pub use sched::*;
pub use verdict::*;
pub use why::*;
pub use workload::*;

use std::collections::BTreeMap;

/// Knob name → value. The order is the names' own; the order of writing comes from couplings.
pub type Settings = BTreeMap<String, String>;
