//! Runs a script that writes kernel settings where it cannot reach any, and records what it wrote.
//!
//! The script gets a user namespace of its own in which it is root and outside which it is nobody:
//! its uid there belongs to no account, so that even a kernel file that it reached would refuse it.
//! Mounts, processes, network, IPC, host name and cgroups are its own too. `/proc/sys` and the
//! trees of `/sys` that scripts write are copies in memory; the real ones are not in its view, which
//! has the system's programs, read-only, and otherwise only what lies in memory. It has no
//! capability, cannot get one, and a filter of system calls keeps it from asking. Processes, memory,
//! output and time are limited, and nothing that it started survives it.
//!
//! Every opening of a file for writing waits until what was written before has been read, so several
//! writes to one file are seen one by one as long as they are made one after the other.
//!
//! Limits: the script sees the values of the machine it runs on, and what it would do on another
//! is not known. What it writes is kept as text; no copy behaves as the kernel's file does.

mod confine;
mod filter;
mod init;
mod originals;
mod record;
mod view;

pub use originals::{Original, Originals};

use crate::signals::SignalMask;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, WaitOptions, getegid, geteuid, kill_process, set_parent_process_death_signal,
    waitpid,
};
use rustix::thread::{UnshareFlags, set_thread_res_gid, set_thread_res_uid, unshare_unsafe};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// The first of the uids that neither accounts nor containers use (systemd's "Users, Groups, UIDs and
/// GIDs"); a process number is added, so that no two sandboxes share their limits.
const FIRST_FREE_UID: u32 = 0x7000_0000;

/// What a script's recording may weigh, in bytes.
const MOST_RECORDED: u64 = 32 << 20;

/// How long the sandbox may take beyond the script's own time, to be made and to be read.
const SPARE: Duration = Duration::from_secs(20);

/// A script and how it is run.
#[derive(Clone, Debug)]
pub struct Script {
    /// The name that it sees itself under, in `/tmp`.
    pub name: String,
    /// Its text.
    pub text: Vec<u8>,
    /// The interpreter and its arguments, before the script's path.
    pub interpreter: Vec<String>,
    /// The script's own arguments.
    pub arguments: Vec<String>,
    /// What it may use up.
    pub limits: Limits,
}

/// What a script may use up.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Time.
    pub wall: Duration,
    /// Processes and threads at one time.
    pub processes: u64,
    /// Bytes of memory of all its processes together.
    pub memory: u64,
    /// Bytes on its standard output and error together.
    pub output: u64,
}

impl Default for Limits {
    /// One minute, 64 processes, 512 MiB, 1 MiB of output.
    fn default() -> Self {
        Limits {
            wall: Duration::from_secs(60),
            processes: 64,
            memory: 512 << 20,
            output: 1 << 20,
        }
    }
}

/// What a script wrote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// Writes to copies of kernel files, in order.
    pub writes: Vec<Written>,
    /// Other files that it made, outside places for temporary ones.
    pub files: Vec<String>,
    /// How it ended.
    pub ending: Ending,
    /// The beginning of what it printed.
    pub output: String,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Written {
    /// The kernel's file.
    pub path: String,
    /// What it held afterwards.
    pub text: String,
}

/// How a script ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// It had not ended when its time was up.
    #[default]
    Time,
    /// It needed more memory than it may.
    Memory,
    /// It printed more than it may.
    Output,
}

/// Why a script could not be recorded. Nothing of it has run, or nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The kernel refused a part of the sandbox.
    #[error("cannot {doing}: {problem}")]
    Part {
        /// What was tried.
        doing: String,
        /// What the kernel says.
        problem: String,
    },
    /// It ended without a word.
    #[error("the sandbox ended before the script had been recorded")]
    Died,
}

impl SandboxError {
    fn part<E: std::fmt::Display>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |problem| Self::Part {
            doing,
            problem: problem.to_string(),
        }
    }

    /// Whether this machine lets this user have no namespaces of their own.
    pub fn is_namespaces(&self) -> bool {
        matches!(self, Self::Part { doing, .. } if doing == NAMESPACES)
    }
}

