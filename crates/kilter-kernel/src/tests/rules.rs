//! The rules that real kernels were seen to follow, one test each.

use super::fake::{FakeKernel, QUEUE, SCHED, VM, all, set};
use crate::kernel::Kernel;
use crate::{Begun, LayerError, Store, Transaction};
use kilter_api::{Format, Held, Owner, Restored, Reverted};

pub struct Machine {
    pub kernel: FakeKernel,
    pub store: Store,
    dir: tempfile::TempDir,
}

impl Machine {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Machine {
            kernel: FakeKernel::new(),
            store: Store::new(&Kernel::new(dir.path())),
            dir,
        }
    }

    pub fn begin(&self, name: &str, transaction: &Transaction) -> Begun {
        self.try_begin(name, transaction).unwrap()
    }

    pub fn try_begin(&self, name: &str, transaction: &Transaction) -> Result<Begun, LayerError> {
        let lock = self.store.lock().unwrap();
        lock.begin(
            &self.kernel,
            name,
            "2026-01-01T00:00:00Z",
            None,
            transaction,
        )
    }

    pub fn revert(&self, name: Option<&str>) -> Reverted {
        self.store
            .lock()
            .unwrap()
            .revert(&self.kernel, name, false)
            .unwrap()
    }

    pub fn layer_files(&self) -> Vec<std::path::PathBuf> {
        let dir = self.dir.path().join("run/kilter/layers");
        std::fs::read_dir(dir)
            .map(|found| found.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default()
    }
}

/// Applies one setting, checks what it held, reverts, and checks that everything is as before.
fn round_trip(settings: &[(&str, &str)], held: &[(&str, &str)]) {
    round_trip_on(Machine::new(), settings, held);
}

fn round_trip_on(machine: Machine, settings: &[(&str, &str)], held: &[(&str, &str)]) {
    let before = machine.kernel.state();
    machine.begin("p", &all(settings));
    for (path, value) in held {
        assert_eq!(
            machine.kernel.get(path),
            *value,
            "{path} under {settings:?}"
        );
    }
    let done = machine.revert(None);
    assert!(
        done.files
            .iter()
            .all(|file| matches!(file.outcome, Restored::Restored { .. })),
        "{done:?}"
    );
    assert_eq!(machine.kernel.state(), before, "{settings:?}");
    assert!(machine.layer_files().is_empty());
}

fn vm(name: &str) -> String {
    format!("{VM}/{name}")
}

fn queue(name: &str) -> String {
    format!("{QUEUE}/{name}")
}

#[test]
fn g1_rounded_and_clamped_values_are_read_back() {
    let machine = Machine::new();
    let begun = machine.begin(
        "p",
        &all(&[
            ("block.vda.read_ahead_kb", "6"),
            ("block.vda.nr_requests", "3"),
        ]),
    );
    let kept: Vec<_> = begun
        .written
        .iter()
        .map(|written| (written.asked.as_str(), written.kept.as_str()))
        .collect();
    assert_eq!(kept, [("3", "4"), ("6", "4")]);
    // What the kernel kept is what the layer holds: it is in force and not adrift.
    let status = machine.store.status(&machine.kernel).unwrap();
    assert!(
        status.layers[0]
            .values
            .iter()
            .all(|value| value.now == Held::InForce)
    );
}

#[test]
fn g1_an_ignored_write_is_told() {
    let machine = Machine::new();
    let begun = machine.begin("p", &set("vm.laptop_mode", "5"));
    assert_eq!(
        (
            begun.written[0].asked.as_str(),
            begun.written[0].kept.as_str()
        ),
        ("5", "0")
    );
}

