//! `kilter groups`: the daemon in the foreground, its state, and what systemd can do instead.

use crate::cli::{Groups as Command, GroupsRun};
use crate::commands::apply::{now, refuse_during_experiment};
use crate::commands::groups_demo;
use crate::fail::{Failure, Outcome};
use crate::machine::{Machine, tell_troubles};
use crate::say;
use kilter_api::GroupInfo;
use kilter_groups::{
    CONFIG, Config, Daemon, Ended, Groups, Policy, Proc, Subscription, Swept, autogroup, folds,
    load, range, status, subscribe, systemd,
};
use kilter_kernel::{CpuTree, Guardian, HeldTree, this_process, uid_of};
use kilter_measure::Signals;
use rustix::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// Name of the daemon's layer.
const LAYER: &str = "groups";

/// The knob that the layer sets.
pub const KNOB: &str = "groups.per_uid";

/// Since this version systemd gives the cpu controller to user slices (its NEWS for 252).
const SYSTEMD_WITH_SLICES: u32 = 252;

/// Runs the command.
pub fn run(machine: &Machine, command: &Command) -> Outcome {
    match command {
        Command::Run(args) => keep(machine, args),
        Command::Status { interval } => show(machine, *interval),
        Command::Demo(args) => groups_demo::run(machine, args),
        Command::DropIn { config } => drop_in(machine, config.as_deref()),
        Command::Hog { uid, cpu, seconds } => groups_demo::hog(*uid, *cpu, *seconds),
    }
}

/// `kilter groups run`.
fn keep(machine: &Machine, args: &GroupsRun) -> Outcome {
    let policy = policy(machine, args)?;
    machine.need_root("moving processes into groups")?;
    need_real(machine)?;
    refuse_during_experiment(machine)?;
    beside_systemd(machine, args.beside_systemd)?;
    let signals = Signals::take()?;
    let begun = begin(machine, policy, Lending::Mine)?;
    tell_kernel(machine, &begun);
    serve(machine, begun, &signals, !args.no_realtime, tell_ready)
}

/// The daemon as the process behind the knob.
pub fn hold(machine: &Machine) -> Outcome {
    let policy = policy(machine, &GroupsRun::default())?;
    let signals = Signals::take()?;
    let begun = begin(machine, policy, Lending::Starters)?;
    let ready = |_, _| drop(kilter_kernel::say_ready());
    serve(machine, begun, &signals, true, ready)
}

/// Runs the daemon until a signal, and takes everything back.
fn serve(
    machine: &Machine,
    begun: Begun,
    signals: &Signals,
    realtime: bool,
    ready: impl FnOnce(Swept, usize),
) -> Outcome {
    let Begun {
        id,
        guardian,
        subscription,
        groups,
    } = begun;
    let (mut daemon, refused) = Daemon::new(subscription, groups, realtime);
    if let Some(error) = refused {
        say::warning(format!(
            "no real-time scheduling ({error}): on a busy machine processes are moved later"
        ));
    }
    let tell = |swept, groups| {
        kilter_kernel::forget_code();
        ready(swept, groups);
    };
    let ended = daemon.run(signals.as_fd(), tell, &mut |text| say::warning(text));
    drop(daemon);
    // Taken, or it would end this process once it is let through again.
    while signals.next()?.is_some() {}
    end(machine, id)?;
    drop(guardian);
    tell_ended(&ended?);
    Ok(0)
}

/// Groups in force: the journal says how to take them back, and a guardian would.
pub struct Begun {
    /// The layer.
    pub id: u64,
    /// Takes everything back if this process is killed.
    pub guardian: Guardian,
    /// The kernel's events.
    pub subscription: Subscription,
    /// No group yet.
    pub groups: Groups,
}

/// Whose lock the journal is written under.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Lending {
    /// This process takes it.
    Mine,
    /// The process that started this one has it, and waits.
    Starters,
}

