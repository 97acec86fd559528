//! One run, from the first reading of the machine to the last.

use crate::counters::Counters;
use crate::group::Group;
use crate::job::{Job, Stdin};
use crate::machine::MachineState;
use crate::measured::{Measured, Usage};
use crate::signals::Signals;
use crate::spawn::{Prepared, SpawnError};
use crate::terminal::{JobControl, Terminal};
use crate::warning::{Stream, Warning};
use crate::watch::{Ended, Ending, Watch};
use kilter_api::{MachineDelta, Outcome};
use std::time::Duration;

/// Share of the machine's CPU time from which stolen time is worth a warning, and the least amount
/// of it, in seconds: the kernel counts it in ticks of usually 10 ms.
const STOLEN: (f64, f64) = (0.02, 0.05);

/// What kilter's own memory may do to a command's `max_rss` without a warning, in KiB. A command
/// that is smaller than this is small.
const UNTOLD_FLOOR_KIB: u64 = 8 << 10;

/// How far above the child's memory before its exec a `max_rss` may lie and yet tell nothing, as
/// KiB and as a part of it: the kernel's counters are per CPU and summed up roughly.
const ROUGHLY: (u64, u64) = (512, 16);

/// Runs one job and measures it.
///
/// The command is executed as the leader of a new process group, and killed if the calling thread
/// dies. `on_start` gets the group's id right after the spawn, while the command already runs. A
/// timeout or a signal from `signals` sends `SIGTERM` to the whole group, and `SIGKILL` to what is
/// left of it after the grace time; a second signal does so at once. Processes that have left the
/// group are not followed. A command that fails is a result, not an error.
///
/// `signals` may hold a signal that arrived earlier: then the command is started and ended at once.
/// Ask [`Signals::next`] before.
///
/// # Errors
/// The command could not be started; or, hardly to be expected, not be waited for, and was killed.
pub fn run(
    job: &Job,
    signals: &Signals,
    on_start: impl FnOnce(i32),
) -> Result<Measured, SpawnError> {
    let terminal = (job.stdin == Stdin::Inherit)
        .then(Terminal::on_stdin)
        .flatten();
    let control = JobControl::take().map_err(SpawnError::system("watch for stopped processes"))?;
    let prepared = Prepared::new(job, terminal.as_ref())?;
    let counters = if job.counters {
        Counters::open()
    } else {
        Counters::default()
    };
    let (started, started_boottime) = (jiff::Timestamp::now(), boottime());
    let before = MachineState::read(&job.root);

    let child = prepared.spawn()?;
    on_start(child.group.0);
    let watch = Watch::new(job, signals, &control, terminal.as_ref(), child);
    let ended = watch
        .until_end()
        .map_err(SpawnError::system("watch the command"))?;

    let machine = before.until(&MachineState::read(&job.root));
    let counters = counters.finish();
    let usage = Usage::from_rusage(&ended.usage);
    let (outcome, signal) = outcome(&ended, terminal.is_some());
    Ok(Measured {
        command: job.command.clone(),
        started,
        started_boottime,
        outcome,
        signal,
        wall: ended.wall,
        usage,
        warnings: doubts(&ended, &usage, &machine),
        machine,
        counters,
        stdout: ended.stdout,
        stderr: ended.stderr,
    })
}

/// How it ended, and the signal if the user ended it. With the terminal in its hands the command
/// gets Ctrl-C itself, and kilter learns of it by its death alone.
fn outcome(ended: &Ended, has_terminal: bool) -> (Outcome, Option<i32>) {
    let status = ended.status;
    let by = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
    match (ended.ending, by) {
        (Some(Ending::TimedOut), _) => (Outcome::TimedOut, None),
        (Some(Ending::Signal(signal)), _) => (Outcome::Interrupted, Some(signal)),
        (None, Some(signal @ (libc::SIGINT | libc::SIGQUIT))) if has_terminal => {
            (Outcome::Interrupted, Some(signal))
        }
        (None, Some(signal)) => (Outcome::Signalled { signal }, None),
        (None, None) => (
            Outcome::Exited {
                code: libc::WEXITSTATUS(status),
            },
            None,
        ),
    }
}

fn doubts(ended: &Ended, usage: &Usage, machine: &MachineDelta) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for (stream, captured) in [
        (Stream::Stdout, &ended.stdout),
        (Stream::Stderr, &ended.stderr),
    ] {
        if captured.is_cut() {
            warnings.push(Warning::OutputCut {
                stream,
                total: captured.total(),
            });
        }
    }
    if !ended.suspended.is_zero() {
        warnings.push(Warning::Suspended {
            seconds: ended.suspended.as_secs_f64(),
        });
    }
    let share = machine.steal_s / (ended.wall.as_secs_f64() * cpus_online());
    let (least_share, least_s) = STOLEN;
    if machine.steal_s >= least_s && share >= least_share {
        warnings.push(Warning::Stolen {
            steal_s: machine.steal_s,
            percent: share * 100.0,
        });
    }
    if let Some(Group(pgid)) = ended.left_behind {
        warnings.push(Warning::LeftBehind { pgid });
    }
    let (floor_kib, (more, part)) = (ended.floor_kib, ROUGHLY);
    let is_floor = usage.max_rss_kib <= floor_kib + more + floor_kib / part;
    if is_floor && floor_kib > UNTOLD_FLOOR_KIB {
        warnings.push(Warning::RssFloor { floor_kib });
    }
    warnings
}

fn cpus_online() -> f64 {
    // SAFETY: asks for a number.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as f64
}

fn boottime() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
