//! Plans: what an apply would do, and what it did.

use crate::Unavailable;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an apply would write, or wrote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Name of the layer: a profile's name, or `run`.
    pub name: String,
    /// In the order of writing.
    pub changes: Vec<Change>,
    /// Knobs that this machine cannot set, each with the reason.
    pub skipped: Vec<Skipped>,
}

/// One knob of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The knob's full name.
    pub knob: String,
    /// The file.
    pub path: String,
    /// The value before; empty where `appears_with` tells.
    pub old: String,
    /// The file is not there yet: it comes with this change of the same plan (`KNOB=VALUE`).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub appears_with: String,
    /// The value asked for.
    pub new: String,
    /// The value that the kernel kept, once written: it may round, clamp or ignore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<String>,
}

/// A knob of a profile that is not set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// The knob's name as the profile has it.
    pub knob: String,
    /// Why.
    pub because: Unavailable,
}
