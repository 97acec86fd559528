//! `kilter apply` and `kilter revert`.

use crate::cli::{Apply, Revert};
use crate::commands::profile::print_plan;
use crate::fail::{Failure, Outcome};
use crate::machine::{Machine, quote, tell_troubles};
use crate::say;
use kilter_api::{
    Change, Owner, Plan, Restored, Settings, Skipped, Unavailable, UnavailableReason,
};
use kilter_kernel::{Begun, Guardian, LayerError, Lock, Transaction, Written, this_process};
use kilter_knobs::{Consent, Planned, plan, resolve_profile};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{IsTerminal, Read, Write};
use std::time::{Duration, Instant};

/// Runs `kilter apply`.
pub fn run(machine: &Machine, args: &Apply) -> Outcome {
    let (profile, settings) = resolve_profile(&machine.places, &args.profile)?;
    let wanted = Wanted {
        name: profile.name.clone(),
        settings,
        consent: Consent::from(&args.consent),
    };
    let planned = wanted.plan(machine)?;
    if args.dry_run {
        return show(
            machine,
            &planned.plan,
            &format!("{} would change nothing here.", profile.name),
        );
    }
    machine.need_root("changing settings")?;
    refuse_during_experiment(machine)?;
    match args.confirm {
        Some(seconds) => tentatively(machine, &wanted, seconds),
        None => {
            let lock = machine.lock()?;
            let (id, plan) = put_in_force(machine, &lock, &wanted, None)?;
            let code = show(machine, &plan, "Nothing to change.")?;
            forget_if_empty(machine, &lock, id, &plan)?;
            if !machine.json && !plan.changes.is_empty() {
                say::hint(format!("undo with `kilter revert {}`", quote(&plan.name)));
            }
            Ok(code)
        }
    }
}

/// Refuses a change while an experiment runs.
pub fn refuse_during_experiment(machine: &Machine) -> Result<(), Failure> {
    match machine.store.running_experiment() {
        Some(pid) => Err(Failure::new(format!(
            "an experiment is running (process {pid}); a change now would falsify it"
        ))
        .hint(format!(
            "wait for it, or end it with `kill {pid}`: its settings come back by themselves"
        ))),
        None => Ok(()),
    }
}

/// A layer as it is asked for.
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// Its values, which may hold globs and wishes.
    pub settings: Settings,
    /// The risks that somebody said yes to.
    pub consent: Consent,
}

impl Wanted {
    /// What it would write on the machine as it is now.
    pub fn plan(&self, machine: &Machine) -> Result<Planned, Failure> {
        let (kernel, catalog) = (&machine.kernel, machine.catalog()?);
        Ok(plan(
            kernel,
            &catalog,
            &self.name,
            &self.settings,
            &self.consent,
        )?)
    }
}

