//! Cgroups as targets and as limits: their processes, their memory, `memory.reclaim`.

use kilter_api::MemoryUse;
use kilter_kernel::Kernel;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Levels below a cgroup that are looked at.
const DEPTH: usize = 16;

/// A cgroup's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    dir: PathBuf,
    name: String,
}

/// A cgroup that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// There is none of that name.
    #[error("`{0}` is neither a process nor a cgroup (a directory below /sys/fs/cgroup)")]
    Absent(String),
    /// It has no memory controller.
    #[error("cgroup {0} has no memory controller: no memory.max, no memory.limit_in_bytes")]
    NoMemory(String),
}

impl Cgroup {
    /// The cgroup that an operator means: a directory, or a path as in [`Cgroup::named`].
    ///
    /// # Errors
    /// There is none.
    pub fn find(kernel: &Kernel, name: &str) -> Result<Self, CgroupError> {
        let dir = Path::new(name);
        match dir.is_absolute() && is_plain(name) && dir.join("cgroup.procs").is_file() {
            true => Ok(Self::at(kernel, dir.to_owned())),
            false => Self::named(kernel, name),
        }
    }

    /// The cgroup of a path below one of the hierarchies, that of memory first. Never a directory
    /// elsewhere: whoever may make cgroups chooses such paths.
    ///
    /// # Errors
    /// There is none.
    pub fn named(kernel: &Kernel, name: &str) -> Result<Self, CgroupError> {
        let below = name.trim_start_matches('/');
        let base = kernel.below("/sys/fs/cgroup");
        ["memory", "", "unified", "systemd"]
            .map(|hierarchy| base.join(hierarchy).join(below))
            .into_iter()
            .filter(|_| is_plain(name) && !below.is_empty())
            .find(|dir| dir.is_absolute() && dir.join("cgroup.procs").is_file())
            .map(|dir| Self::at(kernel, dir))
            .ok_or_else(|| CgroupError::Absent(name.to_owned()))
    }

    fn at(kernel: &Kernel, dir: PathBuf) -> Self {
        Cgroup {
            name: name_of(&dir, &kernel.below("/sys/fs/cgroup")),
            dir,
        }
    }

    /// Its path below its hierarchy.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The processes in it and below it.
    pub fn processes(&self) -> Vec<i32> {
        let mut pids = Vec::new();
        collect(&self.dir, DEPTH, &mut pids);
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Whether it can be told to reclaim (cgroup v2, Linux 5.19).
    pub fn can_reclaim(&self) -> bool {
        self.dir.join("memory.reclaim").exists()
    }

    /// Tells it to reclaim so many bytes.
    ///
    /// # Errors
    /// `EAGAIN`: fewer could be. Whatever else the kernel says.
    pub fn reclaim(&self, bytes: u64) -> io::Result<()> {
        let mut file = fs::File::options()
            .write(true)
            .open(self.dir.join("memory.reclaim"))?;
        file.write_all(format!("{bytes}").as_bytes())
    }

    /// Its memory, by its own counters; none without the memory controller.
    pub fn memory(&self) -> Option<MemoryUse> {
        let stat = fs::read_to_string(self.dir.join("memory.stat")).ok()?;
        let of = |names: [&str; 2]| {
            let found = names.iter().find_map(|name| counter(&stat, name));
            found.unwrap_or(0)
        };
        let (anon, file) = (of(["total_rss", "anon"]), of(["total_cache", "file"]));
        let swapped = self
            .number("memory.swap.current")
            .unwrap_or_else(|| of(["total_swap", "swap"]));
        Some(MemoryUse {
            resident_bytes: anon + file,
            anon_bytes: anon,
            swapped_bytes: swapped,
        })
    }

    /// Its limit and what is available below it without swapping: what is free, and clean pages of
    /// files that are not in use. The limit is that of the machine where it has none.
    ///
    /// # Errors
    /// It has no memory controller.
    pub fn availability(&self, machine: (u64, u64)) -> Result<(u64, u64), CgroupError> {
        let none = || CgroupError::NoMemory(self.name.clone());
        let v2 = self.dir.join("memory.current").exists();
        let (usage, limit) = match v2 {
            true => ("memory.current", ["memory.max", "memory.high"]),
            false => (
                "memory.usage_in_bytes",
                ["memory.limit_in_bytes", "memory.limit_in_bytes"],
            ),
        };
        let usage = self.number(usage).ok_or_else(none)?;
        let limits = limit.iter().filter_map(|file| self.number(file));
        let limit = limits.min().unwrap_or(u64::MAX);
        if limit >= machine.0 {
            return Ok(machine);
        }
        let stat = fs::read_to_string(self.dir.join("memory.stat")).unwrap_or_default();
        let file = |name: &str| {
            counter(&stat, &format!("total_{name}"))
                .or_else(|| counter(&stat, name))
                .unwrap_or(0)
        };
        let dirty =
            file("dirty").max(file("file_dirty")) + file("writeback").max(file("file_writeback"));
        let clean = (file("inactive_file") + file("active_file") / 2).saturating_sub(dirty);
        Ok((limit, (limit.saturating_sub(usage) + clean).min(limit)))
    }

    /// Seconds for which it has not had the focus, where the desktop tells: the extended attribute
    /// `user.inactive-since` of its directory holds the time (CLOCK_MONOTONIC, µs) at which it lost
    /// it, or nothing or 0 while it has it.
    pub fn unfocused_s(&self) -> Option<f64> {
        let mut value = [0_u8; 32];
        let read = rustix::fs::getxattr(&self.dir, "user.inactive-since", &mut value[..]).ok()?;
        let text = std::str::from_utf8(value.get(..read)?).ok()?.trim();
        let since: u64 = if text.is_empty() {
            0
        } else {
            text.parse().ok()?
        };
        if since == 0 {
            return Some(0.0);
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000;
        // It lost it at some time, if only just now.
        Some((now.saturating_sub(since) as f64 / 1e6).max(1e-6))
    }

    fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.dir.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    }
}

/// Whether a path leads nowhere above.
fn is_plain(path: &str) -> bool {
    !path.split('/').any(|part| part == "..")
}

fn name_of(dir: &Path, base: &Path) -> String {
    let below = dir.strip_prefix(base).unwrap_or(dir);
    let text = below.to_string_lossy();
    let mut name = text.trim_start_matches('/');
    for hierarchy in ["memory/", "unified/", "systemd/", "freezer/"] {
        name = name.strip_prefix(hierarchy).unwrap_or(name);
    }
    format!("/{name}")
}

fn collect(dir: &Path, depth: usize, pids: &mut Vec<i32>) {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    if depth == 0 {
        return;
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), depth - 1, pids);
        }
    }
}

