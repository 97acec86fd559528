//! Reading and writing kernel files below an injected root.
//!
//! Files are opened beneath their tree (`openat2` with `RESOLVE_BENEATH`), so that links inside
//! sysfs work (`/sys/block/vda`) and none leads out of it. Nothing is ever created.

use crate::cgroup::Move;
use crate::holder;
use crate::path::KernelPath;
use rustix::fs::{FlockOperation, Mode, OFlags, ResolveFlags, flock, openat2};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The largest file that is read: sysfs files are a page, debugfs feature lines a few.
const MAX_BYTES: u64 = 64 * 1024;

/// How long, and how often, a path is looked up again that the kernel says to look up again.
const AGAIN_FOR: Duration = Duration::from_secs(2);
const AGAIN_AFTER: Duration = Duration::from_millis(1);

/// ENOTSUPP, which the kernel lets out of some sysctl writes and libc does not know.
const ENOTSUPP: i32 = 524;

/// Why the kernel did not let a file be read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The file does not exist.
    Absent,
    /// The file is in debugfs, which is not mounted.
    NotMounted,
    /// Kernel lockdown refuses it, even to root.
    LockedDown,
    /// The kernel offers it for reading only.
    ReadOnly,
    /// The caller lacks the right.
    NotPermitted,
    /// This hardware or kernel cannot do it.
    Unsupported,
    /// Somebody else holds it, or the kernel is not ready.
    Busy,
    /// The value is not one that the kernel takes.
    Invalid,
    /// Anything else.
    Other,
}

/// A kernel file that could not be read or written, with the kernel's reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {}", self.reason())]
pub struct FileError {
    /// The file.
    pub path: String,
    /// The reason, as a kind.
    pub refusal: Refusal,
    /// The kernel's number, 0 where the refusal is kilter's own.
    pub errno: i32,
}

impl FileError {
    /// The reason in words, with the kernel's own name of the error.
    pub fn reason(&self) -> String {
        let words = match self.refusal {
            Refusal::Absent => "no such file",
            Refusal::NotMounted => "debugfs is not mounted",
            Refusal::LockedDown => "locked down by the kernel, even for root",
            Refusal::ReadOnly => "read-only in this kernel",
            Refusal::NotPermitted => "not permitted",
            Refusal::Unsupported => "not supported on this machine",
            Refusal::Busy => "busy",
            Refusal::Invalid => "the kernel refuses this value",
            Refusal::Other => "failed",
        };
        match (self.errno, self.refusal) {
            (0, _) | (_, Refusal::Absent | Refusal::NotMounted) => words.to_owned(),
            (ENOTSUPP, _) => format!("{words} (error 524, ENOTSUPP)"),
            (errno, _) => format!("{words} ({})", system_words(errno)),
        }
    }
}

