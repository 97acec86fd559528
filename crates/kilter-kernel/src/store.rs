//! Where layers live, and the locks that keep two writers apart.
//!
//! `DIR/layers/NNNNNNNN` is a layer; the file's number is its age, and a layer ends when its file
//! is gone. `DIR/lock` is held for the length of one transaction, `DIR/experiment` for the length
//! of an experiment. Both are flocks: they vanish with their holder.

use crate::journal::Layer;
use crate::kernel::Kernel;
use crate::process::{boot_id, exists};
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The journal's directory on one machine (`/run/kilter`).
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    boot: String,
}

/// The journal could not be read or written; no setting was changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file of the journal.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Another experiment is running.
    #[error("another experiment is running (process {pid})")]
    ExperimentRunning {
        /// Its process, 0 if it could not be read.
        pid: i32,
    },
    /// No such layer is in force.
    #[error("no layer `{0}` is in force")]
    NoSuchLayer(String),
}

impl StoreError {
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> StoreError + '_ {
        move |source| StoreError::Io {
            path: path.to_owned(),
            source,
        }
    }
}

/// The right to change settings. Signals that would end the process wait until it is dropped.
#[derive(Debug)]
pub struct Lock<'a> {
    pub(crate) store: &'a Store,
    _file: File,
    _signals: SignalsHeld,
}

/// The right to run experiments; one on a machine at a time.
#[derive(Debug)]
pub struct Experiment {
    _file: File,
}

impl Store {
    /// The journal below the kernel's root. Creates nothing.
    pub fn new(kernel: &Kernel) -> Self {
        Store {
            dir: kernel.below("/run/kilter"),
            boot: boot_id(kernel.root()),
        }
    }

    /// Waits for the right to change settings.
    pub fn lock(&self) -> Result<Lock<'_>, StoreError> {
        let layers = self.dir.join("layers");
        create(&layers)?;
        let signals = SignalsHeld::hold();
        let path = self.dir.join("lock");
        let file = self.open(&path)?;
        rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))
            .map_err(|errno| StoreError::at(&path)(errno.into()))?;
        Ok(Lock {
            store: self,
            _file: file,
            _signals: signals,
        })
    }

    /// The right to change settings of a process that the holder of the lock has started and waits
    /// for.
    pub(crate) fn lock_without_waiting(&self) -> Result<Lock<'_>, StoreError> {
        let file = self.open(&self.dir.join("lock"))?;
        Ok(Lock {
            store: self,
            _file: file,
            _signals: SignalsHeld::hold(),
        })
    }

    /// Takes the right to run experiments, or says who has it.
    pub fn experiment(&self) -> Result<Experiment, StoreError> {
        create(&self.dir)?;
        let path = self.dir.join("experiment");
        let mut file = self.open(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let pid = std::process::id();
                let write =
                    |file: &mut File| file.set_len(0).and_then(|()| writeln!(file, "{pid}"));
                write(&mut file).map_err(StoreError::at(&path))?;
                Ok(Experiment { _file: file })
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::ExperimentRunning {
                pid: read_pid(&mut file),
            }),
            Err(errno) => Err(StoreError::at(&path)(errno.into())),
        }
    }

    /// The process that runs an experiment now.
    pub fn running_experiment(&self) -> Option<i32> {
        let mut file = File::open(self.dir.join("experiment")).ok()?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let pid = read_pid(&mut file);
                // The guardian of a killed experiment has the lock until everything is back.
                (pid == 0 || exists(pid)).then_some(pid)
            }
            _ => None,
        }
    }

    pub(crate) fn file(&self, id: u64) -> PathBuf {
        self.dir.join("layers").join(file_name(id))
    }

    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }

    /// Numbers of all layer files, oldest first.
    pub(crate) fn ids(&self) -> Result<Vec<u64>, StoreError> {
        let dir = self.dir.join("layers");
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StoreError::at(&dir)(error)),
        };
        let number = |name: &str| {
            let id: u64 = name.parse().ok()?;
            // No other spelling: what is read as a layer must be found again by its number.
            (file_name(id) == name).then_some(id)
        };
        let mut ids: Vec<u64> = entries
            .flatten()
            .filter_map(|entry| number(entry.file_name().to_str()?))
            .collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// All layers of this boot whose intent is whole, oldest first.
    pub(crate) fn layers(&self) -> Result<Vec<Layer>, StoreError> {
        let mut layers = Vec::new();
        for id in self.ids()? {
            let path = self.file(id);
            match Layer::load(id, &path) {
                Ok(Some(layer)) if layer.boot_id == self.boot => layers.push(layer),
                Ok(_) => {}
                // Undone by another command since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(StoreError::at(&path)(error)),
            }
        }
        Ok(layers)
    }

    fn open(&self, path: &Path) -> Result<File, StoreError> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .map_err(StoreError::at(path))
    }
}

/// Name of a layer's file.
fn file_name(id: u64) -> String {
    format!("{id:08}")
}

/// Makes a directory of the journal, and those above it.
fn create(dir: &Path) -> Result<(), StoreError> {
    make_dir(dir).map_err(StoreError::at(dir))
}

/// Makes a directory of kilter's, and those above it. Whatever the caller's umask is, nobody else may
/// write there: who writes the journal decides what an undo writes, who writes a record of a process
/// decides which one is ended.
///
/// # Errors
/// The system's; that it is there already is none.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(dir)
}

fn read_pid(file: &mut File) -> i32 {
    let mut text = String::new();
    let _ = file.read_to_string(&mut text);
    text.trim().parse().unwrap_or(0)
}

/// Keeps SIGINT, SIGTERM, SIGHUP and SIGQUIT pending while a transaction is half done.
#[derive(Debug)]
struct SignalsHeld {
    before: libc::sigset_t,
}

impl SignalsHeld {
    fn hold() -> Self {
        // SAFETY: both sets are local, initialised by sigemptyset before use, and outlive the calls.
        unsafe {
            let mut held: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut held);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
                libc::sigaddset(&mut held, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &held, &mut before);
            SignalsHeld { before }
        }
    }
}

impl Drop for SignalsHeld {
    fn drop(&mut self) {
        // SAFETY: `before` was filled by pthread_sigmask in `hold`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}
