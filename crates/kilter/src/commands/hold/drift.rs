//! What to do about values that are not the profile's any more: the policies, without any file.

use kilter_api::HoldPolicy;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Values set again in a row before it is done more and more rarely.
const PATIENCE: u32 = 5;

/// The longest time between two attempts.
const LONGEST: Duration = Duration::from_secs(3600);

/// A value that is not the profile's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// The knob.
    pub knob: String,
    /// The value now; none where the file is gone for now.
    pub value: Option<String>,
    /// Whether the kernel itself changes it when CPUs or devices come and go or the machine sleeps.
    pub resettable: bool,
}

impl Drift {
    /// One of a knob in this file. Sysctls change only when somebody writes them, but for the
    /// scheduler's, which CFS computed anew for the CPUs that are left, and a reserve that memory
    /// hotplug computes.
    pub fn new(knob: &str, path: &str, value: Option<String>) -> Self {
        let computed = ["kernel/sched_", "vm/min_free_kbytes"];
        let resettable = match path.strip_prefix("/proc/sys/") {
            Some(sysctl) => computed.iter().any(|name| sysctl.starts_with(name)),
            None => true,
        };
        Drift {
            knob: knob.to_owned(),
            value,
            resettable,
        }
    }
}

/// What to do about one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Set it again: the kernel itself has changed it.
    Restore(String),
    /// Set it again against whoever has changed it.
    Enforce(String),
    /// Tell of it, once for each value.
    Tell(String),
    /// Tell that somebody keeps changing it, and that it will be set again more rarely.
    TellOfFight(String, Duration),
    /// Tell that the profile's value is back.
    TellOfReturn(String),
}

#[derive(Debug)]
struct Known {
    value: String,
    /// How often it was set again in a row, and when it may be next.
    again: u32,
    not_before: Instant,
}

/// What has been noticed so far.
#[derive(Debug)]
pub struct Watch {
    policy: HoldPolicy,
    every: Duration,
    /// Knobs that somebody else has changed.
    theirs: BTreeMap<String, Known>,
    /// Knobs whose file was gone at the last look: what they show next is the kernel's.
    gone: Vec<String>,
}

impl Watch {
    /// Nothing noticed yet; `every` is the time between two looks.
    pub fn new(policy: HoldPolicy, every: Duration) -> Self {
        Watch {
            policy,
            every,
            theirs: BTreeMap::new(),
            gone: Vec::new(),
        }
    }

    /// Forgets everything, after the profile was applied anew.
    pub fn forget(&mut self) {
        self.theirs.clear();
        self.gone.clear();
    }

    /// Whether a knob was let go of to somebody else.
    pub fn is_theirs(&self, knob: &str) -> bool {
        self.policy != HoldPolicy::Enforce && self.theirs.contains_key(knob)
    }

    /// Judges one look at all values. `disturbed` says that CPUs or devices came or went, or that the
    /// machine slept, since the last one: such changes are the kernel's own.
    pub fn judge(&mut self, drifted: &[Drift], disturbed: bool, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut gone = Vec::new();
        for drift in drifted {
            let Some(value) = &drift.value else {
                gone.push(drift.knob.clone());
                continue;
            };
            let reset = disturbed && drift.resettable;
            let by_kernel = reset || self.gone.contains(&drift.knob);
            let action = match self.policy {
                HoldPolicy::Enforce if by_kernel => Some(Action::Restore(drift.knob.clone())),
                HoldPolicy::Enforce => self.enforce(&drift.knob, value, now),
                _ if by_kernel && !self.theirs.contains_key(&drift.knob) => {
                    Some(Action::Restore(drift.knob.clone()))
                }
                _ => self.let_go(&drift.knob, value, now),
            };
            actions.extend(action);
        }
        self.gone = gone;
        actions.extend(self.returned(drifted, now));
        actions
    }

    fn let_go(&mut self, knob: &str, value: &str, now: Instant) -> Option<Action> {
        let known = Known {
            value: value.to_owned(),
            again: 0,
            not_before: now,
        };
        let before = self.theirs.insert(knob.to_owned(), known);
        let news = before.is_none_or(|before| before.value != value);
        news.then(|| Action::Tell(knob.to_owned()))
    }

    fn enforce(&mut self, knob: &str, value: &str, now: Instant) -> Option<Action> {
        let known = self.theirs.entry(knob.to_owned()).or_insert(Known {
            value: value.to_owned(),
            again: 0,
            not_before: now,
        });
        if now < known.not_before {
            return None;
        }
        value.clone_into(&mut known.value);
        known.again += 1;
        let over = known.again.saturating_sub(PATIENCE);
        if over == 0 {
            return Some(Action::Enforce(knob.to_owned()));
        }
        let pause = self.every.saturating_mul(1 << over.min(16)).min(LONGEST);
        known.not_before = now + pause;
        Some(Action::TellOfFight(knob.to_owned(), pause))
    }

