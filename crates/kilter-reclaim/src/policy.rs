//! What is done to which app now. Pure: a function of what was seen and of the accounts.

use crate::account::{Account, What};
use crate::params::Tuning;
use crate::standing::{Standing, step};
use kilter_api::{DecisionStep, MemoryUse};

/// When to reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Cold when cached, out when memory gets scarce, the longest cached first.
    Pressure,
    /// Out as soon as cached.
    OnCached,
}

impl Mode {
    /// The mode of a name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "pressure" => Some(Mode::Pressure),
            "on-cached" => Some(Mode::OnCached),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Pressure => "pressure",
            Mode::OnCached => "on-cached",
        }
    }
}

/// Memory as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// Bytes in all.
    pub total: u64,
    /// Bytes available without swapping.
    pub available: u64,
    /// Swap in all.
    pub swap_total: u64,
    /// Swap that is free.
    pub swap_free: u64,
    /// Bytes that compressed swap holds for one that it takes.
    pub ratio: Option<f64>,
    /// Compressed swap takes no more pages.
    pub zram_full: bool,
    /// The kernel has told of pressure since the last decision.
    pub pressed: bool,
}

/// Memory that is freed beyond what is wanted, so that not every page begins a new decision.
const BEYOND: f64 = 0.05;

/// Below this part of what is wanted, the budget of an app that did not come back at once no longer
/// counts: the alternative is that something is killed.
const CRITICAL: f64 = 1.0 / 3.0;

/// Times its budget that such an app may lose shortly before.
const LENIENT: f64 = 10.0;

/// Seconds of reclaim that may be saved up for a burst.
const BURST_S: f64 = 2.0;

impl Memory {
    /// Bytes to be freed now.
    pub fn short(&self, tuning: &Tuning) -> u64 {
        let wanted = self.total as f64 * tuning.available;
        match (self.available as f64) < wanted {
            true => self.enough(tuning) - self.available,
            false => 0,
        }
    }

    /// Bytes that may be read back ahead of their need. What an app does not touch of them stays in
    /// the swap cache, from where it can't be paged out: it must not make memory scarce.
    pub fn room(&self, tuning: &Tuning) -> u64 {
        self.available.saturating_sub(self.enough(tuning))
    }

    /// Bytes available up to which is freed once memory is scarce.
    fn enough(&self, tuning: &Tuning) -> u64 {
        (self.total as f64 * (tuning.available + BEYOND)) as u64
    }

    /// Whether the kernel tells of pressure that apps in the background can do something about: where
    /// twice as much is available as is wanted, somebody has met a limit of their own.
    pub fn is_pressed(&self, tuning: &Tuning) -> bool {
        self.pressed && (self.available as f64) < 2.0 * tuning.available * self.total as f64
    }

    /// Times its budget that an app may lose which did not come back at once: once where as much is
    /// available as is wanted, more the scarcer memory is, infinitely where something may soon be killed.
    pub fn leniency(&self, tuning: &Tuning) -> f64 {
        let part = self.available as f64 / (self.total as f64 * tuning.available);
        match part < CRITICAL {
            true => f64::INFINITY,
            false => 1.0 + (LENIENT - 1.0) * ((1.0 - part) / (1.0 - CRITICAL)).max(0.0),
        }
    }

    /// Why nothing may be paged out.
    pub fn stop(&self, tuning: &Tuning) -> Option<String> {
        let part = |part: f64| format!("{:.0} %", 100.0 * part);
        if self.swap_total == 0 {
            return Some("there is no swap".to_owned());
        }
        let free = self.swap_free as f64 / self.swap_total as f64;
        if free < tuning.swap_free || self.swap_free == 0 {
            let limit = part(tuning.swap_free);
            return Some(format!(
                "only {} of swap is free, and {limit} are kept",
                part(free)
            ));
        }
        if self.zram_full {
            return Some("compressed memory has reached its limit".to_owned());
        }
        match self.ratio {
            Some(ratio) if ratio < tuning.ratio => Some(format!(
                "compressed memory holds only {ratio:.2} bytes for one, and {:.2} are wanted",
                tuning.ratio
            )),
            _ => None,
        }
    }
}

