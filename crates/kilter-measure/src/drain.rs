//! Empties one of the command's streams, and passes it on when asked to.

use crate::capture::Captured;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// The most that is read after the command's end: the largest pipe that a user may make
/// (`fs.pipe-max-size`). What a process left behind goes on writing is not waited for.
const AFTER_END: usize = 1 << 20;

/// Bytes passed on at once; a pipe that is ready takes `PIPE_BUF` (4096) without blocking.
const PASSED_ON: usize = 4096;

/// The reading end of a stream, and what came out of it.
#[derive(Default)]
pub(crate) struct Drain {
    pipe: Option<OwnedFd>,
    captured: Captured,
    tee: Option<Tee>,
}

struct Tee {
    to: BorrowedFd<'static>,
    pending: Vec<u8>,
}

impl Drain {
    /// Reads from `pipe`; passes what it reads on to `tee`.
    pub(crate) fn new(pipe: Option<OwnedFd>, tee: Option<BorrowedFd<'static>>) -> Self {
        let tee = tee.map(|to| Tee {
            to,
            pending: Vec::new(),
        });
        Self {
            pipe,
            captured: Captured::default(),
            tee,
        }
    }

    /// What to wait for: more output, or room to pass the last output on.
    pub(crate) fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match &self.tee {
            Some(tee) if !tee.pending.is_empty() => Some((tee.to, PollFlags::OUT)),
            _ => Some((self.pipe.as_ref()?.as_fd(), PollFlags::IN)),
        }
    }

    /// Does what it waited for, once.
    pub(crate) fn advance(&mut self, buffer: &mut [u8]) {
        if !self.pass_on() {
            self.read(buffer);
        }
    }

    /// Reads what the command has left in the pipe, without waiting.
    pub(crate) fn finish(&mut self, buffer: &mut [u8]) {
        let mut left = AFTER_END;
        while self.pass_on() {}
        while let Some(read) = self.read(buffer).filter(|_| left > 0) {
            left = left.saturating_sub(read);
            while self.pass_on() {}
        }
        self.pipe = None;
    }

    /// What was captured.
    pub(crate) fn into_captured(self) -> Captured {
        self.captured
    }

    /// Reads once; nothing when the pipe is empty for now or for ever.
    fn read(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let pipe = self.pipe.as_ref()?;
        let room = if self.tee.is_some() {
            PASSED_ON
        } else {
            buffer.len()
        };
        let buffer = &mut buffer[..room];
        match rustix::io::read(pipe, &mut *buffer) {
            Err(Errno::AGAIN | Errno::INTR) => None,
            Ok(0) | Err(_) => {
                self.pipe = None;
                None
            }
            Ok(read) => {
                self.captured.push(&buffer[..read]);
                if let Some(tee) = &mut self.tee {
                    tee.pending.extend_from_slice(&buffer[..read]);
                }
                Some(read)
            }
        }
    }

    /// Passes pending output on; false when there was none. A reader that went away ends the
    /// passing on, not the run.
    fn pass_on(&mut self) -> bool {
        let Some(tee) = self.tee.as_mut().filter(|tee| !tee.pending.is_empty()) else {
            return false;
        };
        match rustix::io::write(tee.to, &tee.pending) {
            Ok(written) => {
                tee.pending.drain(..written);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.tee = None,
        }
        true
    }
}
