//! How the scheduler is started: the policy and its departures from the seed.

use crate::layout;
use crate::params;
use kilter_kernel::Parameters;

/// How two response ratios are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Quotients, then remainders, as the seed does: now and then in the wrong order.
    Seed,
    /// Without rounding.
    Exact,
}

/// What a scheduler does wrong on purpose. The numbers are those of `shared.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It picks nothing.
    Stall = 1,
    /// It puts a task into a queue that does not exist.
    Queue = 2,
}

/// Everything that is fixed while the scheduler runs, and the first parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How response ratios are compared.
    pub compare: Compare,
    /// Reset waiting tasks too, and not only running ones at the tick.
    pub reset_at_pick: bool,
    /// SCHED_BATCH never preempts by waking, SCHED_IDLE yields to everybody.
    pub classes: bool,
    /// Woken kernel threads come first.
    pub kthreads: bool,
    /// A new task goes to the shortest queue instead of its parent's CPU.
    pub spread: bool,
    /// Response ratio between users first, then between one user's tasks.
    pub per_uid: bool,
    /// A runnable task that waits longer than this makes the kernel end the scheduler; 1 to 30,000.
    pub timeout_ms: u32,
    /// For tests: what it does wrong, so that the kernel ends it.
    pub fault: Option<Fault>,
    /// The first values of the parameters.
    pub params: Parameters,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            compare: Compare::Seed,
            reset_at_pick: true,
            classes: true,
            kthreads: true,
            spread: true,
            per_uid: false,
            timeout_ms: 10_000,
            fault: None,
            params: params::defaults(),
        }
    }
}

impl Options {
    /// The seed's policy, without a departure.
    pub fn seed() -> Self {
        Options {
            reset_at_pick: false,
            classes: false,
            kthreads: false,
            spread: false,
            params: params::seed(),
            ..Options::default()
        }
    }

    /// As the scheduler takes them.
    #[cfg_attr(not(scheduler), allow(dead_code))]
    pub(crate) fn layout(&self, cpus: usize) -> layout::Config {
        layout::Config {
            cpus: cpus as u64,
            exact: (self.compare == Compare::Exact).into(),
            reset_at_pick: self.reset_at_pick.into(),
            classes: self.classes.into(),
            kthreads: self.kthreads.into(),
            spread: self.spread.into(),
            per_uid: self.per_uid.into(),
            fault: self.fault.map_or(0, |fault| fault as u64),
        }
    }
}
