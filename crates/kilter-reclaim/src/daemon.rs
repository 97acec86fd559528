//! The loop: it sleeps until something happens, or until something is to be decided.

use crate::account::What;
use crate::act::{Outcome, act};
use crate::apps::{App, Apps, Key};
use crate::cgroup::{Cgroup, CgroupError};
use crate::config::Config;
use crate::once::cpu_s;
use crate::params::Tuning;
use crate::policy::{Memory, Mode, Moment, Seen, Throttle, decide};
use crate::swap::{swap, zram};
use crate::watch::Watch;
use kilter_api::{ReclaimEvent, ReclaimTotals};
use kilter_kernel::{Control, Kernel, Parameters};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

/// Seconds for which an app that plays audio is not asked again.
const AUDIO_S: f64 = 30.0;

/// Seconds for which an app is left alone that the kernel did not let be touched.
const REFUSED_S: f64 = 300.0;

/// Seconds until the next look from which on the pages of this one's code are not worth their memory.
const RARE_S: f64 = 5.0;

/// Troubles that are kept.
const MAX_TROUBLES: usize = 50;

/// Descriptors of the caller that end the daemon's sleep.
#[derive(Clone, Copy, Debug)]
pub struct Callers<'a> {
    /// Readable when the daemon is to end.
    pub stop: BorrowedFd<'a>,
    /// Readable when somebody asks for its state.
    pub ask: BorrowedFd<'a>,
}

/// What the loop returns to its caller for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// It is to end.
    Stop,
    /// Somebody asks.
    Ask,
    /// The configuration was written; [`Daemon::reconfigure`] takes it.
    Config,
}

/// The daemon.
#[derive(Debug)]
pub struct Daemon<'k> {
    pub(crate) kernel: &'k Kernel,
    pub(crate) config: Config,
    pub(crate) tuning: Tuning,
    pub(crate) control: Control,
    pub(crate) watch: Watch,
    pub(crate) apps: Apps,
    pub(crate) within: Option<Cgroup>,
    pub(crate) memory: Memory,
    pub(crate) throttle: Throttle,
    pub(crate) total: ReclaimTotals,
    pub(crate) pressure_events: u64,
    pub(crate) troubles: Vec<String>,
    pub(crate) begun: Instant,
    told: usize,
    pub(crate) next_look: f64,
    pub(crate) next_sweep: f64,
    pub(crate) next_check: f64,
    pub(crate) looked_at: f64,
    pub(crate) swept_at: f64,
    pub(crate) look_cost: f64,
    pub(crate) sweep_cost: f64,
    pub(crate) check_cost: f64,
}

