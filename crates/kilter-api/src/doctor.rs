//! What this machine can do.

use crate::Fingerprint;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `kilter doctor`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorReport {
    /// The machine.
    pub fingerprint: Fingerprint,
    /// One row a mechanism or condition.
    pub checks: Vec<Check>,
}

/// One row of the doctor's table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// What was looked at: `vm knobs`, `scheduler debugfs`, `hardware counters`, ….
    pub name: String,
    /// How it stands.
    pub state: CheckState,
    /// Why, in a sentence.
    pub detail: String,
    /// What would change it; empty where nothing is wrong.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

/// How a mechanism stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckState {
    /// It works.
    Works,
    /// It works in part.
    Limited,
    /// It cannot work here.
    Impossible,
}
