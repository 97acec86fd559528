//! What kilter did to an app and what that cost the app: the refault budget. Pure.
//!
//! An app pays for a page-out when it touches the memory again. Each byte that comes back from swap is
//! taken to cost [`SWAP_IN_S`], and the page-out itself counts too. After that the app is left alone
//! for as long as it takes for the cost to be within the budget (`refault_percent` of its time), and
//! twice as long each time it comes back at once. Where memory is scarce, an app that stayed away may
//! lose more.

use crate::params::Tuning;
use crate::standing::Standing;
use kilter_api::MemoryUse;

/// Seconds that an app loses for each byte that it reads back from compressed memory: 2 ms a MiB, of
/// which 1.1 were measured on an idle machine.
pub const SWAP_IN_S: f64 = 2e-3 / (1 << 20) as f64;

/// What a major fault reads back at least: a page of the smallest size there is.
const FAULT_BYTES: u64 = 4096;

/// An app that comes back within this many seconds of a page-out came back at once.
pub const AT_ONCE_S: f64 = 10.0;

/// Less than this coming back is no sign that an app is in use (bytes).
const NOTABLE: u64 = 1 << 20;

/// Strikes that still double the pause.
const MAX_STRIKES: u32 = 10;

/// Seconds for which an app is left alone whose memory hardly compresses.
const POOR_S: f64 = 3600.0;

/// What can be done to an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Mark its memory as the first to go.
    Cold,
    /// Reclaim its memory.
    PageOut,
    /// Read it back.
    Prefetch,
}

impl What {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            What::Cold => "cold",
            What::PageOut => "pageout",
            What::Prefetch => "prefetch",
        }
    }
}

/// What an action did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// Bytes that left memory.
    pub reclaimed: u64,
    /// CPU seconds.
    pub cpu_s: f64,
    /// The app's memory afterwards.
    pub after: MemoryUse,
    /// Bytes that compressed memory holds more, and takes more, than before.
    pub stored: Option<(u64, u64)>,
    /// It was not carried to its end: the app came back, or ended.
    pub cut_short: bool,
}

/// An app's account.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// Since when it has been cached.
    pub cached_since: Option<f64>,
    /// Whether it was made cold since then.
    pub cold: bool,
    /// Its last page-out.
    pub paged: Option<Paged>,
    /// Most bytes in swap since the last look, which a fall is counted from.
    pub(crate) swapped: u64,
    pub(crate) major_faults: u64,
    /// Times in a row that it came back at once.
    pub strikes: u32,
    /// It is left alone until then.
    pub not_before: f64,
    /// Since when it has been left alone.
    pub(crate) owing_since: f64,
    /// It is left alone until then, since it hardly compresses.
    pub poor_until: f64,
    /// Bytes reclaimed.
    pub reclaimed: u64,
    /// Bytes that came back.
    pub refaulted: u64,
    /// Seconds that it lost.
    pub cost_s: f64,
    /// The last action, when, and why.
    pub last: Option<(What, f64, String)>,
}

/// A page-out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paged {
    /// When.
    pub at: f64,
    /// What stayed resident, which is not worth another try.
    pub left: u64,
    /// CPU seconds.
    pub cpu_s: f64,
    /// Bytes that it took out at most: what came back meanwhile cannot be told from what stayed.
    pub out: u64,
    /// Bytes of it that came back.
    pub back: u64,
    /// Whether it has been counted as a strike, or as none.
    judged: bool,
}

impl Account {
    /// Takes note of how the app is now. Whether it has come back, so that it may be read ahead.
    pub fn see(
        &mut self,
        now: f64,
        standing: &Standing,
        memory: MemoryUse,
        major_faults: u64,
        tuning: &Tuning,
    ) -> bool {
        let faults = major_faults.saturating_sub(self.major_faults);
        let fell = self.swapped.saturating_sub(memory.swapped_bytes);
        if self.paged.is_some() {
            self.charge(now, fell, faults, tuning);
        }
        self.swapped = memory.swapped_bytes;
        self.major_faults = major_faults;
        match (standing.is_cached(), self.cached_since) {
            (true, None) => {
                self.cached_since = Some(now);
                self.cold = false;
                false
            }
            (false, Some(_)) => {
                self.cached_since = None;
                self.cold = false;
                self.paged.is_some() && matches!(standing, Standing::Active(_))
            }
            _ => false,
        }
    }

