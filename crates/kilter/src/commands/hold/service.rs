//! The unit that holds a profile at every boot, and what to do where systemd is not.

use crate::cli::HoldHow;
use crate::commands::hold::keep;
use crate::fail::{Failure, Outcome};
use crate::machine::{Machine, quote};
use crate::output::write_whole;
use crate::say;
use kilter_api::HoldPolicy;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where an administrator's units lie.
const UNITS: &str = "/etc/systemd/system";

/// Who else writes settings at boot; a profile comes after them.
const AFTER: &str = "systemd-sysctl.service systemd-modules-load.service systemd-tmpfiles-setup.service systemd-udev-settle.service systemd-udevd.service tuned.service tuned-ppd.service power-profiles-daemon.service tlp.service auto-cpufreq.service irqbalance.service cpupower.service sysfsutils.service";

/// A policy as the command line has it.
pub fn word(policy: HoldPolicy) -> &'static str {
    match policy {
        HoldPolicy::Yield => "yield",
        HoldPolicy::Warn => "warn",
        HoldPolicy::Enforce => "enforce",
    }
}

/// Installs the unit and starts it; on other systems says what to do.
pub fn install(machine: &Machine, profile: &str, how: &HoldHow, dry_run: bool) -> Outcome {
    // What would be refused at boot is refused now.
    keep::every(how)?;
    let wanted = keep::wanted(machine, profile, how)?;
    wanted.plan(machine)?;
    let profile = wanted.name;
    let text = unit(&profile, how)?;
    if dry_run {
        say::line(text.trim_end());
        return Ok(0);
    }
    machine.need_root("installing a unit")?;
    let file = file(machine, &profile);
    if !has_systemd(machine) {
        elsewhere(machine, &profile, how)?;
        return Ok(1);
    }
    std::fs::create_dir_all(machine.kernel.below(UNITS))?;
    write_whole("unit", &file, text.as_bytes())?;
    let name = unit_name(&profile);
    say::note(format!("Wrote {}.", file.display()));
    if machine.is_real() {
        systemctl(&["daemon-reload"])?;
        systemctl(&["enable", &name])?;
        systemctl(&["restart", &name])?;
        // A unit whose conditions fail is skipped, which counts as a success.
        if systemctl(&["is-active", &name]).is_err() {
            let met = systemctl(&["show", "--property=ConditionResult", "--value", &name])?;
            let why = match met.trim() {
                "no" => "a condition of it is not met (in a container settings are the host's)",
                _ => "it has ended",
            };
            return Err(
                Failure::new(format!("{name} is enabled and does not run: {why}"))
                    .hint(format!("systemctl status {name}")),
            );
        }
        say::note(format!("{profile} is held from now on and at every boot."));
        say::hint("kilter hold status");
    }
    Ok(0)
}

/// Units of profiles that are held.
pub fn installed(machine: &Machine) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(machine.kernel.below(UNITS))
        .into_iter()
        .flatten();
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter_map(|name| {
            let profile = name
                .strip_prefix("kilter-hold-")?
                .strip_suffix(".service")?;
            Some((profile.to_owned(), format!("{UNITS}/{name}")))
        })
        .collect()
}

/// Stops and removes the unit, if there is one.
pub fn uninstall(machine: &Machine, profile: &str) -> Result<(), Failure> {
    let file = file(machine, profile);
    if !file.exists() {
        return Ok(());
    }
    let name = unit_name(profile);
    let managed = machine.is_real() && has_systemd(machine);
    if managed {
        systemctl(&["disable", "--now", &name])?;
    }
    std::fs::remove_file(&file)?;
    if managed {
        systemctl(&["daemon-reload"])?;
    }
    Ok(())
}

fn unit_name(profile: &str) -> String {
    format!("kilter-hold-{profile}.service")
}

fn file(machine: &Machine, profile: &str) -> PathBuf {
    machine
        .kernel
        .below(&format!("{UNITS}/{}", unit_name(profile)))
}

/// On the machine itself whether systemd runs; below another root whether it has units.
fn has_systemd(machine: &Machine) -> bool {
    match machine.is_real() {
        true => Path::new("/run/systemd/system").is_dir(),
        false => machine.kernel.below("/etc/systemd").is_dir(),
    }
}