/// Subscribes, starts the guardian and journals; nothing is moved yet. Call it while the process
/// has one thread.
pub fn begin(machine: &Machine, policy: Policy, lending: Lending) -> Result<Begun, Failure> {
    let tree = CpuTree::find(&machine.kernel)?;
    let subscription = subscribe()?;
    let proc = Proc::open(&machine.kernel)?;
    if lending == Lending::Mine {
        drop(machine.lock()?);
    }
    let (guardian, lock) = match lending {
        Lending::Mine => (Guardian::start(&machine.kernel)?, machine.lock()?),
        Lending::Starters => (
            Guardian::start_silently(&machine.kernel)?,
            machine.store.lent_lock()?,
        ),
    };
    let (id, held): (u64, HeldTree) = lock.begin_moves(
        &machine.kernel,
        &tree,
        (LAYER, KNOB),
        &now(),
        this_process(),
    )?;
    Ok(Begun {
        id,
        guardian,
        subscription,
        groups: Groups::new(held, proc, policy),
    })
}

/// Takes everything back.
pub fn end(machine: &Machine, id: u64) -> Result<(), Failure> {
    let done = machine.store.lock()?.undo(&machine.kernel, id)?;
    tell_troubles(&done);
    let failed = |file: &kilter_api::RestoredFile| {
        matches!(file.outcome, kilter_api::Restored::Failed { .. })
    };
    match done.files.iter().any(failed) {
        true => Err(Failure::new("some processes are still in kilter's groups")
            .hint("kilter revert groups")),
        false => Ok(()),
    }
}

/// The policy of the configuration, `--only` and `/etc/subuid`.
fn policy(machine: &Machine, args: &GroupsRun) -> Result<Policy, Failure> {
    let config = config(machine, args.config.as_deref())?;
    let only = args.only.iter().map(|text| range(text));
    let only = only
        .collect::<Result<Vec<_>, _>>()
        .map_err(|problem| Failure::new(format!("--only {problem}")))?;
    let only = if only.is_empty() {
        config.only.clone()
    } else {
        only
    };
    Ok(with_folds(machine, config, only))
}

/// A policy in which subordinate uids count as their owner, unless the configuration says no.
pub fn with_folds(
    machine: &Machine,
    config: Config,
    only: Vec<std::ops::RangeInclusive<u32>>,
) -> Policy {
    let root = machine.kernel.root();
    let text = std::fs::read_to_string(machine.kernel.below("/etc/subuid"));
    let folds = match (config.fold_subuids, text) {
        (true, Ok(text)) => folds(&text, |name| uid_of(root, name).ok().flatten()),
        _ => Vec::new(),
    };
    Policy::new(config, only, folds)
}

fn config(machine: &Machine, named: Option<&Path>) -> Result<Config, Failure> {
    let root = machine.kernel.root();
    match named {
        Some(path) if !path.exists() => Err(Failure::new(format!(
            "--config {}: no such file",
            path.display()
        ))),
        Some(path) => Ok(load(root, path)?),
        None => Ok(load(root, &machine.kernel.below(CONFIG))?),
    }
}

/// Processes cannot be moved below another root.
pub fn need_real(machine: &Machine) -> Result<(), Failure> {
    match machine.is_real() {
        true => Ok(()),
        false => Err(Failure::new(
            "--root: groups hold processes of this machine, not of files elsewhere",
        )),
    }
}

fn beside_systemd(machine: &Machine, asked: bool) -> Result<(), Failure> {
    match systemd(&machine.kernel) {
        Some(found) if found.version >= SYSTEMD_WITH_SLICES && !asked => Err(Failure::new(format!(
            "systemd {} has a slice with a CPU share for each user already, and its trees are left alone",
            found.version
        ))
        .hint("`kilter groups drop-in` prints what sets the weights of these slices; `--beside-systemd` groups what is outside them")),
        Some(_) => {
            say::note("systemd's slices are left alone; only processes in the root group are moved.");
            Ok(())
        }
        None => Ok(()),
    }
}

