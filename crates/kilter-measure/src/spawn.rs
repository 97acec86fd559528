//! Starts the command: fork, set up, exec.
//!
//! The child is cloned with `CLONE_VFORK` (kilter sleeps until the exec, which is then known to
//! have worked or not) but without `CLONE_VM`: a child that becomes another user must not share
//! memory with root (it could be traced or stopped by that user before its exec), and a shared
//! memory's high-water mark would become the floor of the command's `max_rss`. The copy costs about
//! 0.1 ms for a process of kilter's size, and lies inside the measured time.

use crate::child::{Report, Setup, Stage, set_up_and_exec};
use crate::cpus::CpuList;
use crate::exec::Exec;
use crate::group::Group;
use crate::job::{Job, Output, Stdin};
use crate::read_below;
use crate::signals::{SignalMask, not_inherited};
use crate::terminal::Terminal;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use rustix::pipe::PipeFlags;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

/// Why a command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no command.
    #[error("the command is empty")]
    Empty,
    /// A word of the command or of the environment holds a zero byte.
    #[error("{0:?} holds a zero byte, which no command can be given")]
    ZeroByte(OsString),
    /// There is no such program.
    #[error("command not found: {0:?}")]
    NotFound(OsString),
    /// The program exists and cannot be executed.
    #[error("cannot execute {program:?}: {source}")]
    NotExecutable {
        /// Its name as given.
        program: OsString,
        /// What the kernel says.
        source: io::Error,
    },
    /// Pinning to the CPUs did not work, or only to some of them.
    #[error(
        "cannot pin to the CPUs {asked}; kilter itself may use {allowed} (its affinity, within its cpuset)"
    )]
    Cpus {
        /// The CPUs.
        asked: CpuList,
        /// Those that kilter may use.
        allowed: String,
    },
    /// The user could not be changed.
    #[error("cannot run as user {uid}: {source}; it needs root")]
    User {
        /// The user id.
        uid: u32,
        /// What the kernel says.
        source: io::Error,
    },
    /// Something else.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
}

impl SpawnError {
    /// The exit code that env(1) would have: 127 not found, 126 not executable, 125 all else.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable { .. } => 126,
            _ => 125,
        }
    }

    pub(crate) fn system(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { doing, source }
    }
}

/// A command that runs.
pub(crate) struct Child<'a> {
    pub(crate) group: Group,
    /// Readable when the command has ended.
    pub(crate) pidfd: OwnedFd,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
    /// Just before the spawn.
    pub(crate) started: Instant,
    /// What the command's `max_rss` can at least be, in KiB: its process's before the exec.
    pub(crate) floor_kib: u64,
    terminal: Option<&'a Terminal>,
    reaped: bool,
}

impl Child<'_> {
    /// Makes kilter the terminal's foreground again, if the command has been.
    pub(crate) fn take_terminal_back(&self) {
        if let Some(terminal) = self.terminal {
            terminal.take_back_from(self.group);
        }
    }

    /// Fetches the ended command's status and what it used, with its waited-for descendants.
    pub(crate) fn reap(&mut self) -> io::Result<(i32, libc::rusage)> {
        loop {
            let mut status = 0;
            // SAFETY: `rusage` is plain data; the kernel fills both.
            let (pid, usage) = unsafe {
                let mut usage = std::mem::zeroed();
                (libc::wait4(self.group.0, &mut status, 0, &mut usage), usage)
            };
            if pid == self.group.0 {
                self.reaped = true;
                return Ok((status, usage));
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Drop for Child<'_> {
    /// Whatever went wrong in kilter, the command does not outlive its measurement, and the
    /// terminal comes back.
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.group.signal(libc::SIGKILL);
            let _ = self.reap();
        }
        self.take_terminal_back();
    }
}

/// Everything that the child needs, made before the clock starts.
pub(crate) struct Prepared<'a> {
    job: &'a Job,
    exec: Exec,
    stdio: Stdio,
    terminal: Option<&'a Terminal>,
}

impl<'a> Prepared<'a> {
    /// Looks the program up and opens pipes. The child gets the terminal if kilter has it.
    pub(crate) fn new(job: &'a Job, terminal: Option<&'a Terminal>) -> Result<Self, SpawnError> {
        Ok(Self {
            job,
            exec: Exec::new(job)?,
            stdio: Stdio::open(job)?,
            terminal,
        })
    }

