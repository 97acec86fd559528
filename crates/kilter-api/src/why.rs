//! Who set a knob: `kilter why`.

use crate::KnobState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is known of a knob's value and who set it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Why {
    /// The knob's full name.
    pub knob: String,
    /// What this kernel says of it.
    pub state: KnobState,
    /// Who asks for a value, the likeliest setter of the present one first.
    pub setters: Vec<Setter>,
    /// Other tuners that run now and may have written it.
    pub tuners: Vec<String>,
    /// The kernel's default, for people to read.
    pub default: String,
}

/// Something that asks for a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Setter {
    /// What kind of thing it is.
    pub by: SetterKind,
    /// The layer's name, or the file's.
    pub place: String,
    /// The line in the file, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The value that it asks for.
    pub value: String,
    /// Whether this is the value now.
    pub agrees: bool,
}

/// Kinds of setters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SetterKind {
    /// A layer of kilter.
    Layer,
    /// TuneD's active profile.
    Tuned,
    /// A file of sysctl.d.
    Sysctl,
    /// A rule of udev; whether it matches the device is not known.
    Udev,
    /// A line of tmpfiles.d.
    Tmpfiles,
    /// The kernel's command line.
    CommandLine,
}
