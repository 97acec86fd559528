//! `kilter reclaim`: memory of apps in the background, given up before it has to be taken.

mod experiment;
mod once;
mod run;
mod status;

use crate::cli::Reclaim;
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use std::path::PathBuf;

pub use run::hold;

/// The knob whose value is the policy of the daemon that runs.
pub const KNOB: &str = "reclaim.policy";

/// The directory of the running daemon.
const DIR: &str = "/run/kilter/reclaim";

/// Its socket: whoever connects gets a `ReclaimDaemon` as JSON.
const SOCKET: &str = "socket";

/// Runs `kilter reclaim`.
pub fn run(machine: &Machine, command: &Reclaim) -> Outcome {
    if !machine.is_real() {
        return Err(Failure::new(
            "--root: memory is reclaimed from processes of this machine, not from files elsewhere",
        ));
    }
    match command {
        Reclaim::Once(args) => once::run(machine, args),
        Reclaim::Run(args) => run::run(machine, args),
        Reclaim::Status => status::run(machine),
        Reclaim::Explain { app } => status::explain(machine, app),
        Reclaim::Experiment(command) => experiment::run(machine, command),
    }
}

fn dir(machine: &Machine) -> PathBuf {
    machine.kernel.below(DIR)
}
