//! `kilter reclaim`.

use super::Experiment;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use std::path::PathBuf;

/// `kilter reclaim`.
#[derive(Debug, Subcommand)]
pub enum Reclaim {
    /// Reclaim from a process or a cgroup now, and tell what it really did
    Once(ReclaimOnce),
    /// Reclaim from apps in the background when memory gets scarce, until this command ends
    Run(ReclaimRun),
    /// Show the running daemon, and every app: state, memory, what was done and why
    Status,
    /// Tell every step of the daemon's last decision about an app
    Explain {
        /// Its name, a process of it, or its cgroup
        app: String,
    },
    /// Measure on this machine what reclaim is worth
    #[command(subcommand)]
    Experiment(Experiment),
}

/// `kilter reclaim once`.
#[derive(Debug, Args)]
pub struct ReclaimOnce {
    /// The process, or the cgroup (a path below /sys/fs/cgroup, or within a hierarchy)
    #[arg(value_name = "PID|CGROUP")]
    pub target: String,
    /// Mark memory as the first to go when it is needed; nothing leaves now (MADV_COLD)
    #[arg(long, conflicts_with = "pageout")]
    pub cold: bool,
    /// Reclaim now (MADV_PAGEOUT); the default
    #[arg(long)]
    pub pageout: bool,
    /// Only anonymous and shared memory, which goes to swap; or a hint of its own for it
    #[arg(long, value_name = "HINT", num_args = 0..=1, require_equals = true)]
    pub anon: Option<Option<HintArg>>,
    /// Only pages of files; or a hint of its own for them
    #[arg(long, value_name = "HINT", num_args = 0..=1, require_equals = true)]
    pub file: Option<Option<HintArg>>,
    /// Both kinds of memory; the default
    #[arg(long, conflicts_with_all = ["anon", "file"])]
    pub all: bool,
    /// KiB in one call of the kernel, a power of two; 1024 by default, 2048 for huge pages
    #[arg(long, value_name = "KIB", value_parser = call_kib)]
    pub call_kib: Option<u32>,
    /// Workers, each on one half of the addresses
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    pub workers: u32,
}

/// What is done with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HintArg {
    /// The first to go when memory is needed
    Cold,
    /// Out now
    Pageout,
}

/// `kilter reclaim run`.
#[derive(Debug, Default, Args)]
pub struct ReclaimRun {
    /// Which apps are cached, and what is done [default: /etc/kilter/reclaim.toml]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// When to reclaim; wins over the configuration
    #[arg(long, value_enum)]
    pub policy: Option<ReclaimPolicy>,
    /// Only apps of this cgroup, whose limit counts instead of the machine's memory
    #[arg(long, value_name = "CGROUP")]
    pub within: Option<String>,
    /// A parameter for this start (repeatable); wins over the configuration
    #[arg(short, long = "set", value_name = "PARAMETER=VALUE")]
    pub set: Vec<String>,
}

/// When to reclaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReclaimPolicy {
    /// Mark cached apps as cold; page them out, the longest cached first, when memory gets scarce
    Pressure,
    /// Page an app out as soon as it is cached
    OnCached,
}

fn call_kib(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(kib) if (4..=1 << 20).contains(&kib) && kib.is_power_of_two() => Ok(kib),
        _ => Err("a power of two from 4 to 1048576".to_owned()),
    }
}
