//! The loop: events as they come, a sweep after a burst and now and then, nothing in between.

use crate::connector::{Connector, Received};
use crate::groups::{Fate, Groups, Swept};
use crate::probe::Subscription;
use kilter_kernel::{FileError, Realtime};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// How long events are handled in one go under real-time scheduling; what is left then is handled
/// as an ordinary thread.
const AT_ONCE: Duration = Duration::from_millis(50);

/// Time from the first event of a burst to the sweep that looks for orphans of double forks.
const FOLLOW_UP: Duration = Duration::from_secs(1);

/// Follow-up sweeps take at most this part of the time.
const SWEEP_PART: u32 = 100;

/// The daemon, subscribed.
#[derive(Debug)]
pub struct Daemon {
    connector: Connector,
    groups: Groups,
    realtime: Option<Realtime>,
    next_sweep: Instant,
    sweep_took: Duration,
    told: usize,
}

/// Why the daemon cannot go on. Its groups are to be taken back.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The hierarchy cannot be used any more.
    #[error("the groups cannot be kept up: {0}")]
    Hierarchy(#[from] FileError),
    /// Events cannot be had any more.
    #[error("the kernel's process events cannot be had any more: {0}")]
    Events(#[from] std::io::Error),
}

/// What the daemon did until it was told to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Events about a changed uid.
    pub events: u64,
    /// Processes that were moved because of one.
    pub placed: u64,
    /// Processes that sweeps moved.
    pub swept: u64,
    /// Times that events were lost.
    pub lost: u64,
}

/// What became of the queue of events.
enum Queue {
    Empty,
    More,
    Lost,
}

impl Daemon {
    /// Ready to run. `realtime` asks to be woken before others; where the kernel refuses, the
    /// daemon does without, and the reason is returned.
    pub fn new(
        subscription: Subscription,
        groups: Groups,
        realtime: bool,
    ) -> (Self, Option<std::io::Error>) {
        let (realtime, refused) = match realtime.then(Realtime::begin) {
            Some(Ok(realtime)) => (Some(realtime), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        let daemon = Daemon {
            connector: subscription.connector,
            groups,
            realtime,
            next_sweep: Instant::now(),
            sweep_took: Duration::ZERO,
            told: 0,
        };
        (daemon, refused)
    }

    /// Puts everybody into groups, calls `ready`, and keeps it so until `stop` can be read.
    /// `warn` gets troubles, each once.
    ///
    /// # Errors
    /// The hierarchy or the events cannot be used any more.
    pub fn run(
        &mut self,
        stop: BorrowedFd<'_>,
        ready: impl FnOnce(Swept, usize),
        warn: &mut dyn FnMut(&str),
    ) -> Result<Ended, DaemonError> {
        let mut ended = Ended::default();
        let first = self.sweep()?;
        ready(first, self.groups.count());
        loop {
            self.tell(warn);
            let timeout = self.next_sweep.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: timeout.as_secs() as i64,
                tv_nsec: timeout.subsec_nanos().into(),
            };
            let mut ready = [
                PollFd::new(&self.connector, PollFlags::IN),
                PollFd::from_borrowed_fd(stop, PollFlags::IN),
            ];
            match poll(&mut ready, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(DaemonError::Events(error.into())),
            }
            if !ready[1].revents().is_empty() {
                return Ok(ended);
            }
            if !ready[0].revents().is_empty() {
                self.follow(&mut ended)?;
            }
            if Instant::now() >= self.next_sweep {
                ended.swept += self.sweep()?.moved as u64;
            }
        }
    }

    /// Handles what is in the queue.
    fn follow(&mut self, ended: &mut Ended) -> Result<(), DaemonError> {
        let queue = match self.drain(ended, AT_ONCE)? {
            // A burst, or a storm: nobody else must suffer for it.
            Queue::More => {
                let realtime = self.realtime.take();
                let queue = match &realtime {
                    Some(realtime) => realtime.rest(|| self.drain(ended, 4 * AT_ONCE)),
                    None => self.drain(ended, 4 * AT_ONCE),
                };
                self.realtime = realtime;
                self.sleep_once();
                queue?
            }
            queue => queue,
        };
        if let Queue::Lost = queue {
            ended.lost += 1;
            self.next_sweep = Instant::now();
        }
        Ok(())
    }

    fn drain(&mut self, ended: &mut Ended, at_most: Duration) -> Result<Queue, DaemonError> {
        let end = Instant::now() + at_most;
        let mut lost = false;
        for turn in 1_u32.. {
            match self.connector.receive()? {
                // Threads of a process change one by one, and the leader's counts.
                Received::Uid(event) if event.tid == event.pid => {
                    ended.events += 1;
                    if self.groups.place(event.pid, event.real_uid)? == Fate::Moved {
                        ended.placed += 1;
                        let pause = FOLLOW_UP.max(self.sweep_took * SWEEP_PART);
                        self.next_sweep = self.next_sweep.min(Instant::now() + pause);
                    }
                }
                Received::Uid(_) | Received::Other => {}
                Received::Lost => lost = true,
                Received::Nothing => break,
            }
            if turn % 16 == 0 && Instant::now() > end {
                return Ok(if lost { Queue::Lost } else { Queue::More });
            }
        }
        Ok(if lost { Queue::Lost } else { Queue::Empty })
    }

    fn sweep(&mut self) -> Result<Swept, DaemonError> {
        let begin = Instant::now();
        let realtime = self.realtime.take();
        let swept = match &realtime {
            Some(realtime) => realtime.rest(|| self.groups.sweep()),
            None => self.groups.sweep(),
        };
        self.realtime = realtime;
        self.sleep_once();
        self.sweep_took = begin.elapsed();
        let period = self.groups.policy().config.sweep_s;
        self.next_sweep = Instant::now() + Duration::from_secs(period.into());
        Ok(swept?)
    }

    /// The kernel counts real-time without sleep (`RLIMIT_RTTIME`); a wake-up begins a new count.
    fn sleep_once(&self) {
        if self.realtime.is_some() {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn tell(&mut self, warn: &mut dyn FnMut(&str)) {
        for trouble in &self.groups.troubles[self.told..] {
            warn(trouble);
        }
        self.told = self.groups.troubles.len();
    }
}
