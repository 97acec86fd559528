//! The catalog against small trees of `/proc` and `/sys`, one a kind of machine.

use kilter_api::{KnobState, Risk, Settings, UnavailableReason};
use kilter_kernel::{Files, Kernel, KernelPath, Store};
use kilter_knobs::{Catalog, Consent, PlanError, Planned, instances, plan, probe_all};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

struct Tree {
    dir: tempfile::TempDir,
    kernel: Kernel,
    catalog: Catalog,
}

fn tree(files: &[(&str, &str)]) -> Tree {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let file = dir.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{text}\n")).unwrap();
    }
    let kernel = Kernel::new(dir.path());
    Tree {
        dir,
        kernel,
        catalog: Catalog::built_in(),
    }
}

const DIRTY: [(&str, &str); 4] = [
    ("/proc/sys/vm/dirty_ratio", "20"),
    ("/proc/sys/vm/dirty_bytes", "0"),
    ("/proc/sys/vm/dirty_background_ratio", "10"),
    ("/proc/sys/vm/dirty_background_bytes", "0"),
];

fn disk(name: &str) -> Vec<(String, String)> {
    let file =
        |rest: &str, text: &str| (format!("/sys/block/{name}/queue/{rest}"), text.to_owned());
    vec![
        file("scheduler", "none [mq-deadline] kyber bfq"),
        file("nr_requests", "256"),
        file("read_ahead_kb", "128"),
        file("iostats", "1"),
        file("wbt_lat_usec", "2000"),
        file("iosched/read_expire", "500"),
    ]
}

fn disks(names: &[&str]) -> Tree {
    let files: Vec<(String, String)> = names.iter().flat_map(|name| disk(name)).collect();
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    tree(&files)
}

impl Tree {
    fn plan(&self, settings: &[(&str, &str)]) -> Result<Planned, PlanError> {
        self.plan_with(settings, &Consent::default())
    }

    fn plan_with(
        &self,
        settings: &[(&str, &str)],
        consent: &Consent,
    ) -> Result<Planned, PlanError> {
        let settings: Settings = settings
            .iter()
            .map(|(knob, value)| ((*knob).to_owned(), (*value).to_owned()))
            .collect();
        plan(&self.kernel, &self.catalog, "test", &settings, consent)
    }

    fn state(&self, name: &str) -> KnobState {
        let knobs = probe_all(&self.kernel, &self.catalog);
        knobs
            .into_iter()
            .find(|knob| knob.name == name)
            .unwrap_or_else(|| panic!("no knob {name}"))
            .state
    }

    fn reason(&self, name: &str) -> UnavailableReason {
        match self.state(name) {
            KnobState::Unavailable(why) => why.reason,
            state => panic!("{name} is {state:?}"),
        }
    }

    fn read(&self, path: &str) -> String {
        self.kernel
            .read(&KernelPath::new(path).unwrap())
            .unwrap()
            .trim()
            .to_owned()
    }

    fn all_files(&self) -> BTreeMap<String, String> {
        fn walk(dir: &Path, files: &mut BTreeMap<String, String>) {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                match entry.path() {
                    path if path.is_dir() => walk(&path, files),
                    path => drop(files.insert(
                        path.display().to_string(),
                        fs::read_to_string(&path).unwrap(),
                    )),
                }
            }
        }
        let mut files = BTreeMap::new();
        for top in ["proc", "sys"] {
            if self.dir.path().join(top).exists() {
                walk(&self.dir.path().join(top), &mut files);
            }
        }
        files
    }
}

fn steps(planned: &Planned) -> Vec<(&str, bool)> {
    planned
        .transaction
        .steps
        .iter()
        .map(|step| (step.knob.as_str(), step.value.is_some()))
        .collect()
}

