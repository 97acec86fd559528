//! The kernel files that scripts write, read for the copies.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// No kernel setting is longer.
const MOST: u64 = 64 << 10;

/// A machine of thousands of CPUs would fill the memory with files that nobody sets.
const MOST_ENTRIES: usize = 60_000;

/// Directories below `/sys` that hold no settings, or whose reading costs time.
const NO_SETTINGS: [&str; 9] = [
    "cache",
    "crash_hotplug",
    "driver",
    "firmware_node",
    "hotplug",
    "microcode",
    "power",
    "subsystem",
    "thermal_throttle",
];

/// Trees that are copied as they are.
const TREES: [&str; 10] = [
    "/proc/sys",
    "/sys/devices/system/cpu",
    "/sys/kernel/mm",
    "/sys/kernel/debug/sched",
    "/sys/kernel/sched_ext",
    "/dev/cpuset",
    "/dev/cpuctl",
    "/dev/stune",
    "/run/kilter/sched",
    "/sys/devices/virtual/bdi",
];

/// Directories of links to devices, and what of a device is copied.
const DEVICES: [(&str, &[&str]); 5] = [
    (
        "/sys/block",
        &["queue", "bdi", "removable", "comp_algorithm", "disksize"],
    ),
    (
        "/sys/class/net",
        &[
            "queues",
            "tx_queue_len",
            "gro_flush_timeout",
            "napi_defer_hard_irqs",
            "threaded",
        ],
    ),
    (
        "/sys/class/devfreq",
        &["governor", "min_freq", "max_freq", "available_governors"],
    ),
    (
        "/sys/class/kgsl",
        &["devfreq", "max_gpuclk", "force_no_nap", "throttling"],
    ),
    ("/sys/module", &["parameters"]),
];

/// Reading it makes the kernel do something.
const NEVER_READ: &str = "/proc/sys/vm/stat_refresh";

/// Something at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Original {
    /// A directory.
    Dir,
    /// A file with the permission bits and what it shows.
    File {
        /// Permission bits.
        mode: u32,
        /// Its text; empty where it cannot be read.
        text: Vec<u8>,
    },
    /// A symbolic link.
    Link {
        /// Where it points to.
        target: String,
    },
}

/// Kernel files by their path.
#[derive(Clone, Debug, Default)]
pub struct Originals {
    entries: BTreeMap<String, Original>,
}

