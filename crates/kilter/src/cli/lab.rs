//! Flags of the commands that give verdicts: compare, tune, audit, selftest; and of report.

use super::{ConsentArgs, RunArgs};
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;

/// How sure a verdict is, and how fine.
#[derive(Debug, Args)]
#[command(next_help_heading = "Verdicts")]
pub struct PrecisionArgs {
    /// Chance of any verdict “better” or “worse” where nothing differs, above 0 to 0.5
    ///
    /// All arms and all metrics that decide share it, and it holds however often the runs are looked
    /// at.
    #[arg(
        long,
        value_name = "CHANCE",
        default_value = "0.05",
        allow_negative_numbers = true
    )]
    pub alpha: String,
    /// Smallest effect of interest in percent, above 0 to below 50
    ///
    /// Plans how many runs are made; never moves a verdict.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "2",
        allow_negative_numbers = true
    )]
    pub detect: String,
    /// Half-width of the region of equivalence in percent, above 0 to below 50
    ///
    /// An effect that lies inside, whole interval and all, is “no difference”. A narrow region costs
    /// many runs.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "1",
        allow_negative_numbers = true
    )]
    pub region: String,
    /// Seed of everything random; by default a new one, which is printed
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// What decides, and what else is looked at.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Verdicts")]
pub struct DecideArgs {
    /// Measure and show this too, without deciding by it (repeatable; written as for `--metric`)
    #[arg(long, value_name = "METRIC")]
    pub also: Vec<String>,
    /// A limit that a better arm has to keep, such as 'p99 <= +5%' (repeatable)
    ///
    /// NAME <= PERCENT% where less of the metric is better, NAME >= PERCENT% where more is. The
    /// limit is a change against the base, from above -100 % to 1000 %, and is kept only if the bad
    /// end of the metric's interval is within it. NAME is a metric that is measured, or any number of
    /// a run (`max_rss_kib`), which is then measured too. Quote it: `<` and `>` are the shell's.
    #[arg(long, value_name = "LIMIT")]
    pub guard: Vec<String>,
    /// Exit 1 unless the verdict is this
    #[arg(long, value_name = "VERDICT")]
    pub require: Option<Required>,
}

/// Verdicts that can be required.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Required {
    /// Better, with confidence
    Better,
}

/// What is run again and again, and how sure a verdict on it has to be.
#[derive(Debug, Args)]
pub struct WorkArgs {
    /// Measure a workload of the catalog instead of a command
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    pub workload: Option<String>,
    #[command(flatten)]
    pub run: RunArgs,
    /// The command and its arguments
    #[arg(last = true, value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<String>,
    #[command(flatten)]
    pub precision: PrecisionArgs,
}

/// `kilter compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// What the others are compared with: `current`, a profile, or KNOB=VALUE,…
    #[arg(long, value_name = "ARM", default_value = "current")]
    pub base: String,
    /// What is compared with it (repeatable)
    #[arg(long, value_name = "ARM")]
    pub with: Vec<String>,
    /// Commands to compare, each one string; the first is the base
    #[arg(value_name = "COMMAND", conflicts_with_all = ["with", "workload", "command"])]
    pub commands: Vec<String>,
    #[command(flatten)]
    pub consent: ConsentArgs,
    /// Make exactly N blocks and look once at the end
    ///
    /// Without it, runs end as soon as the verdicts are in. Every arm runs twice in a block. From 2
    /// to 100000.
    #[arg(long, value_name = "N", conflicts_with_all = ["max_runs", "budget"], value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub blocks: Option<u32>,
    /// Make at most N runs of all arms together; 200 without --budget
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub max_runs: Option<u32>,
    /// End after this long (`90s`, `10m`)
    #[arg(long, value_name = "TIME")]
    pub budget: Option<String>,
    /// Write all runs to FILE (`.csv` or `.json`)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub export: Option<PathBuf>,
    #[command(flatten)]
    pub work: WorkArgs,
    #[command(flatten)]
    pub decide: DecideArgs,
}

/// `kilter tune`.
#[derive(Debug, Args)]
pub struct Tune {
    /// Knobs to search; by default all that have a search range and can be written here
    #[arg(long, value_name = "GLOB", num_args = 1.., value_delimiter = ',')]
    pub knobs: Vec<String>,
    /// Hold a value in every arm, the baseline too (repeatable)
    #[arg(long, value_name = "KNOB=VALUE")]
    pub fix: Vec<String>,
    /// Narrow or give the range of a knob (repeatable)
    #[arg(long, value_name = "KNOB=LOW..HIGH")]
    pub range: Vec<String>,
    /// End the search after this many trials
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub trials: Option<u32>,
    /// End everything after this long (`10m`; the default without --trials)
    #[arg(long, value_name = "TIME")]
    pub budget: Option<String>,
    /// Name of the study and of the profile; by default made of the command's name
    #[arg(long, value_name = "NAME")]
    pub study: Option<String>,
    /// Optuna storage of the studies (any RDB URL); by default SQLite
    #[arg(long, value_name = "URL")]
    pub storage: Option<String>,
    /// Where to write the HTML report; by default beside the study
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub work: WorkArgs,
    #[command(flatten)]
    pub decide: DecideArgs,
}

/// `kilter audit`.
#[derive(Debug, Args)]
pub struct Audit {
    /// The profile's name
    pub profile: String,
    #[command(flatten)]
    pub consent: ConsentArgs,
    /// Make at most N runs in all; 400 without --budget
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(8..=10_000_000))]
    pub max_runs: Option<u32>,
    /// End after this long (`30m`)
    #[arg(long, value_name = "TIME")]
    pub budget: Option<String>,
    #[command(flatten)]
    pub work: WorkArgs,
    #[command(flatten)]
    pub decide: DecideArgs,
}

/// `kilter selftest`.
#[derive(Debug, Args)]
#[command(mut_arg("workload", |workload| workload
    .help("Measure a workload of the catalog; `messaging` where no command is given")))]
pub struct Selftest {
    /// Runs to make, from 40; all comparisons are made of them
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(40..=1_000_000))]
    pub runs: u32,
    /// End after this long (`10m`), with the runs made until then
    #[arg(long, value_name = "TIME")]
    pub budget: Option<String>,
    #[command(flatten)]
    pub work: WorkArgs,
}

/// `kilter report`.
#[derive(Debug, Args)]
pub struct Report {
    /// The study's name
    pub study: String,
    /// The form
    #[arg(long, value_enum, default_value_t = ReportFormat::Html)]
    pub format: ReportFormat,
    /// File to write; by default standard output, or STUDY.html for html on a terminal
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Optuna storage of the studies
    #[arg(long, value_name = "URL")]
    pub storage: Option<String>,
}

/// Forms of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// One self-contained page
    Html,
    /// Markdown
    Md,
    /// All data
    Json,
}
