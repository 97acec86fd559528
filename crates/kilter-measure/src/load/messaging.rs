//! Messages from many senders to many receivers, in the pattern of hackbench (rt-tests).
//!
//! A group has as many senders as receivers. Every sender writes to every receiver of its group in
//! turn. Time runs from the moment all workers are let go until the last one has ended, as
//! hackbench counts it.

use super::workers::{Barrier, Crew, Task, read_exact, write_all};
use super::{LoadError, check};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// What messages travel through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Pipes.
    Pipe,
    /// Pairs of Unix stream sockets.
    #[default]
    Socket,
}

/// What senders and receivers are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workers {
    /// Processes.
    #[default]
    Process,
    /// Threads of one process.
    Thread,
}

/// What to send. The defaults are hackbench's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagingOptions {
    /// Groups, 1 to 1000.
    pub groups: u32,
    /// Senders, and as many receivers, per group, 1 to 200.
    pub pairs: u32,
    /// Messages from each sender to each receiver of its group, 1 to 100 million.
    pub loops: u32,
    /// Bytes of a message, 1 to 65536.
    pub size: u32,
    /// What messages travel through.
    pub transport: Transport,
    /// What senders and receivers are.
    pub workers: Workers,
}

/// How long it took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MessagingResult {
    /// From the start of all workers to the end of the last.
    pub seconds: f64,
    /// Messages received per second.
    pub messages_per_s: f64,
    /// Messages received.
    pub messages: u64,
}

impl Default for MessagingOptions {
    fn default() -> Self {
        Self {
            groups: 10,
            pairs: 20,
            loops: 100,
            size: 100,
            transport: Transport::default(),
            workers: Workers::default(),
        }
    }
}

/// Senders and receivers at most: above it the usual limits on processes end the run anyway.
const MOST_WORKERS: u32 = 20_000;

/// Descriptors for everything but the channels.
const OTHER_FDS: u64 = 64;

impl MessagingOptions {
    /// Runs the load. Processes that it starts die with the calling thread.
    ///
    /// # Errors
    /// An option outside its range; not enough descriptors, processes or memory; a worker that was
    /// ended from outside. No process is left then.
    pub fn run(&self) -> Result<MessagingResult, LoadError> {
        self.check()?;
        self.raise_descriptor_limit()?;
        let barrier = Arc::new(Barrier::new()?);
        let mut crew = Crew::default();
        for _ in 0..self.groups {
            match self.workers {
                Workers::Process => self.fork_group(&mut crew, &barrier)?,
                Workers::Thread => self.thread_group(&mut crew, &barrier)?,
            }
        }
        let mut start = Instant::now();
        crew.go(&barrier, || start = Instant::now())?;
        crew.join()?;
        let seconds = start.elapsed().as_secs_f64();
        let messages = self.messages();
        Ok(MessagingResult {
            seconds,
            messages_per_s: messages as f64 / seconds,
            messages,
        })
    }

    fn check(&self) -> Result<(), LoadError> {
        check("groups", self.groups, 1..=1000)?;
        check("pairs", self.pairs, 1..=200)?;
        check("loops", self.loops, 1..=100_000_000)?;
        check("size", self.size, 1..=65_536)?;
        check(
            "groups x pairs x 2",
            self.groups * self.pairs * 2,
            2..=MOST_WORKERS,
        )
    }

    fn messages(&self) -> u64 {
        let pairs = u64::from(self.pairs);
        u64::from(self.groups) * pairs * pairs * u64::from(self.loops)
    }

    fn task(&self) -> Flow {
        Flow {
            messages: u64::from(self.pairs) * u64::from(self.loops),
            loops: self.loops,
        }
    }

