//! Files that come with another write of their layer, and go with it.

use super::crash::survives_every_death_of;
use super::fake::{QUEUE, all};
use super::rules::Machine;
use crate::Transaction;
use kilter_api::{Held, Restored, Reverted};

const SCHEDULER: (&str, &str) = ("block.vda.scheduler", "kyber");
const LATENCY: (&str, &str) = ("block.vda.iosched/read_lat_nsec", "1000000");

fn kyber() -> Transaction {
    all(&[SCHEDULER, LATENCY])
}

fn latency(machine: &Machine) -> String {
    machine
        .kernel
        .get(&format!("{QUEUE}/iosched/read_lat_nsec"))
}

fn outcome<'a>(done: &'a Reverted, knob: &str) -> &'a Restored {
    let file = done.files.iter().find(|file| file.knob == knob);
    &file.unwrap_or_else(|| panic!("{knob}: {done:?}")).outcome
}

#[test]
fn a_file_that_comes_with_a_switch_is_written_and_goes_with_it() {
    let machine = Machine::new();
    let before = machine.kernel.state();
    let begun = machine.begin("p", &kyber());
    assert_eq!(latency(&machine), "1000000");
    assert!(begun.missing.is_empty());
    let written = begun.written.iter().find(|one| one.knob == LATENCY.0);
    let written = written.unwrap();
    assert_eq!((&*written.before, &*written.kept), ("2000000", "1000000"));
    let status = machine.store.status(&machine.kernel).unwrap();
    let values = &status.layers[0].values;
    assert!(values.iter().all(|value| value.now == Held::InForce));
    let done = machine.revert(None);
    assert_eq!(outcome(&done, LATENCY.0), &Restored::Vanished);
    assert_eq!(machine.kernel.state(), before);
    assert!(machine.layer_files().is_empty());
}

#[test]
fn one_that_does_not_come_is_told_and_harms_nothing() {
    let machine = Machine::new();
    let before = machine.kernel.state();
    // A kernel on which the scheduler does not bring it.
    let mut transaction = all(&[("block.vda.scheduler", "bfq"), LATENCY]);
    for step in &mut transaction.steps {
        step.appears = step.knob == LATENCY.0;
    }
    let begun = machine.begin("p", &transaction);
    assert_eq!(begun.missing, [LATENCY.0]);
    assert!(begun.written.iter().all(|one| one.knob != LATENCY.0));
    let status = machine.store.status(&machine.kernel).unwrap();
    let values = &status.layers[0].values;
    assert!(values.iter().all(|value| value.knob != LATENCY.0));
    machine.revert(None);
    assert_eq!(machine.kernel.state(), before);
}

#[test]
fn it_keeps_the_first_value_where_a_newer_layer_keeps_the_switch() {
    let machine = Machine::new();
    let before = machine.kernel.state();
    machine.begin("lower", &kyber());
    machine.begin("upper", &all(&[SCHEDULER]));
    let done = machine.revert(Some("lower"));
    assert_eq!(outcome(&done, SCHEDULER.0), &Restored::Covered);
    assert_eq!(latency(&machine), "2000000", "the value it came with");
    machine.revert(None);
    assert_eq!(machine.kernel.state(), before);
}

#[test]
fn a_layer_in_between_gets_its_value_back() {
    let machine = Machine::new();
    let before = machine.kernel.state();
    machine.begin("a", &kyber());
    machine.begin("b", &all(&[("block.vda.scheduler", "bfq")]));
    machine.begin("c", &all(&[SCHEDULER, (LATENCY.0, "3000000")]));
    assert_eq!(latency(&machine), "3000000");
    machine.revert(Some("b"));
    assert_eq!(latency(&machine), "3000000");
    machine.revert(Some("c"));
    assert_eq!(latency(&machine), "1000000");
    machine.revert(Some("a"));
    assert_eq!(machine.kernel.state(), before);
}

#[test]
fn somebody_elses_switch_takes_it_away_without_an_error() {
    let machine = Machine::new();
    machine.begin("p", &kyber());
    machine.kernel.echo("bfq", &format!("{QUEUE}/scheduler"));
    let done = machine.revert(None);
    assert_eq!(outcome(&done, LATENCY.0), &Restored::Vanished);
    assert!(matches!(
        outcome(&done, SCHEDULER.0),
        Restored::LeftAlone { .. }
    ));
    assert!(machine.layer_files().is_empty());
}

#[test]
fn deaths_while_it_comes_and_goes_are_undone() {
    let apply = |machine: &Machine| drop(machine.begin("p", &kyber()));
    survives_every_death_of(2, |_| {}, apply);
    survives_every_death_of(1, apply, |machine| drop(machine.revert(None)));
}