    /// Knobs that have the profile's value again.
    fn returned(&mut self, drifted: &[Drift], now: Instant) -> Vec<Action> {
        let enforced = self.policy == HoldPolicy::Enforce;
        let every = self.every;
        let back: Vec<String> = self
            .theirs
            .iter()
            .filter(|(knob, known)| {
                let quiet = !enforced || now > known.not_before + every * 10;
                quiet && !drifted.iter().any(|drift| drift.knob == **knob)
            })
            .map(|(knob, _)| knob.clone())
            .collect();
        for knob in &back {
            self.theirs.remove(knob);
        }
        match enforced {
            true => Vec::new(),
            false => back.into_iter().map(Action::TellOfReturn).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(value: &str) -> Vec<Drift> {
        vec![Drift::new("k", "/sys/k", Some(value.into()))]
    }

    fn watch(policy: HoldPolicy) -> (Watch, Instant) {
        (Watch::new(policy, Duration::from_secs(30)), Instant::now())
    }

    #[test]
    fn a_later_change_wins_and_is_told_once() {
        for policy in [HoldPolicy::Yield, HoldPolicy::Warn] {
            let (mut watch, now) = watch(policy);
            assert_eq!(watch.judge(&[], false, now), []);
            assert_eq!(
                watch.judge(&at("1"), false, now),
                [Action::Tell("k".into())]
            );
            assert_eq!(watch.judge(&at("1"), false, now), []);
            assert!(watch.is_theirs("k"));
            // Not even a resume takes it back.
            assert_eq!(watch.judge(&at("1"), true, now), []);
            assert_eq!(
                watch.judge(&at("2"), false, now),
                [Action::Tell("k".into())]
            );
            assert_eq!(
                watch.judge(&[], false, now),
                [Action::TellOfReturn("k".into())]
            );
            assert_eq!(
                watch.judge(&at("1"), false, now),
                [Action::Tell("k".into())]
            );
        }
    }

    #[test]
    fn what_the_kernel_changed_is_set_again() {
        let gone = [Drift::new("k", "/sys/k", None)];
        for policy in [HoldPolicy::Yield, HoldPolicy::Warn, HoldPolicy::Enforce] {
            let (mut watch, now) = watch(policy);
            assert_eq!(
                watch.judge(&at("1"), true, now),
                [Action::Restore("k".into())]
            );
            assert!(!watch.is_theirs("k"));
            // A CPU that went and came back, without news of it.
            assert_eq!(watch.judge(&gone, false, now), []);
            assert_eq!(
                watch.judge(&at("1"), false, now),
                [Action::Restore("k".into())]
            );
        }
    }

    #[test]
    fn a_sysctl_is_nobodys_but_its_writers() {
        let (mut watch, now) = watch(HoldPolicy::Yield);
        let written = Drift::new("k", "/proc/sys/vm/swappiness", Some("1".into()));
        assert_eq!(
            watch.judge(&[written], true, now),
            [Action::Tell("k".into())]
        );
        assert!(Drift::new("k", "/proc/sys/kernel/sched_latency_ns", None).resettable);
    }

    #[test]
    fn enforcing_grows_rare_against_somebody_stubborn() {
        let (mut watch, mut now) = watch(HoldPolicy::Enforce);
        for _ in 0..PATIENCE {
            assert_eq!(
                watch.judge(&at("1"), false, now),
                [Action::Enforce("k".into())]
            );
            assert_eq!(watch.judge(&[], false, now), []);
        }
        let mut pauses = Vec::new();
        for _ in 0..10 {
            match watch.judge(&at("1"), false, now).as_slice() {
                [Action::TellOfFight(_, pause)] => pauses.push(pause.as_secs()),
                other => panic!("{other:?}"),
            }
            assert_eq!(watch.judge(&at("1"), false, now), [], "not before its time");
            now += *pauses
                .last()
                .map(|s| Duration::from_secs(*s))
                .as_ref()
                .unwrap();
        }
        assert_eq!(pauses[..3], [60, 120, 240]);
        assert_eq!(*pauses.last().unwrap(), 3600);
        // Left in peace for long, it is as before.
        now += LONGEST;
        assert_eq!(watch.judge(&[], false, now), []);
        assert_eq!(
            watch.judge(&at("1"), false, now),
            [Action::Enforce("k".into())]
        );
    }
}