    /// Receivers first; each channel's reading end is closed here before the next fork, so that it
    /// is the receiver's alone, and a dead receiver shows to its senders.
    fn fork_group(&self, crew: &mut Crew, barrier: &Barrier) -> Result<(), LoadError> {
        let flow = self.task();
        let mut buffer = vec![b'-'; self.size as usize];
        let mut writers = Vec::new();
        for _ in 0..self.pairs {
            let (reader, writer) = self.channel()?;
            let run = || {
                // SAFETY: the child's copy of the writing end; nobody uses it here again.
                unsafe { libc::close(std::os::fd::AsRawFd::as_raw_fd(&writer)) };
                barrier.pass()?;
                flow.receive(&reader, &mut buffer)
            };
            crew.fork(Task {
                name: "receiver",
                run,
            })?;
            writers.push(writer);
        }
        for _ in 0..self.pairs {
            let run = || {
                barrier.pass()?;
                flow.send(&writers, &buffer)
            };
            crew.fork(Task {
                name: "sender",
                run,
            })?;
        }
        Ok(())
    }

    fn thread_group(&self, crew: &mut Crew, barrier: &Arc<Barrier>) -> Result<(), LoadError> {
        let flow = self.task();
        let mut writers = Vec::new();
        for _ in 0..self.pairs {
            let (reader, writer) = self.channel()?;
            writers.push(writer);
            let mut buffer = vec![0; self.size as usize];
            let barrier = Arc::clone(barrier);
            let run = move || {
                barrier.pass()?;
                flow.receive(&reader, &mut buffer)
            };
            crew.thread(Task {
                name: "receiver",
                run,
            })?;
        }
        let writers = Arc::new(writers);
        for _ in 0..self.pairs {
            let (barrier, writers) = (Arc::clone(barrier), Arc::clone(&writers));
            let buffer = vec![b'-'; self.size as usize];
            let run = move || {
                barrier.pass()?;
                flow.send(&writers, &buffer)
            };
            crew.thread(Task {
                name: "sender",
                run,
            })?;
        }
        Ok(())
    }

    /// The end to read from, and the end to write to.
    fn channel(&self) -> Result<(OwnedFd, OwnedFd), LoadError> {
        let made = match self.transport {
            Transport::Pipe => {
                rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(Into::into)
            }
            Transport::Socket => {
                std::os::unix::net::UnixStream::pair().map(|(a, b)| (a.into(), b.into()))
            }
        };
        made.map_err(LoadError::system("make a channel"))
    }

    fn raise_descriptor_limit(&self) -> Result<(), LoadError> {
        let at_once = if self.workers == Workers::Thread {
            self.groups
        } else {
            1
        };
        let needed = u64::from(at_once) * u64::from(self.pairs) * 2 + OTHER_FDS;
        let limit = getrlimit(Resource::Nofile);
        if limit.current.is_none_or(|current| current >= needed) {
            return Ok(());
        }
        let raised = Rlimit {
            current: Some(needed),
            maximum: limit.maximum,
        };
        setrlimit(Resource::Nofile, raised).map_err(|_| LoadError::Option {
            option: "groups x pairs",
            value: (self.groups * self.pairs).to_string(),
            allowed: format!(
                "it needs {needed} open files and {} are allowed (ulimit -Hn)",
                limit
                    .maximum
                    .map_or("more".to_owned(), |most| most.to_string())
            ),
        })
    }
}

/// What one worker has to move.
#[derive(Clone, Copy)]
struct Flow {
    /// Messages that a receiver gets.
    messages: u64,
    /// Rounds that a sender makes.
    loops: u32,
}

impl Flow {
    fn receive(self, reader: &OwnedFd, buffer: &mut [u8]) -> io::Result<()> {
        (0..self.messages).try_for_each(|_| read_exact(reader.as_fd(), buffer))
    }

    fn send(self, writers: &[OwnedFd], message: &[u8]) -> io::Result<()> {
        let mut rounds = 0..self.loops;
        rounds.try_for_each(|_| {
            writers
                .iter()
                .try_for_each(|to| write_all(to.as_fd(), message))
        })
    }
}
