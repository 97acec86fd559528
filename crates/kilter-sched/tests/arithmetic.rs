//! The arithmetic that runs in the kernel, against a table and against 128-bit mathematics.

use kilter_sched::arithmetic::{Ratio, age, life_over, ratio, start, weight};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// A claim's beginning, so that a time before it can be told.
const START: u64 = 100_000 * SECOND;

#[test]
fn weights_are_the_seeds() {
    for (prio, wanted) in [
        (100, 40),
        (119, 21),
        (120, 20),
        (121, 19),
        (138, 2),
        (139, 1),
    ] {
        assert_eq!(weight(prio), wanted, "priority {prio}");
    }
    // A real-time priority that is inherited, and one that does not exist.
    assert_eq!((weight(49), weight(140), weight(i32::MAX)), (40, 1, 1));
}

#[test]
fn age_is_one_until_the_claim_begins() {
    assert_eq!(age(START + 7_000, START), 7_000);
    for now in [START, START - 1, 0] {
        assert_eq!(age(now, START), 1, "{now}");
    }
}

/// The seed's example: a task that has lived for 60 minutes and run for half of them. It prints
/// ratios without the weight; with that of nice 0 they are twenty times as high.
#[test]
fn the_seeds_task_of_sixty_minutes_hardly_moves() {
    let hour = 3_600 * SECOND;
    let quotient = |age: u64, sum: u64| {
        let Ratio { claim, served } = ratio(START + age, START, sum, 1);
        claim as f64 / served as f64
    };
    for (age, sum, told) in [
        (hour, hour / 2, 2.0),
        (hour, hour / 2 + 4 * MS, 1.999_995_556),
        (hour + SECOND, hour / 2 + 4 * MS, 2.000_551_11),
    ] {
        assert!((quotient(age, sum) - told).abs() < 1e-8, "{age} {sum}");
    }
    // In whole numbers 4 ms of running make 1 of 2, and 39 of 40 at nice 0.
    let at = |age, sum, weight| ratio(START + age, START, sum, weight);
    let whole = |ratio: Ratio| ratio.claim / ratio.served;
    assert_eq!(whole(at(hour, hour / 2 - 1, 1)), 2);
    assert_eq!(whole(at(hour, hour / 2 + 4 * MS, 1)), 1);
    assert_eq!(whole(at(hour, hour / 2 + 4 * MS, weight(120))), 39);
}

/// "A new task … its age is few microseconds 7000ns … will have HRRN = 7000."
#[test]
fn a_new_task_is_above_old_ones_and_a_latency_delays_it() {
    let old = ratio(START + 10 * SECOND, START, SECOND, weight(120));
    let new = |latency_ns: i64| {
        let born = START + 10 * SECOND - 7_000;
        ratio(START + 10 * SECOND, start(born, latency_ns), 0, weight(120))
    };
    assert_eq!(
        new(0),
        Ratio {
            claim: 7_000 * 20,
            served: 1
        }
    );
    assert!(new(0).is_higher_by_the_seed(&old));
    assert_eq!(
        new(6 * MS as i64),
        Ratio {
            claim: 20,
            served: 1
        }
    );
    assert!(!new(6 * MS as i64).is_higher_by_the_seed(&old));
    // Negative: a claim from the past, as the seed's author tried with -500,000,000 µs.
    assert_eq!(new(-500 * SECOND as i64).claim, (500 * SECOND + 7_000) * 20);
}

/// In the seed such a task's age is above every lifetime, so its first tick took the claim away.
#[test]
fn a_negative_latency_does_not_end_a_life() {
    let born = START;
    let claim = start(born, -500 * SECOND as i64);
    assert!(
        life_over(born + 4 * MS, claim, 10 * SECOND),
        "the collision"
    );
    assert!(!life_over(born + 4 * MS, born, 10 * SECOND));
    assert!(!life_over(born + 10 * SECOND - 1, born, 10 * SECOND));
    assert!(life_over(born + 10 * SECOND, born, 10 * SECOND));
    assert!(!life_over(born - 1, born, 0), "not before it began");
}