#[test]
fn dirty_pairs_come_back_in_both_directions() {
    round_trip(
        &[("vm.dirty_bytes", "8192000")],
        &[(&vm("dirty_bytes"), "8192000"), (&vm("dirty_ratio"), "0")],
    );
    round_trip(
        &[("vm.dirty_background_bytes", "8192000")],
        &[
            (&vm("dirty_background_bytes"), "8192000"),
            (&vm("dirty_background_ratio"), "0"),
        ],
    );
    for name in ["dirty", "dirty_background"] {
        let machine = Machine::new();
        machine
            .kernel
            .echo("1000000", &vm(&format!("{name}_bytes")));
        round_trip_on(
            machine,
            &[(&format!("vm.{name}_ratio"), "30")],
            &[(&vm(&format!("{name}_bytes")), "0")],
        );
    }
}

#[test]
fn a_ratio_written_unchanged_does_not_leave_both_zero() {
    round_trip(
        &[
            ("vm.dirty_background_ratio", "10"),
            ("vm.dirty_ratio", "20"),
        ],
        &[(&vm("dirty_ratio"), "20")],
    );
}

#[test]
fn a_pair_that_was_both_zero_comes_back() {
    let machine = Machine::new();
    machine.kernel.echo("0", &vm("dirty_background_ratio"));
    round_trip_on(machine, &[("vm.dirty_background_bytes", "8192000")], &[]);
}

#[test]
fn g5_queue_limits_lift_read_ahead_and_it_comes_back() {
    round_trip(
        &[("block.vda.iostats", "0")],
        &[(&queue("iostats"), "0"), (&queue("read_ahead_kb"), "128")],
    );
    // Set in one transaction, the value asked for stands although the other write lifts it.
    round_trip(
        &[
            ("block.vda.iostats", "0"),
            ("block.vda.read_ahead_kb", "32"),
        ],
        &[(&queue("read_ahead_kb"), "32")],
    );
}

#[test]
fn g6_a_scheduler_change_brings_everything_back() {
    round_trip(
        &[("block.vda.scheduler", "bfq")],
        &[
            (&queue("nr_requests"), "256"),
            (&queue("wbt_lat_usec"), "0"),
        ],
    );
    round_trip(
        &[
            ("block.vda.scheduler", "none"),
            ("block.vda.nr_requests", "32"),
            ("block.vda.read_ahead_kb", "16"),
        ],
        &[
            (&queue("nr_requests"), "32"),
            (&queue("read_ahead_kb"), "16"),
        ],
    );
}

#[test]
fn g4_values_survive_cpu_hotplug_and_come_back_to_stay() {
    let machine = Machine::new();
    let slice = format!("{SCHED}/base_slice_ns");
    machine.begin("p", &set("sched.base_slice_ns", "3000000"));
    machine.kernel.hotplug();
    assert_eq!(machine.kernel.get(&slice), "3000000");
    machine.revert(None);
    machine.kernel.hotplug();
    assert_eq!(machine.kernel.get(&slice), "1400000");
}

#[test]
fn g4_scaling_is_restored_before_the_values_it_divides() {
    let machine = Machine::new();
    let settings = [
        ("sched.tunable_scaling", "0"),
        ("sched.base_slice_ns", "5000000"),
    ];
    machine.begin("p", &all(&settings));
    machine.kernel.hotplug();
    assert_eq!(
        machine.kernel.get(&format!("{SCHED}/base_slice_ns")),
        "5000000"
    );
    machine.revert(None);
    machine.kernel.hotplug();
    assert_eq!(machine.kernel.state(), FakeKernel::new().state());
}

#[test]
fn g7_features_share_a_file_and_do_not_disturb_each_other() {
    let machine = Machine::new();
    machine.begin(
        "a",
        &all(&[
            ("sched.features.NEXT_BUDDY", "1"),
            ("sched.features.PLACE_LAG", "0"),
        ]),
    );
    machine.begin("b", &set("sched.features.RUN_TO_PARITY", "0"));
    assert_eq!(
        machine.kernel.get(&format!("{SCHED}/features")),
        "NO_PLACE_LAG NEXT_BUDDY NO_RUN_TO_PARITY"
    );
    machine.revert(Some("a"));
    assert_eq!(
        machine.kernel.get(&format!("{SCHED}/features")),
        "PLACE_LAG NO_NEXT_BUDDY NO_RUN_TO_PARITY"
    );
    machine.revert(Some("b"));
    assert_eq!(machine.kernel.state(), FakeKernel::new().state());
}

