//! Termination signals as something a poll loop can wait for.

use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use std::io;

/// What ends a run: the user's Ctrl-C and Ctrl-\, a plain `kill`, and a terminal that went away.
const TERMINATION: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// `SIGINT`, `SIGTERM`, `SIGHUP` and `SIGQUIT`, blocked and read through a descriptor.
///
/// Signals that the process was started with as ignored (`nohup`, a shell's `&`) stay ignored.
/// Dropping it gives the calling thread its former mask back.
#[derive(Debug)]
pub struct Signals {
    queue: SignalQueue,
}

impl Signals {
    /// Blocks the signals for the calling thread. Call it early, before any other thread exists,
    /// since a thread that does not block them would still be ended by them.
    ///
    /// # Errors
    /// What `signalfd(2)` says, in practice only that there are no descriptors left.
    pub fn take() -> io::Result<Self> {
        let wanted = TERMINATION
            .into_iter()
            .filter(|&signal| !is_ignored(signal));
        Ok(Self {
            queue: SignalQueue::block(wanted)?,
        })
    }

    /// The next signal that has arrived, if any; never waits.
    ///
    /// # Errors
    /// What `read(2)` says; not to be expected.
    pub fn next(&self) -> io::Result<Option<i32>> {
        self.queue.next()
    }
}

impl AsFd for Signals {
    /// Readable when [`Signals::next`] has something to tell.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// A set of blocked signals and the descriptor that yields them.
#[derive(Debug)]
pub(crate) struct SignalQueue {
    fd: OwnedFd,
    former: SignalMask,
}

impl SignalQueue {
    /// Blocks `signals` for the calling thread until the queue is dropped.
    pub(crate) fn block(signals: impl IntoIterator<Item = i32>) -> io::Result<Self> {
        let set = SignalMask::of(signals);
        // SAFETY: `set` is an initialised signal set, and -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &set.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor, and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self {
            fd,
            former: set.block(),
        })
    }

    /// The next signal that has arrived, if any.
    pub(crate) fn next(&self) -> io::Result<Option<i32>> {
        let mut event = [0_u8; size_of::<libc::signalfd_siginfo>()];
        loop {
            return match rustix::io::read(&self.fd, &mut event) {
                Ok(read) if read == event.len() => {
                    // `ssi_signo` is the first field.
                    let [a, b, c, d, ..] = event;
                    Ok(i32::try_from(u32::from_ne_bytes([a, b, c, d])).ok())
                }
                Ok(_) | Err(Errno::AGAIN) => Ok(None),
                Err(Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }
}

impl AsFd for SignalQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for SignalQueue {
    fn drop(&mut self) {
        self.former.restore();
    }
}

/// A set of signals, as a thread's mask.
#[derive(Clone, Copy)]
pub(crate) struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// These signals.
    pub(crate) fn of(signals: impl IntoIterator<Item = i32>) -> Self {
        let mut mask = Self::empty();
        for signal in signals {
            // SAFETY: the set is initialised; a wrong number is refused and changes nothing.
            unsafe { libc::sigaddset(&mut mask.0, signal) };
        }
        mask
    }

    /// Every signal.
    pub(crate) fn all() -> Self {
        let mut mask = Self::empty();
        // SAFETY: the set is initialised.
        unsafe { libc::sigfillset(&mut mask.0) };
        mask
    }

    /// No signal.
    pub(crate) fn empty() -> Self {
        // SAFETY: a signal set is plain data for which all zeroes is valid; sigemptyset then makes
        // it properly empty whatever the representation.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            Self(set)
        }
    }

    /// Blocks these signals too; returns the former mask.
    pub(crate) fn block(&self) -> Self {
        self.change(libc::SIG_BLOCK)
    }

    /// Lets these signals through; returns the former mask.
    pub(crate) fn unblock(&self) -> Self {
        self.change(libc::SIG_UNBLOCK)
    }

    /// Makes this the calling thread's mask.
    pub(crate) fn restore(&self) {
        self.change(libc::SIG_SETMASK);
    }

    fn change(&self, how: i32) -> Self {
        let mut former = Self::empty();
        // SAFETY: both sets are initialised; pthread_sigmask has no other way to fail than a wrong
        // `how`, which the three callers above do not pass.
        unsafe { libc::pthread_sigmask(how, &self.0, &mut former.0) };
        former
    }
}

impl std::fmt::Debug for SignalMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SAFETY: the set is initialised.
        let blocked = (1..=64).filter(|&signal| unsafe { libc::sigismember(&self.0, signal) } == 1);
        f.debug_set().entries(blocked).finish()
    }
}

/// Whether the process ignores `signal`.
pub(crate) fn is_ignored(signal: i32) -> bool {
    disposition(signal) == Some(libc::SIG_IGN)
}

/// Gives `signal` its default action. Safe between fork and exec.
pub(crate) fn set_default(signal: i32) {
    // SAFETY: a zeroed sigaction with SIG_DFL is a valid, complete action.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

/// Signals whose action a child must not inherit: those with a handler, which would run in the
/// child until its exec, and `SIGPIPE`, which Rust ignores. What the caller of kilter ignores
/// (`nohup`) stays ignored.
pub(crate) fn not_inherited() -> Vec<i32> {
    let kept = [Some(libc::SIG_DFL), Some(libc::SIG_IGN), None];
    let signals = 1..=libc::SIGRTMAX();
    signals
        .filter(|&signal| signal == libc::SIGPIPE || !kept.contains(&disposition(signal)))
        .collect()
}

/// The action for `signal`: `SIG_DFL`, `SIG_IGN` or a handler; nothing for signals that the C
/// library keeps for itself.
fn disposition(signal: i32) -> Option<libc::sighandler_t> {
    // SAFETY: reads the action into a zeroed struct of the right type, and sets none.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &mut action) == 0).then_some(action.sa_sigaction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raise(signal: i32) {
        // SAFETY: a signal to the calling thread, which blocks it.
        unsafe { libc::raise(signal) };
    }

    #[test]
    fn a_taken_signal_is_read_and_does_not_kill() {
        let signals = Signals::take().unwrap();
        assert_eq!(signals.next().unwrap(), None);
        raise(libc::SIGTERM);
        raise(libc::SIGINT);
        let mut seen = [signals.next().unwrap(), signals.next().unwrap()];
        seen.sort_unstable();
        assert_eq!(seen, [Some(libc::SIGINT), Some(libc::SIGTERM)]);
        assert_eq!(signals.next().unwrap(), None);
    }

    #[test]
    fn dropping_restores_the_mask() {
        let before = format!("{:?}", SignalMask::empty().block());
        let signals = Signals::take().unwrap();
        let during = format!("{:?}", SignalMask::empty().block());
        drop(signals);
        assert_eq!(format!("{:?}", SignalMask::empty().block()), before);
        assert!(during.contains("15"), "{during}");
    }
}
