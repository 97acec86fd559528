//! Parameters as files: one small file each, in a directory that a running mechanism owns.
//!
//! Whoever may write there (root) changes a parameter by writing its file; the mechanism watches
//! the directory and takes the value up. A value that it cannot take is written over with the one
//! in force, so that a file never tells another value for long. A lock file is held as long as the
//! mechanism runs: without its lock, the directory was left by one that was killed.

use crate::parameters::{ParameterError, Parameters};
use crate::store::make_dir;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FlockOperation, flock, inotify};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Name of the file that is locked while the directory has an owner.
const LOCK: &str = "lock";

/// The directory of a running mechanism.
#[derive(Debug)]
pub struct Control {
    dir: PathBuf,
    events: OwnedFd,
    params: Parameters,
    _lock: File,
}

/// What a look at the files brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// All parameters, if one has changed.
    pub params: Option<Parameters>,
    /// Values that were refused, and put back.
    pub refused: Vec<ParameterError>,
}

impl Control {
    /// Makes the directory with a file for each parameter.
    ///
    /// # Errors
    /// `WouldBlock` if another process owns it; else what the system says.
    pub fn create(dir: &Path, params: &Parameters) -> io::Result<Self> {
        // Root's alone; what lies above is for everybody to look at, whoever makes it first.
        if let Some(above) = dir.parent() {
            make_dir(above)?;
        }
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let lock = open(&dir.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let events = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let control = Control {
            dir: dir.to_owned(),
            events,
            params: params.clone(),
            _lock: lock,
        };
        for (parameter, value) in params.iter() {
            control.write(parameter.name, value)?;
        }
        let watched = inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&control.events, dir, watched)?;
        Ok(control)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The parameters in force.
    pub fn params(&self) -> &Parameters {
        &self.params
    }

    /// Puts parameters in force, and into the files.
    ///
    /// # Errors
    /// A file cannot be written; those before it are.
    pub fn put(&mut self, params: &Parameters) -> io::Result<()> {
        for (parameter, value) in params.iter() {
            if self.params.get(parameter.name) != Ok(value) {
                self.write(parameter.name, value)?;
            }
        }
        self.params = params.clone();
        Ok(())
    }

    /// Looks at the files after the descriptor has become readable.
    pub fn changes(&mut self) -> Changes {
        self.drain();
        let mut changes = Changes::default();
        let mut params = self.params.clone();
        for (parameter, value) in self.params.iter() {
            let path = self.dir.join(parameter.name);
            let text = fs::read_to_string(path).unwrap_or_default();
            // Opened with O_TRUNC and not yet written to: its writer is heard of again.
            if text.is_empty() {
                continue;
            }
            if let Err(error) = params.set(parameter.name, &text) {
                changes.refused.push(error);
                let _ = self.write(parameter.name, value);
            }
        }
        if params != self.params {
            self.params = params.clone();
            changes.params = Some(params);
        }
        changes
    }

    /// All that was to be heard; what has changed is read from the files themselves.
    fn drain(&self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.events, &mut buffer);
        while reader.next().is_ok() {}
    }

    fn write(&self, name: &str, value: i64) -> io::Result<()> {
        let mut file = open(&self.dir.join(name))?;
        file.set_len(0)?;
        file.write_all(format!("{value}\n").as_bytes())
    }
}

impl AsFd for Control {
    /// Readable when a file was written.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        for (parameter, _) in self.params.iter() {
            let _ = fs::remove_file(self.dir.join(parameter.name));
        }
        let _ = fs::remove_file(self.dir.join(LOCK));
        let _ = fs::remove_dir(&self.dir);
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::Parameter;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::os::unix::fs::PermissionsExt;

    const TABLE: [Parameter; 2] = [
        Parameter {
            name: "max_lifetime_ms",
            min: 1,
            max: 3_600_000,
            default: 10_000,
            summary: "",
        },
        Parameter {
            name: "latency_us",
            min: -5,
            max: 5,
            default: 0,
            summary: "",
        },
    ];

    fn defaults() -> Parameters {
        Parameters::new(&TABLE)
    }

    fn control() -> (tempfile::TempDir, Control) {
        let dir = tempfile::tempdir().unwrap();
        let control = Control::create(&dir.path().join("hrrn"), &defaults()).unwrap();
        (dir, control)
    }

    #[test]
    fn only_its_own_directory_is_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let above = dir.path().join("run/kilter");
        let _control = Control::create(&above.join("hrrn"), &defaults()).unwrap();
        make_dir(&dir.path().join("open")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&above), mode(&dir.path().join("open")));
        assert_eq!(mode(&above.join("hrrn")), 0o700);
    }

    fn is_readable(control: &Control) -> bool {
        let mut fds = [PollFd::new(control, PollFlags::IN)];
        poll(&mut fds, Some(&rustix::time::Timespec::default())).unwrap() == 1
    }

    #[test]
    fn a_written_file_is_a_change_and_a_wrong_one_is_put_back() {
        let (_dir, mut control) = control();
        assert!(!is_readable(&control), "its own files are no change");
        let file = control.dir().join("max_lifetime_ms");
        assert_eq!(fs::read_to_string(&file).unwrap(), "10000\n");

        fs::write(&file, "60000\n").unwrap();
        assert!(is_readable(&control));
        let params = control.changes().params.expect("a change");
        assert_eq!(params.get("max_lifetime_ms"), Ok(60_000));
        assert_eq!(control.changes(), Changes::default(), "told once");

        for wrong in ["-1\n", "x", "3600001"] {
            fs::write(&file, wrong).unwrap();
            let changes = control.changes();
            assert_eq!(
                (changes.params, changes.refused.len()),
                (None, 1),
                "{wrong}"
            );
            assert_eq!(fs::read_to_string(&file).unwrap(), "60000\n");
        }
    }

    #[test]
    fn one_owner_at_a_time_and_nothing_is_left() {
        let (dir, control) = control();
        let path = control.dir().to_owned();
        let second = Control::create(&path, &defaults());
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(control);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        // What a killed scheduler leaves is taken over.
        fs::create_dir(&path).unwrap();
        fs::write(path.join("max_lifetime_ms"), "77").unwrap();
        let control = Control::create(&path, &defaults()).unwrap();
        assert_eq!(control.params(), &defaults());
        assert_eq!(
            fs::read_to_string(path.join("max_lifetime_ms")).unwrap(),
            "10000\n"
        );
    }
}
