//! `kilter doctor`: what this machine can do, and what would change what it cannot.

use crate::commands::knobs::reason;
use crate::commands::lab;
use crate::fail::Outcome;
use crate::machine::Machine;
use crate::say;
use kilter_api::{
    Check, CheckState, DoctorReport, Fingerprint, Knob, KnobState, UnavailableReason,
};
use kilter_knobs::probe_all;
use std::collections::BTreeMap;

/// Daemons that write the same settings as kilter.
const OTHER_TUNERS: [&str; 7] = [
    "tuned",
    "power-profiles-daemon",
    "tlp",
    "thermald",
    "irqbalance",
    "auto-cpufreq",
    "bpftune",
];

/// Families of knobs: what a name begins with, and what people call them.
const FAMILIES: [(&str, &str); 10] = [
    ("vm.", "memory knobs (vm.*)"),
    ("kernel.", "kernel sysctls"),
    ("sched.", "scheduler debugfs"),
    ("thp.", "transparent huge pages"),
    ("mglru.", "multi-generational LRU"),
    ("zswap.", "zswap"),
    ("block.", "block queues"),
    ("net.", "network"),
    ("cpufreq.", "CPU frequency"),
    ("cpuidle.", "CPU idle states"),
];

/// Runs the command.
pub fn run(machine: &Machine) -> Outcome {
    let knobs = probe_all(&machine.kernel, &machine.catalog()?);
    let fingerprint = kilter_measure::fingerprint(machine.kernel.root());
    let mut checks: Vec<Check> = vec![settings(machine), journal(machine)];
    checks.extend(
        FAMILIES
            .iter()
            .filter_map(|(prefix, name)| family(prefix, name, &knobs)),
    );
    checks.extend([
        swap(machine),
        pressure(machine),
        counters(),
        lab_check(),
        tuners(machine),
        sched_ext(&fingerprint),
    ]);
    let report = DoctorReport {
        fingerprint,
        checks,
    };
    match machine.json {
        true => say::json(&report)?,
        false => print(&report),
    }
    Ok(0)
}

fn print(report: &DoctorReport) {
    let machine = &report.fingerprint;
    say::line(format!(
        "{}: Linux {} on {} × {}, {} GiB, cgroup {}, virtualisation {}\n",
        machine.os,
        machine.kernel,
        machine.cpus,
        machine.cpu,
        machine.memory_kib.div_ceil(1 << 20),
        machine.cgroup,
        machine.virtualisation
    ));
    let rows: Vec<Vec<String>> = report
        .checks
        .iter()
        .map(|check| {
            let state = match check.state {
                CheckState::Works => "\x1b[32mworks\x1b[0m",
                CheckState::Limited => "\x1b[33mlimited\x1b[0m",
                CheckState::Impossible => "\x1b[31mimpossible\x1b[0m",
            };
            vec![check.name.clone(), state.to_owned(), check.detail.clone()]
        })
        .collect();
    say::table(&rows);
    let hints: Vec<&Check> = report
        .checks
        .iter()
        .filter(|check| !check.hint.is_empty())
        .collect();
    if !hints.is_empty() {
        say::line("");
        hints
            .iter()
            .for_each(|check| say::hint(format!("{}: {}", check.name, check.hint)));
    }
}

fn check(name: &str, state: CheckState, detail: impl Into<String>, hint: &str) -> Check {
    Check {
        name: name.to_owned(),
        state,
        detail: detail.into(),
        hint: hint.to_owned(),
    }
}

fn settings(machine: &Machine) -> Check {
    let name = "changing settings";
    match machine.need_root("changing settings") {
        Ok(()) => check(name, CheckState::Works, "this user may change settings", ""),
        Err(_) => check(
            name,
            CheckState::Impossible,
            "only root may change settings; looking and measuring work",
            "run kilter with sudo",
        ),
    }
}

fn journal(machine: &Machine) -> Check {
    let name = "journal";
    let status = match machine.store.status(&machine.kernel) {
        Ok(status) => status,
        Err(error) => return check(name, CheckState::Impossible, error.to_string(), ""),
    };
    if status.layers.iter().any(|layer| !layer.alive) {
        return check(
            name,
            CheckState::Limited,
            "a kilter was killed and its settings are still in force",
            "kilter revert",
        );
    }
    let detail = match status.layers.len() {
        0 => "no layer is in force".to_owned(),
        count => format!("{} in force", say::count(count, "layer")),
    };
    check(name, CheckState::Works, detail, "")
}

fn family(prefix: &str, name: &str, knobs: &[Knob]) -> Option<Check> {
    let family: Vec<&Knob> = knobs
        .iter()
        .filter(|knob| knob.name.starts_with(prefix) && !knob.virtual_device)
        .collect();
    let (mut here, mut writable) = (0, 0);
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let mut locked = false;
    for knob in &family {
        match &knob.state {
            KnobState::Present { writable: may, .. } => {
                here += 1;
                writable += usize::from(*may);
            }
            KnobState::Unavailable(why) => {
                locked |= why.reason == UnavailableReason::LockedDown;
                *reasons.entry(reason(why.reason)).or_default() += 1;
            }
        }
    }
    if family.is_empty() {
        return None;
    }
    let lacking: Vec<String> = reasons
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    let mut detail = format!("{here} of {} here, {writable} writable", family.len());
    if !lacking.is_empty() {
        detail = format!("{detail} ({})", lacking.join(", "));
    }
    let state = match (here, writable) {
        (0, _) => CheckState::Impossible,
        (_, 0) => CheckState::Limited,
        _ => CheckState::Works,
    };
    let hint = match () {
        () if locked => {
            "the kernel is locked down (Secure Boot or lockdown=): boot with lockdown off to reach these"
        }
        () if reasons.contains_key("debugfs not mounted") => {
            "mount -t debugfs debugfs /sys/kernel/debug"
        }
        () if reasons.contains_key("not permitted") => "root sees more: sudo kilter doctor",
        () => "",
    };
    Some(check(name, state, detail, hint))
}