#[test]
fn a_scheduler_value_is_found_where_its_era_has_it() {
    let old = tree(&[("/proc/sys/kernel/sched_latency_ns", "12000000")]);
    let cfs = tree(&[
        ("/sys/kernel/debug/sched/latency_ns", "12000000"),
        ("/sys/kernel/debug/sched/tunable_scaling", "1"),
    ]);
    let eevdf = tree(&[("/sys/kernel/debug/sched/base_slice_ns", "1400000")]);
    for machine in [&old, &cfs] {
        assert!(
            matches!(machine.state("sched.latency_ns"), KnobState::Present { value, .. } if value == "12000000")
        );
        let reason = machine.reason("sched.base_slice_ns");
        assert!(matches!(
            reason,
            UnavailableReason::Absent | UnavailableReason::NotMounted
        ));
    }
    assert_eq!(eevdf.reason("sched.latency_ns"), UnavailableReason::Absent);
    assert!(matches!(
        eevdf.state("sched.base_slice_ns"),
        KnobState::Present { .. }
    ));
}

#[test]
fn an_unmounted_debugfs_and_a_missing_feature_are_told_apart() {
    let bare = tree(&[("/proc/sys/vm/swappiness", "60")]);
    assert_eq!(
        bare.reason("sched.base_slice_ns"),
        UnavailableReason::NotMounted
    );
    let machine = tree(&[("/sys/kernel/debug/sched/features", "PLACE_LAG NO_HRTICK")]);
    assert_eq!(
        machine.reason("sched.features.GENTLE_FAIR_SLEEPERS"),
        UnavailableReason::Absent
    );
    assert!(
        matches!(machine.state("sched.features.HRTICK"), KnobState::Present { value, .. } if value == "0")
    );
}

#[test]
fn an_empty_file_is_no_value() {
    let machine = tree(&[("/proc/sys/kernel/sched_energy_aware", "")]);
    assert_eq!(
        machine.reason("kernel.sched_energy_aware"),
        UnavailableReason::Unsupported
    );
}

#[test]
fn a_glob_means_real_devices_unless_one_is_spelled_out() {
    let machine = disks(&["vda", "loop0", "zram0", "dm-0"]);
    let planned = machine.plan(&[("block.*.iostats", "0")]).unwrap();
    let knobs: Vec<&str> = planned
        .plan
        .changes
        .iter()
        .map(|change| change.knob.as_str())
        .collect();
    assert_eq!(knobs, ["block.vda.iostats"]);
    let planned = machine.plan(&[("block.zram0.*", "1")]);
    assert!(
        planned.is_err(),
        "a value must fit every knob that a glob names"
    );
    assert_eq!(
        machine
            .plan(&[("block.zram0.iostats", "0")])
            .unwrap()
            .plan
            .changes
            .len(),
        1
    );
}

#[test]
fn an_exact_name_wins_over_a_glob() {
    let machine = disks(&["vda", "vdb"]);
    let planned = machine
        .plan(&[
            ("block.*.read_ahead_kb", "64"),
            ("block.vdb.read_ahead_kb", "256"),
        ])
        .unwrap();
    let new: Vec<(&str, &str)> = planned
        .plan
        .changes
        .iter()
        .map(|change| (change.knob.as_str(), change.new.as_str()))
        .collect();
    assert_eq!(
        new,
        [
            ("block.vda.read_ahead_kb", "64"),
            ("block.vdb.read_ahead_kb", "256")
        ]
    );
}

#[test]
fn a_resetting_write_comes_first_and_what_it_resets_is_kept_safe() {
    let machine = disks(&["vda"]);
    let planned = machine
        .plan(&[
            ("block.vda.nr_requests", "32"),
            ("block.vda.scheduler", "none"),
        ])
        .unwrap();
    let steps = steps(&planned);
    assert_eq!(steps[0], ("block.vda.scheduler", true), "{steps:?}");
    for (name, set) in [
        ("block.vda.nr_requests", true),
        ("block.vda.read_ahead_kb", false),
        ("block.vda.wbt_lat_usec", false),
        ("/sys/block/vda/queue/iosched/read_expire", false),
    ] {
        assert!(steps.contains(&(name, set)), "{name} in {steps:?}");
    }
    assert_eq!(
        planned.plan.changes.len(),
        2,
        "only what was asked for is told"
    );
}

