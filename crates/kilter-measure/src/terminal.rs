//! The terminal: handing it to the command, taking it back, and Ctrl-Z.
//!
//! The command is a process group of its own. Where kilter is in the foreground of its terminal,
//! the command has to become the foreground, or it would be stopped at its first read; Ctrl-C and
//! Ctrl-Z then reach it and not kilter. As a shell's child kilter must stop when the command is
//! stopped, or the shell would wait for ever, and continue it when it is continued itself.

use crate::group::Group;
use crate::signals::{SignalMask, SignalQueue, is_ignored};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::process::{WaitId, WaitIdOptions};
use std::io;

const STDIN: i32 = libc::STDIN_FILENO;

/// kilter's controlling terminal, as standard input.
pub(crate) struct Terminal {
    modes: Option<libc::termios>,
}

impl Terminal {
    /// The terminal on standard input, if it is the controlling one.
    pub(crate) fn on_stdin() -> Option<Self> {
        // SAFETY: only reads an id; fails where standard input is something else.
        let holder = unsafe { libc::tcgetpgrp(STDIN) };
        (holder >= 0).then(|| Self { modes: modes() })
    }

    /// Whether kilter's process group is the one that the terminal's keys reach.
    pub(crate) fn is_ours(&self) -> bool {
        // SAFETY: both only read ids.
        unsafe { libc::tcgetpgrp(STDIN) == libc::getpgrp() }
    }

    /// Gives the terminal to `group`, if it is ours to give.
    pub(crate) fn hand_to(&self, group: Group) {
        if self.is_ours() {
            set_foreground(group.0);
        }
    }

    /// Takes the terminal back from `group`, or from a group of its making that is gone; never
    /// from a shell that has put kilter in the background meanwhile.
    pub(crate) fn take_back_from(&self, group: Group) {
        // SAFETY: both only read ids.
        let (holder, own) = unsafe { (libc::tcgetpgrp(STDIN), libc::getpgrp()) };
        if holder == group.0 || (holder > 1 && holder != own && !Group(holder).is_alive()) {
            set_foreground(own);
        }
    }

    /// Puts the terminal's modes back as they were, after a command that could not do so itself.
    pub(crate) fn reset(&self) {
        let Some(modes) = self.modes.filter(|_| self.is_ours()) else {
            return;
        };
        // SAFETY: the modes were read from this terminal.
        unsafe { libc::tcsetattr(STDIN, libc::TCSADRAIN, &raw const modes) };
    }
}

/// Makes the calling process's group the foreground. Only async-signal-safe calls: it runs between
/// fork and exec, with every signal blocked (an unblocked `SIGTTOU` would stop the caller).
pub(crate) fn become_foreground() {
    // SAFETY: changes the terminal's group; touches no memory.
    unsafe { libc::tcsetpgrp(STDIN, libc::getpid()) };
}

fn set_foreground(group: i32) {
    // A background group that sets the foreground is sent SIGTTOU, unless it blocks the signal.
    let former = SignalMask::of([libc::SIGTTOU]).block();
    // SAFETY: changes the terminal's group; touches no memory.
    unsafe { libc::tcsetpgrp(STDIN, group) };
    former.restore();
}

fn modes() -> Option<libc::termios> {
    // SAFETY: termios is plain data that the call fills when it succeeds.
    unsafe {
        let mut modes = std::mem::zeroed();
        (libc::tcgetattr(STDIN, &mut modes) == 0).then_some(modes)
    }
}

/// Stops and continuations, of the command and of kilter, for the time of one run.
pub(crate) struct JobControl {
    queue: SignalQueue,
}

/// What the command or the user asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The run is to be suspended: Ctrl-Z, to kilter or to the command.
    Suspend,
    /// The command was stopped because it used the terminal from the background.
    WantsTerminal,
    /// kilter was continued, perhaps in the foreground now.
    Continued,
}

impl JobControl {
    /// Blocks `SIGCHLD`, `SIGCONT` and, unless ignored, `SIGTSTP`.
    pub(crate) fn take() -> io::Result<Self> {
        if is_ignored(libc::SIGCHLD) {
            // With SIGCHLD ignored the kernel would reap the command, and its usage would be lost.
            crate::signals::set_default(libc::SIGCHLD);
        }
        let stop = (!is_ignored(libc::SIGTSTP)).then_some(libc::SIGTSTP);
        let queue = SignalQueue::block([libc::SIGCHLD, libc::SIGCONT].into_iter().chain(stop))?;
        Ok(Self { queue })
    }

    /// What has been asked for since the last call.
    pub(crate) fn requests(&self, child: BorrowedFd) -> io::Result<Vec<Request>> {
        let mut requests = Vec::new();
        while let Some(signal) = self.queue.next()? {
            match signal {
                libc::SIGTSTP => requests.push(Request::Suspend),
                libc::SIGCONT => requests.push(Request::Continued),
                _ => requests.extend(stop_of(child)),
            }
        }
        requests.dedup();
        Ok(requests)
    }

    /// Stops kilter as Ctrl-Z would, and returns when it is continued. False when it was not
    /// stopped: nobody is there to continue it (no shell with job control), or it ignores the
    /// signal.
    pub(crate) fn stop_kilter(&self) -> io::Result<bool> {
        while self.queue.next()?.is_some() {}
        let stop = SignalMask::of([libc::SIGTSTP]);
        // SAFETY: a signal to the calling thread.
        unsafe { libc::raise(libc::SIGTSTP) };
        // Where the signal is blocked it takes effect only now; the kernel drops it when kilter's
        // process group is orphaned.
        stop.unblock().restore();
        let mut continued = false;
        while let Some(signal) = self.queue.next()? {
            continued |= signal == libc::SIGCONT;
        }
        Ok(continued)
    }
}

impl AsFd for JobControl {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// Why the command is stopped, if it is. A `SIGSTOP` is somebody's own business.
fn stop_of(child: BorrowedFd) -> Option<Request> {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    let status = rustix::process::waitid(WaitId::PidFd(child), options).ok()??;
    match status.stopping_signal()? {
        libc::SIGTSTP => Some(Request::Suspend),
        libc::SIGTTIN | libc::SIGTTOU => Some(Request::WantsTerminal),
        _ => None,
    }
}
