//! Waits for the command, and ends it when its time is over.

use crate::capture::Captured;
use crate::drain::Drain;
use crate::group::Group;
use crate::job::{Job, Output};
use crate::signals::Signals;
use crate::spawn::Child;
use crate::terminal::{JobControl, Request, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

/// Bytes read at once; what a pipe holds by default.
const BUFFER: usize = 64 << 10;

/// How often the rest of a group is looked at once its leader has ended.
const LOOK: Duration = Duration::from_millis(10);

/// How long killed processes may take to go (they may sleep uninterruptibly).
const AFTER_KILL: Duration = Duration::from_secs(1);

/// Why kilter ended the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its time was over.
    TimedOut,
    /// This signal came.
    Signal(i32),
}

/// How it went.
pub(crate) struct Ended {
    pub(crate) wall: Duration,
    pub(crate) status: i32,
    pub(crate) usage: libc::rusage,
    /// Set when kilter ended it.
    pub(crate) ending: Option<Ending>,
    pub(crate) suspended: Duration,
    /// The group, if members of it still run.
    pub(crate) left_behind: Option<Group>,
    /// What `max_rss` could at least be, in KiB.
    pub(crate) floor_kib: u64,
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
}

enum Phase {
    Running,
    /// `SIGTERM` was sent; `SIGKILL` is due.
    Terminated {
        kill_at: Instant,
    },
    /// `SIGKILL` was sent.
    Killed {
        since: Instant,
    },
}

/// One command that runs.
pub(crate) struct Watch<'a> {
    job: &'a Job,
    signals: &'a Signals,
    control: &'a JobControl,
    terminal: Option<&'a Terminal>,
    child: Child<'a>,
    streams: [Drain; 2],
    buffer: Vec<u8>,
    phase: Phase,
    timeout_at: Option<Instant>,
    ending: Option<Ending>,
    suspended: Duration,
}

/// What `poll` found.
#[derive(Default)]
struct Ready {
    ended: bool,
    signals: bool,
    control: bool,
    reader_gone: bool,
    streams: [bool; 2],
}

impl<'a> Watch<'a> {
    pub(crate) fn new(
        job: &'a Job,
        signals: &'a Signals,
        control: &'a JobControl,
        terminal: Option<&'a Terminal>,
        mut child: Child<'a>,
    ) -> Self {
        let tee = job.output == Output::Tee;
        let stdout = Drain::new(child.stdout.take(), tee.then(rustix::stdio::stdout));
        let stderr = Drain::new(child.stderr.take(), tee.then(rustix::stdio::stderr));
        let captures = matches!(job.output, Output::Capture | Output::Tee);
        Self {
            job,
            signals,
            control,
            terminal,
            streams: [stdout, stderr],
            buffer: vec![0; if captures { BUFFER } else { 0 }],
            phase: Phase::Running,
            timeout_at: job.timeout.map(|timeout| child.started + timeout),
            ending: None,
            suspended: Duration::ZERO,
            child,
        }
    }

    /// Waits until the command has ended, and then, if kilter ended it, until its group has.
    pub(crate) fn until_end(mut self) -> io::Result<Ended> {
        let wall = loop {
            let ready = self.wait(self.due(), true)?;
            if ready.ended {
                break self.child.started.elapsed();
            }
            self.attend(&ready)?;
        };
        let (status, usage) = self.child.reap()?;
        while !matches!(self.phase, Phase::Running) && self.child.group.is_alive() {
            if matches!(self.phase, Phase::Killed { since } if since.elapsed() > AFTER_KILL) {
                break;
            }
            let ready = self.wait(Some(Instant::now() + LOOK), false)?;
            self.attend(&ready)?;
        }
        for stream in &mut self.streams {
            stream.finish(&mut self.buffer);
        }
        if self.ending.is_some() || libc::WIFSIGNALED(status) {
            self.child.take_terminal_back();
            self.terminal.inspect(|terminal| terminal.reset());
        }
        let group = self.child.group;
        let left_behind = group.is_alive().then_some(group);
        let [stdout, stderr] = self.streams.map(Drain::into_captured);
        let (ending, suspended) = (self.ending, self.suspended);
        Ok(Ended {
            wall,
            status,
            usage,
            ending,
            suspended,
            left_behind,
            floor_kib: self.child.floor_kib,
            stdout,
            stderr,
        })
    }

