//! Decisions on made-up machines, and an adversary that plays against them.

use super::*;
use crate::account::Done;
use crate::params::defaults;
use crate::standing::By;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn tuning() -> Tuning {
    Tuning::from(&defaults())
}

fn plenty() -> Memory {
    Memory {
        total: 1000 * MIB,
        available: 900 * MIB,
        swap_total: 1000 * MIB,
        swap_free: 1000 * MIB,
        ratio: Some(3.0),
        ..Memory::default()
    }
}

fn scarce() -> Memory {
    Memory {
        available: 200 * MIB,
        ..plenty()
    }
}

fn use_of(resident: u64, swapped: u64) -> MemoryUse {
    MemoryUse {
        resident_bytes: resident * MIB,
        anon_bytes: resident * MIB,
        swapped_bytes: swapped * MIB,
    }
}

fn standing() -> Standing {
    Standing::Cached(By::Rule, "x".into())
}

/// Apps of 80 MiB, cold, cached since these times.
fn accounts(since: &[f64]) -> Vec<Account> {
    let account = |&since: &f64| Account {
        cached_since: Some(since),
        cold: true,
        ..Account::default()
    };
    since.iter().map(account).collect()
}

#[test]
fn reading_back_leaves_memory_plenty() {
    // 250 MiB are wanted, and 50 more are freed where there is less.
    assert_eq!(plenty().room(&tuning()), 600 * MIB);
    assert_eq!(scarce().room(&tuning()), 0);
    let after = Memory {
        available: plenty().available - plenty().room(&tuning()),
        ..plenty()
    };
    assert_eq!((after.room(&tuning()), after.short(&tuning())), (0, 0));
}

fn plan(accounts: &[Account], mode: Mode, memory: Memory) -> Plan {
    let standing = standing();
    let apps: Vec<Seen> = accounts
        .iter()
        .map(|account| Seen {
            standing: &standing,
            memory: use_of(80, 0),
            account,
            oom_score_adj: 900,
        })
        .collect();
    let tuning = tuning();
    decide(
        &apps,
        Moment {
            now: 100.0,
            mode,
            memory: &memory,
            tuning: &tuning,
            throttled_s: 0.0,
        },
    )
}

#[test]
fn cold_comes_first_and_out_only_when_memory_is_scarce() {
    let fresh = [Account {
        cached_since: Some(1.0),
        ..Account::default()
    }];
    assert_eq!(
        plan(&fresh, Mode::Pressure, scarce()).actions,
        [(0, What::Cold)]
    );
    let cold = accounts(&[1.0]);
    assert_eq!(plan(&cold, Mode::Pressure, plenty()), Plan::default());
    assert_eq!(
        plan(&cold, Mode::Pressure, scarce()).actions,
        [(0, What::PageOut)]
    );
    let pressed = Memory {
        pressed: true,
        available: 400 * MIB,
        ..plenty()
    };
    assert_eq!(
        plan(&cold, Mode::Pressure, pressed).actions,
        [(0, What::PageOut)]
    );
    let elsewhere = Memory {
        pressed: true,
        ..plenty()
    };
    assert_eq!(plan(&cold, Mode::Pressure, elsewhere).actions, []);
    assert_eq!(
        plan(&fresh, Mode::OnCached, plenty()).actions,
        [(0, What::PageOut)]
    );
}

#[test]
fn the_longest_cached_go_first_and_no_more_than_needed() {
    // 50 MiB short of 25 %, and 50 more: two apps of 80.
    let cold = accounts(&[30.0, 10.0, 20.0, 40.0]);
    let actions = plan(&cold, Mode::Pressure, scarce()).actions;
    assert_eq!(actions, [(1, What::PageOut), (2, What::PageOut)]);
}

#[test]
fn every_stop_stops() {
    let cold = accounts(&[1.0]);
    for memory in [
        Memory {
            swap_total: 0,
            swap_free: 0,
            ..scarce()
        },
        Memory {
            swap_free: 99 * MIB,
            ..scarce()
        },
        Memory {
            swap_free: 0,
            ..scarce()
        },
        Memory {
            zram_full: true,
            ..scarce()
        },
        Memory {
            ratio: Some(1.2),
            ..scarce()
        },
    ] {
        assert_eq!(
            plan(&cold, Mode::Pressure, memory).actions,
            [],
            "{memory:?}"
        );
        assert_eq!(
            plan(&cold, Mode::OnCached, memory).actions,
            [],
            "{memory:?}"
        );
        assert!(memory.stop(&tuning()).is_some());
    }
    assert_eq!(scarce().stop(&tuning()), None);
}

#[test]
fn the_scarcer_memory_is_the_shorter_the_pause_of_who_did_not_come_back_at_once() {
    let owing = |strikes| {
        vec![Account {
            not_before: 500.0,
            strikes,
            ..accounts(&[1.0]).remove(0)
        }]
    };
    let critical = Memory {
        available: 50 * MIB,
        ..scarce()
    };
    for mode in [Mode::Pressure, Mode::OnCached] {
        let waits = [249, 200, 100].map(|available| {
            let memory = Memory {
                available: available * MIB,
                ..scarce()
            };
            plan(&owing(0), mode, memory).next.unwrap_or(0.0)
        });
        assert!(waits[0] > 450.0, "hardly scarce: {waits:?}");
        assert!((waits[1] - 500.0 / 3.7).abs() < 0.1, "{waits:?}");
        assert_eq!(waits[2], 0.0, "500 s a seventh as long are over at 100 s");
        assert_eq!(plan(&owing(1), mode, scarce()).next, Some(500.0));
        assert_eq!(
            plan(&owing(0), mode, critical).actions,
            [(0, What::PageOut)]
        );
        assert_eq!(plan(&owing(1), mode, critical).actions, []);
    }
}

