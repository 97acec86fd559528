//! `kilter hold`: a profile for good. [`service`] starts it at boot, [`keep`] is the process that
//! does it, [`drift`] decides, [`news`] wakes it, [`state`] is what others can read of it.

mod drift;
mod keep;
mod news;
mod service;
mod state;

use crate::cli::{Hold, HoldCommand};
use crate::commands::apply::refuse_during_experiment;
use crate::fail::{Failure, Outcome};
use crate::machine::{Machine, quote, tell_troubles};
use crate::say;
use kilter_api::{HoldInfo, HoldPolicy};

/// Runs the command.
pub fn run(machine: &Machine, args: &Hold) -> Outcome {
    match &args.command {
        Some(HoldCommand::Run { profile, how }) => keep::run(machine, profile, how),
        Some(HoldCommand::Status) => status(machine),
        Some(HoldCommand::Remove { profile }) => remove(machine, profile),
        None => {
            let profile = args.profile.as_deref().unwrap_or_default();
            service::install(machine, profile, &args.how, args.dry_run)
        }
    }
}

/// Exit code 1 when something that is held has drifted, or nothing holds what should be held.
fn status(machine: &Machine) -> Outcome {
    let holds = infos(machine);
    let good = |hold: &HoldInfo| hold.pid.is_some() && hold.drifted.is_empty();
    let code = u8::from(!holds.iter().all(good));
    if machine.json {
        say::json(&holds)?;
        return Ok(code);
    }
    if holds.is_empty() {
        say::line("No profile is held for good.");
        say::hint("kilter hold PROFILE");
    }
    for hold in &holds {
        tell(hold);
    }
    Ok(code)
}

/// Everything that is installed or runs.
fn infos(machine: &Machine) -> Vec<HoldInfo> {
    let mut holds = state::all(machine);
    for (profile, unit) in service::installed(machine) {
        match holds.iter_mut().find(|hold| hold.profile == profile) {
            Some(hold) => hold.unit = Some(unit),
            None => holds.push(HoldInfo {
                profile,
                unit: Some(unit),
                pid: None,
                since: String::new(),
                policy: HoldPolicy::default(),
                revert_on_stop: false,
                set_again: 0,
                drifted: Vec::new(),
                gone: Vec::new(),
            }),
        }
    }
    holds.sort_by(|a, b| a.profile.cmp(&b.profile));
    holds
}

fn tell(hold: &HoldInfo) {
    let running = match hold.pid {
        Some(pid) => format!("held by process {pid} since {}", hold.since),
        None => "not running".to_owned(),
    };
    say::line(format!("{} ({running})", say::bold(&hold.profile)));
    let at_boot = match &hold.unit {
        Some(unit) => format!("starts at boot: {unit}"),
        None => "does not start at boot".to_owned(),
    };
    say::line(format!("  {at_boot}"));
    if hold.pid.is_none() {
        return;
    }
    let at_end = match hold.revert_on_stop {
        true => "its end puts the settings back",
        false => "settings outlive it",
    };
    let policy = service::word(hold.policy);
    say::line(format!(
        "  policy: {policy}; {at_end}; set again: {}",
        say::count(usize::try_from(hold.set_again).unwrap_or(0), "value")
    ));
    let rows: Vec<Vec<String>> = hold
        .drifted
        .iter()
        .map(|drift| {
            vec![
                format!("  {}", drift.knob),
                drift.held.clone(),
                "→".to_owned(),
                say::bold(&drift.value),
                say::faint(match drift.by.is_empty() {
                    true => format!("noticed {}", drift.noticed),
                    false => format!("noticed {}; {}", drift.noticed, drift.by),
                }),
            ]
        })
        .collect();
    say::table(&rows);
    if !hold.gone.is_empty() {
        say::line(format!("  gone for now: {}", hold.gone.join(", ")));
    }
}

fn remove(machine: &Machine, profile: &str) -> Outcome {
    machine.need_root("removing a unit")?;
    let known = infos(machine);
    let Some(hold) = known.iter().find(|hold| hold.profile == profile) else {
        return Err(
            Failure::new(format!("`{profile}` is not held for good")).hint("kilter hold status")
        );
    };
    if machine.is_real() {
        refuse_during_experiment(machine)?;
    }
    service::uninstall(machine, profile)?;
    state::end(machine, profile)?;
    let mut left = false;
    if let Ok(lock) = machine.lock() {
        let status = machine.store.status(&machine.kernel)?;
        left = status.layers.iter().any(|layer| layer.name == profile);
        if left && hold.revert_on_stop {
            tell_troubles(&lock.revert(&machine.kernel, Some(profile), false)?);
            left = false;
        }
    }
    say::note(format!("{profile} is held no more."));
    if left {
        say::note("Its settings stay in force until the next boot.");
        say::hint(format!("kilter revert {}", quote(profile)));
    }
    Ok(0)
}
