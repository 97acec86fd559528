//! The hierarchy of the cpu controller, and kilter's groups directly below its root.
//!
//! Anyone may look ([`CpuTree`]). Groups are made and processes moved only through a [`HeldTree`],
//! which exists only as long as a layer of the journal says how to take everything back: whatever
//! is in a group whose name begins with [`PREFIX`] returns to the root group, and the group goes.
//! That holds for processes born there too, so nothing has to be journaled for each of them.

use crate::kernel::{FileError, Kernel, Refusal};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Write};
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// What the names of kilter's groups begin with.
pub const PREFIX: &str = "kilter-";

/// How long processes are moved back at most: a fork bomb may outrun the moving.
const MOVE_BACK_AT_MOST: Duration = Duration::from_secs(10);

/// The two generations of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CgroupVersion {
    /// A hierarchy for the cpu controller alone, or with cpuacct: `cpu.shares`.
    V1,
    /// The one hierarchy of all controllers: `cpu.weight`.
    V2,
}

/// Journal entry: processes between groups of one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The knob's name.
    pub knob: String,
    /// Where the hierarchy is mounted.
    pub mount: String,
    /// Its generation.
    pub version: CgroupVersion,
    /// Whether the cpu controller was not yet given to groups below the root (v2).
    pub enables_cpu: bool,
}

/// Why there is no hierarchy to make groups in.
#[derive(Debug, thiserror::Error)]
pub enum CpuTreeError {
    /// No mounted hierarchy has it.
    #[error("no mounted cgroup hierarchy has the cpu controller")]
    NoController,
    /// What is mounted is a part of the hierarchy: this is a container.
    #[error(
        "{mount} is not the root of its cgroup hierarchy: this is a container, or a namespace of its own"
    )]
    NotTheRoot {
        /// Where it is mounted.
        mount: String,
    },
    /// A file of it.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The cpu controller's hierarchy, for looking. A group is named as the directory below the root;
/// the empty name is the root group.
#[derive(Debug)]
pub struct CpuTree {
    mount: String,
    version: CgroupVersion,
    dir: OwnedFd,
}

impl CpuTree {
    /// The hierarchy that has the cpu controller, wherever it is mounted (`/sys/fs/cgroup`,
    /// `/sys/fs/cgroup/cpu,cpuacct`, `/dev/cpuctl`).
    ///
    /// # Errors
    /// There is none, or it is only a part of one.
    pub fn find(kernel: &Kernel) -> Result<Self, CpuTreeError> {
        let path = "/proc/self/mountinfo";
        let text = std::fs::read_to_string(kernel.below(path))
            .map_err(|error| io_error(path.to_owned(), &error))?;
        let mut unusable = None;
        for (mount, version) in mounts(&text) {
            let Ok(tree) = Self::open(kernel, &mount, version) else {
                continue;
            };
            match (tree.has_cpu(), tree.is_root()) {
                (true, true) => return Ok(tree),
                (true, false) => unusable = unusable.or(Some(mount)),
                (false, _) => {}
            }
        }
        Err(unusable.map_or(CpuTreeError::NoController, |mount| {
            CpuTreeError::NotTheRoot { mount }
        }))
    }

