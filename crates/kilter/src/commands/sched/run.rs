//! `kilter sched run hrrn`: from loading to giving the machine back.

use super::report;
use super::{DIR, SOCKET};
use crate::cli::{Hrrn, Policy};
use crate::commands::socket;
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use crate::say;
use kilter_api::SchedRun;
use kilter_kernel::Control;
use kilter_measure::Signals;
use kilter_sched::{Ended, How, Options, Refusal, Scheduler, StartError, Stats};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::io;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

/// How soon an ejection is noticed.
const LOOK: Duration = Duration::from_millis(100);
/// Waits before the next start after an ejection; after the last the machine keeps its own.
const BACK_OFF: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];
/// A scheduler that has run for so long is not held to have failed at once.
const PROVEN: Duration = Duration::from_secs(600);

/// Why a scheduler no longer runs.
enum End {
    Signal,
    Kernel(Box<Ended>),
}

/// Runs the scheduler until a signal ends it, or the kernel for good.
pub fn run(machine: &Machine, hrrn: &Hrrn) -> Outcome {
    if !machine.is_real() {
        return Err(Failure::new(
            "a scheduler runs on this machine only, not under --root",
        ));
    }
    let options = report::options(hrrn)
        .map_err(|error| Failure::new(format!("--{}", error.to_string().replace('_', "-"))))?;
    let signals = Signals::take()?;
    let mut failures = 0;
    loop {
        let begun = Instant::now();
        let mut running = Running::start(machine, &options, hrrn)?;
        running.tell(hrrn);
        let end = running.serve(&signals, hrrn)?;
        let lived = begun.elapsed();
        let ended = running.stop();
        match end {
            End::Signal => {
                if let Some(ended) = ended.filter(|ended| ended.how == How::Ejected) {
                    tell(&ended, hrrn.verbose);
                    return Ok(1);
                }
                say::note("hrrn has ended: the kernel's own scheduler is back");
                return Ok(0);
            }
            End::Kernel(ended) if ended.restart => {
                say::note("a CPU came or went: hrrn starts anew");
            }
            End::Kernel(ended) => {
                tell(&ended, hrrn.verbose);
                if ended.how != How::Ejected {
                    return Ok(1);
                }
                if lived >= PROVEN {
                    failures = 0;
                }
                let Some(&wait) = BACK_OFF.get(failures) else {
                    say::error("hrrn was ejected again and stays off");
                    return Ok(1);
                };
                failures += 1;
                say::note(format!("hrrn starts again in {} s", wait.as_secs()));
                if waits_for_signal(&signals, wait)? {
                    return Ok(1);
                }
            }
        }
    }
}

/// The scheduler as the process behind the knob `sched`. An ejection ends it: whoever measures under
/// it must not measure the kernel's own scheduler for a while.
pub fn hold(machine: &Machine, hrrn: &Hrrn) -> Outcome {
    let options = report::options(hrrn).map_err(Failure::new)?;
    let signals = Signals::take()?;
    let mut running = Running::start(machine, &options, hrrn)?;
    kilter_kernel::say_ready()?;
    let end = running.serve(&signals, hrrn)?;
    running.stop();
    Ok(u8::from(matches!(end, End::Kernel(_))))
}

/// Tells why the kernel ended the scheduler.
fn tell(ended: &Ended, verbose: bool) {
    say::error(format!("the kernel ended hrrn: {}", ended.line()));
    say::note("the kernel's own scheduler is back");
    if ended.dump.is_empty() {
        return;
    }
    if verbose {
        say::note(&ended.dump);
    } else {
        let lines = ended.dump.lines().count();
        say::hint(format!(
            "--verbose prints the kernel's dump ({lines} lines)"
        ));
    }
}

