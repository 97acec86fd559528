//! Requests that the binary hands to the Python lab. The binary has checked every name, range and
//! number in them; the lab parses no command line and reads no catalog.

use crate::{Evidence, Knob, Metric, Settings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the lab is asked to do; the standard input of `python3 -I -m kilter_lab`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum LabRequest {
    /// `kilter compare`.
    Compare(CompareRequest),
    /// `kilter tune`.
    Tune(Box<TuneRequest>),
    /// `kilter audit`.
    Audit(Box<AuditRequest>),
    /// `kilter selftest`.
    Selftest(SelftestRequest),
    /// `kilter report`.
    Report(ReportRequest),
    /// `kilter reclaim experiment appswitch`.
    Appswitch(AppswitchRequest),
    /// `kilter reclaim experiment startup`.
    Startup(StartupRequest),
}

/// What every request that runs workloads carries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabContext {
    /// The kilter command with its global options, to start `run --batch` and others with.
    pub kilter: Vec<String>,
    /// Options of `run --batch` (`--as-root`).
    #[serde(default)]
    pub batch_options: Vec<String>,
    /// Print JSON on standard output instead of text.
    #[serde(default)]
    pub json: bool,
    /// Seed of everything random.
    pub seed: u64,
}

/// How runs are made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunOptions {
    /// Metrics: first those that decide (see `Question::objectives`), then those that are guarded or
    /// only shown.
    pub metrics: Vec<Metric>,
    /// Executed before each run, outside the measurement.
    #[serde(default)]
    pub prepare: Vec<String>,
    /// Executed after each run, outside the measurement.
    #[serde(default)]
    pub cleanup: Vec<String>,
    /// Ends a run after this many seconds.
    #[serde(default)]
    pub timeout_s: Option<f64>,
    /// Waits this long after a change of settings.
    #[serde(default)]
    pub settle_s: f64,
    /// CPUs for the workload.
    #[serde(default)]
    pub cpus: Option<String>,
}

/// What is asked of the numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Chance that any verdict *better* or *worse* is given where nothing differs, above 0 to 0.5;
    /// shared by all arms and deciding metrics.
    pub alpha: f64,
    /// Smallest effect of interest in percent: plans how many runs are made, never moves a verdict.
    pub detect_percent: f64,
    /// Half-width of the region of equivalence in percent.
    pub region_percent: f64,
    /// The first so many metrics decide; at least 1.
    pub objectives: u32,
    /// Limits that a better arm has to keep.
    #[serde(default)]
    pub guards: Vec<Guard>,
    /// Exit 1 unless every arm is better.
    #[serde(default)]
    pub require_better: bool,
}

/// A limit on a metric's change against the base (`p99 <= +5%`): kept only if the bad end of the
/// interval is within it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Guard {
    /// The metric's name, one of `RunOptions::metrics`.
    pub metric: String,
    /// Which side is allowed.
    pub bound: Bound,
    /// The limit of the change in percent of the base's value, above -100.
    pub percent: f64,
}

/// Side of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// `<=`: for metrics of which less is better.
    AtMost,
    /// `>=`: for metrics of which more is better.
    AtLeast,
}

/// What is compared: values and a command, with a name for people.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// `current`, a profile's name, or `KNOB=VALUE,…`.
    pub label: String,
    /// The values; empty for `current`.
    #[serde(default)]
    pub settings: Settings,
    /// The command.
    pub command: Vec<String>,
}

/// `kilter compare`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompareRequest {
    /// How to reach the binary.
    pub context: LabContext,
    /// How runs are made.
    pub options: RunOptions,
    /// What the others are compared with.
    pub base: Arm,
    /// One or more others.
    pub arms: Vec<Arm>,
    /// What is asked of the numbers.
    pub question: Question,
    /// Values that the arms' knobs have now.
    #[serde(default)]
    pub old: Settings,
    /// Workload of the catalog, or empty for a command.
    #[serde(default)]
    pub workload: String,
    /// Exactly so many blocks; absent: until the verdicts are in.
    #[serde(default)]
    pub blocks: Option<u32>,
    /// At most so many runs of all arms together.
    #[serde(default)]
    pub max_runs: Option<u32>,
    /// End by seconds.
    #[serde(default)]
    pub budget_s: Option<f64>,
    /// Where to write the raw runs (`.csv` or `.json`); absent for nowhere.
    #[serde(default)]
    pub export: Option<String>,
}

