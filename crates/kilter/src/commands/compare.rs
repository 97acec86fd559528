//! `kilter compare`: arms beside each other, until there is a verdict on each.

use super::lab::{Work, absolute, asked, measure, work};
use crate::args;
use crate::cli::Compare;
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use kilter_api::{Arm, CompareRequest, LabRequest, Settings};
use std::path::Path;

/// Runs `kilter compare`.
pub fn run(machine: &Machine, args: &Compare) -> Outcome {
    let Arms {
        base,
        arms,
        old,
        work,
    } = match args.commands.as_slice() {
        [] => arms_of_settings(machine, args)?,
        [one] => {
            return Err(Failure::new(format!("`{one}`: one command is not a comparison")).hint("kilter compare 'COMMAND A' 'COMMAND B', or kilter compare --with KNOB=VALUE -- COMMAND"));
        }
        commands => arms_of_commands(machine, args, commands)?,
    };
    let asked = asked(machine, &work, &args.work, &args.decide)?.accepting(&args.consent);
    let request = CompareRequest {
        context: asked.context,
        options: asked.options,
        question: asked.question,
        workload: work.workload,
        blocks: args.blocks,
        max_runs: max_runs(args.max_runs, 1 + arms.len())?,
        budget_s: args::budget(args.budget.as_deref())?,
        export: args.export.as_deref().map(export).transpose()?,
        base,
        arms,
        old,
    };
    if !request.old.is_empty() {
        machine.need_root("comparing settings")?;
    }
    measure(machine, &LabRequest::Compare(request))
}

/// What is compared.
struct Arms {
    base: Arm,
    arms: Vec<Arm>,
    /// Values that their knobs have now.
    old: Settings,
    work: Work,
}

fn arms_of_settings(machine: &Machine, args: &Compare) -> Result<Arms, Failure> {
    let work = work(machine, &args.work)?;
    if args.with.is_empty() {
        return Err(Failure::new("nothing to compare with")
            .hint("kilter compare --with vm.swappiness=10 -- COMMAND"));
    }
    let mut old = Settings::new();
    let mut arm = |text: &String| {
        let (arm, now) = args::arm(machine, text, work.command.clone(), &args.consent)?;
        old.extend(now);
        Ok::<_, Failure>(arm)
    };
    let base = arm(&args.base)?;
    let arms = args.with.iter().map(arm).collect::<Result<_, _>>()?;
    Ok(Arms {
        base,
        arms,
        old,
        work,
    })
}

fn arms_of_commands(
    machine: &Machine,
    args: &Compare,
    commands: &[String],
) -> Result<Arms, Failure> {
    let (settings, old) = args::arm(machine, &args.base, Vec::new(), &args.consent)?;
    let arm = |text: &String| {
        Ok(Arm {
            label: text.clone(),
            command: args::split(text, args.work.run.shell)?,
            ..settings.clone()
        })
    };
    let mut arms = commands
        .iter()
        .map(arm)
        .collect::<Result<Vec<_>, Failure>>()?;
    Ok(Arms {
        base: arms.remove(0),
        arms,
        old,
        work: Work::default(),
    })
}

/// No interval comes of less than two blocks, in each of which every arm runs twice.
fn max_runs(given: Option<u32>, arms: usize) -> Result<Option<u32>, Failure> {
    let least = 4 * arms;
    match given {
        Some(runs) if (runs as usize) < least => Err(Failure::new(format!(
            "--max-runs {runs}: {arms} arms run twice in each block, and less than two blocks say \
             nothing: at least {least}"
        ))),
        runs => Ok(runs),
    }
}

/// Where raw runs are written.
pub fn export(path: &Path) -> Result<String, Failure> {
    let ending = path.extension().and_then(|ending| ending.to_str());
    if !matches!(ending, Some("csv" | "json")) {
        return Err(Failure::new(format!(
            "--export {}: the name must end in .csv or .json",
            path.display()
        )));
    }
    absolute(path)
}
