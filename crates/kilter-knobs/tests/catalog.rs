//! Every file of the catalog, every field of it.

use kilter_api::{MetricSource, Risk};
use kilter_knobs::{
    Catalog, Places, all_profiles, check_spec, check_value, is_glob, resolve_profile, valid_name,
};
use std::collections::BTreeMap;
use std::path::Path;

fn places() -> Places {
    Places::new(Path::new("/nonexistent"), true)
}

#[test]
fn every_knob_is_sound() {
    let catalog = Catalog::built_in();
    assert!(catalog.knobs.len() >= 60, "{} knobs", catalog.knobs.len());
    let problems: Vec<String> = catalog.knobs.iter().flat_map(check_spec).collect();
    assert_eq!(problems, [""; 0]);
    let mut names: Vec<&str> = catalog
        .knobs
        .iter()
        .map(|spec| spec.name.as_str())
        .collect();
    names.dedup();
    assert_eq!(names.len(), catalog.knobs.len(), "a name is used twice");
}

#[test]
fn every_coupling_names_a_knob_of_the_same_instance() {
    let catalog = Catalog::built_in();
    let by_name: BTreeMap<&str, _> = catalog
        .knobs
        .iter()
        .map(|spec| (spec.name.as_str(), spec))
        .collect();
    for spec in &catalog.knobs {
        let couplings = &spec.couplings;
        let named = couplings
            .resets
            .iter()
            .chain(&couplings.excludes)
            .chain(&couplings.commit)
            .chain(&couplings.at_most);
        for name in named {
            assert!(
                by_name.contains_key(name.as_str()),
                "{} is coupled with {name}, which does not exist",
                spec.name
            );
        }
        if let Some(partner) = &couplings.excludes {
            let back = by_name[partner.as_str()].couplings.excludes.as_ref();
            assert_eq!(
                back,
                Some(&spec.name),
                "{partner} does not exclude {} in turn",
                spec.name
            );
        }
        for file in &couplings.resets_files {
            assert!(
                file.starts_with("/sys/") || file.starts_with("/proc/sys/"),
                "{}: {file}",
                spec.name
            );
        }
    }
}

#[test]
fn what_appears_with_a_knob_appears_with_a_value_that_it_takes() {
    let catalog = Catalog::built_in();
    let mut switches = 0;
    for spec in &catalog.knobs {
        for place in spec
            .paths
            .iter()
            .filter(|place| !place.appears_with.is_empty())
        {
            let (knob, value) = place.appears_with.split_once('=').unwrap();
            let switch = catalog.knobs.iter().find(|spec| spec.name == knob);
            let switch = switch.unwrap_or_else(|| panic!("{}: no knob {knob}", spec.name));
            assert_eq!(
                check_value(knob, switch, value).as_deref(),
                Ok(value),
                "{}",
                spec.name
            );
            // The switch must be written first, and what it takes along kept safe.
            let (dir, _) = place.file.rsplit_once('/').unwrap();
            let resets = &switch.couplings.resets_files;
            assert!(
                resets.contains(&format!("{dir}/*")),
                "{knob} does not reset {dir}"
            );
            switches += 1;
        }
    }
    assert!(switches > 15, "{switches}");
}

#[test]
fn resets_have_no_cycle() {
    let catalog = Catalog::built_in();
    let edges: BTreeMap<&str, Vec<&str>> = catalog
        .knobs
        .iter()
        .map(|spec| {
            (
                spec.name.as_str(),
                spec.couplings.resets.iter().map(String::as_str).collect(),
            )
        })
        .collect();
    fn visit<'a>(at: &'a str, edges: &BTreeMap<&'a str, Vec<&'a str>>, trail: &mut Vec<&'a str>) {
        assert!(!trail.contains(&at), "a cycle: {trail:?} → {at}");
        trail.push(at);
        edges
            .get(at)
            .into_iter()
            .flatten()
            .for_each(|next| visit(next, edges, trail));
        trail.pop();
    }
    edges
        .keys()
        .for_each(|start| visit(start, &edges, &mut Vec::new()));
}

