//! `kilter holder`: the process behind a knob whose value is a process. Started by kilter when such a
//! knob is set, and ended when it is put back.

use crate::commands::{groups, reclaim, sched};
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use std::io::Write;

/// The knob of the PM QoS request.
const LATENCY: &str = "pm_qos.cpu_dma_latency_us";

/// Its place in the kernel: a request holds while the file is open.
const LATENCY_FILE: &str = "/dev/cpu_dma_latency";

/// Runs the command.
pub fn run(machine: &Machine, knob: &str, value: &str) -> Outcome {
    kilter_kernel::wait_for_go()?;
    match (knob, value) {
        (groups::KNOB, "1") => groups::hold(machine),
        (reclaim::KNOB, value) => reclaim::hold(machine, value),
        (sched::KNOB, value) => sched::hold(machine, value),
        (LATENCY, value) => latency(value),
        _ => Err(Failure::new(format!("no process can hold {knob}={value}"))),
    }
}

/// Keeps a request for short wake-up latency until a signal ends the process.
fn latency(value: &str) -> Outcome {
    let fail = |error: std::io::Error| Failure::new(format!("{LATENCY_FILE}: {error}"));
    let micros: i32 = value
        .parse()
        .map_err(|_| Failure::new(format!("{LATENCY}={value}: not a number of microseconds")))?;
    let mut file = std::fs::File::options()
        .write(true)
        .open(LATENCY_FILE)
        .map_err(fail)?;
    file.write_all(&micros.to_ne_bytes()).map_err(fail)?;
    kilter_kernel::say_ready()?;
    loop {
        std::thread::park();
    }
}
