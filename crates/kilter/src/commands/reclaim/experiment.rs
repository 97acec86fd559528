//! `kilter reclaim experiment`: checked here, made and judged by the lab.

use crate::args;
use crate::cli::{Appswitch, ArmArg, DecideArgs, Experiment, LengthArgs, PrecisionArgs, Startup};
use crate::commands::compare::export;
use crate::commands::lab::{context, measure};
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use crate::metrics::Measured;
use crate::question::question;
use clap::ValueEnum;
use kilter_api::{AppswitchRequest, Killer, LabContext, LabRequest, Question, StartupRequest};

/// Blocks where neither blocks nor time are limited.
const BLOCKS: u32 = 5;

/// Of the apps, how many fit into the limit.
const FITTING: u32 = 6;

/// Runs `kilter reclaim experiment`.
pub fn run(machine: &Machine, experiment: &Experiment) -> Outcome {
    machine.need_root("limiting memory and setting up swap")?;
    let request = match experiment {
        Experiment::Appswitch(args) => LabRequest::Appswitch(appswitch(machine, args)?),
        Experiment::Startup(args) => LabRequest::Startup(startup(machine, args)?),
    };
    measure(machine, &request)
}

fn appswitch(machine: &Machine, args: &Appswitch) -> Result<AppswitchRequest, Failure> {
    check_arms(&args.arms, args.killer.into())?;
    let (context, question) = asked(machine, &args.precision)?;
    Ok(AppswitchRequest {
        context,
        question,
        arms: names(&args.arms),
        apps: args.apps,
        switches: args.switches,
        app_mib: args.app_mib,
        limit_mib: limit_mib(args)?,
        swap_mib: args.swap_mib.unwrap_or((args.apps * args.app_mib).max(16)),
        think_s: args::seconds("--think", &args.think)?,
        killer: args.killer.into(),
        blocks: blocks(&args.length),
        budget_s: args::budget(args.length.budget.as_deref())?,
        export: args.export.as_deref().map(export).transpose()?,
    })
}

fn startup(machine: &Machine, args: &Startup) -> Result<StartupRequest, Failure> {
    let (context, question) = asked(machine, &args.precision)?;
    Ok(StartupRequest {
        context,
        question,
        kinds: names(&args.kinds),
        app_mib: args.app_mib,
        swap_mib: 2 * args.app_mib.max(8),
        blocks: blocks(&args.length),
        budget_s: args::budget(args.length.budget.as_deref())?,
    })
}

fn check_arms(arms: &[ArmArg], killer: Killer) -> Result<(), Failure> {
    let twice = |arm: &ArmArg| arms.iter().filter(|other| *other == arm).count() > 1;
    if arms.len() < 2 || arms.iter().any(twice) {
        return Err(
            Failure::new("--arms: two or more different ones are needed").hint(format!(
                "--arms {}",
                names(ArmArg::value_variants()).join(",")
            )),
        );
    }
    let of_a_group = [ArmArg::Senpai, ArmArg::Swap];
    if killer != Killer::Group && arms.iter().any(|arm| of_a_group.contains(arm)) {
        return Err(Failure::new(
            "--arms: senpai and swap are about a memory cgroup, which only --killer group makes",
        ));
    }
    Ok(())
}

/// Less than two apps cannot be switched between.
fn limit_mib(args: &Appswitch) -> Result<u32, Failure> {
    match args.limit_mib {
        Some(limit) if limit < 2 * args.app_mib => Err(Failure::new(format!(
            "--limit-mib {limit}: two apps of {} MiB have to fit",
            args.app_mib
        ))),
        Some(limit) => Ok(limit),
        None => Ok(FITTING * args.app_mib),
    }
}

fn asked(machine: &Machine, precision: &PrecisionArgs) -> Result<(LabContext, Question), Failure> {
    let mut measured = Measured {
        metrics: Vec::new(),
        objectives: 1,
    };
    let question = question(precision, &DecideArgs::default(), &mut measured)?;
    Ok((context(machine, true, precision.seed)?, question))
}

fn blocks(length: &LengthArgs) -> Option<u32> {
    match (length.blocks, &length.budget) {
        (None, None) => Some(BLOCKS),
        (blocks, _) => blocks,
    }
}

/// The words of choices, as they are typed.
fn names<T: ValueEnum>(chosen: &[T]) -> Vec<String> {
    chosen
        .iter()
        .filter_map(ValueEnum::to_possible_value)
        .map(|value| value.get_name().to_owned())
        .collect()
}