/// What swappiness and swap readahead act on.
fn swap(machine: &Machine) -> Check {
    let name = "swap";
    let text = std::fs::read_to_string(machine.kernel.below("/proc/swaps")).unwrap_or_default();
    let areas: Vec<String> = text.lines().skip(1).filter_map(swap_area).collect();
    match areas.is_empty() {
        true => check(
            name,
            CheckState::Limited,
            "none: vm.swappiness and vm.page-cluster have nothing to act on",
            "zram gives swap in compressed memory",
        ),
        false => check(name, CheckState::Works, areas.join(", "), ""),
    }
}

/// A line of `/proc/swaps` (name, type, KiB, KiB in use, priority) for people.
fn swap_area(line: &str) -> Option<String> {
    let mut words = line.split_ascii_whitespace();
    let file = words.next()?;
    let size_kib: u64 = words.nth(1)?.parse().ok()?;
    let priority = words.nth(1)?;
    let name = file.rsplit('/').next().unwrap_or(file);
    let kind = match name.starts_with("zram") {
        true => "compressed memory",
        false => "disk",
    };
    let mib = size_kib.div_ceil(1 << 10);
    Some(format!("{name} ({kind}, {mib} MiB, priority {priority})"))
}

fn pressure(machine: &Machine) -> Check {
    let name = "pressure stalls (PSI)";
    match machine.kernel.below("/proc/pressure/cpu").exists() {
        true => check(name, CheckState::Works, "/proc/pressure is there", ""),
        false => check(
            name,
            CheckState::Impossible,
            "this kernel has no /proc/pressure",
            "boot with psi=1 (needs CONFIG_PSI)",
        ),
    }
}

fn counters() -> Check {
    let name = "performance counters";
    let opened = kilter_measure::Counters::open();
    let open: Vec<&str> = opened.names().collect();
    let hardware = open
        .iter()
        .any(|counter| counter.starts_with("instructions"));
    match (hardware, open.is_empty()) {
        (true, _) => check(name, CheckState::Works, open.join(", "), ""),
        (false, false) => check(
            name,
            CheckState::Limited,
            format!("software only: {}", open.join(", ")),
            "virtual machines often have no hardware counters",
        ),
        (false, true) => check(
            name,
            CheckState::Impossible,
            "perf_event_open is refused",
            "sysctl kernel.perf_event_paranoid=1, or run as root",
        ),
    }
}

fn lab_check() -> Check {
    let name = "compare, tune, audit …";
    match lab::interpreter() {
        Ok(python) => check(
            name,
            CheckState::Works,
            format!("the lab runs on {}", python.display()),
            "",
        ),
        Err(_) => check(
            name,
            CheckState::Impossible,
            "no Python beside this binary",
            "pip install kilter into a virtual environment brings the lab",
        ),
    }
}

/// Other tuners at work on the real machine.
pub fn other_tuners(machine: &Machine) -> Vec<String> {
    let proc = std::fs::read_dir(machine.kernel.below("/proc"))
        .into_iter()
        .flatten()
        .flatten();
    let name = |dir: std::fs::DirEntry| std::fs::read_to_string(dir.path().join("comm")).ok();
    let mut found: Vec<String> = proc
        .filter(|dir| {
            dir.file_name()
                .to_string_lossy()
                .bytes()
                .all(|byte| byte.is_ascii_digit())
        })
        .filter_map(name)
        // The kernel cuts names to 15 characters.
        .filter_map(|comm| {
            OTHER_TUNERS
                .iter()
                .find(|tuner| comm.trim() == &tuner[..tuner.len().min(15)])
        })
        .map(|tuner| (*tuner).to_owned())
        .collect();
    found.sort();
    found.dedup();
    found
}

fn tuners(machine: &Machine) -> Check {
    let name = "other tuners";
    match other_tuners(machine).as_slice() {
        [] => check(name, CheckState::Works, "none is running", ""),
        found => check(
            name,
            CheckState::Limited,
            format!("{} may change settings meanwhile", found.join(", ")),
            "stop them while you measure",
        ),
    }
}

fn sched_ext(fingerprint: &Fingerprint) -> Check {
    let name = "BPF scheduler";
    match fingerprint.sched_ext.as_str() {
        "" => check(
            name,
            CheckState::Works,
            "none is loaded: scheduler knobs govern all tasks",
            "",
        ),
        loaded => check(
            name,
            CheckState::Limited,
            format!("{loaded}: fair-class knobs do not govern its tasks"),
            "unload it to tune the fair scheduler",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::swap_area;

    #[test]
    fn swap_areas_are_told_with_size_and_priority() {
        let line = "/dev/zram0                              partition\t65532\t\t0\t\t100";
        assert_eq!(
            swap_area(line).unwrap(),
            "zram0 (compressed memory, 64 MiB, priority 100)"
        );
        assert_eq!(
            swap_area("/swapfile file 2097148 512 -2").unwrap(),
            "swapfile (disk, 2048 MiB, priority -2)"
        );
        assert_eq!(swap_area("Filename"), None);
    }
}