/// Begins the layer, taking back an older one of the same name first. Whatever that brings or takes
/// away (the tunables of an I/O scheduler) must be seen by the plan, so it is made after it.
pub fn put_in_force(
    machine: &Machine,
    lock: &Lock<'_>,
    wanted: &Wanted,
    owner: Option<Owner>,
) -> Result<(u64, Plan), Failure> {
    // A plan that is refused leaves the older layer in force.
    wanted.plan(machine)?;
    match lock.revert(&machine.kernel, Some(&wanted.name), false) {
        Ok(done) => tell_troubles(&done),
        Err(kilter_kernel::StoreError::NoSuchLayer(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let Planned {
        mut plan,
        transaction,
    } = wanted.plan(machine)?;
    let begun = begin(machine, lock, &plan.name, owner, &transaction)?;
    for knob in &begun.drifted {
        say::warning(format!(
            "{knob}: somebody else has changed it under a profile in force; their value comes back after this one"
        ));
    }
    effective(&mut plan, &begun.written);
    set_apart(&mut plan, &begun.missing);
    Ok((begun.id, plan))
}

/// Begins a layer now.
pub fn begin(
    machine: &Machine,
    lock: &Lock<'_>,
    name: &str,
    owner: Option<Owner>,
    transaction: &Transaction,
) -> Result<Begun, LayerError> {
    lock.begin(&machine.kernel, name, &now(), owner, transaction)
}

/// The time, RFC 3339, to the second.
pub fn now() -> String {
    jiff::Timestamp::now()
        .round(jiff::Unit::Second)
        .unwrap_or_else(|_| jiff::Timestamp::now())
        .to_string()
}

fn effective(plan: &mut Plan, written: &[Written]) {
    for change in &mut plan.changes {
        change.effective = written
            .iter()
            .find(|written| written.knob == change.knob)
            .map(|written| written.kept.clone());
    }
}

/// Knobs that did not come with the others are skipped ones.
fn set_apart(plan: &mut Plan, missing: &[String]) {
    let (gone, set) = std::mem::take(&mut plan.changes)
        .into_iter()
        .partition(|change| missing.contains(&change.knob));
    plan.changes = set;
    plan.skipped.extend(gone.into_iter().map(did_not_appear));
}

/// A change whose file was to come with another's, as one that is skipped.
pub fn did_not_appear(change: Change) -> Skipped {
    Skipped {
        because: Unavailable {
            reason: UnavailableReason::Absent,
            detail: match change.appears_with.as_str() {
                "" => format!("{} is gone", change.path),
                with => format!("it did not appear with {with}: this kernel does not have it"),
            },
        },
        knob: change.knob,
    }
}

fn forget_if_empty(
    machine: &Machine,
    lock: &Lock<'_>,
    id: u64,
    plan: &Plan,
) -> Result<(), Failure> {
    if plan.changes.is_empty() {
        lock.undo(&machine.kernel, id)?;
    }
    Ok(())
}

fn show(machine: &Machine, plan: &Plan, nothing: &str) -> Outcome {
    match machine.json {
        true => say::json(plan)?,
        false => print_plan(plan, nothing),
    }
    Ok(0)
}

/// Applies, waits for a yes, and reverts without one. The guardian reverts if this process is
/// killed, or its terminal lost, while it waits.
fn tentatively(machine: &Machine, wanted: &Wanted, seconds: u32) -> Outcome {
    // The guardian's fork needs a journal directory that can be written, or nothing is started.
    drop(machine.lock()?);
    let guardian = Guardian::start(&machine.kernel)?;
    let (id, plan) = put_in_force(machine, &machine.lock()?, wanted, Some(this_process()))?;
    show(machine, &plan, "Nothing to change.")?;
    let confirmed = wait_for_enter(seconds)?;
    let lock = machine.lock()?;
    if confirmed {
        lock.keep(id)?;
        say::note(format!(
            "Kept. Undo with `kilter revert {}`.",
            quote(&plan.name)
        ));
        drop(guardian);
        return Ok(0);
    }
    let done = lock.undo(&machine.kernel, id)?;
    tell_troubles(&done);
    say::note("Not confirmed: put back.");
    drop(guardian);
    Ok(1)
}

fn wait_for_enter(seconds: u32) -> Result<bool, Failure> {
    let end = Instant::now() + Duration::from_secs(seconds.into());
    let mut stdin = std::io::stdin();
    let terminal = std::io::stderr().is_terminal();
    let mut open = true;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if terminal {
            eprint!(
                "\rPress Enter within {:>3} s to keep these settings … ",
                left.as_secs() + u64::from(left.subsec_nanos() > 0)
            );
            std::io::stderr().flush()?;
        }
        if left.is_zero() {
            eprintln!();
            return Ok(false);
        }
        let nap = left.min(Duration::from_millis(if left.subsec_millis() == 0 {
            1000
        } else {
            u64::from(left.subsec_millis())
        }));
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let watched = if open { &mut fds[..] } else { &mut [] };
        let ready = poll(
            watched,
            Some(&Timespec {
                tv_sec: nap.as_secs() as i64,
                tv_nsec: nap.subsec_nanos().into(),
            }),
        )
        .unwrap_or(0);
        if ready > 0 {
            let mut byte = [0];
            match stdin.read(&mut byte)? {
                0 => open = false,
                _ if byte[0] == b'\n' => return Ok(true),
                _ => {}
            }
        }
    }
}

/// Runs `kilter revert`.
pub fn revert(machine: &Machine, args: &Revert) -> Outcome {
    machine.need_root("changing settings")?;
    refuse_during_experiment(machine)?;
    let lock = machine.store.lock()?;
    let mut done = lock.recover(&machine.kernel)?;
    let reverted = match lock.revert(&machine.kernel, args.layer.as_deref(), args.force) {
        // What was asked for had been left by a killed kilter and is undone already.
        Err(kilter_kernel::StoreError::NoSuchLayer(name)) if done.layers.contains(&name) => {
            Default::default()
        }
        outcome => outcome?,
    };
    done.layers.extend(reverted.layers);
    done.files.extend(reverted.files);
    let failed = done
        .files
        .iter()
        .any(|file| matches!(file.outcome, Restored::Failed { .. }));
    if machine.json {
        say::json(&done)?;
    } else {
        report(&done);
    }
    if failed && !args.force {
        say::hint(
            "the layer stays in force for these files; try again, or forget it with `kilter revert --force`",
        );
    }
    Ok(if failed { 2 } else { 0 })
}

fn report(done: &kilter_api::Reverted) {
    if done.layers.is_empty() {
        say::line("Nothing is in force.");
        return;
    }
    let rows: Vec<Vec<String>> = done
        .files
        .iter()
        .filter(|file| file.was_set)
        .filter_map(|file| match &file.outcome {
            Restored::Restored { value } => {
                Some(vec![file.knob.clone(), "→".to_owned(), say::bold(value)])
            }
            Restored::Covered => Some(vec![
                file.knob.clone(),
                "→".to_owned(),
                "kept by a newer layer".to_owned(),
            ]),
            _ => None,
        })
        .collect();
    say::table(&rows);
    tell_troubles(done);
    say::line(format!("Taken back: {}.", done.layers.join(", ")));
}
