//! `kilter reclaim run`: the daemon in the foreground, and as the process behind a knob.

use super::once::size;
use super::{DIR, SOCKET, dir};
use crate::cli::{ReclaimPolicy, ReclaimRun};
use crate::commands::apply::now;
use crate::commands::socket;
use crate::fail::{Failure, Outcome};
use crate::machine::{Machine, parse_settings};
use crate::say;
use kilter_api::ReclaimEvent;
use kilter_measure::Signals;
use kilter_reclaim::{CONFIG, Call, Callers, Config, Daemon, DaemonError, Mode, load};
use rustix::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Runs the daemon until a signal ends it.
pub fn run(machine: &Machine, args: &ReclaimRun) -> Outcome {
    let config = config(machine, args)?;
    machine.need_root("reclaiming from other processes")?;
    let signals = Signals::take()?;
    let json = machine.json;
    let mut tell = |event: &ReclaimEvent| match json {
        true => drop(say::json(event)),
        false => say::note(line(event)),
    };
    serve(machine, args, config, &signals, &mut tell, ready)
}

/// The daemon as the process behind the knob `reclaim.policy`.
pub fn hold(machine: &Machine, value: &str) -> Outcome {
    let policy = match value {
        "pressure" => ReclaimPolicy::Pressure,
        "on-cached" => ReclaimPolicy::OnCached,
        _ => {
            return Err(Failure::new(format!(
                "no process can hold {}={value}",
                super::KNOB
            )));
        }
    };
    let args = ReclaimRun {
        policy: Some(policy),
        ..ReclaimRun::default()
    };
    let config = config(machine, &args)?;
    let signals = Signals::take()?;
    let ready = |_: &Daemon<'_>| drop(kilter_kernel::say_ready());
    serve(machine, &args, config, &signals, &mut |_| {}, ready)
}

fn serve(
    machine: &Machine,
    args: &ReclaimRun,
    config: Config,
    signals: &Signals,
    tell: &mut dyn FnMut(&ReclaimEvent),
    ready: impl FnOnce(&Daemon<'_>),
) -> Outcome {
    let since = now();
    let file = file(machine, args);
    let mut daemon =
        Daemon::new(&machine.kernel, config, dir(machine), Some(file)).map_err(failure)?;
    let socket = dir(machine).join(SOCKET);
    let listener: UnixListener = socket::listen(&socket)?;
    kilter_kernel::forget_code();
    ready(&daemon);
    let callers = Callers {
        stop: signals.as_fd(),
        ask: listener.as_fd(),
    };
    let ended = loop {
        match daemon.run(callers, tell, &mut |text| say::warning(text)) {
            Ok(Call::Stop) => break Ok(0),
            Ok(Call::Ask) => socket::answer(&listener, || daemon.status(&since)),
            Ok(Call::Config) => match self::config(machine, args) {
                Ok(config) => daemon.reconfigure(config),
                Err(failure) => say::warning(format!("{}; nothing was changed", failure.message())),
            },
            Err(error) => break Err(error.into()),
        }
    };
    let _ = std::fs::remove_file(&socket);
    // Taken, or it would end this process once it is let through again.
    while signals.next()?.is_some() {}
    ended
}

fn ready(daemon: &Daemon<'_>) {
    let status = daemon.status("");
    say::note(format!(
        "Ready: policy {}, {} of {} available; parameters in {DIR}.",
        status.policy,
        size(status.memory.available_bytes),
        match &status.within {
            Some(group) => format!("{} in cgroup {group}", size(status.memory.total_bytes)),
            None => size(status.memory.total_bytes),
        },
    ));
    if let Some(stopped) = &status.stopped {
        say::warning(format!("nothing is paged out: {stopped}"));
    }
}

fn line(event: &ReclaimEvent) -> String {
    let what = match event.action.as_str() {
        "cold" => format!("marked {} ({}) as cold", event.app, event.pid),
        "prefetch" => format!("read {} ({}) back", event.app, event.pid),
        _ => format!(
            "paged out {} ({}): {}",
            event.app,
            event.pid,
            size(event.reclaimed_bytes)
        ),
    };
    let cut = if event.cut_short {
        ", not to its end"
    } else {
        ""
    };
    format!("{what} in {:.2} s{cut}: {}", event.seconds, event.why)
}

fn failure(error: DaemonError) -> Failure {
    match error {
        DaemonError::Running => Failure::new(error).hint("kilter reclaim status"),
        error => Failure::new(error),
    }
}

fn file(machine: &Machine, args: &ReclaimRun) -> PathBuf {
    args.config
        .clone()
        .unwrap_or_else(|| machine.kernel.below(CONFIG))
}

/// The configuration, with what the command line says on top.
fn config(machine: &Machine, args: &ReclaimRun) -> Result<Config, Failure> {
    if let Some(path) = args.config.as_deref().filter(|path: &&Path| !path.exists()) {
        return Err(Failure::new(format!(
            "--config {}: no such file",
            path.display()
        )));
    }
    let mut config = load(machine.kernel.root(), &file(machine, args)).map_err(Failure::new)?;
    if let Some(policy) = args.policy {
        config.mode = match policy {
            ReclaimPolicy::Pressure => Mode::Pressure,
            ReclaimPolicy::OnCached => Mode::OnCached,
        };
    }
    if args.within.is_some() {
        config.within.clone_from(&args.within);
    }
    for (name, value) in parse_settings(&args.set)? {
        let name = name.strip_prefix("reclaim.").unwrap_or(&name).to_owned();
        config.params.set(&name, &value).map_err(Failure::new)?;
    }
    Ok(config)
}