/// Why the daemon cannot begin, or go on.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Another one runs.
    #[error("another `kilter reclaim run` is at work")]
    Running,
    /// The directory of parameters.
    #[error("{}: {source}", dir.display())]
    Control {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The cgroup.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// Anything else.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl<'k> Daemon<'k> {
    /// Ready to run. `dir` is where the parameters lie while it does; `file` is the configuration's.
    ///
    /// # Errors
    /// Another one runs, or the cgroup to watch does not exist.
    pub fn new(
        kernel: &'k Kernel,
        config: Config,
        dir: PathBuf,
        file: Option<PathBuf>,
    ) -> Result<Self, DaemonError> {
        let within = match &config.within {
            Some(name) => {
                let group = Cgroup::find(kernel, name)?;
                group.availability((u64::MAX, 0))?;
                Some(group)
            }
            None => None,
        };
        let control =
            Control::create(&dir, &config.params).map_err(|source| match source.kind() {
                io::ErrorKind::WouldBlock => DaemonError::Running,
                _ => DaemonError::Control { dir, source },
            })?;
        let tuning = Tuning::from(control.params());
        let mut daemon = Daemon {
            kernel,
            tuning,
            control,
            watch: Watch::new(kernel, within.as_ref(), file.as_deref())?,
            apps: Apps::new(kernel, within.clone())?,
            within,
            config,
            memory: Memory::default(),
            throttle: Throttle::new(0.0),
            total: ReclaimTotals::default(),
            pressure_events: 0,
            troubles: Vec::new(),
            begun: Instant::now(),
            told: 0,
            next_look: 0.0,
            next_sweep: 0.0,
            next_check: 0.0,
            looked_at: f64::NEG_INFINITY,
            swept_at: f64::NEG_INFINITY,
            look_cost: 0.0,
            sweep_cost: 0.0,
            check_cost: 0.0,
        };
        daemon.watch.ask_for_pressure(tuning.stall_ms);
        daemon.remember();
        daemon.ask_for_line();
        if let Some(trouble) = daemon.watch.trouble() {
            let text = format!(
                "the kernel tells of no memory pressure ({trouble}): memory is looked at by the clock"
            );
            daemon.trouble(text);
        }
        Ok(daemon)
    }

    /// Takes a changed configuration; its parameters become those in force, its cgroup needs a new
    /// start.
    pub fn reconfigure(&mut self, config: Config) {
        let written = self.control.put(&config.params);
        if let Err(error) = written {
            self.trouble(format!("{}: {error}", self.control.dir().display()));
        }
        self.config = Config {
            within: self.config.within.take(),
            ..config
        };
        self.take_params();
        self.next_sweep = 0.0;
        self.next_look = 0.0;
    }

    fn trouble(&mut self, text: String) {
        if self.troubles.len() < MAX_TROUBLES && !self.troubles.contains(&text) {
            self.troubles.push(text);
        }
    }

    /// Runs until the caller is needed. `tell` gets every action, `warn` troubles, each once.
    ///
    /// # Errors
    /// `poll(2)` fails.
    pub fn run(
        &mut self,
        callers: Callers<'_>,
        tell: &mut dyn FnMut(&ReclaimEvent),
        warn: &mut dyn FnMut(&str),
    ) -> io::Result<Call> {
        loop {
            while let Some(text) = self.troubles.get(self.told) {
                warn(text);
                self.told += 1;
            }
            if let Some(call) = self.sleep(callers)? {
                return Ok(call);
            }
            self.total.wakeups += 1;
            let now = self.now();
            if now >= self.next_sweep || now >= self.next_look {
                self.look(callers, tell);
            } else if now >= self.next_check {
                self.check();
            }
        }
    }

    /// Seconds since the start.
    pub(crate) fn now(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    fn sleep(&mut self, callers: Callers<'_>) -> io::Result<Option<Call>> {
        let due = self.next_look.min(self.next_sweep).min(self.next_check) - self.now();
        let due = due.clamp(0.0, 86_400.0);
        let timeout = Timespec {
            tv_sec: due as i64,
            tv_nsec: (due.fract() * 1e9) as i64,
        };
        let mut fds = vec![
            PollFd::from_borrowed_fd(callers.stop, PollFlags::IN),
            PollFd::from_borrowed_fd(callers.ask, PollFlags::IN),
            PollFd::new(&self.control, PollFlags::IN),
        ];
        fds.extend(self.watch.fds());
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let events: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        if !events[2].is_empty() {
            self.take_params();
        }
        let woken = self.watch.take(&events[3..]);
        if woken.pressed {
            self.pressure_events += 1;
            self.memory.pressed = true;
            self.remember();
            // Where plenty is available somebody has met a limit of their own.
            self.memory.pressed = self.is_urgent();
        }
        if self.memory.pressed || woken.crossed || woken.frozen {
            self.look_soon();
        }
        Ok(match () {
            () if !events[0].is_empty() => Some(Call::Stop),
            () if !events[1].is_empty() => Some(Call::Ask),
            () if woken.config => Some(Call::Config),
            () => None,
        })
    }

    fn take_params(&mut self) {
        for refused in self.control.changes().refused {
            self.trouble(format!("{refused}; left as it was"));
        }
        let before = self.tuning;
        self.tuning = Tuning::from(self.control.params());
        if before == self.tuning {
            return;
        }
        if before.stall_ms != self.tuning.stall_ms {
            self.watch.ask_for_pressure(self.tuning.stall_ms);
        }
        self.ask_for_line();
        self.next_look = 0.0;
    }

    /// The parameters in force.
    pub fn params(&self) -> &Parameters {
        self.control.params()
    }

    fn ask_for_line(&mut self) {
        if let Some(group) = &self.within {
            let wanted = (self.memory.total as f64 * self.tuning.available) as u64;
            self.watch
                .ask_for_line(group, self.memory.total.saturating_sub(wanted));
        }
    }

    /// How memory is now.
    pub(crate) fn remember(&mut self) {
        let swap = swap(self.kernel);
        let zram = zram(self.kernel);
        let machine = (swap.memory, swap.available);
        let (total, available) = match &self.within {
            Some(group) => match group.availability(machine) {
                Ok(found) => found,
                Err(error) => {
                    let text = error.to_string();
                    self.trouble(text);
                    machine
                }
            },
            None => machine,
        };
        let line_moved = total != self.memory.total && self.memory.total != 0;
        self.memory = Memory {
            total,
            available,
            swap_total: swap.total,
            swap_free: swap.free,
            ratio: zram.and_then(|zram| zram.ratio()),
            zram_full: zram.is_some_and(|zram| zram.is_full()),
            pressed: self.memory.pressed,
        };
        if line_moved {
            self.ask_for_line();
        }
    }

    /// Reads how memory is, which costs far less than a look at all apps: nothing tells of memory that
    /// gets scarce before tasks wait for it.
    pub(crate) fn check(&mut self) {
        let begun = cpu_s();
        self.remember();
        self.check_cost = cpu_s() - begun;
        if self.is_urgent() {
            self.look_soon();
        }
        self.next_check = self.now() + self.check_pause();
    }

    /// Looks at memory and apps, decides, and acts.
    fn look(&mut self, callers: Callers<'_>, tell: &mut dyn FnMut(&ReclaimEvent)) {
        let now = self.now();
        self.remember();
        if now >= self.next_sweep || (self.is_urgent() && now >= self.swept_at + self.sweep_pause())
        {
            self.sweep(now);
        }
        let begun = cpu_s();
        let back = self.apps.look(self.kernel, &self.config, &self.tuning, now);
        let files = self.apps.apps.values().filter_map(|app| app.frozen_file());
        self.watch.ask_for_frozen(files);
        let is_urgent = self.is_urgent();
        let plan = self.plan(now, back);
        self.look_cost = cpu_s() - begun;
        self.looked_at = now;
        let acted = !plan.actions.is_empty();
        let next = plan.next;
        self.act(plan, callers, tell);
        self.memory.pressed = false;
        self.schedule(is_urgent, acted, next);
        self.total.looks += 1;
        // Code that this look was the first to need is given back, as are the pages of a rare one.
        let rare = self.next_look.min(self.next_sweep) - self.now() >= RARE_S;
        if acted || rare || self.total.looks.is_power_of_two() {
            kilter_kernel::forget_code();
        }
    }

    fn sweep(&mut self, now: f64) {
        let begun = cpu_s();
        self.apps.sweep(self.kernel, &self.config, &self.tuning);
        self.sweep_cost = cpu_s() - begun;
        self.swept_at = now;
        self.total.sweeps += 1;
        self.total.processes = self.apps.processes;
    }

    /// What is to be done now; apps that have come back are read ahead first.
    fn plan(&self, now: f64, back: Vec<Key>) -> PlanOf {
        let apps: Vec<Seen<'_>> = self.apps.apps.values().map(|app| app.seen()).collect();
        let keys: Vec<&Key> = self.apps.apps.keys().collect();
        let plan = decide(&apps, self.moment(now));
        let mut room = self.memory.room(&self.tuning);
        let mut actions = Vec::new();
        for key in back {
            let swapped = self
                .apps
                .apps
                .get(&key)
                .map_or(0, |app| app.memory.swapped_bytes);
            let worth = swapped >= self.tuning.delta.max(1 << 20);
            if self.tuning.prefetch && worth && swapped <= room {
                room -= swapped;
                actions.push((key, What::Prefetch));
            }
        }
        let others = plan
            .actions
            .into_iter()
            .map(|(at, what)| (keys[at].clone(), what));
        actions.extend(others);
        PlanOf {
            actions,
            next: plan.next,
        }
    }

    /// What holds for all apps at this moment.
    pub(crate) fn moment(&self, now: f64) -> Moment<'_> {
        Moment {
            now,
            mode: self.config.mode,
            memory: &self.memory,
            tuning: &self.tuning,
            throttled_s: self.throttle.wait(now, &self.tuning),
        }
    }

    fn act(&mut self, plan: PlanOf, callers: Callers<'_>, tell: &mut dyn FnMut(&ReclaimEvent)) {
        let stop = || is_readable(callers.stop);
        let mut marking_s = 0.0;
        for (key, what) in plan.actions {
            if stop() || !self.may_still(what, marking_s) {
                continue;
            }
            let Some(app) = self.apps.apps.get(&key) else {
                continue;
            };
            let why = self.why(app, what);
            let begun = Instant::now();
            let outcome = act(self.kernel, &key, app, what, &self.tuning, &stop);
            if let (What::Cold, Outcome::Done(done)) = (what, &outcome) {
                marking_s += done.cpu_s;
            }
            self.account(
                &key,
                what,
                outcome,
                why,
                begun.elapsed().as_secs_f64(),
                tell,
            );
        }
    }

    fn why(&self, app: &App, what: What) -> String {
        let memory = &self.memory;
        let percent = 100.0 * memory.available as f64 / memory.total.max(1) as f64;
        match (what, self.config.mode) {
            (What::Prefetch, _) => format!("it came back: {}", app.standing.why()),
            (What::Cold, _) | (What::PageOut, Mode::OnCached) => {
                format!("it is cached: {}", app.standing.why())
            }
            (What::PageOut, Mode::Pressure) if memory.short(&self.tuning) > 0 => format!(
                "{percent:.0} % of memory is available and {:.0} % are wanted; {}",
                100.0 * self.tuning.available,
                app.standing.why()
            ),
            (What::PageOut, Mode::Pressure) => format!(
                "the kernel tells of memory pressure; {}",
                app.standing.why()
            ),
        }
    }

    /// Takes note of what was done.
    fn account(
        &mut self,
        key: &Key,
        what: What,
        outcome: Outcome,
        why: String,
        seconds: f64,
        tell: &mut dyn FnMut(&ReclaimEvent),
    ) {
        let now = self.now();
        let Some(app) = self.apps.apps.get_mut(key) else {
            return;
        };
        match outcome {
            Outcome::Audio => {
                app.left_out_until = Some((now + AUDIO_S, "it plays or records sound"))
            }
            Outcome::Gone => {}
            Outcome::Refused(error) => {
                app.left_out_until = Some((now + REFUSED_S, "the kernel did not allow it"));
                let text = format!("{}: {error}", app.name);
                self.trouble(text);
            }
            Outcome::Done(done) => {
                let event = ReclaimEvent {
                    app: app.name.clone(),
                    pid: app.members.first().map_or(0, |member| member.pid),
                    cgroup: app.cgroup.clone(),
                    action: what.name().to_owned(),
                    why: why.clone(),
                    reclaimed_bytes: done.reclaimed,
                    seconds,
                    cpu_s: done.cpu_s,
                    cut_short: done.cut_short,
                };
                app.account.did(now, what, done, why, &self.tuning);
                app.memory = done.after;
                self.throttle.spend(now, done.cpu_s, &self.tuning);
                self.total.reclaim_cpu_s += done.cpu_s;
                self.total.reclaimed_bytes += done.reclaimed;
                match what {
                    What::Cold => self.total.colds += 1,
                    What::PageOut => self.total.pageouts += 1,
                    What::Prefetch => self.total.prefetches += 1,
                }
                tell(&event);
            }
        }
    }
}

/// What is to be done, by key.
struct PlanOf {
    actions: Vec<(Key, What)>,
    next: Option<f64>,
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
