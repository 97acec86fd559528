//! `kilter sched status`, `set`, and the monitor.

use super::{SOCKET, dir, not_running, report};
use crate::commands::socket;
use crate::fail::{Failure, Outcome};
use crate::machine::{Machine, parse_settings};
use crate::say;
use kilter_api::{SchedRun, SchedStatus};
use std::io;
use std::time::{Duration, Instant};

/// Where the kernel shows its extensible scheduler.
const SCHED_EXT: &str = "/sys/kernel/sched_ext";

/// Runs `kilter sched status`.
pub fn run(machine: &Machine) -> Outcome {
    let status = SchedStatus {
        supported: machine.kernel.below(SCHED_EXT).is_dir(),
        loaded: loaded(machine),
        hrrn: ask(machine)?,
    };
    if machine.json {
        say::json(&status)?;
        return Ok(0);
    }
    match (&status.hrrn, &status.loaded) {
        (Some(run), _) => report::print(run),
        (None, Some(name)) => say::line(format!("`{name}` is loaded, which no kilter runs.")),
        (None, None) if status.supported => say::line("The kernel's own scheduler is in force."),
        (None, None) => say::line(
            "The kernel's own scheduler is in force; this kernel has no sched_ext and can load none.",
        ),
    }
    Ok(0)
}

/// Name of the loaded scheduler.
fn loaded(machine: &Machine) -> Option<String> {
    let read = |file: &str| {
        let path = machine.kernel.below(&format!("{SCHED_EXT}/{file}"));
        std::fs::read_to_string(path).map(|text| text.trim().to_owned())
    };
    match read("state") {
        Ok(state) if state != "disabled" => Some(read("root/ops").unwrap_or(state)),
        _ => None,
    }
}

/// The state of the running scheduler; none if none of ours runs.
pub fn ask(machine: &Machine) -> Result<Option<SchedRun>, Failure> {
    socket::ask(&dir(machine).join(SOCKET))
}

/// Runs `kilter sched set`.
pub fn set(machine: &Machine, values: &[String]) -> Outcome {
    let settings = parse_settings(values)?;
    let mut params = kilter_sched::params::defaults();
    for (name, value) in &settings {
        let name = name.strip_prefix("hrrn.").unwrap_or(name);
        params.set(name, value).map_err(Failure::new)?;
    }
    if let Some(pid) = machine.store.running_experiment() {
        return Err(Failure::new(format!(
            "an experiment is running (process {pid}): a change would falsify it"
        )));
    }
    if ask(machine)?.is_none() {
        return Err(not_running());
    }
    for (name, value) in &settings {
        let name = name.strip_prefix("hrrn.").unwrap_or(name);
        let path = dir(machine).join(name);
        let written = std::fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&path)
            .and_then(|mut file| io::Write::write_all(&mut file, format!("{value}\n").as_bytes()));
        written.map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    }
    Ok(0)
}

/// Prints a line about each interval until the scheduler ends.
pub fn monitor(machine: &Machine, interval: f64) -> Outcome {
    let Some(mut before) = ask(machine)? else {
        return Err(not_running());
    };
    let mut then = Instant::now();
    loop {
        std::thread::sleep(Duration::from_secs_f64(interval));
        let Some(now) = ask(machine)? else {
            say::note("hrrn has ended");
            return Ok(0);
        };
        let seconds = then.elapsed().as_secs_f64();
        if machine.json {
            say::json(&now)?;
        } else {
            say::line(report::line(&now, &before, seconds));
        }
        (before, then) = (now, Instant::now());
    }
}
