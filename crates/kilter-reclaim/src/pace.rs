//! How often the daemon looks: as soon as something is to be decided, seldom while nothing is, and never
//! for more than a small part of a CPU.

use crate::account::What;
use crate::config::Cached;
use crate::daemon::Daemon;
use crate::policy::Mode;

/// Seconds between looks while nothing is to be decided, at most.
const COARSE_S: f64 = 30.0;

/// Seconds between looks while something is, at least.
const QUICK_S: f64 = 0.5;

/// Seconds between a look and the next one that an event asks for, at least.
const AFTER_EVENT_S: f64 = 0.1;

/// Looks, sweeps, and readings of memory take at most this part of the time each: one in 2,000; looks and
/// sweeps one in a hundred while memory is scarce.
const AT_REST: f64 = 2000.0;
const WHILE_SCARCE: f64 = 100.0;

/// CPU seconds for marking apps as cold in one look, or as many as the look took: nobody waits for it,
/// and thousands may be due at once.
const MARKING_S: f64 = 0.02;

/// Bytes by which memory in use may grow in a second: how soon what is available may be gone.
const GROWTH: f64 = (1_u64 << 30) as f64;

impl Daemon<'_> {
    /// Whether something is to be decided: looks may cost more then.
    pub(crate) fn is_urgent(&self) -> bool {
        let scarce = self.memory.short(&self.tuning) > 0 || self.memory.is_pressed(&self.tuning);
        let may = self.memory.stop(&self.tuning).is_none();
        may && (scarce || (self.within.is_some() && self.config.mode == Mode::OnCached))
    }

    pub(crate) fn sweep_pause(&self) -> f64 {
        QUICK_S.max(self.sweep_cost * WHILE_SCARCE)
    }

    /// Something has happened: the next look is due as soon as it may be.
    pub(crate) fn look_soon(&mut self) {
        let soonest = self.looked_at + AFTER_EVENT_S.max(self.look_cost * WHILE_SCARCE);
        self.next_look = self.next_look.min(soonest.max(self.now()));
    }

    /// Seconds until memory is read again.
    pub(crate) fn check_pause(&self) -> f64 {
        self.until_scarce_s().max(self.check_cost * AT_REST)
    }

    /// Whether there is time for one more action after a look; what is left waits for the next.
    pub(crate) fn may_still(&self, what: What, marking_s: f64) -> bool {
        match what {
            What::Cold => marking_s < self.look_cost.max(MARKING_S),
            What::PageOut => self.throttle.wait(self.now(), &self.tuning) == 0.0,
            What::Prefetch => true,
        }
    }

    /// When to look again.
    pub(crate) fn schedule(&mut self, is_urgent: bool, acted: bool, next: Option<f64>) {
        let now = self.now();
        let is_watched = self
            .apps
            .apps
            .values()
            .any(|app| app.account.is_watched(now));
        let some_cached = self.apps.apps.values().any(|app| app.standing.is_cached());
        let mut wait = self.coarse_s();
        if is_watched || acted {
            wait = wait.min(1.0);
        }
        if (is_urgent && some_cached) || self.config.mode == Mode::OnCached {
            wait = wait.min(QUICK_S);
        }
        if let Some(next) = next {
            wait = wait.min(next - now);
        }
        let part = if is_urgent { WHILE_SCARCE } else { AT_REST };
        self.next_look = now + wait.max(QUICK_S).max(self.look_cost * part);
        // At rest a sweep waits for the next look, since it brings one with it.
        self.next_sweep = match is_urgent {
            true => self.swept_at + self.sweep_pause(),
            false => {
                let pause = self.coarse_s().max(self.sweep_cost * AT_REST);
                self.next_look.max(self.swept_at + pause)
            }
        };
        self.next_check = now + self.check_pause();
    }

    /// What is available beyond what is wanted, and what is wanted.
    fn margin(&self) -> (f64, f64) {
        let wanted = self.memory.total as f64 * self.tuning.available;
        ((self.memory.available as f64 - wanted).max(0.0), wanted)
    }

    /// Seconds until memory could be scarce.
    fn until_scarce_s(&self) -> f64 {
        (self.margin().0 / GROWTH).clamp(1.0, COARSE_S)
    }

    /// Seconds until memory could be scarce, or until an app could be found idle.
    fn coarse_s(&self) -> f64 {
        let (margin, wanted) = self.margin();
        let plenty = margin > wanted && self.config.mode == Mode::Pressure;
        let after = |rule: &crate::config::Rule| match rule.cached {
            Cached::After(seconds) => Some(seconds),
            _ => None,
        };
        let rules = self.config.rules.iter().filter_map(after);
        let idle = rules
            .chain(self.tuning.idle_s)
            .fold(2.0 * COARSE_S, f64::min)
            / 2.0;
        let by_idle = if plenty { COARSE_S } else { idle };
        self.until_scarce_s().min(by_idle).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use kilter_kernel::Kernel;
    use std::fs;
    use std::path::Path;

    fn meminfo(root: &Path, available_kib: u64) {
        let text = format!(
            "MemTotal: 1000000 kB\nMemAvailable: {available_kib} kB\nSwapTotal: 500000 kB\nSwapFree: 500000 kB\n"
        );
        fs::write(root.join("proc/meminfo"), text).unwrap();
    }

    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        meminfo(root.path(), 600_000);
        root
    }

    #[test]
    fn marking_thousands_takes_several_looks_and_paging_out_goes_by_its_throttle() {
        let root = machine();
        let kernel = Kernel::new(root.path());
        let dir = root.path().join("reclaim");
        let mut daemon = Daemon::new(&kernel, Config::default(), dir, None).unwrap();
        assert!(daemon.may_still(What::Cold, 0.9 * MARKING_S));
        assert!(!daemon.may_still(What::Cold, MARKING_S));
        daemon.look_cost = 10.0 * MARKING_S;
        assert!(daemon.may_still(What::Cold, 9.0 * MARKING_S));
        assert!(!daemon.may_still(What::Cold, 10.0 * MARKING_S));

        assert!(daemon.may_still(What::PageOut, 100.0));
        let now = daemon.now();
        daemon.throttle.spend(now, 3600.0, &daemon.tuning);
        assert!(!daemon.may_still(What::PageOut, 0.0));
        assert!(daemon.may_still(What::Prefetch, 100.0));
    }

    #[test]
    fn memory_that_gets_scarce_without_a_word_is_seen_long_before_the_next_look() {
        let root = machine();
        let kernel = Kernel::new(root.path());
        let dir = root.path().join("reclaim");
        let mut daemon = Daemon::new(&kernel, Config::default(), dir, None).unwrap();
        // A tenth of a second for a look: a slow machine, or thousands of apps.
        daemon.look_cost = 0.1;
        daemon.looked_at = daemon.now();
        daemon.schedule(false, false, None);
        let looked_at = daemon.looked_at;
        assert!(daemon.next_look - looked_at >= 0.1 * AT_REST);
        assert!(daemon.next_check - daemon.now() <= COARSE_S);
        assert!(
            daemon.next_sweep >= daemon.next_look,
            "a sweep brings no look with it"
        );

        daemon.check();
        assert!(daemon.next_look - looked_at >= 0.1 * AT_REST, "plenty");
        meminfo(root.path(), 200_000);
        daemon.check();
        assert!(daemon.next_look - looked_at <= 0.1 * WHILE_SCARCE + 1.0);
    }
}
