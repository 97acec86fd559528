//! What wakes the daemon: pressure that the kernel tells of, a cgroup's memory that crosses a line,
//! groups that freeze or thaw, a changed configuration.

use crate::cgroup::Cgroup;
use kilter_kernel::Kernel;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::fs::inotify;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Seconds over which the kernel adds stalls up: one, or two where the process lacks
/// CAP_SYS_RESOURCE (Documentation/accounting/psi.rst).
const WINDOWS_S: [u32; 2] = [1, 2];

/// Files of cgroups that are watched at most.
const MAX_FILES: usize = 512;

/// Descriptors that wake the daemon.
#[derive(Debug)]
pub struct Watch {
    pressure: Result<File, String>,
    line: Option<OwnedFd>,
    changes: OwnedFd,
    config: Option<(i32, PathBuf)>,
    frozen: BTreeMap<PathBuf, i32>,
    pressure_file: PathBuf,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// The kernel told of pressure, or memory crossed the line.
    pub pressed: bool,
    /// Memory of the watched cgroup crossed the line.
    pub crossed: bool,
    /// A group froze or thawed.
    pub frozen: bool,
    /// The configuration was written.
    pub config: bool,
}

impl Watch {
    /// Watches memory of the machine, or of a cgroup.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new(
        kernel: &Kernel,
        within: Option<&Cgroup>,
        config: Option<&Path>,
    ) -> io::Result<Self> {
        let of_group = within.map(|group| group.dir().join("memory.pressure"));
        let pressure_file = of_group
            .filter(|file| file.exists())
            .unwrap_or_else(|| kernel.below("/proc/pressure/memory"));
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let changes = inotify::init(flags)?;
        // The directory: editors put a new file in the old one's place.
        let config = config.and_then(|file| {
            let dir = file
                .parent()
                .filter(|dir| !dir.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            let events = inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::MOVED_TO;
            let watch = inotify::add_watch(&changes, dir, events).ok()?;
            Some((watch, file.file_name()?.into()))
        });
        Ok(Watch {
            pressure: Err("not asked for yet".to_owned()),
            line: None,
            changes,
            config,
            frozen: BTreeMap::new(),
            pressure_file,
        })
    }

    /// Asks to be told when tasks wait for memory for so many milliseconds of a second.
    pub fn ask_for_pressure(&mut self, stall_ms: u32) {
        let ask = |seconds: u32| {
            let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).custom_flags(flags);
            let mut file = options.open(&self.pressure_file)?;
            let stall_us = stall_ms * 1000 * seconds;
            file.write_all(format!("some {stall_us} {}\0", seconds * 1_000_000).as_bytes())?;
            Ok::<File, io::Error>(file)
        };
        // Dropping the old one ends it.
        let asked = ask(WINDOWS_S[0]).or_else(|_| ask(WINDOWS_S[1]));
        self.pressure = asked.map_err(|error| format!("{}: {error}", self.pressure_file.display()));
    }

    /// Asks to be told when a cgroup's memory crosses a line (cgroup v1: cgroup.event_control).
    pub fn ask_for_line(&mut self, group: &Cgroup, bytes: u64) {
        let ask = || {
            let usage = File::open(group.dir().join("memory.usage_in_bytes"))?;
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let mut control = OpenOptions::new()
                .write(true)
                .open(group.dir().join("cgroup.event_control"))?;
            let request = format!("{} {} {bytes}", event.as_raw_fd(), usage.as_raw_fd());
            control.write_all(request.as_bytes())?;
            Ok::<OwnedFd, io::Error>(event)
        };
        self.line = ask().ok();
    }

    /// Watches exactly these files of cgroups for freezing.
    pub fn ask_for_frozen<'a>(&mut self, files: impl Iterator<Item = &'a Path>) {
        let wanted: std::collections::BTreeSet<&Path> = files.take(MAX_FILES).collect();
        let changes = &self.changes;
        self.frozen.retain(|file, watch| {
            let keep = wanted.contains(file.as_path());
            if !keep {
                let _ = inotify::remove_watch(changes, *watch);
            }
            keep
        });
        for file in wanted {
            if !self.frozen.contains_key(file)
                && let Ok(watch) = inotify::add_watch(changes, file, inotify::WatchFlags::MODIFY)
            {
                self.frozen.insert(file.to_owned(), watch);
            }
        }
    }

    /// What it is told of, for people.
    pub fn told(&self) -> Vec<String> {
        let mut told = vec![match &self.pressure {
            Ok(_) => format!("pressure ({})", self.pressure_file.display()),
            Err(error) => format!("no pressure events: {error}; memory is looked at by the clock"),
        }];
        if self.line.is_some() {
            told.push("memory of the cgroup crossing the line".to_owned());
        }
        if !self.frozen.is_empty() {
            told.push(format!("{} groups freezing or thawing", self.frozen.len()));
        }
        if self.config.is_some() {
            told.push("the configuration".to_owned());
        }
        told
    }

    /// Why the kernel does not tell of pressure.
    pub fn trouble(&self) -> Option<&str> {
        self.pressure.as_ref().err().map(String::as_str)
    }

    /// Descriptors to poll.
    pub fn fds(&self) -> Vec<PollFd<'_>> {
        let mut fds = vec![PollFd::new(&self.changes, PollFlags::IN)];
        if let Ok(file) = &self.pressure {
            fds.push(PollFd::new(file, PollFlags::PRI));
        }
        if let Some(event) = &self.line {
            fds.push(PollFd::new(event, PollFlags::IN));
        }
        fds
    }

    /// What the descriptors tell after a poll, in their order.
    pub fn take(&mut self, events: &[PollFlags]) -> Woken {
        let mut woken = Woken::default();
        let mut events = events.iter();
        let mut next = || events.next().copied().unwrap_or(PollFlags::empty());
        if next().contains(PollFlags::IN) {
            self.drain(&mut woken);
        }
        if self.pressure.is_ok() {
            let told = next();
            woken.pressed = told.contains(PollFlags::PRI);
            // The cgroup is gone: it would be readable for ever.
            if told.contains(PollFlags::ERR) {
                self.pressure = Err(format!("{}: gone", self.pressure_file.display()));
                woken.pressed = false;
            }
        }
        if let Some(event) = &self.line
            && next().contains(PollFlags::IN)
        {
            let mut count = [0; 8];
            let _ = rustix::io::read(event, &mut count);
            woken.crossed = true;
        }
        woken
    }

    fn drain(&self, woken: &mut Woken) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.changes.as_fd(), &mut buffer);
        while let Ok(event) = reader.next() {
            match &self.config {
                Some((watch, name)) if event.wd() == *watch => {
                    woken.config |= event.file_name().is_some_and(|found| {
                        found.to_bytes() == name.as_os_str().as_encoded_bytes()
                    });
                }
                _ => woken.frozen = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::poll;
    use rustix::time::Timespec;

    fn woken(watch: &mut Watch) -> Woken {
        let mut fds = watch.fds();
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        poll(&mut fds, Some(&wait)).unwrap();
        let events: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        watch.take(&events)
    }

    #[test]
    fn only_the_configuration_itself_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("reclaim.toml");
        let kernel = Kernel::new(dir.path());
        let mut watch = Watch::new(&kernel, None, Some(&file)).unwrap();
        assert_eq!(woken(&mut watch), Woken::default());
        std::fs::write(dir.path().join("other"), "x").unwrap();
        assert!(!woken(&mut watch).config);
        std::fs::write(&file, "x").unwrap();
        assert!(woken(&mut watch).config);
        std::fs::write(dir.path().join("new"), "y").unwrap();
        std::fs::rename(dir.path().join("new"), &file).unwrap();
        assert!(woken(&mut watch).config);
        assert_eq!(woken(&mut watch), Woken::default(), "told once");
        watch.ask_for_pressure(50);
        assert!(
            watch
                .trouble()
                .is_some_and(|said| said.contains("pressure")),
            "none there"
        );
    }

    #[test]
    fn a_group_that_freezes_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Kernel::new(dir.path());
        let file = dir.path().join("cgroup.events");
        std::fs::write(&file, "frozen 0\n").unwrap();
        let mut watch = Watch::new(&kernel, None, None).unwrap();
        watch.ask_for_frozen(std::iter::once(file.as_path()));
        std::fs::write(&file, "frozen 1\n").unwrap();
        assert!(woken(&mut watch).frozen);
        watch.ask_for_frozen(std::iter::empty());
        woken(&mut watch);
        std::fs::write(&file, "frozen 0\n").unwrap();
        assert!(!woken(&mut watch).frozen, "no longer asked for");
    }
}