#[test]
fn the_cpu_is_shared() {
    let tuning = tuning();
    let mut throttle = Throttle::new(0.0);
    assert_eq!(throttle.wait(0.0, &tuning), 0.0);
    throttle.spend(0.0, 3.0, &tuning);
    assert!(
        (throttle.wait(0.0, &tuning) - 2.0).abs() < 1e-9,
        "a second at half the CPU"
    );
    assert_eq!(throttle.wait(2.0, &tuning), 0.0);
    throttle.spend(1000.0, 0.0, &tuning);
    throttle.spend(1000.0, BURST_S + 0.5, &tuning);
    assert!(
        (throttle.wait(1000.0, &tuning) - 1.0).abs() < 1e-9,
        "no more than a burst is saved"
    );
}

/// An app that touches everything right after each page-out, under either policy and for as long
/// as memory is about to run out.
fn adversary(mode: Mode, mib: u64, after_s: f64, until_s: f64) -> (f64, u64) {
    let (tuning, memory) = (
        tuning(),
        Memory {
            available: 10 * MIB,
            ..plenty()
        },
    );
    let standing = standing();
    let mut account = Account::default();
    let (mut now, mut lost, mut faults, mut outs) = (0.0, 0.0, 0, 0);
    let (mut state, mut due) = (use_of(mib, 0), f64::INFINITY);
    while now < until_s {
        if now >= due {
            lost += state.swapped_bytes as f64 * SWAP_IN_MEASURED_S;
            faults += state.swapped_bytes / 4096;
            (state, due) = (use_of(mib, 0), f64::INFINITY);
        }
        account.see(now, &standing, state, faults, &tuning);
        let seen = Seen {
            standing: &standing,
            memory: state,
            account: &account,
            oom_score_adj: 0,
        };
        let moment = Moment {
            now,
            mode,
            memory: &memory,
            tuning: &tuning,
            throttled_s: 0.0,
        };
        for (_, what) in decide(&[seen], moment).actions {
            let mut done = Done::default();
            if what == What::PageOut {
                state = use_of(0, mib);
                (outs, due) = (outs + 1, now + after_s);
                done = Done {
                    reclaimed: mib * MIB,
                    cpu_s: mib as f64 * 1.4e-3,
                    after: state,
                    ..done
                };
                lost += done.cpu_s;
            }
            account.did(now, what, done, String::new(), &tuning);
        }
        now += 0.25;
    }
    (lost / until_s, outs)
}

/// What was measured, where the account reckons with more.
const SWAP_IN_MEASURED_S: f64 = 1.3e-3 / MIB as f64;

#[test]
fn an_adversary_loses_little() {
    for mode in [Mode::Pressure, Mode::OnCached] {
        for after_s in [0.25, 3.0, 9.0, 11.0, 30.0] {
            let (lost, outs) = adversary(mode, 256, after_s, 3600.0);
            // Where memory is about to run out, only coming back at once is a reason to wait longer
            // than between any two page-outs.
            let waived = after_s > crate::account::AT_ONCE_S;
            let bar = if waived { 0.07 } else { 0.02 };
            assert!(lost <= bar, "{mode:?} {after_s}: {lost:.4}");
            assert!(outs >= 1);
        }
    }
}

proptest! {
    #[test]
    fn decisions_are_safe(
        since in proptest::collection::vec(0.0..100.0_f64, 1..20),
        available in 0..1000_u64,
        free in 0..=1000_u64,
        pressed: bool,
        on_cached: bool,
        blocked in 0.0..200.0_f64,
        cached: bool,
    ) {
        let tuning = tuning();
        let memory = Memory { available: available * MIB, swap_free: free * MIB, pressed, ..plenty() };
        let mode = if on_cached { Mode::OnCached } else { Mode::Pressure };
        let mut accounts = accounts(&since);
        accounts[0].not_before = blocked;
        accounts[0].strikes = 1;
        let standing = if cached { standing() } else { Standing::Active("y".into()) };
        let apps: Vec<Seen> = accounts.iter().map(|account| Seen { standing: &standing, memory: use_of(80, 0), account, oom_score_adj: 0 }).collect();
        let plan = decide(&apps, Moment { now: 100.0, mode, memory: &memory, tuning: &tuning, throttled_s: 0.0 });
        let mut seen = std::collections::BTreeSet::new();
        for (at, what) in &plan.actions {
            prop_assert!(cached, "only cached apps are touched");
            prop_assert!(seen.insert(*at), "each once");
            prop_assert!(*what == What::PageOut && memory.stop(&tuning).is_none());
            prop_assert!(*at != 0 || blocked <= 100.0, "a struck app is left alone");
        }
        // No action and no change means no other decision before `next`: no busy loop.
        if let Some(next) = plan.next {
            prop_assert!(next > 100.0);
        }
        let out: u64 = plan.actions.len() as u64 * 80 * MIB;
        if mode == Mode::Pressure && !plan.actions.is_empty() {
            prop_assert!(out < memory.short(&tuning).max(1) + 80 * MIB, "no more than needed");
        }
    }
}