    fn open(kernel: &Kernel, mount: &str, version: CgroupVersion) -> Result<Self, FileError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let dir = rustix::fs::open(kernel.below(mount), flags, Mode::empty())
            .map_err(|errno| error(mount.to_owned(), errno))?;
        let tree = CpuTree {
            mount: mount.to_owned(),
            version,
            dir,
        };
        if kernel.root() == Path::new("/") && !tree.is_cgroupfs() {
            return Err(error(mount.to_owned(), Errno::NODEV));
        }
        Ok(tree)
    }

    /// Where it is mounted, as the kernel names it.
    pub fn mount(&self) -> &str {
        &self.mount
    }

    /// Its generation.
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// kilter's groups that exist now, sorted.
    ///
    /// # Errors
    /// The root group cannot be listed.
    pub fn groups(&self) -> Result<Vec<String>, FileError> {
        let names = self.children("")?;
        Ok(names
            .into_iter()
            .filter(|name| name.starts_with(PREFIX))
            .collect())
    }

    /// A file of a group.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn read(&self, group: &str, file: &str) -> Result<String, FileError> {
        let mut text = String::new();
        self.file(group, file, OFlags::RDONLY)?
            .read_to_string(&mut text)
            .map_err(|error| io_error(self.path(group, file), &error))?;
        Ok(text)
    }

    /// The processes in a group, kernel threads included.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn processes(&self, group: &str) -> Result<Vec<i32>, FileError> {
        let text = self.read(group, "cgroup.procs")?;
        // 0 stands for a process of another pid namespace.
        let pids = text.lines().filter_map(|line| line.parse().ok());
        Ok(pids.filter(|&pid| pid > 0).collect())
    }

    /// Whether the hierarchy lets a group be given a share.
    fn has_cpu(&self) -> bool {
        match self.version {
            CgroupVersion::V1 => self.read("", "cpu.shares").is_ok(),
            CgroupVersion::V2 => self.has_word("cgroup.controllers", "cpu"),
        }
    }

    fn has_word(&self, file: &str, word: &str) -> bool {
        self.read("", file)
            .is_ok_and(|text| text.split_whitespace().any(|found| found == word))
    }

    /// Files that only the root group has, or only it lacks.
    fn is_root(&self) -> bool {
        match self.version {
            CgroupVersion::V1 => self.read("", "release_agent").is_ok(),
            CgroupVersion::V2 => self.read("", "cgroup.type").is_err(),
        }
    }

    fn is_cgroupfs(&self) -> bool {
        // linux/magic.h: CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC.
        rustix::fs::fstatfs(&self.dir)
            .is_ok_and(|stat| matches!(stat.f_type as u64, 0x0027_e0eb | 0x6367_7270))
    }

    fn children(&self, group: &str) -> Result<Vec<String>, FileError> {
        let fail = |errno| error(self.path(group, ""), errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = self.open_at(group, flags).map_err(fail)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(dir).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            if let (rustix::fs::FileType::Directory, Ok(name)) =
                (entry.file_type(), entry.file_name().to_str())
                && !matches!(name, "." | "..")
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn file(&self, group: &str, file: &str, flags: OFlags) -> Result<File, FileError> {
        let path = match group {
            "" => file.to_owned(),
            group => format!("{group}/{file}"),
        };
        self.open_at(&path, flags)
            .map(File::from)
            .map_err(|errno| error(self.path(group, file), errno))
    }

    /// Opens below the root group; no link is followed.
    fn open_at(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { "." } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(
            &self.dir,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        )
    }

    fn path(&self, group: &str, file: &str) -> String {
        let parts = [self.mount.trim_end_matches('/'), group, file];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join("/")
    }

    fn write(&self, group: &str, file: &str, text: &str) -> Result<(), FileError> {
        self.file(group, file, OFlags::WRONLY)?
            .write_all(text.as_bytes())
            .map_err(|error| io_error(self.path(group, file), &error))
    }

    /// Everything that is in kilter's groups goes back to the root group, and the groups go.
    fn clear(&self) -> Result<usize, FileError> {
        let end = Instant::now() + MOVE_BACK_AT_MOST;
        let mut moved = 0;
        for group in self.groups()? {
            self.clear_group(&group, end, &mut moved)?;
        }
        Ok(moved)
    }

    fn clear_group(&self, group: &str, end: Instant, moved: &mut usize) -> Result<(), FileError> {
        for child in self.children(group)? {
            self.clear_group(&format!("{group}/{child}"), end, moved)?;
        }
        let home = Door {
            file: self.file("", "cgroup.procs", OFlags::WRONLY)?,
        };
        loop {
            for pid in self.processes(group)? {
                match home.take(pid) {
                    Ok(taken) => *moved += usize::from(taken),
                    Err(errno) if Instant::now() > end => {
                        let path = self.path(group, "cgroup.procs");
                        return Err(error(path, Errno::from_raw_os_error(errno)));
                    }
                    Err(_) => {}
                }
            }
            match self.remove_dir(group) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                // Somebody was born, or is on the way out.
                Err(Errno::BUSY) if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(errno) => return Err(error(self.path(group, ""), errno)),
            }
        }
    }

    fn remove_dir(&self, group: &str) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.dir, group, AtFlags::REMOVEDIR)
    }
}

impl Move {
    /// What it takes to make groups in this hierarchy.
    pub fn into_groups(knob: &str, tree: &CpuTree) -> Self {
        Move {
            knob: knob.to_owned(),
            mount: tree.mount.clone(),
            version: tree.version,
            enables_cpu: tree.version == CgroupVersion::V2
                && !tree.has_word("cgroup.subtree_control", "cpu"),
        }
    }

    /// Whether the hierarchy is still there.
    pub(crate) fn is_in_force(&self, kernel: &Kernel) -> bool {
        CpuTree::open(kernel, &self.mount, self.version).is_ok_and(|tree| tree.has_cpu())
    }

    /// Takes everything back; returns how many processes were moved. Harmless where nothing is
    /// left to do.
    pub(crate) fn take_back(&self, kernel: &Kernel) -> Result<usize, FileError> {
        let tree = CpuTree::open(kernel, &self.mount, self.version)?;
        let moved = tree.clear()?;
        if self.enables_cpu && !tree.shares_are_used()? {
            tree.write("", "cgroup.subtree_control", "-cpu\n")?;
        }
        Ok(moved)
    }
}

impl CpuTree {
    /// Whether somebody else has come to depend on the controller meanwhile (v2).
    fn shares_are_used(&self) -> Result<bool, FileError> {
        let odd = |group: &String| {
            let differs = |file: &str, usual: &str| {
                self.read(group, file)
                    .is_ok_and(|text| text.trim() != usual)
            };
            differs("cpu.weight", "100")
                || differs("cpu.max", "max 100000")
                || self
                    .read(group, "cgroup.subtree_control")
                    .is_ok_and(|text| text.split_whitespace().any(|word| word == "cpu"))
        };
        Ok(self.children("")?.iter().any(odd))
    }
}

