//! Profiles that are held for good.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is done about a value that somebody else has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HoldPolicy {
    /// The later change wins, and is told once.
    #[default]
    Yield,
    /// The later change stays, and is warned of.
    Warn,
    /// The value is set again.
    Enforce,
}

/// A profile that is held, or would be at the next boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HoldInfo {
    /// The profile's name.
    pub profile: String,
    /// The unit that starts it at boot; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The process that holds it; absent where none is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// When it began, RFC 3339; empty where none is running.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub since: String,
    /// What it does about changes; that of the running process.
    pub policy: HoldPolicy,
    /// Whether its end puts the settings back.
    pub revert_on_stop: bool,
    /// How often it has set values again.
    pub set_again: u64,
    /// Values that are somebody else's now.
    pub drifted: Vec<HoldDrift>,
    /// Knobs whose file is gone for now, as those of a CPU that is offline; set again when it returns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
}

/// A value that somebody else has changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HoldDrift {
    /// The knob.
    pub knob: String,
    /// The profile's value.
    pub held: String,
    /// The value now.
    pub value: String,
    /// When it was noticed, RFC 3339.
    pub noticed: String,
    /// Who has probably set it; empty where nothing tells.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}