impl Originals {
    /// Those below a root (`/` for this machine).
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let mut originals = Originals::default();
        for tree in TREES {
            originals.tree(root, tree, &below(root, tree));
        }
        for (class, parts) in DEVICES {
            for name in names(&below(root, class)) {
                for part in parts {
                    let shown = format!("{class}/{name}/{part}");
                    originals.entry(root, &shown, true);
                }
            }
        }
        // The scheduler's switches up to 5.12.
        originals.entry(root, "/sys/kernel/debug/sched_features", false);
        originals
    }

    /// Adds a file that this machine does not have; nothing if something of that path is there.
    pub fn pretend(&mut self, path: &str, text: &str) {
        if self.entries.contains_key(path) || self.inside_a_file(path) {
            return;
        }
        self.parents(path);
        let (mode, text) = (0o644, text.as_bytes().to_vec());
        self.entries
            .insert(path.to_owned(), Original::File { mode, text });
    }

    /// Adds a link, likewise.
    pub fn pretend_link(&mut self, path: &str, target: &str) {
        if !self.entries.contains_key(path) && !self.inside_a_file(path) {
            self.parents(path);
            let target = target.to_owned();
            self.entries
                .insert(path.to_owned(), Original::Link { target });
        }
    }

    /// Everything, parents before what they hold.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Original)> {
        self.entries
            .iter()
            .map(|(path, entry)| (path.as_str(), entry))
    }

    /// How many files there are.
    #[must_use]
    pub fn files(&self) -> usize {
        let is_file = |entry: &&Original| matches!(entry, Original::File { .. });
        self.entries.values().filter(is_file).count()
    }

    fn inside_a_file(&self, path: &str) -> bool {
        ancestors(path).any(|parent| {
            let entry = self.entries.get(parent);
            entry.is_some_and(|entry| *entry != Original::Dir)
        })
    }

    fn parents(&mut self, path: &str) {
        for parent in ancestors(path) {
            self.entries
                .entry(parent.to_owned())
                .or_insert(Original::Dir);
        }
    }

    /// What stands at a path; of links below `/sys`, `through` takes what they lead to.
    fn entry(&mut self, root: &Path, shown: &str, through: bool) {
        let real = below(root, shown);
        let found = match through {
            true => fs::metadata(&real),
            false => fs::symlink_metadata(&real),
        };
        let Ok(found) = found else {
            return;
        };
        if self.entries.len() >= MOST_ENTRIES {
            return;
        }
        if found.is_dir() {
            self.tree(root, shown, &real);
        } else if found.is_file() {
            self.parents(shown);
            let mode = found.mode() & 0o777;
            let text = match mode & 0o444 != 0 && shown != NEVER_READ {
                true => text(&real),
                false => Vec::new(),
            };
            self.entries
                .insert(shown.to_owned(), Original::File { mode, text });
        } else if found.is_symlink()
            && let Ok(target) = fs::read_link(&real)
            && let Some(target) = target.to_str()
        {
            self.parents(shown);
            let target = target.to_owned();
            self.entries
                .insert(shown.to_owned(), Original::Link { target });
        }
    }

    fn tree(&mut self, root: &Path, shown: &str, real: &Path) {
        if !real.is_dir() {
            return;
        }
        self.parents(shown);
        self.entries.insert(shown.to_owned(), Original::Dir);
        for name in names(real) {
            let in_sys = shown.starts_with("/sys/");
            if !(in_sys && NO_SETTINGS.contains(&name.as_str())) {
                self.entry(root, &format!("{shown}/{name}"), false);
            }
        }
    }
}

fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at);
    ends.filter(|&at| at > 0).map(|at| &path[..at])
}

fn below(root: &Path, path: &str) -> std::path::PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn text(path: &Path) -> Vec<u8> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut text = Vec::new();
    let opened = File::options()
        .read(true)
        .custom_flags(nonblocking)
        .open(path);
    if let Ok(file) = opened {
        // A file that refuses halfway is as good as empty.
        let _ = file.take(MOST).read_to_end(&mut text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_through_their_links() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for dir in [
            "proc/sys/vm",
            "sys/devices/pci0/vda/queue/power",
            "sys/block",
        ] {
            fs::create_dir_all(at(dir)).unwrap();
        }
        fs::write(at("proc/sys/vm/swappiness"), "60\n").unwrap();
        fs::write(at("sys/devices/pci0/vda/queue/iostats"), "1\n").unwrap();
        fs::write(at("sys/devices/pci0/vda/queue/power/control"), "on\n").unwrap();
        std::os::unix::fs::symlink("../devices/pci0/vda", at("sys/block/vda")).unwrap();
        let originals = Originals::read(root.path());
        let paths: Vec<&str> = originals.iter().map(|(path, _)| path).collect();
        assert_eq!(
            paths,
            [
                "/proc",
                "/proc/sys",
                "/proc/sys/vm",
                "/proc/sys/vm/swappiness",
                "/sys",
                "/sys/block",
                "/sys/block/vda",
                "/sys/block/vda/queue",
                "/sys/block/vda/queue/iostats",
            ]
        );
        assert_eq!(originals.files(), 2);
    }

    #[test]
    fn pretended_files_do_not_hide_real_ones() {
        let mut originals = Originals::default();
        originals.pretend("/proc/sys/vm/swappiness", "60\n");
        originals.pretend("/proc/sys/vm/swappiness", "0\n");
        originals.pretend("/proc/sys/vm/swappiness/below", "0\n");
        let files: Vec<_> = originals
            .iter()
            .filter_map(|(path, entry)| match entry {
                Original::File { text, .. } => Some((path, text.as_slice())),
                _ => None,
            })
            .collect();
        assert_eq!(files, [("/proc/sys/vm/swappiness", &b"60\n"[..])]);
    }
}
