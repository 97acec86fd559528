//! The daemon's state as a message.

use crate::account::What;
use crate::apps::{App, Key};
use crate::daemon::Daemon;
use crate::once::cpu_s;
use crate::policy::consider;
use crate::standing::Standing;
use kilter_api::{ReclaimApp, ReclaimDaemon, ReclaimMemory, ReclaimTotals};

impl Daemon<'_> {
    /// The state now. The chain of questions is told for one app only, or the message would be as
    /// large as it is.
    pub fn status(&self, since: &str) -> ReclaimDaemon {
        let now = self.now();
        let params = self
            .params()
            .iter()
            .map(|(parameter, value)| (parameter.name.to_owned(), value));
        let mut apps: Vec<ReclaimApp> = self
            .apps
            .apps
            .iter()
            .map(|(key, app)| self.told(key, app, now))
            .collect();
        apps.sort_by(|a, b| {
            b.cached_s
                .partial_cmp(&a.cached_s)
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        ReclaimDaemon {
            pid: std::process::id(),
            since: since.to_owned(),
            policy: self.config.mode.name().to_owned(),
            params: params.collect(),
            within: self.within.as_ref().map(|group| group.name().to_owned()),
            memory: self.memory_told(),
            wakes: self.watch.told(),
            stopped: self.memory.stop(&self.tuning),
            total: ReclaimTotals {
                refaulted_bytes: apps.iter().map(|app| app.refaulted_bytes).sum(),
                cpu_s: cpu_s(),
                ..self.total
            },
            apps,
            troubles: self.troubles.clone(),
        }
    }

    fn memory_told(&self) -> ReclaimMemory {
        ReclaimMemory {
            total_bytes: self.memory.total,
            available_bytes: self.memory.available,
            swap_total_bytes: self.memory.swap_total,
            swap_free_bytes: self.memory.swap_free,
            zram_ratio: self.memory.ratio,
            pressure_events: self.pressure_events,
        }
    }

    fn told(&self, key: &Key, app: &App, now: f64) -> ReclaimApp {
        let account = &app.account;
        let left_alone = account.left_alone_until(self.memory.leniency(&self.tuning));
        let (_, mut chain) = app.judge(&self.config, &self.tuning);
        let (_, further) = consider(app.seen(), self.moment(now));
        let last_step = further
            .last()
            .map(|step| format!("{} {}", step.question, step.answer));
        if app.standing.is_cached() {
            chain.extend(further);
        }
        ReclaimApp {
            name: app.name.clone(),
            pid: app.first().map_or(0, |member| member.pid),
            cgroup: match key {
                Key::Cgroup(name) => Some(name.clone()),
                Key::Process(..) => None,
            },
            pids: app.members.iter().map(|member| member.pid).collect(),
            state: state(app).to_owned(),
            why: app.standing.why().to_owned(),
            cached_s: account.cached_since.map(|since| now - since),
            memory: app.memory,
            reclaimed_bytes: account.reclaimed,
            refaulted_bytes: account.refaulted,
            cost_s: account.cost_s,
            strikes: account.strikes,
            left_alone_s: (left_alone.max(account.poor_until) - now).max(0.0),
            last_action: account
                .last
                .as_ref()
                .map_or("", |(what, ..)| what.name())
                .to_owned(),
            last_action_s: account.last.as_ref().map(|(_, at, _)| now - at),
            last_why: match &account.last {
                Some((_, _, why)) => why.clone(),
                None => last_step.unwrap_or_default(),
            },
            chain,
        }
    }
}

/// The name of an app's state.
fn state(app: &App) -> &'static str {
    let swapped = app.memory.swapped_bytes > app.memory.resident_bytes;
    match &app.standing {
        Standing::LeftOut(_) => "left-out",
        Standing::Active(_) => "active",
        Standing::Cached(..) if app.account.paged.is_some() && swapped => "paged-out",
        Standing::Cached(..)
            if app.account.cold && !matches!(app.account.last, Some((What::PageOut, ..))) =>
        {
            "cold"
        }
        Standing::Cached(..) => "cached",
    }
}
