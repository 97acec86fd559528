//! `kilter groups`.

use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// `kilter groups`.
#[derive(Debug, Subcommand)]
pub enum Groups {
    /// Keep every user's processes in a CPU group of their own, until this command ends
    Run(GroupsRun),
    /// Show the groups, their tasks and their share of the CPU now
    Status {
        /// Seconds over which shares are measured
        #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
        interval: f64,
    },
    /// Four tasks of one user against one of another on one CPU, without groups and with them
    Demo(GroupsDemo),
    /// Print what to give systemd instead, on machines that it runs
    DropIn {
        /// Configuration to take the weights from [default: /etc/kilter/groups.toml]
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        config: Option<PathBuf>,
    },
    /// Keep one CPU busy, for the demonstration
    #[command(hide = true)]
    Hog {
        /// Become this user first
        #[arg(long)]
        uid: u32,
        /// Run on this CPU only
        #[arg(long)]
        cpu: usize,
        /// Seconds from the line on standard input on
        #[arg(long)]
        seconds: f64,
    },
}

/// `kilter groups run`.
#[derive(Debug, Default, Args)]
pub struct GroupsRun {
    /// Weights, limits and exceptions [default: /etc/kilter/groups.toml]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Only these users; all others stay as they are (`1000,2000-2999`)
    #[arg(long, value_name = "UID,…", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Do not ask to be woken before others
    ///
    /// By default the process runs under SCHED_FIFO at priority 1, so that a process is moved within
    /// a fraction of a millisecond of changing its uid even on a busy machine. The kernel ends it
    /// should it ever run for half a second without sleeping, and everything is put back.
    #[arg(long)]
    pub no_realtime: bool,
    /// Run although systemd has a slice for each user
    #[arg(long)]
    pub beside_systemd: bool,
}

/// `kilter groups demo`.
#[derive(Debug, Args)]
pub struct GroupsDemo {
    /// Seconds of each half
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub seconds: f64,
    /// The CPU to pin all tasks to; the last one by default
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
    /// The users: that of four tasks, and that of the lone one; they need no account
    #[arg(long, value_name = "UID,UID", value_delimiter = ',', num_args = 2, default_values_t = [64_101, 64_102], value_parser = clap::value_parser!(u32).range(1..=4_294_967_294))]
    pub uids: Vec<u32>,
}
