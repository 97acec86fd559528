//! Layers in force, and what came of undoing and verifying them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One layer in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerInfo {
    /// Number of the layer; a newer layer has a higher one.
    pub id: u64,
    /// Profile name, or `run` for an experiment.
    pub name: String,
    /// When it began, RFC 3339.
    pub since: String,
    /// The process whose life holds the layer; absent: held until reverted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Whether that process still lives. A layer whose owner is dead is undone by the next
    /// command that touches settings.
    pub alive: bool,
    /// The knobs it sets.
    pub values: Vec<HeldValue>,
}

/// A process, told apart from a later one with the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Owner {
    /// Process number.
    pub pid: i32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_ticks: u64,
}

/// A value that a layer holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeldValue {
    /// The knob's full name, or the path of a coupled file without a knob.
    pub knob: String,
    /// The file.
    pub path: String,
    /// The value that comes back when nothing holds the file any more.
    pub original: String,
    /// The value that the layer put in force, as read back.
    pub held: String,
    /// What the file shows now.
    pub now: Held,
}

/// How a held value stands now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Held {
    /// The file shows the held value.
    InForce,
    /// A newer layer sets the file.
    Covered,
    /// Somebody else changed it.
    Drifted {
        /// The value now.
        value: String,
    },
    /// The file is gone (a device was removed, a module unloaded).
    Gone,
}

/// `kilter status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Layers in force, oldest first.
    pub layers: Vec<LayerInfo>,
    /// The process that runs an experiment now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<i32>,
}

/// `kilter revert`, and every other undoing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reverted {
    /// Names of the layers undone, newest first.
    pub layers: Vec<String>,
    /// Files put back, each with what came of it.
    pub files: Vec<RestoredFile>,
}

/// One file of an undone layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RestoredFile {
    /// The knob's full name, or the path of a coupled file.
    pub knob: String,
    /// The file.
    pub path: String,
    /// Whether the layer had set it, or only kept it safe from a coupled write.
    pub was_set: bool,
    /// What came of it.
    pub outcome: Restored,
}

/// What came of putting a file back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Restored {
    /// It shows the value it should.
    Restored {
        /// That value.
        value: String,
    },
    /// A newer layer sets it, so it keeps that layer's value.
    Covered,
    /// Somebody else changed it since, so it was left alone.
    LeftAlone {
        /// The value that was found and left.
        found: String,
        /// The value that it would have been given.
        original: String,
    },
    /// The file is gone.
    Gone,
    /// The file had come with another value of the layer, and went with it.
    Vanished,
    /// The kernel refused.
    Failed {
        /// The kernel's reason.
        error: String,
        /// The value that it should have been given.
        original: String,
    },
}
