//! `kilter selftest`: how often two equal arms are told apart on this machine.

use super::lab::{asked, measure, work, workload};
use crate::args;
use crate::cli::{DecideArgs, Selftest};
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use kilter_api::{LabRequest, SelftestRequest};

/// The workload where none is asked for: it is built in and runs as anybody.
const WORKLOAD: &str = "messaging";

/// Runs `kilter selftest`.
pub fn run(machine: &Machine, args: &Selftest) -> Outcome {
    if let [_, second, ..] = args.work.run.metric.as_slice() {
        return Err(Failure::new(format!(
            "--metric {second}: a self-test judges one metric, and it has one"
        )));
    }
    let nothing_named = args.work.workload.is_none() && args.work.command.is_empty();
    let work = match nothing_named {
        true => workload(machine, WORKLOAD)?,
        false => work(machine, &args.work)?,
    };
    let asked = asked(machine, &work, &args.work, &DecideArgs::default())?;
    let request = SelftestRequest {
        context: asked.context,
        options: asked.options,
        question: asked.question,
        command: work.command,
        runs: args.runs,
        budget_s: args::budget(args.budget.as_deref())?,
    };
    measure(machine, &LabRequest::Selftest(request))
}