/// The system's words for an error number.
fn system_words(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    match text.rsplit_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

/// What a transaction needs of the kernel; the tests put a simulated kernel behind it.
pub trait Files {
    /// The file's text.
    fn read(&self, path: &KernelPath) -> Result<String, FileError>;
    /// Gives the file a text in one `write(2)`.
    fn write(&self, path: &KernelPath, text: &str) -> Result<(), FileError>;
    /// Whether processes are still where a layer moved them.
    fn is_moved(&self, _moved: &Move) -> bool {
        false
    }
    /// Takes a layer's moves between cgroups back; the number of processes moved.
    fn take_back(&self, _moved: &Move) -> Result<usize, FileError> {
        Ok(0)
    }
}

/// The kernel's files below a root directory, `/` unless redirected.
#[derive(Debug)]
pub struct Kernel {
    root: PathBuf,
    trees: [OnceLock<Option<OwnedFd>>; 6],
}

impl Kernel {
    /// The kernel whose files lie below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Kernel {
            root: root.into(),
            trees: Default::default(),
        }
    }

    /// The root directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path below the root, for files that are only read and never settings.
    pub fn below(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Names in a directory of the settings trees, sorted; empty if there is none.
    pub fn list(&self, dir: &str) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.below(dir))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Whether this process may open the file for writing, without opening it.
    pub fn may_write(&self, path: &KernelPath) -> bool {
        use rustix::fs::{Access, AtFlags, accessat};
        if holder::is_holder(path) {
            return self.root == Path::new("/") && rustix::process::geteuid().is_root();
        }
        let (tree, rest) = path.split();
        let permitted = |dir| accessat(dir, rest, Access::WRITE_OK, AtFlags::EACCESS).is_ok();
        !self.is_read_only(path) && self.tree(tree).is_some_and(permitted)
    }

    /// Whether the kernel offers the file for reading only, to whomever; true if there is none.
    pub fn is_read_only(&self, path: &KernelPath) -> bool {
        if holder::is_holder(path) {
            return self.root != Path::new("/");
        }
        let (tree, rest) = path.split();
        let mode = |dir| rustix::fs::statat(dir, rest, rustix::fs::AtFlags::empty()).ok();
        self.tree(tree)
            .and_then(mode)
            .is_none_or(|stat| stat.st_mode & 0o222 == 0)
    }

    /// Whether a mechanism's process keeps this directory. Files that a killed one left are not taken
    /// for settings: nothing reads them any more.
    fn is_kept(&self, mechanism: &str) -> bool {
        let lock = self.below(mechanism).join("lock");
        let held = |file: File| flock(&file, FlockOperation::NonBlockingLockShared).is_err();
        File::open(lock).is_ok_and(held)
    }

    fn tree(&self, tree: &'static str) -> Option<&OwnedFd> {
        let slot = match tree {
            "/proc/sys" => &self.trees[0],
            "/sys" => &self.trees[1],
            crate::path::STUNE => &self.trees[3],
            crate::path::RECLAIM => &self.trees[4],
            crate::path::SCHEDULERS => &self.trees[5],
            _ => &self.trees[2],
        };
        slot.get_or_init(|| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(self.below(tree), flags, Mode::empty()).ok()
        })
        .as_ref()
    }

    fn open(&self, path: &KernelPath, flags: OFlags) -> Result<File, FileError> {
        let (tree, rest) = path.split();
        if path.mechanism().is_some_and(|dir| !self.is_kept(dir)) {
            return Err(self.error(path, Errno::NOENT, false));
        }
        let Some(dir) = self.tree(tree) else {
            return Err(self.error(path, Errno::NOENT, false));
        };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let writing = flags.contains(OFlags::WRONLY);
        let until = Instant::now() + AGAIN_FOR;
        loop {
            match openat2(dir, rest, flags, Mode::empty(), resolve) {
                // Something was renamed or mounted anywhere, while a link led through `..`.
                Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(AGAIN_AFTER),
                done => {
                    return done
                        .map(File::from)
                        .map_err(|errno| self.error(path, errno, writing));
                }
            }
        }
    }

    fn error(&self, path: &KernelPath, errno: Errno, writing: bool) -> FileError {
        let refusal = match errno {
            Errno::NOENT | Errno::NOTDIR if path.in_debugfs() && !self.has_debugfs() => {
                Refusal::NotMounted
            }
            // ENXIO and ENODEV: the file outlived its device.
            Errno::NOENT | Errno::NOTDIR | Errno::NXIO | Errno::NODEV => Refusal::Absent,
            // Only lockdown gives EPERM for debugfs to root (debugfs_locked_down).
            Errno::PERM if path.in_debugfs() && rustix::process::geteuid().is_root() => {
                Refusal::LockedDown
            }
            Errno::ROFS => Refusal::ReadOnly,
            // A 0444 sysctl answers EACCES even to root.
            Errno::ACCESS if writing && rustix::process::geteuid().is_root() => Refusal::ReadOnly,
            Errno::ACCESS | Errno::PERM => Refusal::NotPermitted,
            Errno::OPNOTSUPP => Refusal::Unsupported,
            Errno::BUSY | Errno::AGAIN => Refusal::Busy,
            Errno::INVAL | Errno::RANGE => Refusal::Invalid,
            errno if errno.raw_os_error() == ENOTSUPP => Refusal::Unsupported,
            _ => Refusal::Other,
        };
        FileError {
            path: path.to_string(),
            refusal,
            errno: errno.raw_os_error(),
        }
    }

    fn has_debugfs(&self) -> bool {
        std::fs::read_dir(self.below("/sys/kernel/debug"))
            .is_ok_and(|mut entries| entries.next().is_some())
    }

    fn io_error(&self, path: &KernelPath, error: &std::io::Error, writing: bool) -> FileError {
        let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
        self.error(path, Errno::from_raw_os_error(errno), writing)
    }
}

impl Files for Kernel {
    fn is_moved(&self, moved: &Move) -> bool {
        moved.is_in_force(self)
    }

    fn take_back(&self, moved: &Move) -> Result<usize, FileError> {
        moved.take_back(self)
    }

