//! The first process of the sandbox: makes the view, starts the script, watches it, ends what is left.

use super::confine::{Gate, confine, keep_descriptors, receive, send};
use super::record::{Recorder, is_number};
use super::{Ending, Limits, Originals, Recording, SandboxError, Script, view};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{DumpableBehavior, Pid, WaitOptions, set_dumpable_behavior, wait};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often memory and children are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How long what the script left running may go on.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// How much of its output is kept.
const KEPT: usize = 8 << 10;

/// Where the script's programs are looked for.
const PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/system/bin:/system/xbin";

/// Runs the script to its end.
pub(super) fn run(script: &Script, originals: &Originals) -> Result<Recording, SandboxError> {
    // When memory is short, the kernel takes from here first.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    view::enter(script, originals)?;
    // The script's processes have the same uid, and may not look into this one.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(SandboxError::part("hide from the script"))?;
    let recorder =
        Recorder::begin(originals).map_err(SandboxError::part("follow the copies (inotify)"))?;
    let watch = Watch::start(script, recorder)?;
    Ok(watch.until_the_end())
}

struct Watch<'a> {
    limits: &'a Limits,
    script: Pid,
    gate: Gate,
    output: OwnedFd,
    recorder: Recorder,
    printed: Vec<u8>,
    printed_in_all: u64,
    started: Instant,
}

impl<'a> Watch<'a> {
    fn start(script: &'a Script, recorder: Recorder) -> Result<Self, SandboxError> {
        let part = |doing| SandboxError::part::<std::io::Error>(doing);
        let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|error| part("make a pipe")(error.into()))?;
        let (output, printed) = pipe;
        // The script's end must wait like any pipe.
        rustix::fs::fcntl_setfl(&printed, rustix::fs::OFlags::empty())
            .map_err(|error| part("make a pipe")(error.into()))?;
        let (socket, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|error| part("make a socket")(error.into()))?;
        let again = printed.try_clone().map_err(part("make a pipe"))?;
        let mut words = script.interpreter.iter();
        let mut command = Command::new(words.next().map_or("/bin/sh", String::as_str));
        command
            .args(words)
            .arg(format!("/tmp/{}", script.name))
            .args(&script.arguments)
            .env_clear()
            .envs([
                ("PATH", format!("{}:{PATH}", view::STAND_INS).as_str()),
                ("HOME", "/root"),
                ("USER", "root"),
                ("LOGNAME", "root"),
                ("LC_ALL", "C"),
                ("TERM", "dumb"),
            ])
            .current_dir("/tmp")
            .stdin(Stdio::null())
            .stdout(printed)
            .stderr(again);
        keep_descriptors().map_err(part("keep its descriptors from the script"))?;
        let limits = script.limits.clone();
        // SAFETY: this process has one thread, so its child may do what it may do itself.
        unsafe { command.pre_exec(move || send(&other, confine(&limits)?)) };
        let child = command
            .spawn()
            .map_err(SandboxError::part("start the script"))?;
        // Its ends of the pipe and the socket.
        drop(command);
        let listener = receive(&socket).map_err(part("install the filter of system calls"))?;
        Ok(Watch {
            limits: &script.limits,
            script: Pid::from_raw(child.id().cast_signed()).expect("a child has a number"),
            gate: Gate::new(listener),
            output,
            recorder,
            printed: Vec::new(),
            printed_in_all: 0,
            started: Instant::now(),
        })
    }

    /// Until all its processes have ended, or it has used up what it may.
    fn until_the_end(mut self) -> Recording {
        let mut ending = None;
        let mut until = self.started + self.limits.wall;
        let (why, stopped) = loop {
            self.serve();
            match self.reap() {
                Reaped::Script(how) => {
                    ending = Some(how);
                    until = until.min(Instant::now() + AFTERWARDS);
                }
                Reaped::NoneLeft => break (Ending::Time, false),
                Reaped::Others => {}
            }
            if self.printed_in_all > self.limits.output {
                break (Ending::Output, true);
            }
            if resident() > self.limits.memory {
                break (Ending::Memory, true);
            }
            if Instant::now() >= until {
                break (Ending::Time, ending.is_none());
            }
        };
        self.end_all();
        let ending = match ending {
            Some(how) if !stopped => how,
            _ => why,
        };
        let output = String::from_utf8_lossy(&self.printed).into_owned();
        Recording {
            ending,
            output,
            ..self.recorder.finish()
        }
    }

    /// Lets openings go on and takes output, for a moment.
    fn serve(&mut self) {
        let until = Instant::now() + LOOK;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec {
                tv_sec: 0,
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut fds = [
                PollFd::new(self.gate.fd(), PollFlags::IN),
                PollFd::new(&self.output, PollFlags::IN),
            ];
            let ready = poll(&mut fds, Some(&left)).unwrap_or(0);
            let [asks, prints] = [fds[0].revents(), fds[1].revents()];
            if ready == 0 {
                self.recorder.note();
                return;
            }
            if asks.contains(PollFlags::IN) {
                let _ = self.gate.answer(|| self.recorder.note());
            }
            if prints.contains(PollFlags::IN) {
                self.print();
            }
            // Nobody is left on the other side: the kernel would answer at once for ever.
            if !(asks | prints).contains(PollFlags::IN) || Instant::now() >= until {
                self.recorder.note();
                std::thread::sleep(Duration::from_millis(1));
                return;
            }
        }
    }

    fn print(&mut self) {
        let mut chunk = [0; 16 << 10];
        if let Ok(read) = rustix::io::read(&self.output, &mut chunk) {
            self.printed_in_all += read as u64;
            let room = KEPT.saturating_sub(self.printed.len()).min(read);
            self.printed.extend_from_slice(&chunk[..room]);
        }
    }

    /// Takes the ends of children, adopted ones too.
    fn reap(&self) -> Reaped {
        let mut reaped = Reaped::Others;
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.script => {
                    reaped = Reaped::Script(match status.exit_status() {
                        Some(code) => Ending::Exited(code),
                        None => Ending::Signalled(status.terminating_signal().unwrap_or(0)),
                    });
                }
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => return reaped,
                // The script's end must be told before that of all.
                Err(_) if matches!(reaped, Reaped::Script(_)) => return reaped,
                Err(_) => return Reaped::NoneLeft,
            }
        }
    }

    /// Ends every other process of the namespace.
    fn end_all(&mut self) {
        loop {
            // SAFETY: numbers only. From the first process of a namespace, -1 is all others in it.
            unsafe { libc::kill(-1, libc::SIGKILL) };
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(_) => break,
            }
        }
        for _ in 0..4 {
            self.print();
        }
    }
}

enum Reaped {
    Script(Ending),
    Others,
    NoneLeft,
}

/// Bytes of memory that the processes of the sandbox hold, without this one.
fn resident() -> u64 {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pages: u64 = processes
        .filter(|entry| is_number(&entry.file_name()) && entry.file_name() != "1")
        .filter_map(|entry| {
            let text = std::fs::read_to_string(entry.path().join("statm")).ok()?;
            text.split(' ').nth(1)?.parse::<u64>().ok()
        })
        .sum();
    pages * rustix::param::page_size() as u64
}