/// The number in the line `NAME NUMBER`.
fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.trim().parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Kernel) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let kernel = Kernel::new(dir.path());
        (dir, kernel)
    }

    #[test]
    fn a_group_is_found_in_the_hierarchy_of_memory_first() {
        let (_dir, kernel) = tree(&[
            ("sys/fs/cgroup/memory/a/cgroup.procs", "7\n"),
            ("sys/fs/cgroup/memory/a/b/cgroup.procs", "9\n7\n"),
            ("sys/fs/cgroup/systemd/a/cgroup.procs", "8\n"),
            ("sys/fs/cgroup/systemd/c/cgroup.procs", "8\n"),
            ("etc/cgroup.procs", "1\n"),
        ]);
        let group = Cgroup::find(&kernel, "/a").unwrap();
        assert_eq!((group.name(), group.processes()), ("/a", vec![7, 9]));
        assert_eq!(Cgroup::find(&kernel, "c").unwrap().name(), "/c");
        for none in ["/x", "..", "../../../etc", "/", ""] {
            assert!(Cgroup::find(&kernel, none).is_err(), "{none}");
        }
        let elsewhere = kernel.below("/etc");
        let elsewhere = elsewhere.to_str().unwrap();
        assert_eq!(Cgroup::find(&kernel, elsewhere).unwrap().name(), elsewhere);
        assert!(
            Cgroup::named(&kernel, elsewhere).is_err(),
            "a directory that somebody gave a cgroup's name"
        );
    }

    #[test]
    fn what_is_available_is_below_the_limit() {
        let (_dir, kernel) = tree(&[
            ("sys/fs/cgroup/memory/v1/cgroup.procs", ""),
            ("sys/fs/cgroup/memory/v1/memory.usage_in_bytes", "700\n"),
            ("sys/fs/cgroup/memory/v1/memory.limit_in_bytes", "1000\n"),
            (
                "sys/fs/cgroup/memory/v1/memory.stat",
                "inactive_file 1\ntotal_inactive_file 100\ntotal_dirty 40\ntotal_rss 500\ntotal_cache 200\ntotal_swap 3\n",
            ),
            ("sys/fs/cgroup/v2/cgroup.procs", ""),
            ("sys/fs/cgroup/v2/memory.current", "700\n"),
            ("sys/fs/cgroup/v2/memory.max", "max\n"),
            ("sys/fs/cgroup/v2/memory.high", "900\n"),
            ("sys/fs/cgroup/v2/memory.stat", "anon 5\nfile 6\n"),
            ("sys/fs/cgroup/v2/memory.swap.current", "9\n"),
            ("sys/fs/cgroup/none/cgroup.procs", ""),
        ]);
        let machine = (10_000, 5_000);
        let find = |name| Cgroup::find(&kernel, name).unwrap();
        assert_eq!(find("v1").availability(machine).unwrap(), (1000, 360));
        assert_eq!(find("v1").memory().unwrap().swapped_bytes, 3);
        assert_eq!(find("v2").availability(machine).unwrap(), (900, 200));
        assert_eq!(find("v2").memory().unwrap().resident_bytes, 11);
        assert!(find("none").availability(machine).is_err());
        let small = (800, 300);
        assert_eq!(
            find("v1").availability(small).unwrap(),
            small,
            "no limit of its own"
        );
    }
}