/// Part of the CPU that reclaim has left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    seconds: f64,
    at: f64,
}

impl Throttle {
    /// Full at the beginning.
    pub fn new(now: f64) -> Self {
        Throttle {
            seconds: BURST_S,
            at: now,
        }
    }

    /// Counts what was spent since.
    pub fn spend(&mut self, now: f64, cpu_s: f64, tuning: &Tuning) {
        self.seconds = self.left(now, tuning) - cpu_s;
        self.at = now;
    }

    /// Seconds until reclaim may go on.
    pub fn wait(&self, now: f64, tuning: &Tuning) -> f64 {
        (-self.left(now, tuning) / tuning.cpu).max(0.0)
    }

    fn left(&self, now: f64, tuning: &Tuning) -> f64 {
        (self.seconds + (now - self.at).max(0.0) * tuning.cpu).min(BURST_S)
    }
}

/// An app as the decision sees it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// How it stands.
    pub standing: &'a Standing,
    /// Its memory.
    pub memory: MemoryUse,
    /// Its account.
    pub account: &'a Account,
    /// Its oom_score_adj: of apps cached equally long, the highest goes first.
    pub oom_score_adj: i32,
}

/// What holds for all apps at this moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// Now, in seconds.
    pub now: f64,
    /// When to reclaim.
    pub mode: Mode,
    /// Memory.
    pub memory: &'a Memory,
    /// The parameters.
    pub tuning: &'a Tuning,
    /// Seconds until reclaim may have the CPU again.
    pub throttled_s: f64,
}

/// What may be done to one app.
#[derive(Clone, Debug, PartialEq)]
pub enum May {
    /// Nothing.
    Nothing,
    /// Nothing before that time.
    NotBefore(f64),
    /// It may be marked as cold.
    Cold,
    /// It may be paged out.
    PageOut,
}

/// What may be done to an app, with every question on the way.
pub fn consider(app: Seen<'_>, moment: Moment<'_>) -> (May, Vec<DecisionStep>) {
    let mut chain = Vec::new();
    let may = considered(app, moment, &mut chain);
    (may, chain)
}

