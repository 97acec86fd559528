//! One process, told apart from a later one with its number and from another program in its place.
//!
//! The pidfd is opened first, then the process's directory; while the pidfd's process has not been
//! collected, its number is its own, so that both mean the same process. The open `pagemap` stands for
//! its memory: once another program was executed, or the process has ended, it can no longer be read.

use crate::maps::{self, Mapping};
use crate::usage::{self, Rollup, Stat};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Room for lines of `maps`: a line holds a path of at most 4 KiB, in which a byte may take four.
const MAPS_BYTES: usize = 32 * 1024;

/// A process that is there.
#[derive(Debug)]
pub struct Target {
    pid: i32,
    start_ticks: u64,
    name: String,
    process: OwnedFd,
    dir: OwnedFd,
    pagemap: File,
}

/// Whether a process is still the one that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is.
    Same,
    /// It has ended.
    Ended,
    /// It executes another program now.
    Executed,
}

/// Why a process cannot be reclaimed from.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// There is none.
    #[error("process {0}: there is none")]
    Absent(i32),
    /// It has ended and waits for its parent.
    #[error("process {0} has ended; only its parent has not taken note yet")]
    Zombie(i32),
    /// A kernel thread.
    #[error("process {0} is a kernel thread, which has no memory of its own")]
    Kernel(i32),
    /// Another process has the number now.
    #[error("process {0} is no longer the one that was meant: its number was given to another")]
    Reused(i32),
    /// The right is missing.
    #[error("process {0}: not permitted (it takes the right to trace it, and CAP_SYS_NICE)")]
    NotPermitted(i32),
    /// Anything else.
    #[error("process {pid}: {source}")]
    Other {
        /// The process.
        pid: i32,
        /// The reason.
        source: io::Error,
    },
}

