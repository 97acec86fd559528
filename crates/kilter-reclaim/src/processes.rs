//! The process directory: which processes there are, their memory, their cgroups.

use crate::usage::{self, Stat, Status, sum};
use kilter_api::MemoryUse;
use kilter_kernel::Kernel;
use rustix::fs::{Dir, Mode as FileMode, OFlags, openat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A process of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Its number.
    pub pid: i32,
    /// Its start, in clock ticks since boot.
    pub start_ticks: u64,
}

/// What one look at an app's processes brings.
#[derive(Default)]
pub(crate) struct Look {
    pub members: Vec<Member>,
    pub memory: MemoryUse,
    pub ticks: u64,
    pub major_faults: u64,
    pub locked: u64,
    pub oom_score_adj: Option<i32>,
    pub uid: u32,
}

/// The process directory. Files are read into one buffer: sweeps read thousands.
#[derive(Debug)]
pub struct Proc {
    dir: OwnedFd,
    buffer: Vec<u8>,
}

impl Proc {
    pub fn open(kernel: &Kernel) -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Proc {
            dir: rustix::fs::open(kernel.below("/proc"), flags, FileMode::empty())?,
            buffer: Vec::with_capacity(4096),
        })
    }

    pub fn pids(&self) -> Vec<i32> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(dir) = openat(&self.dir, ".", flags, FileMode::empty()).and_then(Dir::new) else {
            return Vec::new();
        };
        dir.flatten()
            .filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok())
            .collect()
    }

    pub fn stat(&mut self, pid: i32) -> Option<Stat> {
        self.read(&format!("{pid}/stat")).and_then(usage::stat)
    }

    pub fn status(&mut self, pid: i32) -> Option<Status> {
        let text = self.read(&format!("{pid}/status"))?;
        usage::status(&String::from_utf8_lossy(text))
    }

    pub fn groups(&mut self, pid: i32) -> Option<Groups> {
        let text = self.read(&format!("{pid}/cgroup"))?;
        groups(&String::from_utf8_lossy(text))
    }

    fn number(&mut self, path: &str) -> Option<i32> {
        std::str::from_utf8(self.read(path)?)
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// All of an app's processes; none if none of them is left.
    pub fn look(&mut self, members: &[Member]) -> Option<Look> {
        let mut look = Look::default();
        for &member in members {
            let pid = member.pid;
            let Some(stat) = self.stat(pid) else { continue };
            if stat.start_ticks != member.start_ticks || stat.is_zombie {
                continue;
            }
            let Some(status) = self.status(pid) else {
                continue;
            };
            if look.members.is_empty() {
                look.uid = status.uid;
            }
            look.members.push(member);
            look.memory = sum(look.memory, status.memory);
            look.locked += status.locked_bytes;
            look.ticks += stat.ticks;
            look.major_faults += stat.major_faults;
            let score = self.number(&format!("{pid}/oom_score_adj")).unwrap_or(0);
            look.oom_score_adj = Some(look.oom_score_adj.map_or(score, |least| least.min(score)));
        }
        (!look.members.is_empty()).then_some(look)
    }

    fn read(&mut self, path: &str) -> Option<&[u8]> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&self.dir, path, flags, FileMode::empty()).ok()?;
        self.buffer.clear();
        loop {
            if self.buffer.capacity() - self.buffer.len() < 1024 {
                self.buffer.reserve(4096);
            }
            match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut self.buffer)) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        Some(&self.buffer)
    }
}

/// A process's cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    /// That which it is known by: of cgroup v2 unless that is the root, else that of systemd, else
    /// that of the memory controller.
    pub name: String,
    /// That of cgroup v2, where there is one.
    unified: Option<String>,
    /// That of the freezer of cgroup v1.
    freezer: Option<String>,
}

impl Groups {
    /// The file that tells whether it is frozen; none in root groups, which cannot be.
    pub fn frozen_file(&self, kernel: &Kernel) -> Option<PathBuf> {
        let base = kernel.below("/sys/fs/cgroup");
        let below = |path: &Option<String>| path.clone().filter(|path| path != "/");
        if let Some(path) = below(&self.freezer) {
            return Some(base.join("freezer").join(&path[1..]).join("freezer.state"));
        }
        let path = below(&self.unified)?;
        let root = if base.join("cgroup.controllers").exists() {
            base
        } else {
            base.join("unified")
        };
        Some(root.join(&path[1..]).join("cgroup.events"))
    }
}

/// `/proc/PID/cgroup` (cgroups(7)).
pub(crate) fn groups(text: &str) -> Option<Groups> {
    let mut best: Option<(u32, &str)> = None;
    let (mut unified, mut freezer) = (None, None);
    for line in text.lines() {
        let (number, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        if !path.starts_with('/') {
            continue;
        }
        let has = |name| controllers.split(',').any(|found| found == name);
        if has("freezer") {
            freezer = Some(path.to_owned());
        }
        let rank = match controllers {
            "" if number == "0" => 3,
            "name=systemd" => 2,
            _ if has("memory") => 1,
            _ => continue,
        };
        if rank == 3 {
            unified = Some(path.to_owned());
        }
        let rank = if path == "/" { 0 } else { rank };
        if best.is_none_or(|(rank_before, _)| rank > rank_before) {
            best = Some((rank, path));
        }
    }
    let name = best?.1.to_owned();
    Some(Groups {
        name,
        unified,
        freezer,
    })
}

/// Whether the file of a cgroup says that its tasks are frozen.
pub(crate) fn is_frozen(file: &Path) -> bool {
    says_frozen(&std::fs::read_to_string(file).unwrap_or_default())
}

/// Whether the text of such a file says so.
pub(crate) fn says_frozen(text: &str) -> bool {
    text.trim() == "FROZEN" || text.lines().any(|line| line == "frozen 1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_group_of_v2_is_the_name_unless_it_is_the_root() {
        let name = |text: &str| groups(text).map(|groups| groups.name);
        assert_eq!(
            name("5:memory:/m\n1:name=systemd:/s\n0::/v2\n").as_deref(),
            Some("/v2")
        );
        assert_eq!(
            name("5:memory:/m\n1:name=systemd:/\n0::/\n").as_deref(),
            Some("/m")
        );
        assert_eq!(name("0::/\n").as_deref(), Some("/"));
        assert_eq!(name("7:pids:/x\n"), None);
    }

    #[test]
    fn the_freezer_is_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Kernel::new(dir.path());
        let base = dir.path().join("sys/fs/cgroup");
        let file = |text| groups(text).unwrap().frozen_file(&kernel);
        assert_eq!(
            file("3:freezer:/f\n0::/v2\n"),
            Some(base.join("freezer/f/freezer.state"))
        );
        assert_eq!(
            file("3:freezer:/\n0::/v2\n"),
            Some(base.join("unified/v2/cgroup.events"))
        );
        assert_eq!(file("3:freezer:/\n0::/\n"), None);
        for (text, frozen) in [
            ("FROZEN\n", true),
            ("FREEZING\n", false),
            ("populated 1\nfrozen 1\n", true),
            ("frozen 0\n", false),
        ] {
            let path = dir.path().join("state");
            std::fs::write(&path, text).unwrap();
            assert_eq!(is_frozen(&path), frozen, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_not(text in ".{0,200}") {
            let _ = groups(&text);
        }
    }
}
