//! Death at every write, torn journals, and histories drawn at random.

use super::fake::{FakeKernel, Killed, all};
use super::rules::Machine;
use crate::Transaction;
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Every knob of the simulated kernel with values that it takes.
const CHOICES: &[(&str, &[&str])] = &[
    ("vm.swappiness", &["10", "200"]),
    ("vm.dirty_ratio", &["20", "40"]),
    ("vm.dirty_bytes", &["8192", "1000000"]),
    ("vm.dirty_background_ratio", &["0", "10", "5"]),
    ("vm.dirty_background_bytes", &["8192", "500000"]),
    ("thp.enabled", &["always", "never"]),
    (
        "block.vda.scheduler",
        &["none", "bfq", "mq-deadline", "kyber"],
    ),
    ("block.vda.iosched/read_expire", &["100", "400"]),
    ("block.vda.iosched/read_lat_nsec", &["1000000"]),
    ("block.vda.nr_requests", &["2", "32", "512"]),
    ("block.vda.read_ahead_kb", &["0", "6", "4096"]),
    ("block.vda.iostats", &["0", "1"]),
    ("sched.base_slice_ns", &["100000", "3000000"]),
    ("sched.tunable_scaling", &["0", "1"]),
    ("sched.features.NEXT_BUDDY", &["0", "1"]),
    ("sched.features.PLACE_LAG", &["0"]),
    ("kernel.sched_rt_period_us", &["500000", "2000000"]),
    ("kernel.sched_rt_runtime_us", &["400000", "1500000"]),
    ("kernel.printk_devkmsg", &["on", "off"]),
];

/// Members of a pair that zero each other cannot be set together; the planner refuses it.
fn one_of_each_pair(
    settings: Vec<(&'static str, &'static str)>,
) -> Vec<(&'static str, &'static str)> {
    let mut seen: Vec<String> = Vec::new();
    let group = |knob: &str| {
        knob.trim_end_matches("_ratio")
            .trim_end_matches("_bytes")
            .to_owned()
    };
    settings
        .into_iter()
        .filter(|(knob, _)| {
            let group = group(knob);
            let new = !seen.contains(&group);
            seen.push(group);
            new
        })
        .collect()
}

fn settings() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let setting = prop::sample::select(CHOICES).prop_flat_map(|(knob, values)| {
        prop::sample::select(values).prop_map(move |value| (knob, value))
    });
    prop::collection::vec(setting, 1..6).prop_map(one_of_each_pair)
}

/// Runs something that may die of the fuse; true if it did.
fn dies(machine: &Machine, work: impl FnOnce()) -> bool {
    let outcome = catch_unwind(AssertUnwindSafe(work));
    machine.kernel.fuse.set(None);
    match outcome {
        Ok(()) => false,
        Err(cause) if cause.is::<Killed>() => true,
        Err(cause) => std::panic::resume_unwind(cause),
    }
}

fn assert_pristine(machine: &Machine, context: &str) {
    assert_eq!(changed(machine), [""; 0], "{context}");
    assert!(machine.layer_files().is_empty(), "{context}");
    // The hidden copy too: hotplug must not bring a layer's value back.
    machine.kernel.hotplug();
    assert_eq!(changed(machine), [""; 0], "{context}, after hotplug");
}

/// The files that differ from those of an untouched machine.
fn changed(machine: &Machine) -> Vec<String> {
    let fresh = FakeKernel::new().state();
    let differing = machine
        .kernel
        .state()
        .into_iter()
        .filter(|(path, text)| fresh.get(path) != Some(text));
    differing
        .map(|(path, text)| format!("{path}={}", text.trim()))
        .collect()
}

fn quiet_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<Killed>() {
                usual(info);
            }
        }));
    });
}

/// Applies with death at point `n` (even: before a write, odd: after it); true if it died.
fn apply_dies_at(machine: &Machine, settings: &[(&str, &str)], n: usize) -> bool {
    machine.kernel.fuse.set(Some(n));
    dies(machine, || {
        let _ = machine.try_begin("p", &all(settings));
    })
}

fn survives_every_death(prepare: impl Fn(&Machine), work: impl Fn(&Machine)) {
    survives_every_death_of(12, prepare, work);
}

