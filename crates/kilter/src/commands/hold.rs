//! `kilter hold`: the process behind a knob whose value is a process. Started by kilter when such a
//! knob is set, and ended when it is put back.

use crate::commands::{groups, sched};
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;

/// Runs the command.
pub fn run(machine: &Machine, knob: &str, value: &str) -> Outcome {
    kilter_kernel::wait_for_go()?;
    match (knob, value) {
        (groups::KNOB, "1") => groups::hold(machine),
        (sched::KNOB, value) => sched::hold(machine, value),
        _ => Err(Failure::new(format!("no process can hold {knob}={value}"))),
    }
}
