//! `kilter selftest`: how often two equal arms are told apart on this machine.

use super::lab::{Asked, ask, asked, warn_of_others, work};
use crate::args;
use crate::cli::Selftest;
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use kilter_api::{LabRequest, SelftestRequest};

/// The workload where none is asked for: it is built in and runs as anybody.
const WORKLOAD: &str = "messaging";

/// Runs `kilter selftest`.
pub fn run(machine: &Machine, args: &Selftest) -> Outcome {
    if let [_, second, ..] = args.run.metric.as_slice() {
        return Err(Failure::new(format!(
            "--metric {second}: a self-test judges one metric, and it has one"
        )));
    }
    let workload = match args.command.as_slice() {
        [] => Some(args.workload.as_deref().unwrap_or(WORKLOAD)),
        _ => None,
    };
    let work = work(machine, workload, &args.command, args.run.shell)?;
    let Asked {
        context,
        options,
        question,
    } = asked(machine, &work, &args.run, &args.precision, None)?;
    let request = SelftestRequest {
        context,
        options,
        question,
        command: work.command,
        runs: args.runs,
        budget_s: args::budget(args.budget.as_deref())?,
    };
    warn_of_others(machine);
    machine.tell_leftovers();
    ask(&LabRequest::Selftest(request))
}