    /// Charges what came back: by how much its swap fell, and by its major faults, since what comes
    /// back while the rest is still being paged out never lets it fall. Memory that was freed in swap
    /// comes back without a fault.
    fn charge(&mut self, now: f64, fell: u64, faults: u64, tuning: &Tuning) {
        let Some(paged) = &mut self.paged else { return };
        if faults == 0 {
            return;
        }
        let by_faults = (faults * FAULT_BYTES).min(paged.out.saturating_sub(paged.back));
        let back = fell.max(by_faults);
        let mut cost = back as f64 * SWAP_IN_S;
        paged.back += back;
        self.refaulted += back;
        let at_once = now - paged.at < AT_ONCE_S;
        if paged.back >= NOTABLE && !paged.judged {
            paged.judged = true;
            cost += paged.cpu_s;
            self.strikes = match at_once {
                true => (self.strikes + 1).min(MAX_STRIKES),
                false => self.strikes.saturating_sub(1),
            };
        }
        if cost > 0.0 {
            let doubled = f64::from(1_u32 << self.strikes.saturating_sub(1));
            self.cost_s += cost;
            if self.not_before <= now {
                self.owing_since = now;
            }
            self.not_before = self.not_before.max(now) + cost * doubled / tuning.refault;
        }
    }

    /// Until when it is left alone if it may lose so many times its budget; an app that came back at
    /// once the last time may not.
    pub fn left_alone_until(&self, leniency: f64) -> f64 {
        match self.strikes {
            0 => self.owing_since + (self.not_before - self.owing_since) / leniency,
            _ => self.not_before,
        }
    }

    /// Takes note of an action.
    pub fn did(&mut self, now: f64, what: What, done: Done, why: String, tuning: &Tuning) {
        self.last = Some((what, now, why));
        match what {
            What::Cold => self.cold = true,
            What::Prefetch => {}
            What::PageOut => {
                self.reclaimed += done.reclaimed;
                self.cold = true;
                self.paged = Some(Paged {
                    at: now,
                    // Where it was cut short nobody knows what would have stayed.
                    left: match done.cut_short {
                        true => 0,
                        false => done.after.resident_bytes,
                    },
                    cpu_s: done.cpu_s,
                    out: done.after.resident_bytes + done.reclaimed,
                    back: 0,
                    judged: false,
                });
                self.swapped = done.after.swapped_bytes;
                if let Some((stored, used)) = done.stored
                    && stored >= 4 << 20
                    && (stored as f64) < tuning.ratio * used as f64
                {
                    self.poor_until = now + POOR_S;
                }
            }
        }
    }