/// Equal quotients: the remainder decides, and remainders of different divisors say nothing.
#[test]
fn the_seeds_remainder_rule_can_order_wrongly() {
    let ratios = |(claim, served)| Ratio { claim, served };
    // 2.5 against 2.1, with remainders 1 and 1,000: the smaller fraction wins.
    let (higher, lower) = (ratios((5, 2)), ratios((21_000, 10_000)));
    assert!(lower.is_higher_by_the_seed(&higher));
    assert!(higher.is_higher(&lower) && !lower.is_higher(&higher));
    // The same with two hogs a while after their start, nice 19 having had less than its share.
    let now = START + 5 * SECOND;
    let nice0 = ratio(now, START, 4_650 * MS, weight(120));
    let nice19 = ratio(now, START, 231 * MS, weight(139));
    assert_eq!(nice0.claim / nice0.served, 21);
    assert_eq!(nice19.claim / nice19.served, 21);
    assert!(nice19.is_higher(&nice0), "21.65 is above 21.51");
    assert!(
        nice0.is_higher_by_the_seed(&nice19),
        "but its remainder is smaller"
    );
}

fn any_ratio() -> impl Strategy<Value = Ratio> {
    let number = || prop_oneof![any::<u64>(), 0..1_000u64, 0..100 * SECOND];
    (number(), number()).prop_map(|(claim, served)| Ratio {
        claim,
        served: served.max(1),
    })
}

proptest! {
    #[test]
    fn the_exact_order_is_that_of_the_fractions(a in any_ratio(), b in any_ratio()) {
        let product = |x: u64, y: u64| u128::from(x) * u128::from(y);
        let wanted = product(a.claim, b.served) > product(b.claim, a.served);
        prop_assert_eq!(a.is_higher(&b), wanted);
    }

    #[test]
    fn the_seeds_order_is_its_own_text(a in any_ratio(), b in any_ratio()) {
        let mut diff = (a.claim / a.served).wrapping_sub(b.claim / b.served) as i64;
        if diff == 0 {
            diff = (a.claim % a.served).wrapping_sub(b.claim % b.served) as i64;
        }
        prop_assert_eq!(a.is_higher_by_the_seed(&b), diff > 0);
    }

    #[test]
    fn unequal_quotients_are_never_ordered_wrongly(
        ages in [1..100 * SECOND, 1..100 * SECOND],
        sums in [0..100 * SECOND, 0..100 * SECOND],
        prios in [100..140i32, 100..140],
    ) {
        let of = |n: usize| ratio(START + ages[n], START, sums[n], weight(prios[n]));
        let (a, b) = (of(0), of(1));
        if a.claim / a.served != b.claim / b.served {
            prop_assert_eq!(a.is_higher_by_the_seed(&b), a.is_higher(&b));
        }
    }

    #[test]
    fn no_ratio_is_above_itself_and_two_never_above_each_other(a in any_ratio(), b in any_ratio()) {
        prop_assert!(!a.is_higher(&a) && !a.is_higher_by_the_seed(&a));
        prop_assert!(!(a.is_higher(&b) && b.is_higher(&a)));
        prop_assert!(!(a.is_higher_by_the_seed(&b) && b.is_higher_by_the_seed(&a)));
    }

    #[test]
    fn a_threshold_compares_quotients(a in any_ratio(), b in any_ratio(), percent in 1..1_000_000u64) {
        let wide = |ratio: &Ratio, by: u64| u128::from(ratio.claim / ratio.served) * u128::from(by);
        prop_assert_eq!(a.is_higher_by(&b, percent), wide(&a, 100) > wide(&b, percent));
    }

    #[test]
    fn waiting_raises_and_running_lowers(
        age in 1..100 * SECOND, more in 1..SECOND, sum in 0..100 * SECOND, prio in 100..140i32,
    ) {
        let at = |age, sum| ratio(START + age, START, sum, weight(prio));
        prop_assert!(at(age + more, sum).is_higher(&at(age, sum)));
        prop_assert!(at(age, sum).is_higher(&at(age, sum + more)));
    }
}
