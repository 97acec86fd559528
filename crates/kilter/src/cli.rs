//! The command line: flags and their help, from which man pages and completions are made.

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use kilter_api::Risk;
use std::path::PathBuf;

/// Find by experiment which kernel settings help this machine and this work, hold them safely, and
/// put everything back.
#[derive(Debug, Parser)]
#[command(
    name = "kilter",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
pub struct Cli {
    /// Look at the kernel files below DIR instead of the machine's own
    #[arg(long, global = true, value_name = "DIR", env = "KILTER_ROOT", default_value = "/", hide_default_value = true, value_hint = ValueHint::DirPath, help_heading = "Global options")]
    pub root: PathBuf,
    /// Print JSON on standard output
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say what this machine can do
    Doctor,
    /// Look at the catalog of knobs on this kernel
    #[command(subcommand)]
    Knobs(Knobs),
    /// Look at profiles, and save them
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Run a command once under other settings, measure it, and put the settings back
    Run(Run),
    /// Run a workload of the catalog and print its metrics
    Bench(Bench),
    /// Compare settings, profiles or commands, interleaved
    Compare(Compare),
    /// Search for settings that make a command better, prove them, and save them as a profile
    Tune(Tune),
    /// Write the report of a study
    Report(Report),
    /// Put a profile in force until it is reverted
    Apply(Apply),
    /// Put settings back
    Revert(Revert),
    /// Show the layers in force
    Status,
    /// Check that held values are still in force; exit 1 when one has drifted
    Verify,
    /// Show what a profile would change, or how two profiles differ; exit 1 when anything does
    Diff(Diff),
    /// Look at the evidence, and record it
    #[command(subcommand)]
    Evidence(EvidenceCommand),
    /// Generate load
    #[command(subcommand, hide = true)]
    Load(Load),
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man {
        /// The directory
        dir: PathBuf,
    },
}

/// `kilter knobs`.
#[derive(Debug, Subcommand)]
pub enum Knobs {
    /// List knobs with their current values
    List {
        /// Knobs to list (`vm.*`, `block.vda.*`); all by default
        #[arg(value_name = "GLOB")]
        globs: Vec<String>,
        /// List also what this kernel does not have, and why
        #[arg(long)]
        all: bool,
    },
    /// Explain one knob
    Show {
        /// The knob's name
        knob: String,
    },
}

/// `kilter profile`.
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// List profiles
    List,
    /// Show a profile's values with their reasons
    Show {
        /// The profile's name
        name: String,
    },
    /// Save a profile given as JSON on standard input
    Save,
}

/// `kilter evidence`.
#[derive(Debug, Subcommand)]
pub enum EvidenceCommand {
    /// List verdicts
    List {
        /// Only those in which this knob has a value
        #[arg(long, value_name = "KNOB")]
        knob: Option<String>,
    },
    /// Record verdicts given as JSON lines on standard input
    Record,
}

/// Settings of one arm.
#[derive(Debug, Default, Args)]
pub struct SettingArgs {
    /// Set a knob (repeatable)
    #[arg(short, long = "set", value_name = "KNOB=VALUE")]
    pub set: Vec<String>,
    /// Set all values of a profile; `--set` wins over it
    #[arg(short, long, value_name = "NAME")]
    pub profile: Option<String>,
    #[command(flatten)]
    pub consent: ConsentArgs,
}

/// What risks are accepted.
#[derive(Debug, Default, Args)]
pub struct ConsentArgs {
    /// Accept knobs of these risks
    #[arg(long, value_name = "RISK,…", value_delimiter = ',')]
    pub allow: Vec<RiskArg>,
    /// Leave risky knobs of a profile out
    #[arg(long, conflicts_with = "allow")]
    pub skip_risky: bool,
}

/// Risks that can be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RiskArg {
    /// More data lost in a crash
    Durability,
    /// A defence removed
    Security,
    /// The machine can lock up
    Hang,
}

impl From<RiskArg> for Risk {
    fn from(risk: RiskArg) -> Risk {
        match risk {
            RiskArg::Durability => Risk::Durability,
            RiskArg::Security => Risk::Security,
            RiskArg::Hang => Risk::Hang,
        }
    }
}

/// How runs are made.
#[derive(Debug, Default, Args)]
pub struct RunArgs {
    /// What to measure: `wall_s` and other fields of a run, or NAME=/REGEX/ or NAME=json:/POINTER
    /// on the output; append `:max` where more is better (repeatable; the first decides)
    #[arg(short, long, value_name = "METRIC")]
    pub metric: Vec<String>,
    /// Command to execute before each run, outside the timing (split into words, no shell)
    #[arg(long, value_name = "COMMAND")]
    pub prepare: Option<String>,
    /// Command to execute after each run, outside the timing
    #[arg(long, value_name = "COMMAND")]
    pub cleanup: Option<String>,
    /// End a run after this long (`90s`, `5m`)
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
    /// Wait this long after a change of settings
    #[arg(long, value_name = "TIME")]
    pub settle: Option<String>,
    /// Pin the workload to these CPUs (`0,2-3`)
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// Run the workload as root even under sudo
    #[arg(long)]
    pub as_root: bool,
    /// Give commands that are one string to `sh -c`
    #[arg(long)]
    pub shell: bool,
}