fn waits_for_signal(signals: &Signals, wait: Duration) -> io::Result<bool> {
    let until = Instant::now() + wait;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        let mut fds = [PollFd::new(signals, PollFlags::IN)];
        poll_for(&mut fds, left)?;
        if signals.next()?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn poll_for(fds: &mut [PollFd<'_>], time: Duration) -> io::Result<()> {
    let time = Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    };
    match poll(fds, Some(&time)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// A scheduler in force with its directory.
struct Running {
    scheduler: Scheduler,
    control: Control,
    listener: UnixListener,
    socket: std::path::PathBuf,
    state: SchedRun,
    /// When the parameters were last changed (CLOCK_MONOTONIC, ns), and the number of that change.
    changed: Option<(u64, u64)>,
}

impl Running {
    fn start(machine: &Machine, options: &Options, hrrn: &Hrrn) -> Result<Self, Failure> {
        let begun = Instant::now();
        let scheduler = Scheduler::start(options).map_err(failure)?;
        let start_s = begun.elapsed().as_secs_f64();
        let dir = machine.kernel.below(DIR);
        let control = Control::create(&dir, &options.params)
            .map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
        let path = dir.join(SOCKET);
        let listener = socket::listen(&path)?;
        let mut named = report::named(options);
        let policy = match hrrn.policy {
            Policy::Seed => "seed",
            Policy::Kilter => "kilter",
        };
        named.insert("policy".to_owned(), policy.to_owned());
        let state = SchedRun {
            pid: std::process::id(),
            since: jiff::Timestamp::now()
                .round(jiff::Unit::Second)
                .map_or_else(|_| String::new(), |now| now.to_string()),
            start_s,
            options: named,
            ..SchedRun::default()
        };
        Ok(Running {
            scheduler,
            control,
            listener,
            socket: path,
            state,
            changed: None,
        })
    }

    fn tell(&self, hrrn: &Hrrn) {
        say::note(format!(
            "hrrn is in force (started in {:.2} s); Ctrl-C ends it",
            self.state.start_s
        ));
        if hrrn.verbose {
            let kick = match self.scheduler.can_kick() {
                true => "woken tasks preempt by scx_bpf_kick_cpu",
                false => {
                    "scx_bpf_kick_cpu cannot be called in this kernel: woken tasks preempt by being put first"
                }
            };
            say::note(kick);
            for (name, value) in &self.state.options {
                say::note(format!("{name}: {value}"));
            }
        }
    }

    /// Answers, obeys and watches until something ends it.
    fn serve(&mut self, signals: &Signals, hrrn: &Hrrn) -> Result<End, Failure> {
        let mut told = (Instant::now(), self.now());
        loop {
            let mut fds = [
                PollFd::new(signals, PollFlags::IN),
                PollFd::new(&self.control, PollFlags::IN),
                PollFd::new(&self.listener, PollFlags::IN),
            ];
            poll_for(&mut fds, LOOK)?;
            let [_, control, listener] = fds.map(|fd| !fd.revents().is_empty());
            if signals.next()?.is_some() {
                return Ok(End::Signal);
            }
            if let Some(ended) = self.scheduler.ended() {
                return Ok(End::Kernel(Box::new(ended)));
            }
            if control {
                self.take_up();
            }
            if listener {
                self.answer();
            }
            if let Some(interval) = hrrn.stats
                && told.0.elapsed().as_secs_f64() >= interval
            {
                let now = self.now();
                say::line(report::line(&now, &told.1, told.0.elapsed().as_secs_f64()));
                told = (Instant::now(), now);
            }
        }
    }

    /// Puts changed parameters in force.
    fn take_up(&mut self) {
        let changes = self.control.changes();
        for refused in &changes.refused {
            say::warning(format!("{refused}; left as it was"));
        }
        if let Some(params) = changes.params {
            let now = monotonic_ns();
            let generation = self.scheduler.set_params(&params);
            self.changed = Some((now, generation));
        }
    }

    /// The state as it is now.
    fn now(&self) -> SchedRun {
        let cpus = self.scheduler.stats();
        let total = Stats::total(&cpus);
        let seen = self
            .changed
            .filter(|&(_, change)| total.generation == change);
        SchedRun {
            params: report::params(self.control.params()),
            change_seen_ms: seen.map(|(at, _)| total.generation_ns.saturating_sub(at) as f64 / 1e6),
            total: report::counters(&total),
            cpus: cpus.iter().map(report::counters).collect(),
            ..self.state.clone()
        }
    }

    fn answer(&self) {
        socket::answer(&self.listener, || self.now());
    }

    /// Gives the machine back.
    fn stop(self) -> Option<Ended> {
        let ended = self.scheduler.stop();
        let _ = std::fs::remove_file(&self.socket);
        ended
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Why it could not start, with what to do.
fn failure(error: StartError) -> Failure {
    let hint = match &error {
        StartError::Refused(Refusal::NotRoot) => {
            Some(format!("sudo {}", crate::machine::command_line()))
        }
        StartError::Refused(Refusal::OtherScheduler { .. }) => {
            Some("end it first; `kilter sched status` shows it".to_owned())
        }
        StartError::Refused(Refusal::NoSchedExt { .. }) => Some("kilter doctor".to_owned()),
        _ => None,
    };
    let failure = Failure::new(format!("hrrn cannot run: {error}"));
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
