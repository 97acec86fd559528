//! Settings that are a process: they hold as long as it lives.
//!
//! To layers, journal and undo a holder looks like a file, `/run/kilter/holders/KNOB`: reading it
//! gives the value that a living process holds, else `0`; writing a value starts a process that
//! holds it (`kilter holder KNOB VALUE`), writing `0` ends it. So every rule for files (journal first,
//! read back, stack, leave strangers' changes alone) holds for holders too.
//!
//! The file itself names the process. It is written before the process is let go, by a line on its
//! standard input; a process whose starter died before that sees the end of the input and leaves.

use crate::kernel::{FileError, Kernel, Refusal};
use crate::moving;
use crate::path::KernelPath;
use crate::process::{end, is_alive, owner_of};
use crate::store::{Lock, Store, StoreError};
use kilter_api::Owner;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The tree of holders.
pub(crate) const TREE: &str = "/run/kilter/holders";

/// What a holder reads before it does anything.
const GO: &str = "go\n";

/// What a holder says once its setting is in force.
const READY: &str = "ready\n";

/// How long a holder may take until then.
const PATIENCE: Timespec = Timespec {
    tv_sec: 30,
    tv_nsec: 0,
};

/// Whether a path stands for a holder.
pub(crate) fn is_holder(path: &KernelPath) -> bool {
    path.split().0 == TREE
}

/// The value in force.
pub(crate) fn read(kernel: &Kernel, path: &KernelPath) -> Result<String, FileError> {
    need_machine(kernel, path)?;
    Ok(match living(kernel, path) {
        Some((_, value)) => value,
        None if moving::is_held(kernel, knob(path)) => "1".to_owned(),
        None => "0".to_owned(),
    })
}

/// Starts a holder of the value after ending the present one; only ends it where the value is `0`.
/// The caller has the journal's lock.
pub(crate) fn write(kernel: &Kernel, path: &KernelPath, text: &str) -> Result<(), FileError> {
    need_machine(kernel, path)?;
    let fail = |source: io::Error| FileError {
        path: path.to_string(),
        refusal: Refusal::Other,
        errno: source.raw_os_error().unwrap_or(0),
    };
    let value = text.trim();
    match living(kernel, path) {
        Some((owner, _)) => {
            end(&owner);
            reap(&owner);
            moving::forget_owner(kernel, &owner)?;
            let _ = fs::remove_file(file(kernel, path));
        }
        // In force without a holder: `kilter groups run` does it, and that is a person's will.
        None if moving::is_held(kernel, knob(path)) => {
            return Err(FileError {
                path: path.to_string(),
                refusal: Refusal::Busy,
                errno: 0,
            });
        }
        None => {}
    }
    match value {
        "0" => Ok(()),
        value => start(kernel, path, value).map_err(fail),
    }
}

/// In the holder: leaves the starter's session and waits until it may begin.
///
/// # Errors
/// The starter died, or this is no holder.
pub fn wait_for_go() -> io::Result<()> {
    let _ = rustix::process::setsid();
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    match line.as_str() {
        GO => Ok(()),
        _ => Err(io::Error::other(
            "holders are started by kilter, when a knob is set",
        )),
    }
}

/// In the holder: tells that the setting is in force, and leaves the starter's terminal.
///
/// # Errors
/// The starter is gone.
pub fn say_ready() -> io::Result<()> {
    io::stdout().write_all(READY.as_bytes())?;
    io::stdout().flush()?;
    let null = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    // Whoever reads the starter's output to its end must not wait for the holder.
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

fn start(kernel: &Kernel, path: &KernelPath, value: &str) -> io::Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["holder", knob(path), value])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .current_dir("/")
        .spawn()?;
    let begun = note(kernel, path, &child, value).and_then(|()| go(&mut child));
    if begun.is_err() {
        let _ = child.kill();
        let _ = child.wait();
        let _ = fs::remove_file(file(kernel, path));
    }
    begun
}

/// Takes the end of a holder that this very process has started.
fn reap(owner: &Owner) {
    use rustix::process::{Pid, WaitOptions, waitpid};
    let _ = Pid::from_raw(owner.pid).map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
}

/// Writes down who holds.
fn note(kernel: &Kernel, path: &KernelPath, child: &Child, value: &str) -> io::Result<()> {
    let owner = owner_of(child.id() as i32).ok_or_else(|| io::Error::other("it died"))?;
    let file = file(kernel, path);
    if let Some(dir) = file.parent() {
        crate::store::make_dir(dir)?;
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .custom_flags(libc::O_NOFOLLOW)
        .open(file)?;
    writeln!(file, "{} {} {value}", owner.pid, owner.start_ticks)
}

/// Lets a holder begin, and waits until its setting is in force.
fn go(child: &mut Child) -> io::Result<()> {
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(GO.as_bytes())?;
    drop(stdin);
    let stdout = child.stdout.take().expect("piped");
    if poll(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(&PATIENCE))? == 0 {
        return Err(rustix::io::Errno::TIMEDOUT.into());
    }
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    match line.as_str() {
        READY => Ok(()),
        // It has said why on standard error.
        _ => Err(io::Error::other("the holder gave up")),
    }
}

/// The process that holds a value, if it lives.
fn living(kernel: &Kernel, path: &KernelPath) -> Option<(Owner, String)> {
    let text = fs::read_to_string(file(kernel, path)).ok()?;
    let mut words = text.split_whitespace();
    let owner = Owner {
        pid: words.next()?.parse().ok()?,
        start_ticks: words.next()?.parse().ok()?,
    };
    let value = words.next()?.to_owned();
    is_alive(&owner).then_some((owner, value))
}

fn knob(path: &KernelPath) -> &str {
    path.split().1
}

fn file(kernel: &Kernel, path: &KernelPath) -> PathBuf {
    kernel.below(path.as_str())
}

fn need_machine(kernel: &Kernel, path: &KernelPath) -> Result<(), FileError> {
    match kernel.root() == Path::new("/") {
        true => Ok(()),
        false => Err(FileError {
            path: path.to_string(),
            refusal: Refusal::Unsupported,
            errno: 0,
        }),
    }
}

impl Store {
    /// The right to journal of a holder that is not ready yet: its starter has the lock, and waits.
    ///
    /// # Errors
    /// The journal's directory cannot be used.
    pub fn lent_lock(&self) -> Result<Lock<'_>, StoreError> {
        self.lock_without_waiting()
    }
}