fn tell_kernel(machine: &Machine, begun: &Begun) {
    if !begun.subscription.masked {
        say::note(
            "This kernel sends events of every kind (before Linux 6.6): forks cost CPU time too.",
        );
    }
    if autogroup(&machine.kernel) {
        say::note(
            "autogroup is on: what is left alone still shares by session, and users in sessions of their own had equal shares before.",
        );
    }
}

fn tell_ready(swept: Swept, groups: usize) {
    say::note(format!(
        "Ready: {} of {} moved into {}.",
        swept.moved,
        processes(swept.seen),
        say::count(groups, "group")
    ));
}

fn tell_ended(ended: &Ended) {
    say::note(format!(
        "Everything is back in the root group ({}, {} placed, {} swept up, {} lost).",
        say::count(ended.events as usize, "event"),
        ended.placed,
        ended.swept,
        say::count(ended.lost as usize, "burst"),
    ));
}

fn processes(number: usize) -> String {
    match number {
        1 => "1 process".to_owned(),
        _ => format!("{number} processes"),
    }
}

/// `kilter groups status`.
fn show(machine: &Machine, interval_s: f64) -> Outcome {
    if !(0.01..=60.0).contains(&interval_s) {
        return Err(Failure::new(format!(
            "--interval {interval_s}: the range is 0.01 to 60 seconds"
        )));
    }
    let status = status(&machine.kernel, Duration::from_secs_f64(interval_s))?;
    if machine.json {
        say::json(&status)?;
        return Ok(0);
    }
    if status.groups.is_empty() {
        say::line(format!(
            "No user has a group (cgroup {} at {}, autogroup {}).",
            status.version,
            status.hierarchy,
            on_off(status.autogroup)
        ));
        say::hint("kilter groups run");
        return Ok(0);
    }
    let head = ["uid", "user", "weight", "tasks", "CPU", "throttled"];
    let mut rows = vec![head.map(say::bold).to_vec()];
    rows.extend(status.groups.iter().map(row));
    say::table(&rows);
    say::line(say::faint(format!(
        "cgroup {} at {}, CPU of all CPUs over {:.1} s, autogroup {}",
        status.version,
        status.hierarchy,
        status.interval_s,
        on_off(status.autogroup)
    )));
    Ok(0)
}

fn row(group: &GroupInfo) -> Vec<String> {
    let weight = match (group.idle, group.max_percent) {
        (true, _) => "idle".to_owned(),
        (false, Some(max)) => format!("{}, at most {max} %", group.weight),
        (false, None) => group.weight.to_string(),
    };
    vec![
        group.uid.map_or("others".to_owned(), |uid| uid.to_string()),
        group.user.clone().unwrap_or_default(),
        weight,
        group.tasks.to_string(),
        format!("{:.1} %", group.cpu_percent),
        match group.throttled {
            0 => "-".to_owned(),
            count => format!("{count} times, {:.1} s", group.throttled_s),
        },
    ]
}

pub fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// `kilter groups drop-in`.
fn drop_in(machine: &Machine, named: Option<&Path>) -> Outcome {
    let config = config(machine, named)?;
    let mut files = vec![("user-.slice.d".to_owned(), config.weight)];
    for rule in config.rules.iter().filter(|rule| !rule.leave) {
        match (rule.uids.start(), rule.uids.end()) {
            (first, last) if first == last => {
                files.push((format!("user-{first}.slice.d"), rule.share.weight));
            }
            (first, last) => say::warning(format!(
                "uids {first}-{last}: systemd has slices of single users only, so this rule is left out"
            )),
        }
    }
    let path = |dir: &str| format!("/etc/systemd/system/{dir}/50-kilter.conf");
    let text = |weight: u32| format!("[Slice]\nCPUWeight={weight}\n");
    if machine.json {
        let files: std::collections::BTreeMap<String, String> = files
            .iter()
            .map(|(dir, weight)| (path(dir), text(*weight)))
            .collect();
        say::json(&files)?;
        return Ok(0);
    }
    for (dir, weight) in &files {
        say::line(format!("# {}\n{}", path(dir), text(*weight)));
    }
    say::hint("write these files, then `systemctl daemon-reload`; remove them to undo");
    Ok(0)
}
