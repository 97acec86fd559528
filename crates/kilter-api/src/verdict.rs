//! Verdicts, and the evidence kept of them.

use crate::{Direction, Settings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The four verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval is on the good side of 1, and not all of it inside the region.
    Better,
    /// Mirrored.
    Worse,
    /// The interval lies inside the region of equivalence.
    NoDifference,
    /// None of these.
    Inconclusive,
}

/// A verdict with its numbers. The ratio is the arm's metric over the baseline's (below 1 is less).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VerdictRecord {
    /// The verdict.
    pub verdict: Verdict,
    /// Metric's name.
    pub metric: String,
    /// Which way the metric is better.
    pub direction: Direction,
    /// Geometric mean of the arm's metric over the baseline's.
    pub ratio: f64,
    /// Lower end of the interval of the ratio.
    pub low: f64,
    /// Upper end of the interval of the ratio.
    pub high: f64,
    /// Confidence of the interval: 0.95, or more where several verdicts share the error.
    pub confidence: f64,
    /// Half-width of the region of equivalence in percent.
    pub region_percent: f64,
    /// Blocks that entered it.
    pub blocks: u32,
    /// How often the blocks were looked at; 1 for a number of blocks fixed before. The interval
    /// holds for all looks together. 0: too few blocks for an interval, its ends are the ratio.
    #[serde(default = "one")]
    pub looks: u32,
    /// More blocks that would probably end an inconclusive comparison; absent where it has ended,
    /// or no practical number would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more_blocks: Option<u32>,
    /// Median of the baseline's runs.
    pub base_median: f64,
    /// Median of the arm's runs.
    pub arm_median: f64,
}

fn one() -> u32 {
    1
}

/// One line of the evidence file: a verdict with all that it holds for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// When, RFC 3339.
    pub when: String,
    /// Identity of the machine (see `Fingerprint::id`).
    pub machine: String,
    /// Kernel release.
    pub kernel: String,
    /// Identity of the boot: one boot is one sample of what varies from boot to boot.
    pub boot_id: String,
    /// The workload's command line.
    pub command: Vec<String>,
    /// The baseline's values; empty for the machine's current ones.
    #[serde(default)]
    pub base: Settings,
    /// The arm's values.
    pub arm: Settings,
    /// What the arm's knobs had before.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub old: Settings,
    /// Workload of the catalog, or empty for a command.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workload: String,
    /// Runs of both arms together.
    #[serde(default)]
    pub runs: u32,
    /// The machine's CPU, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cpu: String,
    /// Version of kilter that judged.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Study that asked, or empty for `compare` and `audit`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub study: String,
    /// Whether it came with `kilter evidence import`, and not from this kilter's own runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub imported: bool,
    /// The verdict.
    pub verdict: VerdictRecord,
}

/// What `kilter evidence export` prints and `kilter evidence import` takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvidenceDocument {
    /// Version of this form: [`EvidenceDocument::FORMAT`]. A reader refuses what it does not know.
    pub kilter_evidence: u32,
    /// The verdicts, oldest first.
    pub evidence: Vec<Evidence>,
}

impl EvidenceDocument {
    /// The version that this kilter writes, and the only one there has been.
    pub const FORMAT: u32 = 1;
}

/// What `kilter evidence import --json` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvidenceImported {
    /// Verdicts that were added.
    pub new: u32,
    /// Verdicts that were here already.
    pub known: u32,
}

/// A verdict and how far it is from home. `kilter evidence --json` prints a list of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KnownEvidence {
    /// The verdict.
    #[serde(flatten)]
    pub evidence: Evidence,
    /// Whether it was measured on a machine like this one, by its fingerprint, kernel aside.
    pub same_machine: bool,
    /// Whether it was measured under the kernel release that runs now.
    pub same_kernel: bool,
}
