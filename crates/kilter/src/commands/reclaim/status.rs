//! `kilter reclaim status` and `explain`.

use super::once::size;
use super::{SOCKET, dir};
use crate::commands::socket;
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use crate::say;
use kilter_api::{ReclaimApp, ReclaimDaemon, ReclaimStatus};

/// Runs `kilter reclaim status`.
pub fn run(machine: &Machine) -> Outcome {
    let status = ReclaimStatus {
        daemon: ask(machine)?,
    };
    if machine.json {
        say::json(&status)?;
        return Ok(0);
    }
    match &status.daemon {
        Some(daemon) => tell(daemon),
        None => {
            say::line("No daemon of reclaim is running.");
            say::hint("sudo kilter reclaim run");
        }
    }
    Ok(0)
}

/// Runs `kilter reclaim explain`.
pub fn explain(machine: &Machine, wanted: &str) -> Outcome {
    let Some(daemon) = ask(machine)? else {
        return Err(Failure::new("no daemon of reclaim is running").hint("sudo kilter reclaim run"));
    };
    let pid = wanted.parse::<i32>().ok();
    let fits = |app: &&ReclaimApp| {
        pid.is_some_and(|pid| app.pids.contains(&pid))
            || app.name == wanted
            || app.cgroup.as_deref() == Some(wanted)
    };
    let apps: Vec<&ReclaimApp> = daemon.apps.iter().filter(fits).collect();
    if apps.is_empty() {
        let why = match pid {
            Some(_) => "it may be smaller than a quarter of min_app_mb, or not seen yet",
            None => "`kilter reclaim status` lists those that are",
        };
        return Err(Failure::new(format!(
            "{wanted}: no app that the daemon follows; {why}"
        )));
    }
    if machine.json {
        say::json(&apps)?;
        return Ok(0);
    }
    for app in apps {
        let of = app
            .cgroup
            .as_ref()
            .map_or(format!("process {}", app.pid), |group| {
                format!("cgroup {group}")
            });
        say::line(format!(
            "{} ({of}): {}, because {}",
            say::bold(&app.name),
            app.state,
            app.why
        ));
        let rows: Vec<Vec<String>> = app
            .chain
            .iter()
            .map(|step| {
                let answer = if step.decides {
                    say::bold(&step.answer)
                } else {
                    step.answer.clone()
                };
                vec![format!("  {}", step.question), answer]
            })
            .collect();
        say::table(&rows);
        if let Some(seconds) = app.last_action_s {
            say::line(format!(
                "last: {} {} ago: {}",
                app.last_action,
                time(seconds),
                app.last_why
            ));
        }
    }
    Ok(0)
}

fn ask(machine: &Machine) -> Result<Option<ReclaimDaemon>, Failure> {
    socket::ask(&dir(machine).join(SOCKET))
}

fn tell(daemon: &ReclaimDaemon) {
    let memory = &daemon.memory;
    let place = match &daemon.within {
        Some(group) => format!(" in cgroup {group}"),
        None => String::new(),
    };
    let ratio = memory.zram_ratio.map_or(String::new(), |ratio| {
        format!(", compressed {ratio:.1} to 1")
    });
    say::line(format!(
        "policy {} (process {}), {} of {} available{place}, {} of {} swap free{ratio}",
        daemon.policy,
        daemon.pid,
        size(memory.available_bytes),
        size(memory.total_bytes),
        size(memory.swap_free_bytes),
        size(memory.swap_total_bytes),
    ));
    if !daemon.apps.is_empty() {
        let head = [
            "app",
            "pid",
            "state",
            "resident",
            "in swap",
            "reclaimed",
            "came back",
            "last",
            "why",
        ];
        let mut rows = vec![head.map(say::bold).to_vec()];
        rows.extend(daemon.apps.iter().map(row));
        say::table(&rows);
    }
    let total = &daemon.total;
    say::line(say::faint(format!(
        "paged out {}, made cold {}, read back {}; {} reclaimed, {} came back; {:.2} s of CPU for it, {:.2} s in all; {} followed of {}",
        say::count(total.pageouts as usize, "time"),
        total.colds,
        total.prefetches,
        size(total.reclaimed_bytes),
        size(total.refaulted_bytes),
        total.reclaim_cpu_s,
        total.cpu_s,
        say::count(daemon.apps.len(), "app"),
        match total.processes {
            1 => "1 process".to_owned(),
            count => format!("{count} processes"),
        },
    )));
    if let Some(stopped) = &daemon.stopped {
        say::warning(format!("nothing is paged out: {stopped}"));
    }
    for trouble in &daemon.troubles {
        say::warning(trouble);
    }
}

fn row(app: &ReclaimApp) -> Vec<String> {
    let or_dash = |bytes: u64| {
        if bytes == 0 {
            "-".to_owned()
        } else {
            size(bytes)
        }
    };
    let last = match app.last_action_s {
        Some(seconds) => format!("{} {} ago", app.last_action, time(seconds)),
        None => "-".to_owned(),
    };
    vec![
        app.name.clone(),
        app.pid.to_string(),
        app.state.clone(),
        or_dash(app.memory.resident_bytes),
        or_dash(app.memory.swapped_bytes),
        or_dash(app.reclaimed_bytes),
        or_dash(app.refaulted_bytes),
        last,
        app.why.clone(),
    ]
}

fn time(seconds: f64) -> String {
    match seconds {
        0.0..120.0 => format!("{seconds:.0} s"),
        120.0..7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3600.0),
    }
}
