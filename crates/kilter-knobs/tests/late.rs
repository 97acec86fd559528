//! Knobs whose files come and go with another knob's value, on small trees of `/sys`.

use kilter_api::{Change, Settings, UnavailableReason};
use kilter_kernel::Kernel;
use kilter_knobs::{Catalog, Consent, Planned, plan};
use std::fs;

const QUEUE: &str = "/sys/block/vda/queue";
const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";

fn planned(files: &[(&str, &str)], settings: &[(&str, &str)]) -> Planned {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let file = dir.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{text}\n")).unwrap();
    }
    let settings: Settings = settings
        .iter()
        .map(|(knob, value)| ((*knob).to_owned(), (*value).to_owned()))
        .collect();
    let (kernel, catalog) = (Kernel::new(dir.path()), Catalog::built_in());
    plan(&kernel, &catalog, "p", &settings, &Consent::default()).unwrap()
}

/// A disk with this scheduler, and files of it.
fn disk<'a>(scheduler: &'a str, iosched: &[(&'a str, &'a str)]) -> Vec<(String, String)> {
    let line = "none mq-deadline kyber bfq".replace(scheduler, &format!("[{scheduler}]"));
    let mut files = vec![(format!("{QUEUE}/scheduler"), line)];
    let own = iosched
        .iter()
        .map(|(name, text)| (format!("{QUEUE}/iosched/{name}"), (*text).to_owned()));
    files.extend(own);
    files
}

fn with_disk(files: &[(String, String)], settings: &[(&str, &str)]) -> Planned {
    let files: Vec<(&str, &str)> = files.iter().map(|(a, b)| (&**a, &**b)).collect();
    planned(&files, settings)
}

fn change<'a>(planned: &'a Planned, knob: &str) -> &'a Change {
    let mut changes = planned.plan.changes.iter();
    changes
        .find(|change| change.knob == knob)
        .unwrap_or_else(|| panic!("{knob}: {:?}", planned.plan))
}

fn why_skipped<'a>(planned: &'a Planned, knob: &str) -> &'a str {
    let mut skipped = planned.plan.skipped.iter();
    let skip = skipped.find(|skip| skip.knob == knob);
    let because = &skip
        .unwrap_or_else(|| panic!("{knob}: {:?}", planned.plan))
        .because;
    assert_eq!(because.reason, UnavailableReason::Absent);
    &because.detail
}

#[test]
fn a_tunable_appears_with_its_scheduler_and_is_written_after_it() {
    for wish in ["bfq", "first:bfq,kyber"] {
        let planned = with_disk(
            &disk("mq-deadline", &[("read_expire", "500")]),
            &[("block.*.bfq.slice_idle", "0"), ("block.*.scheduler", wish)],
        );
        let late = change(&planned, "block.vda.bfq.slice_idle");
        assert_eq!(late.appears_with, "block.vda.scheduler=bfq");
        assert_eq!((&*late.old, &*late.new), ("", "0"));
        assert_eq!(planned.plan.skipped, []);
        let steps = &planned.transaction.steps;
        let at = |knob: &str| steps.iter().position(|step| step.knob == knob).unwrap();
        assert!(at("block.vda.scheduler") < at("block.vda.bfq.slice_idle"));
        assert!(steps[at("block.vda.bfq.slice_idle")].appears);
        assert!(!steps[at("block.vda.scheduler")].appears);
        let kept = steps
            .iter()
            .any(|step| step.path.as_str().ends_with("/read_expire"));
        assert!(kept, "what the switch takes along comes back");
    }
}

#[test]
fn without_the_switch_it_is_told_what_brings_it() {
    let planned = with_disk(&disk("none", &[]), &[("block.vda.bfq.slice_idle", "0")]);
    let told = why_skipped(&planned, "block.vda.bfq.slice_idle");
    assert!(
        told.contains("appears with block.vda.scheduler=bfq"),
        "{told}"
    );
    let another = with_disk(
        &disk("none", &[]),
        &[
            ("block.vda.bfq.slice_idle", "0"),
            ("block.vda.scheduler", "kyber"),
        ],
    );
    let told = why_skipped(&another, "block.vda.bfq.slice_idle");
    assert!(
        told.contains("appears with block.vda.scheduler=bfq"),
        "{told}"
    );
    // The switch stands already, so this kernel just lacks the file.
    let old = with_disk(
        &disk("bfq", &[("slice_idle", "8")]),
        &[
            ("block.vda.bfq.timeout_sync", "100"),
            ("block.vda.scheduler", "bfq"),
        ],
    );
    why_skipped(&old, "block.vda.bfq.timeout_sync");
}