fn considered(app: Seen<'_>, moment: Moment<'_>, chain: &mut Vec<DecisionStep>) -> May {
    let Moment {
        now,
        mode,
        memory,
        tuning,
        ..
    } = moment;
    let mut ask = |question: &str, answer: String, decides: bool| {
        chain.push(step(question, answer, decides));
        decides
    };
    let Some(since) = app
        .account
        .cached_since
        .filter(|_| app.standing.is_cached())
    else {
        ask("cached?", app.standing.why().to_owned(), true);
        return May::Nothing;
    };
    ask(
        "cached?",
        format!("for {:.0} s: {}", now - since, app.standing.why()),
        false,
    );
    if mode == Mode::Pressure && !app.account.cold {
        ask("made cold yet?", "no".to_owned(), true);
        return May::Cold;
    }
    let stop = memory.stop(tuning);
    let answer = stop.clone().unwrap_or_else(|| "yes".to_owned());
    if ask("may anything be paged out?", answer, stop.is_some()) {
        return May::Nothing;
    }
    let short = memory.short(tuning);
    if mode == Mode::Pressure {
        let percent = 100.0 * memory.available as f64 / memory.total.max(1) as f64;
        let limit = 100.0 * tuning.available;
        let pressed = memory.is_pressed(tuning);
        let told = if pressed {
            "; the kernel tells of pressure"
        } else {
            ""
        };
        let answer = format!("{percent:.0} % available, {limit:.0} % wanted{told}");
        if ask("is memory scarce?", answer, short == 0 && !pressed) {
            return May::Nothing;
        }
    }
    let resident = app.memory.resident_bytes;
    let left = app.account.paged.map_or(0, |paged| paged.left);
    let enough = tuning.min_app.max(left + tuning.delta);
    let enough = if app.account.paged.is_some() {
        left + tuning.delta
    } else {
        enough
    };
    let answer = format!("{} MiB resident, {} count", resident >> 20, enough >> 20);
    if ask("enough to reclaim?", answer, resident < enough) {
        return May::Nothing;
    }
    let poor = app.account.poor_until > now;
    if ask(
        "does it compress?",
        if poor { "hardly" } else { "yes" }.to_owned(),
        poor,
    ) {
        return May::NotBefore(app.account.poor_until);
    }
    let scarce_swap = (memory.swap_free as f64) < 2.0 * tuning.swap_free * memory.swap_total as f64;
    let throttle = tuning.app_throttle_s * if scarce_swap { 2.0 } else { 1.0 };
    let next = app.account.paged.map_or(0.0, |paged| paged.at + throttle);
    let answer = match app.account.paged {
        Some(paged) => format!("{:.0} s ago; {throttle:.0} s are kept", now - paged.at),
        None => "never".to_owned(),
    };
    if ask("paged out before?", answer, next > now) {
        return May::NotBefore(next);
    }
    let leniency = memory.leniency(tuning);
    let until = app.account.left_alone_until(leniency);
    let owing = until > now;
    let lost = app.account.cost_s;
    let answer = match (owing, app.account.not_before > now) {
        (false, false) => format!("yes; it has lost {lost:.2} s in all"),
        (false, true) if leniency.is_infinite() => "no, but memory is about to run out".to_owned(),
        (false, true) => {
            format!("no, but memory is so scarce that {leniency:.1} times as much may go")
        }
        (true, _) => format!(
            "no: it has lost {lost:.2} s and is left alone for {:.0} s more ({} times back at once)",
            until - now,
            app.account.strikes
        ),
    };
    if ask("within its refault budget?", answer, owing) {
        return May::NotBefore(until);
    }
    let throttled = moment.throttled_s > 0.0;
    let answer = if throttled { "no" } else { "yes" }.to_owned();
    if ask("has reclaim CPU time left?", answer, throttled) {
        return May::NotBefore(now + moment.throttled_s);
    }
    ask(
        "then",
        "page it out when its turn comes: the longest cached first".to_owned(),
        true,
    );
    May::PageOut
}

/// What is to be done, in order, and when the next look is due if nothing changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Apps by their place in the list, and what is done to each.
    pub actions: Vec<(usize, What)>,
    /// The next time at which something more may be done.
    pub next: Option<f64>,
}

/// Decides about all apps.
pub fn decide(apps: &[Seen<'_>], moment: Moment<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut out = Vec::new();
    for (at, app) in apps.iter().enumerate() {
        match consider(*app, moment).0 {
            May::Nothing => {}
            May::NotBefore(time) => {
                plan.next = Some(plan.next.map_or(time, |next: f64| next.min(time)))
            }
            May::Cold => plan.actions.push((at, What::Cold)),
            May::PageOut => out.push(at),
        }
    }
    let order = |&at: &usize| {
        let app = apps[at];
        let since = app.account.cached_since.unwrap_or(moment.now);
        // Looks are a second apart at best: what was seen at one is equally old.
        (since as i64, -app.oom_score_adj)
    };
    out.sort_by_key(order);
    let mut short = match moment.mode {
        Mode::OnCached => u64::MAX,
        // Pressure without scarcity: one app at a time.
        Mode::Pressure => moment.memory.short(moment.tuning).max(1),
    };
    for at in out {
        if short == 0 {
            break;
        }
        plan.actions.push((at, What::PageOut));
        short = short.saturating_sub(apps[at].memory.resident_bytes);
    }
    plan
}

#[cfg(test)]
mod tests;
