//! Setting values again: what was changed comes back, what stood stays, and an undo still ends where
//! everything began.

use super::fake::{QUEUE, VM, all};
use super::rules::Machine;
use crate::StoreError;
use kilter_api::{Held, Restored};
use proptest::prelude::*;

const SETTINGS: [(&str, &str); 6] = [
    ("vm.swappiness", "10"),
    ("vm.dirty_bytes", "67108864"),
    ("block.vda.scheduler", "bfq"),
    ("block.vda.nr_requests", "64"),
    ("block.vda.iostats", "0"),
    ("block.vda.read_ahead_kb", "64"),
];

fn all_held(machine: &Machine) -> bool {
    let status = machine.store.status(&machine.kernel).unwrap();
    let mut values = status.layers.iter().flat_map(|layer| &layer.values);
    values.all(|value| value.now == Held::InForce)
}

fn set_again(machine: &Machine, knobs: &[&str]) -> Vec<String> {
    let knobs: Vec<String> = knobs.iter().map(|knob| (*knob).to_owned()).collect();
    let lock = machine.store.lock().unwrap();
    let done = lock.set_again(&machine.kernel, "p", &knobs).unwrap();
    done.into_iter()
        .map(|again| format!("{}={}", again.knob, again.outcome.unwrap()))
        .collect()
}

#[test]
fn a_value_set_again_takes_along_what_it_resets() {
    let machine = Machine::new();
    let before = machine.kernel.state();
    machine.begin("p", &all(&SETTINGS));
    machine.kernel.echo("none", &format!("{QUEUE}/scheduler"));
    // The switch lifted read_ahead_kb, and so does the switch back, which resets nr_requests too.
    let adrift = ["block.vda.scheduler", "block.vda.read_ahead_kb"];
    assert_eq!(
        set_again(&machine, &adrift),
        ["block.vda.scheduler=bfq", "block.vda.read_ahead_kb=64"]
    );
    assert!(all_held(&machine));
    let done = machine.revert(None);
    let is_back =
        |file: &kilter_api::RestoredFile| matches!(file.outcome, Restored::Restored { .. });
    assert!(done.files.iter().all(is_back), "{done:?}");
    assert_eq!(machine.kernel.state(), before);
}

#[test]
fn only_the_knobs_that_were_named_are_set_again() {
    let machine = Machine::new();
    machine.begin("p", &all(&SETTINGS));
    machine.kernel.echo("99", &format!("{VM}/swappiness"));
    machine.kernel.echo("1", &format!("{QUEUE}/iostats"));
    assert_eq!(
        set_again(&machine, &["block.vda.iostats"]),
        ["block.vda.iostats=0"]
    );
    assert_eq!(machine.kernel.get(&format!("{VM}/swappiness")), "99");
}

#[test]
fn a_newer_layer_keeps_its_value_and_no_layer_is_an_error() {
    let machine = Machine::new();
    machine.begin("p", &all(&SETTINGS));
    machine.begin("newer", &all(&[("vm.swappiness", "20")]));
    machine.kernel.echo("99", &format!("{VM}/swappiness"));
    assert_eq!(set_again(&machine, &["vm.swappiness"]), [""; 0]);
    assert_eq!(machine.kernel.get(&format!("{VM}/swappiness")), "99");
    let lock = machine.store.lock().unwrap();
    let none = lock.set_again(&machine.kernel, "other", &[]);
    assert!(matches!(none, Err(StoreError::NoSuchLayer(_))));
}

proptest! {
    #[test]
    fn whatever_was_disturbed_everything_is_held_again(
        echoes in proptest::collection::vec((0_usize..6, 0_usize..3), 1..8)
    ) {
        let machine = Machine::new();
        let before = machine.kernel.state();
        machine.begin("p", &all(&SETTINGS));
        for (which, value) in echoes {
            let (path, values) = [
                (format!("{VM}/swappiness"), ["0", "60", "100"]),
                (format!("{VM}/dirty_ratio"), ["5", "20", "40"]),
                (format!("{QUEUE}/scheduler"), ["none", "mq-deadline", "kyber"]),
                (format!("{QUEUE}/nr_requests"), ["32", "128", "256"]),
                (format!("{QUEUE}/iostats"), ["0", "1", "1"]),
                (format!("{QUEUE}/read_ahead_kb"), ["128", "512", "4"]),
            ][which].clone();
            machine.kernel.echo(values[value], &path);
        }
        set_again(&machine, &SETTINGS.map(|(knob, _)| knob));
        prop_assert!(all_held(&machine));
        machine.revert(None);
        prop_assert_eq!(machine.kernel.state(), before);
    }
}
