//! `kilter hold`.

use super::ConsentArgs;
use clap::{Args, Subcommand, ValueEnum};
use kilter_api::HoldPolicy;

/// `kilter hold`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Hold {
    #[command(subcommand)]
    pub command: Option<HoldCommand>,
    /// The profile to hold from now on and at every boot
    #[arg(required = true)]
    pub profile: Option<String>,
    #[command(flatten)]
    pub how: HoldHow,
    /// Print the unit that would be installed and stop
    #[arg(long)]
    pub dry_run: bool,
}

/// What else `kilter hold` does.
#[derive(Debug, Subcommand)]
pub enum HoldCommand {
    /// Hold a profile in the foreground, as the unit does
    Run {
        /// The profile's name
        profile: String,
        #[command(flatten)]
        how: HoldHow,
    },
    /// Show what is held, and what somebody else has changed
    Status,
    /// Hold a profile no more: its process ends and its unit goes
    Remove {
        /// The profile's name
        profile: String,
    },
}

/// How a profile is held.
#[derive(Debug, Default, Args)]
pub struct HoldHow {
    /// What to do when somebody else changes a value
    #[arg(long, value_enum, default_value_t = PolicyArg::Yield)]
    pub policy: PolicyArg,
    /// Put the settings back when holding ends, however it ends
    #[arg(long)]
    pub revert_on_stop: bool,
    /// How often to look for changes
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub every: String,
    #[command(flatten)]
    pub consent: ConsentArgs,
}

/// Policies by name.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PolicyArg {
    /// The later change wins, and is told once
    #[default]
    Yield,
    /// The later change stays, and is warned of
    Warn,
    /// The value is set again
    Enforce,
}

impl PolicyArg {
    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            PolicyArg::Yield => "yield",
            PolicyArg::Warn => "warn",
            PolicyArg::Enforce => "enforce",
        }
    }
}

impl From<PolicyArg> for HoldPolicy {
    fn from(policy: PolicyArg) -> HoldPolicy {
        match policy {
            PolicyArg::Yield => HoldPolicy::Yield,
            PolicyArg::Warn => HoldPolicy::Warn,
            PolicyArg::Enforce => HoldPolicy::Enforce,
        }
    }
}
