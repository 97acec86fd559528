//! Workloads: a command and how to read its metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A catalog entry: a command, its preparation and its metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The name: lower-case letters, digits, `-`.
    pub name: String,
    /// What it exercises, in one line.
    pub summary: String,
    /// What it says about a machine, and what it does not.
    pub why: String,
    /// The command. A first word of `kilter` stands for this very binary (built-in generators).
    /// `{cpus}` in an argument is replaced by the number of CPUs online.
    pub command: Vec<String>,
    /// Executed before each run, outside the measurement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepare: Vec<String>,
    /// Executed after each run, outside the measurement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cleanup: Vec<String>,
    /// The metrics, the main one first.
    pub metrics: Vec<Metric>,
    /// Debian package that brings the command; empty for built-in ones.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub package: String,
    /// Needs root (real-time priority, for one).
    #[serde(default)]
    pub needs_root: bool,
    /// Where the workload is described.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
}

/// A number that a run yields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// The name: letters, digits, `_`, `-`, `.`.
    pub name: String,
    /// Where the number comes from.
    pub source: MetricSource,
    /// Which way is better.
    #[serde(default)]
    pub direction: Direction,
    /// Unit, for people to read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
}

/// Where a metric's number comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "from", rename_all = "kebab-case", deny_unknown_fields)]
pub enum MetricSource {
    /// One of the record's own fields: `wall_s`, `user_s`, `sys_s`, `max_rss_kib`, ….
    Record {
        /// The field's name.
        field: String,
    },
    /// The first group of a regular expression, matched against standard output, then standard
    /// error; the last match counts.
    Regex {
        /// The expression (syntax of Rust's regex crate), multi-line mode.
        pattern: String,
    },
    /// A number in JSON on standard output.
    Json {
        /// A JSON pointer (RFC 6901): `/jobs/0/read/iops`.
        pointer: String,
    },
}

/// Which way a metric is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Less is better.
    #[default]
    Min,
    /// More is better.
    Max,
}

/// One row of `kilter bench --list --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadInfo {
    /// The catalog entry.
    pub workload: Workload,
    /// Whether its command is installed.
    pub installed: bool,
}
