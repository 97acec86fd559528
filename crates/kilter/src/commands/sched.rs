//! `kilter sched`: the HRRN scheduler, started, watched, changed.

mod report;
mod run;
mod status;
mod top;

use crate::cli::{Hrrn, Sched, ScxHrrn};
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use clap::Parser;
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

/// The knob whose value is the scheduler that runs.
pub const KNOB: &str = "sched";

/// Holds a value of the knob.
pub fn hold(machine: &Machine, value: &str) -> Outcome {
    let policy = match value {
        "hrrn" => "kilter",
        "hrrn-seed" => "seed",
        _ => return Err(Failure::new(format!("no process can hold {KNOB}={value}"))),
    };
    let arguments = ScxHrrn::try_parse_from(["scx_hrrn", "--policy", policy]);
    run::hold(machine, &arguments.map_err(Failure::new)?.hrrn)
}

fn dir(machine: &Machine) -> PathBuf {
    machine.kernel.below(DIR)
}

/// Nothing of ours runs.
fn not_running() -> Failure {
    Failure::new("no HRRN scheduler of kilter is running").hint("sudo kilter sched run hrrn")
}
