//! Profiles: named sets of knob values.

use crate::{Settings, VerdictRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A named set of knob values. Knob names may hold `*` for every real device or policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name: lower-case letters, digits, `-`, `_` and `.`; never a path.
    pub name: String,
    /// What it is for, in one line.
    #[serde(default)]
    pub summary: String,
    /// Profiles whose values come first and are overridden by this one's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Knob → value with its reason.
    #[serde(default)]
    pub set: BTreeMap<String, ProfileValue>,
    /// What was measured, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<ProfileEvidence>,
}

/// A value in a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileValue {
    /// The value.
    pub value: String,
    /// Why this value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What `kilter import` made of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Imported {
    /// The profile.
    pub profile: Profile,
    /// Where it was saved; absent for a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<String>,
    /// What is no part of it.
    pub left_out: Vec<LeftOut>,
}

/// Something that was not imported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// The file and line, or the profile and section.
    pub from: String,
    /// What stands there.
    pub what: String,
    /// Why it is left out.
    pub reason: String,
}

/// The evidence that `tune` saves with a winner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileEvidence {
    /// The study that found it.
    pub study: String,
    /// The workload's command line.
    pub command: Vec<String>,
    /// Values held in every arm while searching.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub fixed: Settings,
    /// Kernel release it was measured on.
    pub kernel: String,
    /// Identity of the machine (see `Fingerprint::id`).
    pub machine: String,
    /// When, RFC 3339.
    pub when: String,
    /// The confirmed verdict of the profile as a whole.
    pub verdict: VerdictRecord,
}
