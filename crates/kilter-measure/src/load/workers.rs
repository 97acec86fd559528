//! Senders and receivers as processes or threads, started together and waited for.

use super::LoadError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::thread::JoinHandle;

/// How often it is checked, while waiting for workers, whether one has died.
const LOOK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Stack of a worker thread: enough for two buffers and a system call.
const STACK: usize = 128 << 10;

/// What a worker is, and what it does once all are ready. Between the fork and the end of a
/// process only async-signal-safe calls are allowed: no allocation, no lock.
pub(super) struct Task<F> {
    pub(super) name: &'static str,
    pub(super) run: F,
}

/// Holds workers back until all are there.
pub(super) struct Barrier {
    ready: (OwnedFd, OwnedFd),
    start: (OwnedFd, OwnedFd),
}

impl Barrier {
    pub(super) fn new() -> Result<Self, LoadError> {
        let pipe = || {
            let made = pipe_with(PipeFlags::CLOEXEC);
            made.map_err(|error| LoadError::system("make a pipe")(error.into()))
        };
        Ok(Self {
            ready: pipe()?,
            start: pipe()?,
        })
    }

    /// A worker's side: says that it is ready, and waits.
    pub(super) fn pass(&self) -> io::Result<()> {
        retry(|| rustix::io::write(&self.ready.1, &[0]))?;
        let mut fds = [PollFd::new(&self.start.0, PollFlags::IN)];
        retry(|| poll(&mut fds, None))?;
        // The byte stays in the pipe, for all to see.
        Ok(())
    }

    /// Waits until `count` workers are ready; looks for dead ones now and then.
    fn gather(&self, mut count: usize, crew: &mut Crew) -> Result<(), LoadError> {
        let error = |error: Errno| LoadError::system("wait for the workers")(error.into());
        let mut bytes = [0; 256];
        while count > 0 {
            let mut fds = [PollFd::new(&self.ready.0, PollFlags::IN)];
            if retry(|| poll(&mut fds, Some(&LOOK))).map_err(error)? == 0 {
                crew.fetch_ended()?;
                continue;
            }
            let wanted = count.min(bytes.len());
            count -=
                retry(|| rustix::io::read(&self.ready.0, &mut bytes[..wanted])).map_err(error)?;
        }
        Ok(())
    }

    fn open(&self) -> Result<(), LoadError> {
        let written = retry(|| rustix::io::write(&self.start.1, &[0]));
        written
            .map(|_| ())
            .map_err(|error| LoadError::system("start the workers")(error.into()))
    }
}