/// The hierarchy while a layer of the journal says how to take everything back.
#[derive(Debug)]
pub struct HeldTree {
    tree: CpuTree,
}

impl Deref for HeldTree {
    type Target = CpuTree;
    fn deref(&self) -> &CpuTree {
        &self.tree
    }
}

impl HeldTree {
    /// Opens the hierarchy of a journaled move for changes. Groups that a kilter left whose
    /// journal is lost are cleared first.
    pub(crate) fn new(kernel: &Kernel, journaled: &Move) -> Result<Self, FileError> {
        let tree = CpuTree::open(kernel, &journaled.mount, journaled.version)?;
        tree.clear()?;
        if journaled.enables_cpu {
            tree.write("", "cgroup.subtree_control", "+cpu\n")?;
        }
        Ok(HeldTree { tree })
    }

    /// Makes a group; one that exists stays. Returns whether it was made.
    ///
    /// # Errors
    /// The kernel's reason; `EAGAIN` where `cgroup.max.descendants` is reached.
    pub fn make(&self, group: &str) -> Result<bool, FileError> {
        self.check(group)?;
        match rustix::fs::mkdirat(&self.tree.dir, group, Mode::from_raw_mode(0o755)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(error(self.path(group, ""), errno)),
        }
    }

    /// Removes a group in which nothing runs. Returns whether it is gone.
    ///
    /// # Errors
    /// Anything but that something runs in it.
    pub fn remove(&self, group: &str) -> Result<bool, FileError> {
        self.check(group)?;
        match self.remove_dir(group) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::BUSY) => Ok(false),
            Err(errno) => Err(error(self.path(group, ""), errno)),
        }
    }

    /// Gives a file of one of kilter's groups a text.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn set(&self, group: &str, file: &str, text: &str) -> Result<(), FileError> {
        self.check(group)?;
        self.tree.write(group, file, text)
    }

    /// A group opened for moving processes into it, the root group with an empty name.
    ///
    /// # Errors
    /// The kernel's reason; `Absent` if somebody removed the group.
    pub fn door(&self, group: &str) -> Result<Door, FileError> {
        if !group.is_empty() {
            self.check(group)?;
        }
        let file = self.file(group, "cgroup.procs", OFlags::WRONLY)?;
        Ok(Door { file })
    }

    fn check(&self, group: &str) -> Result<(), FileError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        match group.starts_with(PREFIX) && group.chars().all(plain) {
            true => Ok(()),
            false => Err(error(self.path(group, ""), Errno::INVAL)),
        }
    }
}

/// A group that processes can be moved into.
#[derive(Debug)]
pub struct Door {
    file: File,
}

impl Door {
    /// Moves a process, all its threads at once. `Ok(false)`: it has ended.
    ///
    /// # Errors
    /// The kernel's error number: `EINVAL` for a kernel thread, or a real-time task where groups
    /// have no real-time budget; `ENODEV` for a group that is gone.
    pub fn take(&self, pid: i32) -> Result<bool, i32> {
        // One write is one move; a text this short is taken whole.
        match rustix::io::write(&self.file, format!("{pid}\n").as_bytes()) {
            Ok(_) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(errno) => Err(errno.raw_os_error()),
        }
    }
}

/// Mounted hierarchies in the order of preference: v1 with the cpu controller, then v2.
fn mounts(mountinfo: &str) -> Vec<(String, CgroupVersion)> {
    let mut found: Vec<(String, CgroupVersion)> = mountinfo.lines().filter_map(mount).collect();
    found.sort_by_key(|(_, version)| *version == CgroupVersion::V2);
    found
}

/// One line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
fn mount(line: &str) -> Option<(String, CgroupVersion)> {
    let (before, after) = line.split_once(" - ")?;
    let point = before.split(' ').nth(4)?;
    let mut words = after.split(' ');
    let (kind, options) = (words.next()?, words.nth(1)?);
    let version = match kind {
        "cgroup" if options.split(',').any(|word| word == "cpu") => CgroupVersion::V1,
        "cgroup2" => CgroupVersion::V2,
        _ => return None,
    };
    // A blank or a backslash would stand escaped; nobody mounts cgroups at such a place.
    (point.starts_with('/') && !point.contains('\\')).then(|| (point.to_owned(), version))
}

fn error(path: String, errno: Errno) -> FileError {
    let refusal = match errno {
        Errno::NOENT | Errno::NODEV | Errno::NOTDIR => Refusal::Absent,
        Errno::ROFS => Refusal::ReadOnly,
        Errno::ACCESS | Errno::PERM => Refusal::NotPermitted,
        Errno::BUSY | Errno::AGAIN => Refusal::Busy,
        Errno::INVAL | Errno::RANGE => Refusal::Invalid,
        Errno::OPNOTSUPP => Refusal::Unsupported,
        _ => Refusal::Other,
    };
    FileError {
        path,
        refusal,
        errno: errno.raw_os_error(),
    }
}

fn io_error(path: String, source: &std::io::Error) -> FileError {
    let errno = source.raw_os_error().unwrap_or(libc::EIO);
    error(path, Errno::from_raw_os_error(errno))
}

#[cfg(test)]
#[path = "tests/cgroup.rs"]
mod tests;