/// What systemctl prints.
fn systemctl(words: &[&str]) -> Result<String, Failure> {
    let shown = format!("systemctl {}", words.join(" "));
    let done = Command::new("systemctl").args(words).output();
    match done {
        Ok(done) if done.status.success() => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        Ok(done) => Err(Failure::new(format!(
            "`{shown}` failed: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        ))
        .hint("journalctl -u 'kilter-hold-*' -n 20")),
        Err(error) => Err(Failure::new(format!("`{shown}`: {error}"))),
    }
}

/// The command that the unit runs.
fn command(profile: &str, how: &HoldHow) -> Result<String, Failure> {
    let binary = std::env::current_exe()?;
    let mut line = format!(
        "{} hold run {} --policy {} --every {}",
        quote(&binary.to_string_lossy()),
        quote(profile),
        how.policy.word(),
        quote(&how.every)
    );
    if how.revert_on_stop {
        line.push_str(" --revert-on-stop");
    }
    if how.consent.skip_risky {
        line.push_str(" --skip-risky");
    }
    if !how.consent.allow.is_empty() {
        let risks: Vec<&str> = how.consent.allow.iter().map(|risk| risk.word()).collect();
        let _ = write!(line, " --allow {}", risks.join(","));
    }
    Ok(line)
}

/// The unit's text.
fn unit(profile: &str, how: &HoldHow) -> Result<String, Failure> {
    // `%` begins a specifier in units, and `$` a variable.
    let command = command(profile, how)?.replace('%', "%%").replace('$', "$$");
    let kill = match how.revert_on_stop {
        // The guardian must outlive the main process for a moment.
        true => "mixed",
        // Processes that hold a setting go on, as the settings do.
        false => "process",
    };
    Ok(format!(
        "# Made by `kilter hold`; `kilter hold remove {profile}` takes it away.\n\
         [Unit]\n\
         Description=Kernel settings of the profile {profile} (kilter)\n\
         Documentation=man:kilter-hold(1)\n\
         # Those who write settings at boot come first.\n\
         After={AFTER}\n\
         ConditionVirtualization=!container\n\
         \n\
         [Service]\n\
         Type=notify\n\
         ExecStart={command}\n\
         ExecReload=/bin/kill -HUP $MAINPID\n\
         KillMode={kill}\n\
         Restart=on-failure\n\
         RestartSec=5\n\
         TimeoutStartSec=120\n\
         NoNewPrivileges=yes\n\
         ProtectHome=read-only\n\
         PrivateTmp=yes\n\
         RestrictAddressFamilies=AF_NETLINK AF_UNIX\n\
         MemoryDenyWriteExecute=yes\n\
         LockPersonality=yes\n\
         RestrictNamespaces=yes\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    ))
}

/// What to do where systemd is not: OpenRC's and runit's own words.
fn elsewhere(machine: &Machine, profile: &str, how: &HoldHow) -> Result<(), Failure> {
    let command = command(profile, how)?;
    let name = format!("kilter-hold-{profile}");
    let (program, arguments) = command.split_once(' ').unwrap_or((&command, ""));
    say::warning("systemd does not run this machine; nothing was installed");
    let here = |path: &str| machine.kernel.below(path).exists();
    let (openrc, runit) = (
        here("/run/openrc"),
        here("/run/runit") || here("/etc/runit"),
    );
    if openrc || !runit {
        say::line(format!(
            "OpenRC: write /etc/init.d/{name}\n\n\
             #!/sbin/openrc-run\n\
             description=\"Kernel settings of the profile {profile} (kilter)\"\n\
             command={program}\n\
             command_args=\"{arguments}\"\n\
             supervisor=supervise-daemon\n\
             depend() {{\n\tafter sysctl udev-settle modules *\n}}\n\n\
             and: chmod +x /etc/init.d/{name} && rc-update add {name} default && rc-service {name} start\n"
        ));
    }
    if runit || !openrc {
        say::line(format!(
            "runit: write /etc/sv/{name}/run\n\n\
             #!/bin/sh\n\
             exec {command} 2>&1\n\n\
             and: chmod +x /etc/sv/{name}/run && ln -s /etc/sv/{name} /var/service/\n"
        ));
    }
    Ok(())
}

/// Tells systemd how the service stands, if it asked to be told.
pub fn notify(text: &str) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Some(place) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let place = place.to_string_lossy().into_owned();
    let address = match place.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&place),
    };
    // Whoever asked and is not there any more needs no answer.
    if let (Ok(socket), Ok(address)) = (UnixDatagram::unbound(), address) {
        let _ = socket.send_to_addr(text.as_bytes(), &address);
    }
}