/// Workers that were started. Dropping it ends the processes that are left; threads end with
/// kilter.
#[derive(Default)]
pub(super) struct Crew {
    processes: Vec<(&'static str, i32)>,
    threads: Vec<(&'static str, JoinHandle<io::Result<()>>)>,
}

impl Crew {
    /// Starts a process, which dies with the calling thread.
    pub(super) fn fork(
        &mut self,
        task: Task<impl FnOnce() -> io::Result<()>>,
    ) -> Result<(), LoadError> {
        // SAFETY: reads an id.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the child only runs the task, which promises to stay async-signal-safe, and
        // leaves by `_exit`.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: numbers only. A parent that is already gone sends no signal.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    if libc::getppid() != parent {
                        libc::_exit(1);
                    }
                }
                let code = i32::from((task.run)().is_err());
                // SAFETY: ends the process without running anything of the parent's.
                unsafe { libc::_exit(code) }
            }
            -1 => Err(LoadError::system("start a process")(
                io::Error::last_os_error(),
            )),
            pid => {
                self.processes.push((task.name, pid));
                Ok(())
            }
        }
    }

    /// Starts a thread.
    pub(super) fn thread(
        &mut self,
        task: Task<impl FnOnce() -> io::Result<()> + Send + 'static>,
    ) -> Result<(), LoadError> {
        let started = std::thread::Builder::new()
            .stack_size(STACK)
            .spawn(task.run);
        let handle = started.map_err(LoadError::system("start a thread"))?;
        self.threads.push((task.name, handle));
        Ok(())
    }

    /// Lets all workers go once they are ready; calls `started` just before.
    pub(super) fn go(
        &mut self,
        barrier: &Barrier,
        started: impl FnOnce(),
    ) -> Result<(), LoadError> {
        barrier.gather(self.processes.len() + self.threads.len(), self)?;
        started();
        barrier.open()
    }

    /// Waits for all workers.
    pub(super) fn join(mut self) -> Result<(), LoadError> {
        for (worker, thread) in self.threads.drain(..) {
            let failed = |problem: String| LoadError::Worker { worker, problem };
            let result = thread.join().map_err(|_| failed("panicked".to_owned()))?;
            result.map_err(|error| failed(format!("failed: {error}")))?;
        }
        while let Some(&(_, pid)) = self.processes.last() {
            let failed = LoadError::system("wait for a process");
            let status = match wait(pid, libc::WNOHANG).map_err(&failed)? {
                Some(status) => status,
                None if ends_soon(pid).map_err(&failed)? => continue,
                None => {
                    // Another group's worker may have died, of which this one will never hear.
                    self.fetch_ended()?;
                    continue;
                }
            };
            if let Some((worker, _)) = self.processes.pop() {
                ended_well(worker, status)?;
            }
        }
        Ok(())
    }

    /// Fetches the processes that have ended; fails if one of them failed.
    fn fetch_ended(&mut self) -> Result<(), LoadError> {
        let mut index = 0;
        while let Some(&(worker, pid)) = self.processes.get(index) {
            match wait(pid, libc::WNOHANG).map_err(LoadError::system("wait for a process"))? {
                Some(status) => {
                    self.processes.swap_remove(index);
                    ended_well(worker, status)?;
                }
                None => index += 1,
            }
        }
        Ok(())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for &(_, pid) in &self.processes {
            // SAFETY: a child of ours that has not been waited for, so the id is still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        for &(_, pid) in &self.processes {
            let _ = wait(pid, 0);
        }
    }
}

/// Waits for a child to end, for as long as [`LOOK`]; whether it has.
fn ends_soon(pid: i32) -> io::Result<bool> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    Ok(retry(|| poll(&mut fds, Some(&LOOK)))? > 0)
}

/// The status of a child that has ended; nothing if it has not, and `WNOHANG` says not to wait.
fn wait(pid: i32, options: i32) -> io::Result<Option<i32>> {
    loop {
        let mut status = 0;
        // SAFETY: fills one integer.
        match unsafe { libc::waitpid(pid, &mut status, options) } {
            0 => return Ok(None),
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            _ => return Ok(Some(status)),
        }
    }
}

fn ended_well(worker: &'static str, status: i32) -> Result<(), LoadError> {
    let problem = if libc::WIFSIGNALED(status) {
        format!("was ended by signal {}", libc::WTERMSIG(status))
    } else if status == 0 {
        return Ok(());
    } else {
        "failed; another one has probably been ended".to_owned()
    };
    Err(LoadError::Worker { worker, problem })
}

/// Repeats what a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

// The C library's read and write rather than bare system calls, which are up to a fifth faster in
// this load: the figures are to be those of hackbench, and of the programs that it stands for.

/// Writes all of `bytes`.
pub(super) fn write_all(fd: BorrowedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the buffer is passed with its length.
        let written = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        bytes = &bytes[moved(written)?..];
    }
    Ok(())
}

/// Fills `bytes`; an end before that is an error.
pub(super) fn read_exact(fd: BorrowedFd, mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the buffer is passed with its length.
        let read = unsafe { libc::read(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes = &mut bytes[moved(read)?..];
    }
    Ok(())
}

/// The number of bytes that a call has moved: none if a signal interrupted it.
fn moved(result: isize) -> io::Result<usize> {
    match usize::try_from(result) {
        Ok(bytes) => Ok(bytes),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            error => Err(error),
        },
    }
}