    fn read(&self, path: &KernelPath) -> Result<String, FileError> {
        if holder::is_holder(path) {
            return holder::read(self, path);
        }
        let file = self.open(path, OFlags::RDONLY)?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES)
            .read_to_end(&mut bytes)
            .map_err(|error| self.io_error(path, &error, false))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn write(&self, path: &KernelPath, text: &str) -> Result<(), FileError> {
        if holder::is_holder(path) {
            return holder::write(self, path, text);
        }
        let mut file = self.open(path, OFlags::WRONLY)?;
        let is_plain = self.root != Path::new("/") || path.mechanism().is_some();
        match file.write(text.as_bytes()) {
            // A plain file (of another root, or a mechanism's parameter) may have held a longer text. Cut afterwards and not
            // before, so that it is never empty, not even for a kilter that is killed in between.
            Ok(count) if count == text.len() && is_plain => file
                .set_len(text.len() as u64)
                .map_err(|error| self.io_error(path, &error, true)),
            Ok(count) if count == text.len() => Ok(()),
            Ok(_) => Err(FileError {
                path: path.to_string(),
                refusal: Refusal::Other,
                errno: 0,
            }),
            Err(error) => Err(self.io_error(path, &error, true)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, Kernel) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/sys/vm")).unwrap();
        std::fs::create_dir_all(dir.path().join("sys/devices/vda/queue")).unwrap();
        std::fs::create_dir_all(dir.path().join("sys/block")).unwrap();
        std::fs::write(dir.path().join("proc/sys/vm/swappiness"), "60\n").unwrap();
        std::fs::write(
            dir.path().join("sys/devices/vda/queue/nr_requests"),
            "256\n",
        )
        .unwrap();
        std::fs::write(dir.path().join("secret"), "keep\n").unwrap();
        symlink("../devices/vda", dir.path().join("sys/block/vda")).unwrap();
        symlink(
            dir.path().join("secret"),
            dir.path().join("proc/sys/vm/absolute"),
        )
        .unwrap();
        symlink("../../../secret", dir.path().join("proc/sys/vm/relative")).unwrap();
        let kernel = Kernel::new(dir.path());
        (dir, kernel)
    }

    fn path(text: &str) -> KernelPath {
        KernelPath::new(text).unwrap()
    }

    #[test]
    fn links_inside_a_tree_are_followed() {
        let (_dir, kernel) = tree();
        let file = path("/sys/block/vda/queue/nr_requests");
        kernel.write(&file, "64\n").unwrap();
        assert_eq!(kernel.read(&file).unwrap(), "64\n");
    }

    #[test]
    fn no_link_leads_out_of_a_tree() {
        let (dir, kernel) = tree();
        for link in ["/proc/sys/vm/absolute", "/proc/sys/vm/relative"] {
            assert!(kernel.read(&path(link)).is_err(), "{link} was read");
            assert!(
                kernel.write(&path(link), "gone\n").is_err(),
                "{link} was written"
            );
        }
        assert_eq!(
            std::fs::read_to_string(dir.path().join("secret")).unwrap(),
            "keep\n"
        );
    }

    #[test]
    fn what_is_renamed_elsewhere_does_not_keep_a_file_from_being_opened() {
        let (dir, kernel) = tree();
        let file = path("/sys/block/vda/queue/nr_requests");
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        std::fs::write(&one, "").unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    std::fs::rename(&one, &other).unwrap();
                    std::fs::rename(&other, &one).unwrap();
                }
            });
            let refused: Vec<FileError> =
                (0..3000).filter_map(|_| kernel.read(&file).err()).collect();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(refused.len(), 0, "{:?}", refused.first());
        });
    }

    #[test]
    fn nothing_is_created() {
        let (dir, kernel) = tree();
        let error = kernel.write(&path("/proc/sys/vm/new"), "1\n").unwrap_err();
        assert_eq!(error.refusal, Refusal::Absent);
        assert!(!dir.path().join("proc/sys/vm/new").exists());
    }

    #[test]
    fn an_unmounted_debugfs_is_told_from_a_missing_file() {
        let (dir, kernel) = tree();
        let file = path("/sys/kernel/debug/sched/base_slice_ns");
        assert_eq!(kernel.read(&file).unwrap_err().refusal, Refusal::NotMounted);
        std::fs::create_dir_all(dir.path().join("sys/kernel/debug/bdi")).unwrap();
        assert_eq!(kernel.read(&file).unwrap_err().refusal, Refusal::Absent);
    }

    #[test]
    fn unknown_error_numbers_are_told() {
        let (_dir, kernel) = tree();
        let file = path("/proc/sys/kernel/nmi_watchdog");
        let error = kernel.error(&file, Errno::from_raw_os_error(524), true);
        assert_eq!(error.refusal, Refusal::Unsupported);
        assert!(error.to_string().contains("524"), "{error}");
    }
}