    /// Starts the command as the leader of a new process group.
    pub(crate) fn spawn(self) -> Result<Child<'a>, SpawnError> {
        let report = Report::new().map_err(SpawnError::system("share memory with the child"))?;
        let mut stack = vec![0_u128; 4096];
        let arrays = self.exec.arrays();
        let resets = not_inherited();
        let mask = self.job.cpus.as_ref().map(CpuList::mask);
        let groups = self
            .job
            .user
            .as_ref()
            .map(|user| (user.uid, user.gid, &user.groups[..]));
        let mut setup = Setup {
            // SAFETY: reads an id.
            parent: unsafe { libc::getpid() },
            arrays: &arrays,
            stdio: self.stdio.of_child(),
            readback: mask
                .as_ref()
                .map(|mask| vec![0_u64; mask.len().max(1024)])
                .unwrap_or_default(),
            mask: mask.as_deref(),
            user: groups,
            foreground: self.terminal.is_some_and(Terminal::is_ours),
            resets: &resets,
            report: &report,
        };
        let mut pidfd: RawFd = -1;
        // Until its exec the child must take no signal: a handler of ours would run in it.
        let former = SignalMask::all().block();
        let started = Instant::now();
        // SAFETY: the child gets a copy of this memory, its own stack with room (64 KiB, growing
        // down from its end, 16-byte aligned), and calls only what is allowed between fork and
        // exec; it never returns from `set_up_and_exec`. The variadic argument is where CLONE_PIDFD
        // stores the descriptor.
        let pid = unsafe {
            libc::clone(
                set_up_and_exec,
                stack.as_mut_ptr_range().end.cast(),
                libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD,
                (&raw mut setup).cast(),
                &raw mut pidfd,
            )
        };
        let error = io::Error::last_os_error();
        former.restore();
        if pid < 0 {
            return Err(SpawnError::System {
                doing: "start a process",
                source: error,
            });
        }
        // SAFETY: CLONE_PIDFD has just made this descriptor.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        let group = Group(pid);
        let mut child = Child {
            group,
            pidfd,
            stdout: None,
            stderr: None,
            started,
            floor_kib: report.memory_kib(),
            terminal: self.terminal,
            reaped: false,
        };
        if let Some((stage, errno)) = report.failure() {
            let _ = child.reap();
            return Err(self.error(stage, io::Error::from_raw_os_error(errno)));
        }
        (child.stdout, child.stderr) = self.stdio.into_parents();
        Ok(child)
    }

    fn error(&self, stage: Stage, source: io::Error) -> SpawnError {
        let program = || self.job.command.first().cloned().unwrap_or_default();
        match (stage, &self.job.cpus, &self.job.user) {
            (Stage::Cpus, Some(asked), _) => SpawnError::Cpus {
                asked: asked.clone(),
                allowed: allowed_cpus(),
            },
            (Stage::User, _, Some(user)) => SpawnError::User {
                uid: user.uid,
                source,
            },
            (Stage::Exec, ..) => exec_error(program(), source),
            _ => SpawnError::System {
                doing: "redirect the command's streams",
                source,
            },
        }
    }
}

/// The CPUs that kilter may run on, in the kernel's list format.
fn allowed_cpus() -> String {
    let status = read_below(Path::new("/"), "proc/self/status").unwrap_or_default();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map_or_else(|| "other CPUs".to_owned(), |list| list.trim().to_owned())
}

fn exec_error(program: OsString, source: io::Error) -> SpawnError {
    let absent = matches!(source.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR));
    if absent && program.as_bytes().contains(&b'/') && rustix::fs::stat(&program).is_ok() {
        let source = io::Error::other("the interpreter or loader that it names does not exist");
        return SpawnError::NotExecutable { program, source };
    }
    if absent {
        SpawnError::NotFound(program)
    } else {
        SpawnError::NotExecutable { program, source }
    }
}

/// Descriptors for the child's streams; what it inherits unchanged is absent.
struct Stdio {
    stdin: Option<OwnedFd>,
    stdout: Option<(OwnedFd, OwnedFd)>,
    stderr: Option<(OwnedFd, OwnedFd)>,
    to_stderr: bool,
}

impl Stdio {
    fn open(job: &Job) -> Result<Self, SpawnError> {
        let null = || {
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
            rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())
                .map_err(|error| SpawnError::system("open /dev/null")(error.into()))
        };
        let captured = matches!(job.output, Output::Capture | Output::Tee);
        let open_pipe = || captured.then(pipe).transpose();
        Ok(Self {
            stdin: (job.stdin == Stdin::Null).then(null).transpose()?,
            stdout: open_pipe()?,
            stderr: open_pipe()?,
            to_stderr: job.output == Output::ToStderr,
        })
    }

    /// What becomes descriptors 0, 1 and 2 in the child.
    fn of_child(&self) -> [Option<RawFd>; 3] {
        let writer = |pair: &Option<(OwnedFd, OwnedFd)>| Some(pair.as_ref()?.1.as_raw_fd());
        let stdout = writer(&self.stdout).or(self.to_stderr.then_some(libc::STDERR_FILENO));
        [
            self.stdin.as_ref().map(AsRawFd::as_raw_fd),
            stdout,
            writer(&self.stderr),
        ]
    }

    /// The reading ends; the writing ones are closed.
    fn into_parents(self) -> (Option<OwnedFd>, Option<OwnedFd>) {
        (
            self.stdout.map(|(reader, _)| reader),
            self.stderr.map(|(reader, _)| reader),
        )
    }
}

/// A pipe whose reading end never blocks; the writing end is the command's, and blocks.
fn pipe() -> Result<(OwnedFd, OwnedFd), SpawnError> {
    let make = || {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        Ok::<_, rustix::io::Errno>((reader, writer))
    };
    make().map_err(|error| SpawnError::system("make a pipe")(error.into()))
}
