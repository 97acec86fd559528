//! What a running `kilter hold` tells others: one file each in `/run/kilter/hold`.

use crate::fail::Failure;
use crate::machine::Machine;
use crate::output::write_whole;
use kilter_api::{HoldInfo, Owner};
use kilter_kernel::{is_alive, this_process};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How long an ending process has to put its settings back.
const PATIENCE_S: i64 = 30;

#[derive(Serialize, Deserialize)]
struct Record {
    process: Owner,
    hold: HoldInfo,
}

fn dir(machine: &Machine) -> PathBuf {
    machine.kernel.below("/run/kilter/hold")
}

fn file(machine: &Machine, profile: &str) -> PathBuf {
    dir(machine).join(format!("{profile}.json"))
}

/// Tells how this process holds a profile.
pub fn write(machine: &Machine, hold: &HoldInfo) -> Result<(), Failure> {
    kilter_kernel::make_dir(&dir(machine))?;
    let record = Record {
        process: this_process(),
        hold: hold.clone(),
    };
    let text = serde_json::to_vec_pretty(&record)?;
    write_whole("state", &file(machine, &hold.profile), &text)
}

/// Tells that this process holds it no more.
pub fn remove(machine: &Machine, profile: &str) {
    let _ = std::fs::remove_file(file(machine, profile));
}

/// The profiles that a living process holds.
pub fn all(machine: &Machine) -> Vec<HoldInfo> {
    let files = std::fs::read_dir(dir(machine)).into_iter().flatten();
    let mut holds: Vec<HoldInfo> = files
        .flatten()
        .map(|file| file.path())
        // Not one that is just being written: [`end`] would not find its process.
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "json"))
        .filter_map(|path| {
            let record: Record = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
            is_alive(&record.process).then_some(record.hold)
        })
        .collect();
    holds.sort_by(|a, b| a.profile.cmp(&b.profile));
    holds
}

/// Asks the process that holds a profile to end, and waits for it.
pub fn end(machine: &Machine, profile: &str) -> Result<(), Failure> {
    let read = std::fs::read(file(machine, profile)).ok();
    let Some(record) = read.and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok()) else {
        return Ok(());
    };
    let process = Pid::from_raw(record.process.pid);
    let Some(Ok(process)) = process.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
        return Ok(());
    };
    // The descriptor is that of the process, whose start is looked at only now.
    if !is_alive(&record.process) {
        return Ok(());
    }
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    pidfd_send_signal(&process, Signal::TERM).map_err(std::io::Error::from)?;
    let patience = Timespec {
        tv_sec: PATIENCE_S,
        tv_nsec: 0,
    };
    match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience)) {
        Ok(0) => Err(Failure::new(format!(
            "process {} did not end within {PATIENCE_S} s",
            record.process.pid
        ))),
        _ => Ok(()),
    }
}