impl Target {
    /// Opens a process; that which was started at `start_ticks`, where given.
    ///
    /// # Errors
    /// There is none, it is another one, or the right is missing.
    pub fn open(proc: &Path, pid: i32, start_ticks: Option<u64>) -> Result<Self, TargetError> {
        let fail = |errno: Errno| failure(pid, errno.into());
        // Zero and negative numbers mean groups of processes elsewhere.
        let number = (pid > 0).then(|| Pid::from_raw(pid)).flatten();
        let number = number.ok_or(TargetError::Absent(pid))?;
        let process = pidfd_open(number, PidfdFlags::empty()).map_err(fail)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(proc.join(pid.to_string()), flags, Mode::empty());
        let dir = dir.map_err(fail)?;
        let stat = read(&dir, "stat").ok().and_then(|text| usage::stat(&text));
        let stat = stat.ok_or(TargetError::Absent(pid))?;
        if start_ticks.is_some_and(|ticks| ticks != stat.start_ticks) {
            return Err(TargetError::Reused(pid));
        }
        if stat.is_kernel {
            return Err(TargetError::Kernel(pid));
        }
        if stat.is_zombie || has_ended(&process) {
            return Err(TargetError::Zombie(pid));
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let pagemap = openat(&dir, "pagemap", flags, Mode::empty()).map_err(fail)?;
        Ok(Target {
            pid,
            start_ticks: stat.start_ticks,
            name: stat.name,
            process,
            dir,
            pagemap: pagemap.into(),
        })
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// When it was started, in clock ticks since boot.
    pub fn start_ticks(&self) -> u64 {
        self.start_ticks
    }

    /// Its name when it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The open `pagemap`.
    pub fn pagemap(&self) -> &File {
        &self.pagemap
    }

    /// Its mappings, one after the other in ascending order, until `take` has enough; the text of
    /// 100,000 is never held at once.
    ///
    /// # Errors
    /// What the system says; the process may have ended.
    pub fn each_mapping(
        &self,
        mut take: impl FnMut(Mapping) -> ControlFlow<()>,
    ) -> Result<(), TargetError> {
        let fail = |errno: Errno| failure(self.pid, errno.into());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let maps = openat(&self.dir, "maps", flags, Mode::empty()).map_err(fail)?;
        let mut buffer = vec![0; MAPS_BYTES];
        let mut held = 0;
        loop {
            let read = match rustix::io::read(&maps, &mut buffer[held..]) {
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(fail(errno)),
            };
            held += read;
            let whole = match buffer[..held].iter().rposition(|&byte| byte == b'\n') {
                Some(end) => end + 1,
                // The last line may lack its end; one longer than the buffer does not exist.
                None if read == 0 || held == buffer.len() => held,
                None => continue,
            };
            if maps::parse(&buffer[..whole])
                .try_for_each(&mut take)
                .is_break()
            {
                return Ok(());
            }
            buffer.copy_within(whole..held, 0);
            held -= whole;
            if read == 0 {
                return Ok(());
            }
        }
    }

    /// The text of `smaps`.
    ///
    /// # Errors
    /// What the system says.
    pub fn smaps(&self) -> io::Result<String> {
        read(&self.dir, "smaps").map(|text| String::from_utf8_lossy(&text).into_owned())
    }

    /// Its memory, exactly.
    ///
    /// # Errors
    /// What the system says.
    pub fn rollup(&self) -> Result<Rollup, TargetError> {
        match read(&self.dir, "smaps_rollup") {
            Ok(text) => Ok(usage::rollup(&String::from_utf8_lossy(&text))),
            Err(error) => Err(failure(self.pid, error)),
        }
    }

    /// What `stat` tells now.
    pub fn stat(&self) -> Option<Stat> {
        read(&self.dir, "stat")
            .ok()
            .and_then(|text| usage::stat(&text))
    }

    /// Whether it is still what was opened. Costs a microsecond.
    pub fn state(&self) -> State {
        let mut entry = [0; 8];
        // An entry of any address, mapped or not; none for memory that nobody uses any more.
        let is_there = self
            .pagemap
            .read_at(&mut entry, 0)
            .is_ok_and(|read| read == 8);
        match () {
            () if has_ended(&self.process) => State::Ended,
            () if is_there => State::Same,
            // A dying process gives its memory up before its pidfd tells.
            () if self
                .stat()
                .is_none_or(|stat| stat.is_zombie || stat.resident_pages == 0) =>
            {
                State::Ended
            }
            () => State::Executed,
        }
    }
}

impl AsFd for Target {
    /// The pidfd.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

fn read(dir: &OwnedFd, name: &str) -> io::Result<Vec<u8>> {
    let file = openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = Vec::new();
    File::from(file).read_to_end(&mut text)?;
    Ok(text)
}

fn failure(pid: i32, source: io::Error) -> TargetError {
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::SRCH | Errno::NOENT) => TargetError::Absent(pid),
        Some(Errno::PERM | Errno::ACCESS) => TargetError::NotPermitted(pid),
        _ => TargetError::Other { pid, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn open(pid: i32, start_ticks: Option<u64>) -> Result<Target, TargetError> {
        Target::open(Path::new("/proc"), pid, start_ticks)
    }

    fn shell(script: &str) -> Child {
        Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn wait_for(state: State, target: &Target) {
        let begun = std::time::Instant::now();
        while target.state() != state {
            assert!(begun.elapsed().as_secs() < 10, "{:?}", target.state());
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn only_the_process_that_was_meant_is_opened() {
        let me = std::process::id() as i32;
        let start_ticks = open(me, None).unwrap().start_ticks();
        assert!(open(me, Some(start_ticks)).is_ok());
        let error = open(me, Some(start_ticks + 1)).unwrap_err();
        assert!(
            matches!(error, TargetError::Reused(pid) if pid == me),
            "{error}"
        );
        for none in [0, -1, -5, i32::MIN, i32::MAX] {
            assert!(
                matches!(open(none, None), Err(TargetError::Absent(_))),
                "{none}"
            );
        }
    }

    #[test]
    fn another_program_is_told_from_the_same_one() {
        let mut child = shell("read x; exec sleep 30");
        let target = open(child.id() as i32, None).unwrap();
        assert_eq!(target.state(), State::Same);
        drop(child.stdin.take());
        wait_for(State::Executed, &target);
        child.kill().unwrap();
        wait_for(State::Ended, &target);
        child.wait().unwrap();
        assert_eq!(target.state(), State::Ended);
        assert!(
            target.rollup().is_err() && target.each_mapping(|_| ControlFlow::Continue(())).is_err()
        );
    }

    #[test]
    fn mappings_are_those_of_the_whole_text() {
        let me = std::process::id() as i32;
        let mut found = Vec::new();
        open(me, None)
            .unwrap()
            .each_mapping(|mapping| {
                found.push(mapping);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert!(found.len() > 10);
        assert!(
            found.is_sorted_by(|a, b| a.range.end <= b.range.start),
            "none twice"
        );
        let mut child = shell("read x");
        let text = std::fs::read(format!("/proc/{}/maps", child.id())).unwrap();
        let target = open(child.id() as i32, None).unwrap();
        let mut found = Vec::new();
        target
            .each_mapping(|mapping| {
                found.push(mapping);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(found, maps::parse(&text).collect::<Vec<_>>());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_number_that_is_given_away_again_is_not_followed() {
        let mut child = shell("read x");
        let target = open(child.id() as i32, None).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        // Whoever has the number now, the descriptors are those of the dead one.
        assert_eq!(target.state(), State::Ended);
        assert!(target.stat().is_none());
    }
}
