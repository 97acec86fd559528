//! `kilter sched`: the HRRN scheduler, started, watched, changed.

mod report;
mod run;
mod status;
mod top;

use crate::cli::{Hrrn, Sched};
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use std::path::PathBuf;

/// The directory of the running scheduler.
const DIR: &str = "/run/kilter/sched/hrrn";
/// Its socket: whoever connects gets a `SchedRun` as JSON.
const SOCKET: &str = "socket";

/// Runs `kilter sched`.
pub fn run(machine: &Machine, command: &Sched) -> Outcome {
    match command {
        Sched::Run { hrrn, .. } => start(machine, hrrn),
        Sched::Status => status::run(machine),
        Sched::Set { values, .. } => status::set(machine, values),
        Sched::Top { interval } => top::run(machine, *interval),
    }
}

/// Runs `kilter sched run hrrn`, or `scx_hrrn`.
pub fn start(machine: &Machine, hrrn: &Hrrn) -> Outcome {
    match hrrn.monitor {
        Some(interval) => status::monitor(machine, interval),
        None => run::run(machine, hrrn),
    }
}

fn dir(machine: &Machine) -> PathBuf {
    machine.kernel.below(DIR)
}

/// Nothing of ours runs.
fn not_running() -> Failure {
    Failure::new("no HRRN scheduler of kilter is running").hint("sudo kilter sched run hrrn")
}