/// `kilter tune`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TuneRequest {
    /// How to reach the binary.
    pub context: LabContext,
    /// How runs are made.
    pub options: RunOptions,
    /// The study's name; also the profile's.
    pub study: String,
    /// SQLAlchemy URL of the Optuna storage.
    pub storage: String,
    /// Directory for the study's lock and report; exists.
    pub state_dir: String,
    /// The workload's command.
    pub command: Vec<String>,
    /// Knobs to search, with their values now; every one has a search range.
    pub knobs: Vec<Knob>,
    /// Values held in every arm, the baseline too.
    #[serde(default)]
    pub fixed: Settings,
    /// Pairs (a, b): knob a's value must not be above knob b's.
    #[serde(default)]
    pub at_most: Vec<(String, String)>,
    /// Values that an unsearched knob of `at_most` has.
    #[serde(default)]
    pub known: BTreeMap<String, String>,
    /// End of the search by trials.
    #[serde(default)]
    pub trials: Option<u32>,
    /// End of everything by seconds.
    #[serde(default)]
    pub budget_s: Option<f64>,
    /// What is asked of the numbers.
    pub question: Question,
    /// Workload of the catalog, or empty for a command.
    #[serde(default)]
    pub workload: String,
    /// Verdicts of earlier times on any of these knobs, wherever they were measured.
    #[serde(default)]
    pub evidence: Vec<Evidence>,
    /// Where to write the HTML report; absent: beside the study.
    #[serde(default)]
    pub report: Option<String>,
}

/// `kilter audit`: what of a profile carries its effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditRequest {
    /// How to reach the binary.
    pub context: LabContext,
    /// How runs are made.
    pub options: RunOptions,
    /// The profile's name.
    pub profile: String,
    /// The profile's lines that change something here, in its order.
    pub lines: Vec<AuditLine>,
    /// Lines that change nothing here, with the reason, for people.
    #[serde(default)]
    pub left_out: Vec<(String, String)>,
    /// The workload's command.
    pub command: Vec<String>,
    /// What is asked of the numbers.
    pub question: Question,
    /// Workload of the catalog, or empty for a command.
    #[serde(default)]
    pub workload: String,
    /// At most so many runs.
    #[serde(default)]
    pub max_runs: Option<u32>,
    /// End by seconds.
    #[serde(default)]
    pub budget_s: Option<f64>,
}

/// One line of an audited profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditLine {
    /// The knob.
    pub knob: String,
    /// Its value now.
    pub old: String,
    /// The profile's value.
    pub new: String,
    /// The profile's reason.
    #[serde(default)]
    pub why: String,
}

/// `kilter selftest`: how often two equal arms are told apart on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SelftestRequest {
    /// How to reach the binary.
    pub context: LabContext,
    /// How runs are made.
    pub options: RunOptions,
    /// The workload's command.
    pub command: Vec<String>,
    /// What is asked of the numbers.
    pub question: Question,
    /// Runs to make; all comparisons are made of them.
    pub runs: u32,
    /// End by seconds.
    #[serde(default)]
    pub budget_s: Option<f64>,
}

/// `kilter report`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportRequest {
    /// How to reach the binary.
    pub context: LabContext,
    /// The study's name.
    pub study: String,
    /// SQLAlchemy URL of the Optuna storage.
    pub storage: String,
    /// `html`, `md` or `json`.
    pub format: ReportFormat,
    /// File to write; absent: standard output.
    #[serde(default)]
    pub output: Option<String>,
}

/// `kilter reclaim experiment appswitch`: apps that take turns in memory too small for all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppswitchRequest {
    /// How to reach the binary; its seed is also that of the sequence of switches.
    pub context: LabContext,
    /// What is asked of the numbers.
    pub question: Question,
    /// Who reclaims, by name; the first is the base.
    pub arms: Vec<String>,
    /// Apps, at least 2.
    pub apps: u32,
    /// Changes of the app in front.
    pub switches: u32,
    /// MiB of each app's data.
    pub app_mib: u32,
    /// MiB that the apps may have in memory.
    pub limit_mib: u32,
    /// MiB of swap on zram.
    pub swap_mib: u32,
    /// Seconds from an app's answer to the next switch.
    pub think_s: f64,
    /// Who kills when memory runs out.
    #[serde(default)]
    pub killer: Killer,
    /// Exactly so many blocks; absent: until the verdicts are in.
    #[serde(default)]
    pub blocks: Option<u32>,
    /// End by seconds.
    #[serde(default)]
    pub budget_s: Option<f64>,
    /// Where to write the raw runs (`.csv` or `.json`); absent for nowhere.
    #[serde(default)]
    pub export: Option<String>,
}

/// Who kills when memory runs out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Killer {
    /// The OOM killer of the apps' memory cgroup.
    #[default]
    Group,
    /// Debian's earlyoom, for a whole machine; there is no cgroup then.
    Earlyoom,
    /// The kernel's own, for a whole machine, which swaps before it kills; no cgroup either.
    Kernel,
}

/// `kilter reclaim experiment startup`: what starting, reclaiming and killing an app costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartupRequest {
    /// How to reach the binary.
    pub context: LabContext,
    /// What is asked of the numbers.
    pub question: Question,
    /// Kinds of apps: `index`, `database`, `canvas`.
    pub kinds: Vec<String>,
    /// MiB of an app's data.
    pub app_mib: u32,
    /// MiB of swap on zram.
    pub swap_mib: u32,
    /// Exactly so many blocks; absent: until the verdicts are in.
    #[serde(default)]
    pub blocks: Option<u32>,
    /// End by seconds.
    #[serde(default)]
    pub budget_s: Option<f64>,
}

/// Forms of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReportFormat {
    /// One self-contained page.
    #[default]
    Html,
    /// Markdown.
    Md,
    /// All data.
    Json,
}