    /// When something is to be done even if nothing happens.
    fn due(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running => self.timeout_at,
            Phase::Terminated { kill_at } => Some(kill_at),
            Phase::Killed { .. } => None,
        }
    }

    fn wait(&self, until: Option<Instant>, for_child: bool) -> io::Result<Ready> {
        let mut fds = vec![
            PollFd::new(self.signals, PollFlags::IN),
            PollFd::new(self.control, PollFlags::IN),
        ];
        if for_child {
            fds.push(PollFd::new(&self.child.pidfd, PollFlags::IN));
        }
        let for_reader = self.job.for_reader && matches!(self.phase, Phase::Running);
        if for_reader {
            // No event is asked for: that a pipe has lost its reader is told unasked.
            let ours = rustix::stdio::stdout();
            fds.push(PollFd::from_borrowed_fd(ours, PollFlags::empty()));
        }
        let [stdout, stderr] = self.streams.each_ref().map(Drain::interest);
        for (fd, events) in [&stdout, &stderr].into_iter().flatten() {
            fds.push(PollFd::from_borrowed_fd(*fd, *events));
        }
        let left = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
        match poll(&mut fds, left.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut next = |present: bool| present && ready.next().unwrap_or(false);
        Ok(Ready {
            signals: next(true),
            control: next(true),
            ended: next(for_child),
            reader_gone: next(for_reader),
            streams: [next(stdout.is_some()), next(stderr.is_some())],
        })
    }

    fn attend(&mut self, ready: &Ready) -> io::Result<()> {
        if ready.signals {
            while let Some(signal) = self.signals.next()? {
                self.end(Ending::Signal(signal));
            }
        }
        if ready.reader_gone {
            self.end(Ending::Signal(libc::SIGPIPE));
        }
        if ready.control {
            for request in self.control.requests(self.child.pidfd.as_fd())? {
                self.follow(request)?;
            }
        }
        for (stream, _) in self
            .streams
            .iter_mut()
            .zip(ready.streams)
            .filter(|(_, ready)| *ready)
        {
            stream.advance(&mut self.buffer);
        }
        match self.phase {
            Phase::Running if self.timeout_at.is_some_and(is_past) => self.end(Ending::TimedOut),
            Phase::Terminated { kill_at } if is_past(kill_at) => self.kill(),
            _ => {}
        }
        Ok(())
    }

    /// Ends the group: gently the first time, at once the second.
    fn end(&mut self, ending: Ending) {
        self.ending = Some(ending);
        if matches!(self.phase, Phase::Running) {
            self.phase = Phase::Terminated {
                kill_at: Instant::now() + self.job.grace,
            };
            self.signal(libc::SIGTERM);
            // What is stopped could not act on it.
            self.signal(libc::SIGCONT);
        } else {
            self.kill();
        }
    }

    fn kill(&mut self) {
        self.phase = Phase::Killed {
            since: Instant::now(),
        };
        self.signal(libc::SIGKILL);
    }

    /// Members that have become another user's cannot be signalled by a kilter without root; they
    /// show up as left behind.
    fn signal(&self, signal: i32) {
        let _ = self.child.group.signal(signal);
    }

    fn follow(&mut self, request: Request) -> io::Result<()> {
        match (request, self.terminal) {
            (Request::Continued, Some(terminal)) => terminal.hand_to(self.child.group),
            (Request::Continued, None) => {}
            _ => self.suspend(request)?,
        }
        Ok(())
    }

    /// Stops the command and kilter, and goes on with both when kilter is continued.
    fn suspend(&mut self, request: Request) -> io::Result<()> {
        let since = Instant::now();
        self.signal(libc::SIGSTOP);
        self.child.take_terminal_back();
        let stopped = self.control.stop_kilter()?;
        self.terminal
            .inspect(|terminal| terminal.hand_to(self.child.group));
        if !stopped && request == Request::WantsTerminal {
            // Nobody will ever bring us to the foreground. The kernel ends stopped processes
            // without a shell in this way.
            self.signal(libc::SIGHUP);
        }
        self.signal(libc::SIGCONT);
        self.suspended += since.elapsed();
        self.timeout_at = self.timeout_at.map(|at| at + since.elapsed());
        Ok(())
    }
}

fn is_past(moment: Instant) -> bool {
    moment <= Instant::now()
}

fn timespec(left: Duration) -> Timespec {
    Timespec {
        tv_sec: left.as_secs().cast_signed(),
        tv_nsec: left.subsec_nanos().into(),
    }
}
