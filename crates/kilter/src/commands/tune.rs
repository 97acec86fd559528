//! `kilter tune`: a search for settings that make a command better.

use super::evidence::known_of;
use super::lab::{absolute, asked, interpreter, measure, storage, work};
use super::space::{fit_to_kernel, space};
use crate::args;
use crate::cli::Tune;
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use kilter_api::{LabRequest, TuneRequest};
use std::path::Path;

/// Seconds for everything, where neither time nor trials were limited.
const DEFAULT_BUDGET_S: f64 = 600.0;

/// Runs `kilter tune`.
pub fn run(machine: &Machine, args: &Tune) -> Outcome {
    let work = work(machine, &args.work)?;
    let asked = asked(machine, &work, &args.work, &args.decide)?;
    machine.clear_leftovers()?;
    let space = space(machine, args)?;
    let budget_s = match args::budget(args.budget.as_deref())? {
        None if args.trials.is_none() => Some(DEFAULT_BUDGET_S),
        budget => budget,
    };
    let state_dir = machine.places.studies();
    let mut request = TuneRequest {
        context: asked.context,
        options: asked.options,
        question: asked.question,
        study: study_name(args.study.as_deref(), &work.command)?,
        storage: storage(machine, args.storage.as_deref())?,
        state_dir: absolute(&state_dir)?,
        command: work.command,
        workload: work.workload,
        evidence: known_of(machine, &space.knobs)?,
        knobs: space.knobs,
        fixed: space.fixed,
        at_most: space.at_most,
        known: space.known,
        trials: args.trials,
        budget_s,
        report: args.report.as_deref().map(absolute).transpose()?,
    };
    // Everything asked for makes sense: only now is the machine touched.
    machine.need_root("tuning")?;
    interpreter()?;
    kilter_kernel::make_dir(&state_dir)
        .map_err(|error| Failure::new(format!("{}: {error}", state_dir.display())))?;
    fit_to_kernel(machine, &mut request.knobs)?;
    measure(machine, &LabRequest::Tune(Box::new(request)))
}

fn study_name(given: Option<&str>, command: &[String]) -> Result<String, Failure> {
    if let Some(name) = given {
        return match kilter_knobs::valid_name(name) {
            true => Ok(name.to_owned()),
            false => Err(Failure::new(format!(
                "--study {name}: at most 64 lower-case letters, digits, `-`, `_`, `.`, beginning with a letter or digit"
            ))),
        };
    }
    let program = Path::new(&command[0])
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("study");
    let plain: String = program
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(24)
        .collect();
    let plain = plain.trim_matches('-');
    let time = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S");
    Ok(format!(
        "{}-{time}",
        if plain.is_empty() { "study" } else { plain }
    ))
}