/// `kilter run`.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub settings: SettingArgs,
    #[command(flatten)]
    pub run: RunArgs,
    /// Read runs as JSON lines from standard input and answer each with a record
    #[arg(long, conflicts_with_all = ["set", "profile", "metric", "prepare", "cleanup", "timeout", "settle", "cpus", "shell"])]
    pub batch: bool,
    /// The command and its arguments
    #[arg(last = true, required_unless_present = "batch", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<String>,
}

/// `kilter bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// The workload's name
    #[arg(required_unless_present = "list")]
    pub workload: Option<String>,
    /// List the workloads
    #[arg(long)]
    pub list: bool,
    /// How many runs
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Run the workload as root even under sudo
    #[arg(long)]
    pub as_root: bool,
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
    #[arg(value_name = "COMMAND", conflicts_with_all = ["with", "command"])]
    pub commands: Vec<String>,
    #[command(flatten)]
    pub run: RunArgs,
    #[command(flatten)]
    pub consent: ConsentArgs,
    #[command(flatten)]
    pub verdict: VerdictArgs,
    /// Blocks of interleaved runs; every arm runs twice in a block
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub blocks: u32,
    /// Write all runs to FILE (`.csv` or `.json`)
    #[arg(long, value_name = "FILE")]
    pub export: Option<PathBuf>,
    /// Measure a workload of the catalog instead of a command
    #[arg(long, value_name = "NAME", conflicts_with_all = ["commands", "command"])]
    pub workload: Option<String>,
    /// The command and its arguments
    #[arg(last = true, value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<String>,
}

/// What counts as a difference.
#[derive(Debug, Args)]
pub struct VerdictArgs {
    /// Half-width of the region of equivalence, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub region: f64,
    /// Exit 1 unless the verdict is this
    #[arg(long, value_name = "VERDICT")]
    pub require: Option<Required>,
    /// Seed of everything random; by default a new one, which is printed
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Verdicts that can be required.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Required {
    /// Better, with confidence
    Better,
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
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub run: RunArgs,
    #[command(flatten)]
    pub verdict: VerdictArgs,
    /// Tune for a workload of the catalog instead of a command
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    pub workload: Option<String>,
    /// The command and its arguments
    #[arg(last = true, value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<String>,
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
    #[arg(short, long, value_name = "FILE")]
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

/// `kilter apply`.
#[derive(Debug, Args)]
pub struct Apply {
    /// The profile's name
    pub profile: String,
    /// Print what would be written and stop
    #[arg(long)]
    pub dry_run: bool,
    /// Revert after this many seconds unless confirmed with Enter
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub confirm: Option<u32>,
    #[command(flatten)]
    pub consent: ConsentArgs,
}

/// `kilter revert`.
#[derive(Debug, Args)]
pub struct Revert {
    /// The layer to take back; all that are held by default
    pub layer: Option<String>,
    /// Overwrite also what somebody else has changed since
    #[arg(long)]
    pub force: bool,
}

/// `kilter diff`.
#[derive(Debug, Args)]
pub struct Diff {
    /// The profile
    pub profile: String,
    /// Another profile to compare it with, instead of the machine
    pub other: Option<String>,
}

/// `kilter load`.
#[derive(Debug, Subcommand)]
pub enum Load {
    /// Groups of senders and receivers over pipes or sockets (hackbench's pattern)
    Messaging(Messaging),
    /// Message threads wake workers (schbench's pattern)
    Wakeup(Wakeup),
}
/// `kilter load messaging`.
#[derive(Debug, Args)]
pub struct Messaging {
    /// Groups
    #[arg(short, long, default_value_t = 10)]
    pub groups: u32,
    /// Senders, and as many receivers, in a group
    #[arg(short, long, default_value_t = 20)]
    pub pairs: u32,
    /// Messages from each sender to each receiver of its group
    #[arg(short, long, default_value_t = 100)]
    pub loops: u32,
    /// Bytes of a message
    #[arg(short, long, default_value_t = 100)]
    pub size: u32,
    /// Pipes instead of socket pairs
    #[arg(long)]
    pub pipe: bool,
    /// Threads instead of processes
    #[arg(long)]
    pub threads: bool,
}

/// `kilter load wakeup`.
#[derive(Debug, Args)]
pub struct Wakeup {
    /// Message threads
    #[arg(short, long, default_value_t = 1)]
    pub message_threads: u32,
    /// Workers of a message thread; by default as many as there are CPUs
    #[arg(short, long)]
    pub workers: Option<u32>,
    /// Seconds of measurement
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10.0)]
    pub runtime: f64,
    /// Seconds before it that do not count
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub warmup: f64,
    /// Microseconds that a request sleeps first
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 100)]
    pub sleep: u32,
    /// Matrix multiplications in a request
    #[arg(long, default_value_t = 5)]
    pub operations: u32,
    /// KiB that the matrices of a worker take
    #[arg(long, value_name = "KIB", default_value_t = 256)]
    pub cache: u32,
    /// Do not multiply under a lock per CPU
    #[arg(long)]
    pub no_locking: bool,
}