const NAMESPACES: &str = "make namespaces for the sandbox";

/// What the sandbox says on its pipe.
#[derive(Serialize, Deserialize)]
enum Word {
    /// Its user namespace waits for its map of users.
    Unshared,
    /// The end.
    Recorded(Recording),
    /// It failed.
    Failed { doing: String, problem: String },
}

/// Runs a script in a sandbox with copies of these files and returns what it wrote.
///
/// The process must have one thread: the sandbox is a fork of it.
///
/// # Errors
/// The kernel refuses namespaces or another part. Without root, some distributions do.
pub fn record(script: &Script, originals: &Originals) -> Result<Recording, SandboxError> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(SandboxError::part("make a pipe"));
    let (words, said) = pipe()?;
    let (gate, open_gate) = pipe()?;
    // SAFETY: the process has one thread (the caller's promise), so the child may allocate and take
    // locks; it leaves through `_exit` and never returns into the caller's frames.
    match unsafe { libc::fork() } {
        -1 => Err(SandboxError::part("start the sandbox")(
            io::Error::last_os_error(),
        )),
        0 => {
            drop((words, open_gate));
            let _ = std::panic::catch_unwind(|| leader(script, originals, said, gate));
            // SAFETY: always allowed; skips the destructors and exit handlers of the parent.
            unsafe { libc::_exit(1) }
        }
        pid => {
            drop((said, gate));
            let sandbox = Sandbox(Pid::from_raw(pid).expect("fork gave a pid"));
            let deadline = Instant::now() + script.limits.wall + SPARE;
            sandbox.attend(words, open_gate, deadline)
        }
    }
}

/// The sandbox as its starter sees it: a child that is ended with it.
struct Sandbox(Pid);

impl Sandbox {
    fn attend(
        &self,
        words: OwnedFd,
        gate: OwnedFd,
        deadline: Instant,
    ) -> Result<Recording, SandboxError> {
        let mut words = Words {
            pipe: File::from(words),
            bytes: Vec::new(),
            deadline,
        };
        match words.next()? {
            Word::Unshared => {}
            Word::Failed { doing, problem } => return Err(SandboxError::Part { doing, problem }),
            Word::Recorded(_) => return Err(SandboxError::Died),
        }
        self.map_users()
            .map_err(SandboxError::part("map the sandbox's user"))?;
        let _ = File::from(gate).write_all(b"go");
        match words.next()? {
            Word::Recorded(recording) => Ok(recording),
            Word::Failed { doing, problem } => Err(SandboxError::Part { doing, problem }),
            Word::Unshared => Err(SandboxError::Died),
        }
    }

    /// Root inside is a user without an account outside; without root it is the caller.
    fn map_users(&self) -> io::Result<()> {
        let pid = self.0.as_raw_nonzero().get();
        let (uid, gid) = match geteuid().is_root() {
            true => {
                let free = FIRST_FREE_UID + pid.unsigned_abs();
                (free, free)
            }
            false => (geteuid().as_raw(), getegid().as_raw()),
        };
        let write = |file: &str, text: String| std::fs::write(format!("/proc/{pid}/{file}"), text);
        write("setgroups", "deny".to_owned())?;
        write("gid_map", format!("0 {gid} 1\n"))?;
        write("uid_map", format!("0 {uid} 1\n"))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // The first process of the namespace is told to die with this one, and takes all others along.
        let _ = kill_process(self.0, Signal::KILL);
        let _ = rustix::io::retry_on_intr(|| waitpid(Some(self.0), WaitOptions::empty()));
    }
}

/// JSON lines of the sandbox.
struct Words {
    pipe: File,
    bytes: Vec<u8>,
    deadline: Instant,
}