#[test]
fn pairs_are_watched_and_exclude_each_other() {
    let machine = tree(&DIRTY);
    let planned = machine.plan(&[("vm.dirty_bytes", "100000000")]).unwrap();
    assert!(steps(&planned).contains(&("vm.dirty_ratio", false)));
    let both = machine.plan(&[("vm.dirty_bytes", "100000000"), ("vm.dirty_ratio", "30")]);
    assert!(matches!(both, Err(PlanError::Exclusive(..))), "{both:?}");
}

#[test]
fn a_value_above_its_limit_is_refused() {
    let machine = tree(&DIRTY);
    for settings in [
        &[("vm.dirty_background_ratio", "50")][..],
        &[("vm.dirty_ratio", "5")],
        &[
            ("vm.dirty_ratio", "30"),
            ("vm.dirty_background_ratio", "31"),
        ],
    ] {
        let outcome = machine.plan(settings);
        assert!(
            matches!(outcome, Err(PlanError::Above { .. })),
            "{settings:?}: {outcome:?}"
        );
    }
    assert!(
        machine
            .plan(&[
                ("vm.dirty_ratio", "60"),
                ("vm.dirty_background_ratio", "50")
            ])
            .is_ok()
    );
    // The limit is unused (0) while the ratios are in force.
    assert!(
        machine
            .plan(&[("vm.dirty_background_bytes", "100000000")])
            .is_ok()
    );
}

#[test]
fn risky_knobs_need_a_yes() {
    let machine = tree(&[
        ("/proc/sys/vm/dirty_writeback_centisecs", "500"),
        ("/proc/sys/vm/swappiness", "60"),
    ]);
    let settings = [
        ("vm.dirty_writeback_centisecs", "0"),
        ("vm.swappiness", "10"),
    ];
    let refused = machine.plan(&settings).unwrap_err();
    assert_eq!(refused.risks(), ["durability"]);
    let allowed = Consent {
        allow: vec![Risk::Durability],
        skip_risky: false,
    };
    assert_eq!(
        machine
            .plan_with(&settings, &allowed)
            .unwrap()
            .plan
            .changes
            .len(),
        2
    );
    let skipped = machine
        .plan_with(
            &settings,
            &Consent {
                allow: vec![],
                skip_risky: true,
            },
        )
        .unwrap();
    assert_eq!(
        (skipped.plan.changes.len(), skipped.plan.skipped.len()),
        (1, 1)
    );
}

#[test]
fn bad_names_and_values_are_told_with_what_is_right() {
    let machine = tree(&[("/proc/sys/vm/swappiness", "60")]);
    let typo = machine
        .plan(&[("vm.swapiness", "10")])
        .unwrap_err()
        .to_string();
    assert!(typo.contains("vm.swappiness"), "{typo}");
    for value in [
        "201",
        "-1",
        "ten",
        "",
        "1e2",
        "10 20",
        "99999999999999999999",
    ] {
        let error = machine
            .plan(&[("vm.swappiness", value)])
            .unwrap_err()
            .to_string();
        assert!(error.contains("0 to 200"), "{error}");
    }
    // The kernel takes any word that begins with `none`; kilter does not.
    let error = disks(&["vda"])
        .plan(&[("block.vda.scheduler", "nonesuch")])
        .unwrap_err()
        .to_string();
    assert!(error.contains("mq-deadline"), "{error}");
}

#[test]
fn hostile_names_reach_no_file() {
    let machine = disks(&["vda"]);
    for name in [
        "block.../../../etc.iostats",
        "block.a/b.iostats",
        "block.<dev>.iostats",
        "/proc/sys/vm/swappiness",
        "vm.../x",
    ] {
        let outcome = machine.plan(&[(name, "1")]);
        assert!(
            !matches!(&outcome, Ok(planned) if !planned.transaction.steps.is_empty()),
            "{name}: {outcome:?}"
        );
    }
}

