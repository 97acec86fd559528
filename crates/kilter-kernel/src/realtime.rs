//! A thread that must be woken before others, on a leash.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// How long the thread may run in one go under SCHED_FIFO before the kernel kills the process.
const LEASH_US: u64 = 500_000;

/// SCHED_FIFO at the lowest priority for the calling thread: it runs as soon as it is woken, and
/// gives way to every other real-time task. Children do not inherit it. The kernel kills a process
/// that runs half a second without sleeping (`RLIMIT_RTTIME`, getrlimit(2)), so long work belongs
/// into [`Realtime::rest`].
#[derive(Debug)]
pub struct Realtime(());

impl Realtime {
    /// Raises the calling thread.
    ///
    /// # Errors
    /// The right is missing, or the thread's cgroup has no real-time budget.
    pub fn begin() -> io::Result<Self> {
        let maximum = getrlimit(Resource::Rttime).maximum;
        let leash = Rlimit {
            current: Some(LEASH_US),
            maximum: maximum.map_or(Some(LEASH_US), |maximum| Some(maximum.min(LEASH_US))),
        };
        setrlimit(Resource::Rttime, leash)?;
        policy(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1)?;
        Ok(Realtime(()))
    }

    /// Does long work as an ordinary thread.
    pub fn rest<T>(&self, work: impl FnOnce() -> T) -> T {
        let lowered = policy(libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, 0).is_ok();
        let done = work();
        if lowered {
            let _ = policy(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
        }
        done
    }
}

impl Drop for Realtime {
    fn drop(&mut self) {
        let _ = policy(libc::SCHED_OTHER, 0);
    }
}

fn policy(policy: i32, priority: i32) -> io::Result<()> {
    let parameter = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: 0 is the calling thread, and the parameter is a local that outlives the call.
    match unsafe { libc::sched_setscheduler(0, policy, &parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