#[test]
fn what_the_plan_takes_away_is_skipped() {
    let planned = with_disk(
        &disk("mq-deadline", &[("read_expire", "500")]),
        &[
            ("block.vda.mq-deadline.read_expire", "100"),
            ("block.vda.scheduler", "none"),
        ],
    );
    assert_eq!(planned.plan.changes.len(), 1);
    let told = why_skipped(&planned, "block.vda.mq-deadline.read_expire");
    assert!(
        told.contains("goes away with block.vda.scheduler=none"),
        "{told}"
    );
}

#[test]
fn one_that_is_here_already_is_a_plain_change() {
    let planned = with_disk(
        &disk("bfq", &[("slice_idle", "8")]),
        &[
            ("block.vda.bfq.slice_idle", "0"),
            ("block.vda.scheduler", "bfq"),
        ],
    );
    let here = change(&planned, "block.vda.bfq.slice_idle");
    assert_eq!((&*here.old, &*here.appears_with), ("8", ""));
}

#[test]
fn a_file_of_another_scheduler_is_not_mistaken_for_its_own() {
    // kyber shows async_depth too, for reading; mq-deadline takes it.
    let planned = with_disk(
        &disk("kyber", &[("read_lat_nsec", "2000000")]),
        &[
            ("block.vda.async_depth", "48"),
            ("block.vda.scheduler", "mq-deadline"),
        ],
    );
    let late = change(&planned, "block.vda.async_depth");
    assert_eq!(late.appears_with, "block.vda.scheduler=mq-deadline");
}

#[test]
fn tunables_for_all_policies_appear_with_any_of_them_and_go_with_the_last() {
    let policy = |number: u32, governor: &str| {
        let dir = format!("{CPUFREQ}/policy{number}");
        [
            (format!("{dir}/scaling_governor"), governor.to_owned()),
            (
                format!("{dir}/scaling_available_governors"),
                "performance powersave schedutil".to_owned(),
            ),
        ]
    };
    let both: Vec<_> = [policy(0, "performance"), policy(4, "performance")].concat();
    let comes = with_disk(
        &both,
        &[
            ("cpufreq.policy4.governor", "schedutil"),
            ("cpufreq.schedutil.rate_limit_us", "500"),
        ],
    );
    let late = change(&comes, "cpufreq.schedutil.rate_limit_us");
    assert_eq!(late.appears_with, "cpufreq.policy4.governor=schedutil");

    let mut both: Vec<_> = [policy(0, "schedutil"), policy(4, "schedutil")].concat();
    both.push((
        format!("{CPUFREQ}/schedutil/rate_limit_us"),
        "1000".to_owned(),
    ));
    let rate = ("cpufreq.schedutil.rate_limit_us", "500");
    let stays = with_disk(&both, &[("cpufreq.policy4.governor", "performance"), rate]);
    assert_eq!(change(&stays, rate.0).old, "1000");
    let goes = with_disk(&both, &[("cpufreq.*.governor", "performance"), rate]);
    assert!(why_skipped(&goes, rate.0).contains("goes away"));
}

#[test]
fn wishes_of_late_knobs_are_granted_from_what_the_hardware_lists() {
    let dir = format!("{CPUFREQ}/policy0");
    let files = [
        (format!("{dir}/scaling_governor"), "performance".to_owned()),
        (
            format!("{dir}/scaling_available_governors"),
            "performance schedutil".to_owned(),
        ),
        (
            format!("{dir}/scaling_available_frequencies"),
            "300000 1324800 1785600".to_owned(),
        ),
    ];
    let planned = with_disk(
        &files,
        &[
            ("cpufreq.*.governor", "schedutil"),
            ("cpufreq.*.schedutil.hispeed_freq", "highest"),
        ],
    );
    let late = change(&planned, "cpufreq.policy0.schedutil.hispeed_freq");
    assert_eq!(late.new, "1785600");
}
