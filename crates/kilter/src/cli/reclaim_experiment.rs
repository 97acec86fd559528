//! `kilter reclaim experiment`.

use super::PrecisionArgs;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use kilter_api::Killer;
use std::path::PathBuf;

/// `kilter reclaim experiment`.
#[derive(Debug, Subcommand)]
pub enum Experiment {
    /// Switch between apps in memory that is too small for all: kills, starts and launch times
    ///
    /// Takes a memory cgroup, and swap on a zram device of its own; both are gone afterwards,
    /// whoever was killed.
    Appswitch(Appswitch),
    /// Time starts of an app: from scratch, from swap, from memory; and paging it out, killing it
    Startup(Startup),
}

/// `kilter reclaim experiment appswitch`.
#[derive(Debug, Args)]
pub struct Appswitch {
    /// Apps; half of them are dear to rebuild
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub apps: u32,
    /// Changes of the app in front, after every app was started once
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub switches: u32,
    /// Who reclaims in the background; the first is what the others are compared with
    #[arg(
        long,
        value_name = "ARM,…",
        value_delimiter = ',',
        default_value = "none,kilter"
    )]
    pub arms: Vec<ArmArg>,
    /// MiB of each app's data
    #[arg(long, value_name = "MIB", default_value_t = 80, value_parser = clap::value_parser!(u32).range(4..=65_536))]
    pub app_mib: u32,
    /// MiB that all apps together may have in memory; by default six apps' worth
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(16..=1_048_576))]
    pub limit_mib: Option<u32>,
    /// MiB of swap on zram; by default as much as the apps' data
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(16..=1_048_576))]
    pub swap_mib: Option<u32>,
    /// Time from an app's answer to the next switch (`500ms`, `2s`)
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    pub think: String,
    /// Who kills when memory runs out
    #[arg(long, value_enum, default_value_t = KillerArg::Group)]
    pub killer: KillerArg,
    /// Also write every run into this file (.csv or .json)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub export: Option<PathBuf>,
    #[command(flatten)]
    pub length: LengthArgs,
    #[command(flatten)]
    pub precision: PrecisionArgs,
}

/// `kilter reclaim experiment startup`.
#[derive(Debug, Args)]
pub struct Startup {
    /// Kinds of apps
    #[arg(
        long,
        value_name = "KIND,…",
        value_delimiter = ',',
        default_value = "index,database,canvas"
    )]
    pub kinds: Vec<KindArg>,
    /// MiB of the app's data
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(4..=65_536))]
    pub app_mib: u32,
    #[command(flatten)]
    pub length: LengthArgs,
    #[command(flatten)]
    pub precision: PrecisionArgs,
}

/// How long an experiment takes.
#[derive(Debug, Args)]
pub struct LengthArgs {
    /// Make exactly N blocks and look once at the end; 5 without --budget
    ///
    /// Every arm runs twice in a block. From 2 to 1000.
    #[arg(long, value_name = "N", conflicts_with = "budget", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub blocks: Option<u32>,
    /// End as soon as the verdicts are in, and after this long at the latest (`90s`, `30m`)
    #[arg(long, value_name = "TIME")]
    pub budget: Option<String>,
}

/// Who reclaims in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ArmArg {
    /// Nobody; the kernel kills in the group before it swaps (without a group: it does as it likes)
    None,
    /// Nobody; the kernel swaps the group's memory by itself
    Swap,
    /// `kilter reclaim run --policy pressure`
    Kilter,
    /// `kilter reclaim run --policy on-cached`
    OnCached,
    /// All of an app, whenever it leaves the front
    EverySwitch,
    /// Senpai's method: squeeze all, by pressure
    Senpai,
}

/// Who kills when memory runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KillerArg {
    /// The out-of-memory killer of the memory cgroup that the apps are in
    Group,
    /// Debian's earlyoom, on a small machine or a guest as a whole
    Earlyoom,
    /// The kernel's own, on a small machine or a guest as a whole, which swaps before it kills
    Kernel,
}

/// Kinds of apps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KindArg {
    /// Python objects, parsed from text
    Index,
    /// An SQL database in memory
    Database,
    /// One large buffer
    Canvas,
}

impl From<KillerArg> for Killer {
    fn from(killer: KillerArg) -> Killer {
        match killer {
            KillerArg::Group => Killer::Group,
            KillerArg::Earlyoom => Killer::Earlyoom,
            KillerArg::Kernel => Killer::Kernel,
        }
    }
}