#[test]
fn g7_a_newline_is_always_written() {
    round_trip(
        &[("kernel.printk_devkmsg", "off")],
        &[("/proc/sys/kernel/printk_devkmsg", "off")],
    );
}

#[test]
fn g9_an_unknown_errno_is_told_and_nothing_is_left() {
    let machine = Machine::new();
    let before = machine.kernel.state();
    let error = machine
        .try_begin(
            "p",
            &all(&[("vm.swappiness", "10"), ("kernel.nmi_watchdog", "0")]),
        )
        .unwrap_err();
    let LayerError::Refused { source, undone, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!((source.errno, undone.files.len()), (524, 2));
    assert!(error.to_string().contains("524"), "{error}");
    assert_eq!(machine.kernel.state(), before);
    assert!(machine.layer_files().is_empty());
}

#[test]
fn ordered_pairs_are_written_in_the_order_that_the_kernel_takes() {
    // Both up needs the period first, both down the runtime first.
    let up = [
        ("kernel.sched_rt_runtime_us", "1500000"),
        ("kernel.sched_rt_period_us", "2000000"),
    ];
    let down = [
        ("kernel.sched_rt_period_us", "500000"),
        ("kernel.sched_rt_runtime_us", "400000"),
    ];
    for settings in [up, down] {
        round_trip(&settings, &[]);
        let reversed: Vec<_> = settings.iter().rev().copied().collect();
        round_trip(&reversed, &[]);
    }
}

#[test]
fn thp_rewrites_the_reserve_and_it_comes_back() {
    round_trip(
        &[("thp.enabled", "always")],
        &[(&vm("min_free_kbytes"), "45056")],
    );
}

#[test]
fn layers_stack_and_the_newest_remaining_wins() {
    let swappiness = vm("swappiness");
    for (first, then, left) in [("a", "b", "100"), ("b", "a", "10")] {
        let machine = Machine::new();
        machine.begin("a", &set("vm.swappiness", "10"));
        machine.begin("b", &set("vm.swappiness", "100"));
        machine.revert(Some(first));
        assert_eq!(machine.kernel.get(&swappiness), left);
        machine.revert(Some(then));
        assert_eq!(machine.kernel.state(), FakeKernel::new().state());
    }
}

#[test]
fn an_older_layer_leaves_without_disturbing_a_newer_one() {
    let machine = Machine::new();
    machine.begin("a", &set("block.vda.scheduler", "none"));
    machine.begin("b", &set("block.vda.nr_requests", "32"));
    machine.revert(Some("a"));
    assert_eq!(
        machine.kernel.get(&queue("nr_requests")),
        "32",
        "b's value, although a's undo resets it"
    );
    machine.revert(Some("b"));
    assert_eq!(machine.kernel.state(), FakeKernel::new().state());
}

#[test]
fn a_strangers_change_is_left_alone_unless_forced() {
    let machine = Machine::new();
    machine.begin(
        "p",
        &all(&[("vm.swappiness", "10"), ("thp.enabled", "always")]),
    );
    machine.kernel.echo("77", &vm("swappiness"));
    let status = machine.store.status(&machine.kernel).unwrap();
    assert_eq!(
        status.layers[0]
            .values
            .iter()
            .filter(|value| matches!(value.now, Held::Drifted { .. }))
            .count(),
        1
    );
    let done = machine.revert(None);
    let left: Vec<_> = done
        .files
        .iter()
        .filter(|file| matches!(file.outcome, Restored::LeftAlone { .. }))
        .map(|file| file.knob.as_str())
        .collect();
    assert_eq!(left, ["vm.swappiness"]);
    assert_eq!(machine.kernel.get(&vm("swappiness")), "77");
    assert_eq!(machine.kernel.get(&vm("min_free_kbytes")), "20000");

    let machine = Machine::new();
    machine.begin("p", &set("vm.swappiness", "10"));
    machine.kernel.echo("77", &vm("swappiness"));
    machine
        .store
        .lock()
        .unwrap()
        .revert(&machine.kernel, None, true)
        .unwrap();
    assert_eq!(machine.kernel.get(&vm("swappiness")), "60");
}

#[test]
fn a_strangers_change_of_one_member_keeps_the_pair() {
    let machine = Machine::new();
    machine.kernel.echo("1000000", &vm("dirty_bytes"));
    machine.begin("p", &set("vm.dirty_ratio", "30"));
    machine.kernel.echo("40", &vm("dirty_ratio"));
    machine.revert(None);
    assert_eq!(
        (
            machine.kernel.get(&vm("dirty_ratio")).as_str(),
            machine.kernel.get(&vm("dirty_bytes")).as_str()
        ),
        ("40", "0")
    );
}

#[test]
fn a_value_set_between_two_layers_comes_back_after_the_upper_one() {
    let machine = Machine::new();
    machine.begin("a", &set("vm.swappiness", "10"));
    machine.kernel.echo("77", &vm("swappiness"));
    let begun = machine.begin("b", &set("vm.swappiness", "100"));
    assert_eq!(begun.drifted, ["vm.swappiness"]);
    machine.revert(Some("b"));
    assert_eq!(machine.kernel.get(&vm("swappiness")), "77");
}

#[test]
fn a_removed_device_is_told_and_forgotten() {
    let machine = Machine::new();
    machine.begin(
        "p",
        &all(&[("block.vda.iostats", "0"), ("vm.swappiness", "10")]),
    );
    machine.kernel.remove(QUEUE);
    let done = machine.revert(None);
    assert_eq!(
        done.files
            .iter()
            .filter(|file| file.outcome == Restored::Gone)
            .count(),
        2
    );
    assert_eq!(machine.kernel.get(&vm("swappiness")), "60");
    assert!(machine.layer_files().is_empty());
}

#[test]
fn a_dead_owners_layer_is_undone_and_a_living_ones_is_not() {
    let machine = Machine::new();
    let lock = machine.store.lock().unwrap();
    let dead = Owner {
        pid: i32::MAX,
        start_ticks: 1,
    };
    lock.begin(
        &machine.kernel,
        "run",
        "t",
        Some(dead),
        &set("vm.swappiness", "10"),
    )
    .unwrap();
    lock.begin(
        &machine.kernel,
        "run",
        "t",
        Some(crate::this_process()),
        &set("thp.enabled", "never"),
    )
    .unwrap();
    let done = lock.recover(&machine.kernel).unwrap();
    assert_eq!(done.layers, ["run"]);
    assert_eq!(machine.kernel.get(&vm("swappiness")), "60");
    assert_eq!(machine.layer_files().len(), 1);
}

#[test]
fn another_boots_layers_are_forgotten_unwritten() {
    let machine = Machine::new();
    machine.begin("p", &set("vm.swappiness", "10"));
    let file = &machine.layer_files()[0];
    let text = std::fs::read_to_string(file).unwrap();
    let json = text.lines().next().unwrap()[9..]
        .replace(&crate::boot_id(std::path::Path::new("/")), "another-boot");
    std::fs::write(
        file,
        format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())),
    )
    .unwrap();
    machine.kernel.echo("42", &vm("swappiness"));
    machine
        .store
        .lock()
        .unwrap()
        .recover(&machine.kernel)
        .unwrap();
    assert_eq!(machine.kernel.get(&vm("swappiness")), "42");
    assert!(machine.layer_files().is_empty());
}

#[test]
fn an_odd_file_stops_the_transaction_before_any_write() {
    let machine = Machine::new();
    let mut transaction = all(&[("vm.swappiness", "10"), ("block.vda.nr_requests", "32")]);
    transaction.steps[0].format = Format::YesNo;
    assert!(matches!(
        machine.try_begin("p", &transaction),
        Err(LayerError::Odd { .. })
    ));
    assert_eq!(machine.kernel.writes.get(), 0);
    assert!(machine.layer_files().is_empty());
}
