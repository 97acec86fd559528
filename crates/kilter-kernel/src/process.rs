//! Telling processes and boots apart.

use kilter_api::Owner;
use std::path::Path;

/// This process.
pub fn this_process() -> Owner {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    Owner {
        pid,
        start_ticks: start_ticks(pid).unwrap_or(0),
    }
}

/// A process told apart from a later one with the same number; none if there is none.
pub(crate) fn owner_of(pid: i32) -> Option<Owner> {
    let start_ticks = start_ticks(pid)?;
    Some(Owner { pid, start_ticks })
}

/// Whether this process acts as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether exactly that process lives (a zombie does not).
pub fn is_alive(owner: &Owner) -> bool {
    start_ticks(owner.pid) == Some(owner.start_ticks)
}

/// Whether some process with this number lives (a zombie does not).
pub(crate) fn exists(pid: i32) -> bool {
    start_ticks(pid).is_some()
}

/// Ends exactly that process with SIGKILL and waits for it, ten seconds at most.
pub(crate) fn end(owner: &Owner) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    let Some(Ok(process)) =
        Pid::from_raw(owner.pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()))
    else {
        return;
    };
    // The descriptor is that of the process, whose start is looked at only now.
    if !is_alive(owner) || pidfd_send_signal(&process, Signal::KILL).is_err() {
        return;
    }
    let ten_seconds = Timespec {
        tv_sec: 10,
        tv_nsec: 0,
    };
    let _ = poll(
        &mut [PollFd::new(&process, PollFlags::IN)],
        Some(&ten_seconds),
    );
}

/// Identity of the running boot.
pub fn boot_id(root: &Path) -> String {
    let read =
        |root: &Path| std::fs::read_to_string(root.join("proc/sys/kernel/random/boot_id")).ok();
    read(root)
        .or_else(|| read(Path::new("/")))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Field 22 of `/proc/PID/stat`; none if there is no such process or only its zombie.
fn start_ticks(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so fields count from the last one.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    match *fields.first()? {
        "Z" | "X" => None,
        _ => fields.get(19)?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_another_start_does_not() {
        let me = this_process();
        assert!(is_alive(&me));
        assert!(!is_alive(&Owner {
            start_ticks: me.start_ticks + 1,
            ..me
        }));
    }

    #[test]
    fn a_zombie_is_dead() {
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .spawn()
            .unwrap();
        let owner = Owner {
            pid: child.id() as i32,
            start_ticks: start_ticks(child.id() as i32).unwrap(),
        };
        assert!(is_alive(&owner));
        child.kill().unwrap();
        while is_alive(&owner) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!is_alive(&owner));
    }
}