#[test]
fn applying_and_reverting_a_whole_tree_returns_every_byte() {
    let machine = disks(&["vda", "vdb"]);
    let before = machine.all_files();
    let planned = machine
        .plan(&[
            ("block.*.scheduler", "none"),
            ("block.*.read_ahead_kb", "64"),
            ("block.*.iostats", "0"),
        ])
        .unwrap();
    let store = Store::new(&machine.kernel);
    let lock = store.lock().unwrap();
    let begun = lock
        .begin(&machine.kernel, "test", "now", None, &planned.transaction)
        .unwrap();
    assert_eq!(machine.read("/sys/block/vda/queue/read_ahead_kb"), "64");
    lock.undo(&machine.kernel, begun.id).unwrap();
    let mut wanted = before;
    // A plain file does not show its choices; it shows the word that was written.
    for text in wanted
        .values_mut()
        .filter(|text| text.contains("[mq-deadline]"))
    {
        *text = "mq-deadline\n".to_owned();
    }
    assert_eq!(machine.all_files(), wanted);
}

#[test]
fn every_knob_of_the_catalog_is_probed_without_a_file_of_it() {
    let bare = tree(&[("/proc/sys/vm/other", "1")]);
    for knob in probe_all(&bare.kernel, &bare.catalog) {
        assert!(
            matches!(knob.state, KnobState::Unavailable(_)),
            "{}",
            knob.name
        );
    }
    let templates = bare
        .catalog
        .knobs
        .iter()
        .filter(|spec| spec.name.contains('<'));
    assert!(templates.clone().count() > 5);
    templates.for_each(|spec| assert!(instances(&bare.kernel, spec).is_empty(), "{}", spec.name));
}

#[test]
fn words_that_a_file_beside_the_knob_lists_are_offered() {
    let idle = "/sys/devices/system/cpu/cpuidle";
    let governor = |files: &[(&str, &str)]| {
        let tree = tree(files);
        probe_all(&tree.kernel, &tree.catalog)
            .into_iter()
            .find(|knob| knob.name == "cpuidle.governor")
            .unwrap()
    };
    let current = format!("{idle}/current_governor");
    let available = format!("{idle}/available_governors");
    let knob = governor(&[(&current, "menu"), (&available, "ladder menu teo ")]);
    assert_eq!(knob.offered, ["ladder", "menu", "teo"]);
    let knob = governor(&[(&current, "menu")]);
    assert_eq!(
        knob.offered, [""; 0],
        "a list that is missing forbids nothing"
    );
}

#[test]
fn a_feature_that_a_kernel_lacks_is_told_as_any_other_knob() {
    let tree = tree(&[(
        "/sys/kernel/debug/sched/features",
        "PLACE_LAG NO_NEXT_BUDDY",
    )]);
    let knobs = probe_all(&tree.kernel, &tree.catalog);
    let knob = knobs
        .iter()
        .find(|knob| knob.name == "sched.features.LAST_BUDDY")
        .unwrap();
    let KnobState::Unavailable(why) = &knob.state else {
        panic!("{:?}", knob.state)
    };
    assert_eq!(why.reason, UnavailableReason::Absent);
    assert!(why.detail.starts_with("this kernel does not have it"));
    assert!(!why.detail.contains("PLACE_LAG"), "{}", why.detail);
}

#[test]
fn a_size_of_huge_pages_is_an_instance_where_anonymous_memory_may_have_it() {
    let dir = "/sys/kernel/mm/transparent_hugepage";
    let size = |size: &str| format!("{dir}/hugepages-{size}/enabled");
    let words = "always inherit madvise [never]";
    let small = format!("{dir}/hugepages-8kB/shmem_enabled");
    let (one, other) = (size("64kB"), size("2048kB"));
    let machine = tree(&[(&small, words), (&one, words), (&other, words)]);
    let names: Vec<String> = probe_all(&machine.kernel, &machine.catalog)
        .into_iter()
        .filter(|knob| knob.spec.name == "thp.<size>.enabled")
        .map(|knob| knob.name)
        .collect();
    assert_eq!(names, ["thp.2048kB.enabled", "thp.64kB.enabled"]);
    let planned = machine.plan(&[("thp.64kB.enabled", "always")]).unwrap();
    assert_eq!(planned.plan.changes[0].path, one);
    let planned = machine.plan(&[("thp.16kB.enabled", "always")]).unwrap();
    let because = &planned.plan.skipped[0].because;
    assert_eq!(because.reason, UnavailableReason::Absent);
}
