//! The command line: flags and their help, from which man pages and completions are made.

mod groups;
mod hold;
mod lab;
mod load;
mod reclaim;
mod reclaim_experiment;
mod sched;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
pub use groups::*;
pub use hold::*;
use kilter_api::Risk;
pub use lab::*;
pub use load::*;
pub use reclaim::*;
pub use reclaim_experiment::*;
pub use sched::*;
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
    /// Tell who set a knob: a layer, sysctl.d, udev, another tuner, or the kernel's default
    Why {
        /// The knob's name
        knob: String,
    },
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
    /// Measure a profile as a whole, and which of its lines carry the effect
    Audit(Audit),
    /// Measure how often kilter tells two equal arms apart on this machine
    Selftest(Selftest),
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
    /// Write a profile as a file for machines and tools without kilter
    Export(Export),
    /// Make a profile of another tool's file, and tell what it could not take over
    #[command(subcommand)]
    Import(Import),
    /// Look at the verdicts kept so far, and move them between machines
    Evidence(Evidence),
    /// Give every user an equal share of the CPU, however many tasks each starts
    #[command(subcommand)]
    Groups(Groups),
    /// Hold a profile for good: at every boot, over hotplug and resume, with an eye on drift
    Hold(Hold),
    /// Hold a knob whose value is a process
    #[command(hide = true)]
    Holder {
        /// The knob
        knob: String,
        /// Its value
        value: String,
    },
    /// Make apps in the background give memory up before anything has to be killed
    #[command(subcommand)]
    Reclaim(Reclaim),
    /// Run the HRRN scheduler (sched_ext), watch it, change it
    #[command(subcommand)]
    Sched(Sched),
    /// Generate load
    #[command(subcommand, hide = true)]
    Load(Load),
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the catalog as Markdown into a directory
    #[command(hide = true)]
    Docs {
        /// The directory
        dir: PathBuf,
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

/// `kilter export`.
#[derive(Debug, Args)]
pub struct Export {
    /// The profile's name
    pub profile: String,
    /// What to make of it
    #[arg(long)]
    pub to: Target,
    /// File to write, whole or not at all; by default standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub consent: ConsentArgs,
}

/// What a profile can be exported to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// A shell script that finds out what the kernel has, keeps originals and can put them back
    Script,
    /// A file of sysctl.d, as far as knobs are sysctls
    #[value(name = "sysctl.d")]
    SysctlD,
    /// A zip with the script that Magisk and KernelSU install
    Magisk,
    /// A tuned.conf
    Tuned,
    /// A unit that runs the script at boot
    Systemd,
}

/// `kilter import`.
#[derive(Debug, Subcommand)]
pub enum Import {
    /// A profile of TuneD's: its sysctl, sysfs, vm, cpu, disk and scheduler plugins
    Tuned {
        /// The profile's name, or the path of its tuned.conf
        #[arg(value_name = "FILE|NAME", value_hint = ValueHint::FilePath)]
        source: String,
        #[command(flatten)]
        as_profile: AsProfile,
    },
    /// A file of sysctl.d: globs, names that win over them, `-`
    Sysctl {
        /// The file
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        #[command(flatten)]
        as_profile: AsProfile,
    },
    /// A script that writes settings: runs it in a sandbox with copies of the kernel's files
    ///
    /// The script is root there and nobody outside, sees the system's programs and otherwise nothing
    /// of the machine, and has a limit of time, processes, memory and output. What it wrote to the
    /// copies becomes the profile, what it wrote elsewhere is told. The machine is not touched.
    Script {
        /// The script
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// End it after this long
        #[arg(long, value_name = "TIME", default_value = "60s")]
        timeout: String,
        /// Let it find files that this kernel does not have, as far as the catalog knows them
        #[arg(long)]
        every_kernel: bool,
        #[command(flatten)]
        as_profile: AsProfile,
        /// Arguments of the script
        #[arg(last = true)]
        arguments: Vec<String>,
    },
}

/// The profile that an import becomes.
#[derive(Debug, Args)]
pub struct AsProfile {
    /// Name of the new profile; by default the imported one's
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Write over a profile of that name
    #[arg(long)]
    pub force: bool,
    /// Show what it would become and stop
    #[arg(long)]
    pub dry_run: bool,
}

/// `kilter evidence`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Evidence {
    /// Only verdicts in which this knob changed; a glob (`vm.*`) stands for several
    pub knob: Option<String>,
    /// What to do; to list is the default
    #[command(subcommand)]
    pub command: Option<EvidenceCommand>,
}

/// What can be done with evidence.
#[derive(Debug, Subcommand)]
pub enum EvidenceCommand {
    /// List verdicts by setting, the newest first
    List {
        /// Only verdicts in which this knob changed; a glob (`vm.*`) stands for several
        knob: Option<String>,
    },
    /// Print verdicts as one JSON document, for `evidence import` on another machine
    Export {
        /// Only verdicts in which this knob changed; a glob (`vm.*`) stands for several
        knob: Option<String>,
        /// File to write, whole or not at all; by default standard output
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: Option<PathBuf>,
    },
    /// Add the verdicts of an exported document; those already here are left out
    ///
    /// Every verdict is checked before the first is kept. Imported verdicts are marked wherever they
    /// are shown, and never taken for this machine's own.
    Import {
        /// The document, at most 16 MiB; `-` for standard input
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Record verdicts given as JSON lines on standard input
    #[command(hide = true)]
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

impl RiskArg {
    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            RiskArg::Durability => "durability",
            RiskArg::Security => "security",
            RiskArg::Hang => "hang",
        }
    }
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
    /// What to measure; by default `wall_s`, or a workload's first metric (repeatable)
    ///
    /// `wall_s`, `user_s`, `max_rss_kib` or another number of a run; NAME=/REGEX/ or
    /// NAME=json:/POINTER for a number in the output; or a metric of the workload by its name. Append
    /// `:max` where more is better. Each one gets a verdict where verdicts are given, and they share
    /// the error.
    #[arg(short, long, value_name = "METRIC")]
    pub metric: Vec<String>,
    /// Command to execute before each run, outside the timing (split into words, no shell)
    #[arg(long, value_name = "COMMAND")]
    pub prepare: Option<String>,
    /// Command to execute after each run, outside the timing
    #[arg(long, value_name = "COMMAND")]
    pub cleanup: Option<String>,
    /// End a run after this long (`90s`, `5m`); by default it may take any time
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
    /// Wait this long after a change of settings (`500ms`, `2s`); by default not at all
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