    /// Whether its page-out is recent enough that coming back tells something.
    pub fn is_watched(&self, now: f64) -> bool {
        self.paged.is_some_and(|paged| now - paged.at < AT_ONCE_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::defaults;
    use crate::standing::By;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn tuning() -> Tuning {
        Tuning::from(&defaults())
    }

    fn memory(resident: u64, swapped: u64) -> MemoryUse {
        MemoryUse {
            resident_bytes: resident * MIB,
            anon_bytes: resident * MIB,
            swapped_bytes: swapped * MIB,
        }
    }

    fn cached() -> Standing {
        Standing::Cached(By::Rule, "x".into())
    }

    fn paged_out(now: f64, mib: u64) -> Account {
        let mut account = Account::default();
        account.see(now, &cached(), memory(mib, 0), 0, &tuning());
        let done = Done {
            reclaimed: mib * MIB,
            cpu_s: 0.1,
            after: memory(0, mib),
            ..Done::default()
        };
        account.did(now, What::PageOut, done, String::new(), &tuning());
        account
    }

    #[test]
    fn what_comes_back_is_paid_for_and_what_is_freed_is_not() {
        let mut account = paged_out(100.0, 100);
        account.see(101.0, &cached(), memory(100, 0), 0, &tuning());
        assert_eq!(
            (account.refaulted, account.cost_s),
            (0, 0.0),
            "freed: no fault"
        );
        let mut account = paged_out(100.0, 100);
        account.see(101.0, &cached(), memory(100, 0), 25_600, &tuning());
        assert_eq!((account.refaulted, account.strikes), (100 * MIB, 1));
        // 0.2 s of reading and 0.1 s of paging out, within 1 %.
        assert!(
            (account.not_before - 131.0).abs() < 1e-6,
            "{}",
            account.not_before
        );
    }

    #[test]
    fn what_comes_back_during_the_page_out_counts_too() {
        let mut account = Account::default();
        account.see(0.0, &cached(), memory(100, 0), 0, &tuning());
        let done = Done {
            reclaimed: 0,
            after: memory(100, 0),
            ..Done::default()
        };
        account.did(1.0, What::PageOut, done, String::new(), &tuning());
        account.see(2.0, &cached(), memory(100, 0), 25_600, &tuning());
        assert_eq!((account.refaulted, account.strikes), (100 * MIB, 1));
        account.see(3.0, &cached(), memory(100, 0), 90_000, &tuning());
        assert_eq!(account.refaulted, 100 * MIB, "no more than was taken out");
    }

    #[test]
    fn strikes_double_the_pause_and_lasting_forgives() {
        let mut account = paged_out(0.0, 100);
        let mut now = 0.0;
        let mut pauses = Vec::new();
        for round in 1..5 {
            now += 1.0;
            account.see(now, &cached(), memory(100, 0), round * 30_000, &tuning());
            pauses.push(account.not_before - now);
            now = account.not_before;
            let done = Done {
                reclaimed: 100 * MIB,
                cpu_s: 0.1,
                after: memory(0, 100),
                ..Done::default()
            };
            account.did(now, What::PageOut, done, String::new(), &tuning());
        }
        for pair in pauses.windows(2) {
            assert!((pair[1] / pair[0] - 2.0).abs() < 0.01, "{pauses:?}");
        }
        account.see(now + 60.0, &cached(), memory(100, 0), 200_000, &tuning());
        assert_eq!(account.strikes, 3, "it lasted a minute");
    }

    #[test]
    fn who_stayed_away_may_lose_more_and_who_came_back_at_once_may_not() {
        let back = |at: f64| {
            let mut account = paged_out(0.0, 100);
            account.see(at, &cached(), memory(100, 0), 25_600, &tuning());
            account
        };
        let (late, early) = (back(20.0), back(5.0));
        assert!((late.left_alone_until(1.0) - 50.0).abs() < 1e-6, "0.3 s");
        assert!((late.left_alone_until(3.0) - 30.0).abs() < 1e-6);
        assert_eq!(late.left_alone_until(f64::INFINITY), 20.0);
        assert_eq!(early.left_alone_until(f64::INFINITY), early.not_before);
    }

    #[test]
    fn what_a_page_out_that_was_cut_short_left_is_worth_another_try() {
        let mut account = paged_out(0.0, 80);
        let mut done = Done {
            reclaimed: 40 * MIB,
            after: memory(40, 40),
            ..Done::default()
        };
        account.did(1.0, What::PageOut, done, String::new(), &tuning());
        assert_eq!(account.paged.unwrap().left, 40 * MIB);
        done.cut_short = true;
        account.did(2.0, What::PageOut, done, String::new(), &tuning());
        assert_eq!(account.paged.unwrap().left, 0);
    }

    #[test]
    fn coming_back_is_told_once() {
        let mut account = paged_out(0.0, 50);
        let active = Standing::Active("y".into());
        assert!(account.see(5.0, &active, memory(0, 50), 0, &tuning()));
        assert!(!account.see(6.0, &active, memory(0, 50), 0, &tuning()));
        let mut never = Account::default();
        never.see(0.0, &cached(), memory(50, 0), 0, &tuning());
        assert!(
            !never.see(1.0, &active, memory(50, 0), 0, &tuning()),
            "nothing to read back"
        );
    }

    #[test]
    fn memory_that_does_not_compress_is_left_alone() {
        let mut account = paged_out(0.0, 50);
        let done = Done {
            stored: Some((50 * MIB, 49 * MIB)),
            ..Done::default()
        };
        account.did(10.0, What::PageOut, done, String::new(), &tuning());
        assert_eq!(account.poor_until, 10.0 + POOR_S);
    }

    proptest! {
        /// Whatever an app does, the cost that it was charged stays within the budget of the time
        /// until it may be reclaimed from again.
        #[test]
        fn the_budget_holds(steps in proptest::collection::vec((0.01..100.0_f64, 0..200_u64, 0..400_u64), 1..60)) {
            let tuning = tuning();
            let mut account = paged_out(0.0, 200);
            let (mut now, mut faults) = (0.0, 0);
            for (pause, swapped, more) in steps {
                now += pause;
                faults += more;
                account.see(now, &cached(), memory(200 - swapped, swapped), faults, &tuning);
                prop_assert!(account.cost_s <= tuning.refault * account.not_before + 1e-9);
                if now >= account.not_before {
                    let done = Done { reclaimed: 1, cpu_s: 0.2, after: memory(0, 200), ..Done::default() };
                    account.did(now, What::PageOut, done, String::new(), &tuning);
                }
            }
        }
    }
}