#[test]
fn every_profile_sets_known_knobs_within_their_ranges() {
    let catalog = Catalog::built_in();
    let profiles = all_profiles(&places()).unwrap();
    assert!(profiles.len() >= 3);
    for profile in &profiles {
        assert!(
            valid_name(&profile.name) && !profile.summary.is_empty(),
            "{}",
            profile.name
        );
        let (_, settings) = resolve_profile(&places(), &profile.name).unwrap();
        assert!(!settings.is_empty(), "{}", profile.name);
        for (knob, value) in &settings {
            let template = knob
                .replace("block.*.", "block.<dev>.")
                .replace("cpufreq.*.", "cpufreq.<policy>.");
            assert!(!is_glob(&template), "{}: {knob}", profile.name);
            let spec = catalog
                .find(&template)
                .unwrap_or_else(|error| panic!("{}: {error}", profile.name));
            assert_eq!(
                check_value(knob, spec, value).as_deref(),
                Ok(value.as_str()),
                "{}",
                profile.name
            );
            let risky = matches!(spec.risk, Risk::Security | Risk::Durability | Risk::Hang);
            assert!(
                !risky || profile.name.starts_with("ktweak"),
                "{}: {knob} is of risk {:?}",
                profile.name,
                spec.risk
            );
        }
        for (knob, value) in &profile.set {
            assert!(
                !value.why.trim().is_empty(),
                "{}: {knob} has no reason",
                profile.name
            );
        }
    }
}

#[test]
fn every_workload_is_whole() {
    let workloads = Catalog::workloads(&places()).unwrap();
    for name in [
        "hackbench",
        "perf-bench-memcpy",
        "cyclictest",
        "stress-ng",
        "sysbench",
        "messaging",
        "wakeup",
        "voicemark",
        "latencymark",
        "latencymark-little",
        "latencymark-big",
    ] {
        assert!(
            workloads.iter().any(|workload| workload.name == name),
            "{name} is missing"
        );
    }
    for workload in &workloads {
        assert!(valid_name(&workload.name), "{}", workload.name);
        assert!(
            !workload.command.is_empty() && !workload.metrics.is_empty(),
            "{}",
            workload.name
        );
        assert!(
            !workload.summary.is_empty() && !workload.why.is_empty(),
            "{}",
            workload.name
        );
        // A built-in load beside another program needs that program's package.
        let alone = !workload.command.iter().any(|word| word == "--");
        let built_in = workload.command[0] == "kilter" && alone;
        assert_eq!(
            built_in,
            workload.package.is_empty(),
            "{}: which package brings it?",
            workload.name
        );
        for metric in &workload.metrics {
            assert!(
                !metric.unit.is_empty() || matches!(metric.source, MetricSource::Record { .. }),
                "{}: {} has no unit",
                workload.name,
                metric.name
            );
        }
    }
}

#[test]
fn a_bracket_without_a_partner_is_a_problem() {
    let catalog = Catalog::built_in();
    let spec = catalog.find("block.vda.nr_requests").unwrap();
    assert_eq!(check_spec(spec), [""; 0]);
    for file in [
        "/sys/block>/<dev>/queue/nr_requests",
        "/sys/block/<dev/queue/nr_requests",
        "/sys/block/<dev>/queue/nr>_requests",
        "/sys/block/<dev>/queue/<nr_requests",
    ] {
        let mut of_path = spec.clone();
        file.clone_into(&mut of_path.paths[0].file);
        assert_eq!(check_spec(&of_path).len(), 1, "{file}");
        let mut of_coupling = spec.clone();
        of_coupling.couplings.resets_files = vec![file.to_owned()];
        assert_eq!(check_spec(&of_coupling).len(), 1, "{file}");
    }
}