impl Words {
    fn next(&mut self) -> Result<Word, SandboxError> {
        loop {
            if let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                return serde_json::from_slice(&line).map_err(|_| SandboxError::Died);
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            let left = Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut fds = [PollFd::new(&self.pipe, PollFlags::IN)];
            let ready = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&left)));
            let mut chunk = vec![0; 64 << 10];
            let read = match ready {
                Ok(1..) => self.pipe.read(&mut chunk).unwrap_or(0),
                _ => 0,
            };
            if read == 0 || self.bytes.len() as u64 > MOST_RECORDED {
                return Err(SandboxError::Died);
            }
            self.bytes.extend_from_slice(&chunk[..read]);
        }
    }
}

/// Says a word to the starter.
fn say(pipe: &OwnedFd, word: &Word) {
    let mut line = serde_json::to_vec(word).unwrap_or_default();
    line.push(b'\n');
    let mut rest = &line[..];
    while let Ok(written @ 1..) = rustix::io::retry_on_intr(|| rustix::io::write(pipe, rest)) {
        rest = &rest[written..];
    }
}

fn say_failed(pipe: &OwnedFd, error: SandboxError) {
    let (doing, problem) = match error {
        SandboxError::Part { doing, problem } => (doing, problem),
        SandboxError::Died => return,
    };
    say(pipe, &Word::Failed { doing, problem });
}

/// The process that makes the namespaces. Its child is the first inside.
fn leader(script: &Script, originals: &Originals, said: OwnedFd, gate: OwnedFd) {
    if let Err(error) = lead(script, originals, &said, gate) {
        say_failed(&said, error);
    }
}

fn lead(
    script: &Script,
    originals: &Originals,
    said: &OwnedFd,
    gate: OwnedFd,
) -> Result<(), SandboxError> {
    die_with_parent()?;
    // Ctrl-C is the starter's; its end is the sandbox's.
    SignalMask::all().block();
    let _ = rustix::process::setsid();
    if geteuid().is_root() {
        rustix::thread::set_thread_groups(&[]).map_err(SandboxError::part("leave all groups"))?;
    }
    let all = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    // SAFETY: the table of descriptors is not among what is unshared.
    unsafe { unshare_unsafe(all) }.map_err(SandboxError::part(NAMESPACES))?;
    say(said, &Word::Unshared);
    let mut go = [0; 2];
    File::from(gate)
        .read_exact(&mut go)
        .map_err(SandboxError::part("wait for the map of users"))?;
    become_root_inside()?;
    die_with_parent()?;
    // SAFETY: as in `record`: one thread, and the child leaves through `_exit`.
    match unsafe { libc::fork() } {
        -1 => Err(SandboxError::part("start the first process")(
            io::Error::last_os_error(),
        )),
        0 => {
            let run = || die_with_parent().and_then(|()| init::run(script, originals));
            match std::panic::catch_unwind(run) {
                Ok(Ok(recording)) => say(said, &Word::Recorded(recording)),
                Ok(Err(error)) => say_failed(said, error),
                Err(_) => {}
            }
            // SAFETY: as in `record`. It takes every process of the namespace along.
            unsafe { libc::_exit(0) }
        }
        pid => {
            let pid = Pid::from_raw(pid);
            let _ = rustix::io::retry_on_intr(|| waitpid(pid, WaitOptions::empty()));
            Ok(())
        }
    }
}

fn die_with_parent() -> Result<(), SandboxError> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(SandboxError::part("tie the sandbox to its starter"))
}

fn become_root_inside() -> Result<(), SandboxError> {
    let fail = || SandboxError::part("become root of the sandbox");
    let (root, group) = (rustix::process::Uid::ROOT, rustix::process::Gid::ROOT);
    set_thread_res_gid(group, group, group).map_err(fail())?;
    set_thread_res_uid(root, root, root).map_err(fail())
}

/// The descriptor's number, for calls that the C library wraps.
fn raw(fd: &OwnedFd) -> i32 {
    fd.as_raw_fd()
}