/// Kills `work` at every point in turn and checks that the next command restores everything.
/// `writes`: how many it makes at least.
pub fn survives_every_death_of(writes: usize, prepare: impl Fn(&Machine), work: impl Fn(&Machine)) {
    quiet_panics();
    let mut points = 0;
    loop {
        let machine = Machine::new();
        prepare(&machine);
        machine.kernel.fuse.set(Some(points));
        if !dies(&machine, || work(&machine)) {
            break;
        }
        let lock = machine.store.lock().unwrap();
        lock.recover(&machine.kernel).unwrap();
        assert_pristine(&machine, &format!("killed at point {points}"));
        points += 1;
    }
    assert!(points >= 2 * writes, "only {points} crash points");
}

fn everything() -> Transaction {
    let last = |(knob, values): &(&'static str, &[&'static str])| (*knob, *values.last().unwrap());
    // kyber, so the files of its predecessor are gone.
    let there = |(knob, _): &(&str, &str)| !knob.ends_with("/read_expire");
    let settings = CHOICES.iter().map(last).filter(there).collect();
    all(&one_of_each_pair(settings))
}

#[test]
fn an_apply_killed_at_any_write_is_undone_by_the_next_command() {
    let apply = |machine: &Machine| drop(machine.begin("p", &everything()));
    survives_every_death(|_| {}, apply);
}

#[test]
fn a_revert_killed_at_any_write_is_finished_by_the_next_command() {
    let apply = |machine: &Machine| drop(machine.begin("p", &everything()));
    survives_every_death(apply, |machine| drop(machine.revert(None)));
}

/// One thing that happens to a machine.
#[derive(Clone, Debug)]
enum Event {
    Apply {
        settings: Vec<(&'static str, &'static str)>,
        fuse: Option<usize>,
    },
    Revert {
        layer: usize,
        fuse: Option<usize>,
    },
    Hotplug,
}

fn event() -> impl Strategy<Value = Event> {
    let fuse = || prop::option::weighted(0.4, 0usize..40);
    prop_oneof![
        4 => (settings(), fuse()).prop_map(|(settings, fuse)| Event::Apply { settings, fuse }),
        3 => (0usize..4, fuse()).prop_map(|(layer, fuse)| Event::Revert { layer, fuse }),
        1 => Just(Event::Hotplug),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever is applied, in whatever order it is reverted, and whenever kilter dies: once all
    /// layers are gone the machine is as it was.
    #[test]
    fn every_history_ends_where_it_began(events in prop::collection::vec(event(), 1..10)) {
        quiet_panics();
        let machine = Machine::new();
        for (number, event) in events.iter().enumerate() {
            if let Event::Hotplug = event {
                machine.kernel.hotplug();
                continue;
            }
            machine.store.lock().unwrap().recover(&machine.kernel).unwrap();
            match event {
                Event::Apply { settings, fuse } => {
                    machine.kernel.fuse.set(*fuse);
                    // A kernel may refuse (a runtime above the period): then nothing is in force.
                    dies(&machine, || drop(machine.try_begin(&format!("p{number}"), &all(settings))));
                }
                Event::Revert { layer, fuse } => {
                    let status = machine.store.status(&machine.kernel).unwrap();
                    if let Some(layer) = status.layers.get(*layer) {
                        machine.kernel.fuse.set(*fuse);
                        dies(&machine, || drop(machine.revert(Some(&layer.name))));
                    }
                }
                Event::Hotplug => {}
            }
        }
        machine.store.lock().unwrap().recover(&machine.kernel).unwrap();
        machine.revert(None);
        assert_pristine(&machine, "at the end");
    }

    /// A journal cut off anywhere by a crash never stops the undo, and never writes a wrong value.
    #[test]
    fn a_torn_journal_is_harmless(settings in settings(), fuse in 0usize..20, cut in 0.0f64..1.0) {
        quiet_panics();
        let machine = Machine::new();
        apply_dies_at(&machine, &settings, fuse);
        for file in machine.layer_files() {
            // Only what follows the intent can be torn: it was whole before the first write.
            let bytes = std::fs::read(&file).unwrap();
            let intent = bytes.iter().position(|&byte| byte == b'\n').unwrap() + 1;
            let keep = intent + ((bytes.len() - intent) as f64 * cut) as usize;
            std::fs::write(&file, &bytes[..keep]).unwrap();
        }
        machine.store.lock().unwrap().recover(&machine.kernel).unwrap();
        machine.revert(None);
        assert_pristine(&machine, "after the tear");
    }
}
