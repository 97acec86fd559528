//! The guardian: a small process that undoes its owner's layers if the owner is killed.
//!
//! It is forked before the first write and waits on a pipe whose other end only the owner holds.
//! The end of the pipe without a farewell means that the owner is dead, whatever killed it. The
//! pipe also tells the guardian which process group the workload runs in, so that no workload
//! goes on measuring a machine whose settings have been put back.

use crate::kernel::Kernel;
use crate::process::this_process;
use crate::store::Store;
use kilter_api::{Owner, Restored};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpid};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

/// The owner's end. Dropping it dismisses the guardian.
#[derive(Debug)]
pub struct Guardian {
    pipe: Option<File>,
    pid: Pid,
}

impl Guardian {
    /// Forks the guardian of this process. Call it before the first write, while the process has
    /// one thread.
    pub fn start(kernel: &Kernel) -> io::Result<Guardian> {
        Self::fork(kernel, false)
    }

    /// The same, without a word on standard error, which somebody may be waiting to see the end of.
    pub fn start_silently(kernel: &Kernel) -> io::Result<Guardian> {
        Self::fork(kernel, true)
    }

    fn fork(kernel: &Kernel, silent: bool) -> io::Result<Guardian> {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let owner = this_process();
        // SAFETY: the process has one thread (the caller's promise), so the child may allocate and
        // take locks; it leaves through `_exit` and never returns into the caller's frames.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(writer);
                let _ = std::panic::catch_unwind(|| guard(kernel, reader, &owner, silent));
                // SAFETY: always allowed; skips the destructors and exit handlers of the owner.
                unsafe { libc::_exit(0) }
            }
            pid => Ok(Guardian {
                pipe: Some(writer.into()),
                pid: Pid::from_raw(pid).expect("fork gave a pid"),
            }),
        }
    }

    /// Tells the guardian which process group to end with the owner; none when no workload runs.
    pub fn watch(&mut self, group: Option<i32>) {
        if let Some(pipe) = &mut self.pipe {
            // A dead guardian is no reason to end the experiment: the next command restores.
            let _ = pipe.write_all(format!("{}\n", group.unwrap_or(0)).as_bytes());
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            let _ = pipe.write_all(b"bye\n");
        }
        let _ = rustix::io::retry_on_intr(|| waitpid(Some(self.pid), WaitOptions::empty()));
    }
}

fn guard(kernel: &Kernel, pipe: OwnedFd, owner: &Owner, silent: bool) {
    detach(silent);
    let mut group = None;
    for line in BufReader::new(File::from(pipe))
        .lines()
        .map_while(Result::ok)
    {
        match line.as_str() {
            "bye" => return,
            number => group = number.parse().ok().and_then(Pid::from_raw),
        }
    }
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let store = Store::new(kernel);
    let outcome = store.lock().and_then(|lock| lock.undo_of(kernel, owner));
    let _ = match outcome {
        Ok(done) if done.layers.is_empty() => return,
        Ok(done) => {
            let failed = done
                .files
                .iter()
                .filter(|file| matches!(file.outcome, Restored::Failed { .. }))
                .count();
            let pid = owner.pid;
            match failed {
                0 => writeln!(
                    io::stderr(),
                    "kilter: process {pid} was killed; its settings were put back"
                ),
                _ => writeln!(
                    io::stderr(),
                    "error: kilter process {pid} was killed and {failed} of its settings could not be put back\nhint: kilter status"
                ),
            }
        }
        Err(error) => writeln!(
            io::stderr(),
            "error: the settings of a killed kilter could not be put back: {error}\nhint: kilter revert"
        ),
    };
}

/// Leaves the owner's terminal and signals, so that what ends the owner does not end the guardian.
fn detach(silent: bool) {
    let _ = rustix::process::setsid();
    // SAFETY: a local set, initialised by sigfillset before use.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
    // The owner's pipes must see their end when the owner dies; standard error stays for the news.
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        if silent {
            let _ = rustix::stdio::dup2_stderr(&null);
        }
    }
    // The killer may be the kernel, short of memory; it must not take both.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
}
