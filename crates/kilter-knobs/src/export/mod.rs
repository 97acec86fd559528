//! Profiles as files of other tools. What they hold is for any kernel: every place a knob ever had is
//! told, and the other tool, or the script, finds out which one is there.

mod files;
mod magisk;
mod script;

pub use files::{sysctl_conf, systemd_unit, tuned_conf};
pub use magisk::magisk_module;
pub use script::shell_script;

use crate::catalog::{Catalog, fill, instance_of};
use crate::check::check_value;
use crate::names::{UnknownName, is_glob, matches};
use crate::plan::{Consent, PlanError};
use crate::profile::ProfileValues;
use kilter_api::KnobSpec;

/// One knob of a profile, for any kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// Its name as the profile has it, or a glob over devices.
    pub knob: String,
    /// What fills the placeholders: a device's name or `*`.
    pub instance: Option<String>,
    /// Its entry.
    pub spec: KnobSpec,
    /// The value, checked; none for a knob that another one's write moves and that is to be kept.
    pub value: Option<String>,
    /// The profile's reason.
    pub why: String,
}

impl Item {
    /// The knob's files as patterns, the newest kernels' first.
    pub fn patterns(&self) -> impl Iterator<Item = (String, &kilter_api::PathSpec)> {
        let places = self.spec.paths.iter();
        places.map(|place| (fill(&place.file, self.instance.as_deref()), place))
    }
}

/// What a profile sets, in the order of writing, with the knobs that its writes move.
///
/// # Errors
/// An unknown knob, a value outside its range, two knobs that exclude each other, or a risk that
/// nobody said yes to.
pub fn items(
    catalog: &Catalog,
    values: &ProfileValues,
    consent: &Consent,
) -> Result<Vec<Item>, PlanError> {
    let mut items: Vec<Item> = Vec::new();
    // An exact name wins over a glob, so it comes later.
    let (globs, exact): (Vec<_>, Vec<_>) = values.iter().partition(|(name, _)| is_glob(name));
    for (name, value) in globs.into_iter().chain(exact) {
        for (knob, spec, instance) in meant(catalog, name)? {
            let checked = check_value(&knob, spec, &value.value)?;
            items.retain(|item| item.knob != knob);
            items.push(Item {
                knob,
                instance,
                spec: spec.clone(),
                value: Some(checked),
                why: value.why.trim().to_owned(),
            });
        }
    }
    ask(&mut items, consent)?;
    exclude(&items)?;
    keep_moved(catalog, &mut items);
    Ok(ordered(items))
}

type Meant<'a> = (String, &'a KnobSpec, Option<String>);

/// The entries that a name stands for; a star in the place of a device stays one.
fn meant<'a>(catalog: &'a Catalog, name: &str) -> Result<Vec<Meant<'a>>, UnknownName> {
    if !is_glob(name) {
        let (knob, spec) = catalog.resolve(name)?;
        let instance = instance_of(&spec.name, &knob);
        return Ok(vec![(knob, spec, instance)]);
    }
    let found: Vec<Meant<'a>> = catalog
        .knobs
        .iter()
        .filter_map(|spec| match spec.name.contains('<') {
            true => {
                let instance = glob_instance(&spec.name, name)?;
                Some((fill(&spec.name, Some(&instance)), spec, Some(instance)))
            }
            false => matches(name, &spec.name).then(|| (spec.name.clone(), spec, None)),
        })
        .collect();
    match found.is_empty() {
        false => Ok(found),
        true => Err(UnknownName::new(
            "knob",
            name,
            catalog.knobs.iter().map(|spec| spec.name.as_str()),
        )),
    }
}

/// What a glob has in the places of a template: `*` of `block.*.iostats`.
fn glob_instance(template: &str, glob: &str) -> Option<String> {
    let (template, glob): (Vec<&str>, Vec<&str>) =
        (template.split('.').collect(), glob.split('.').collect());
    let mut parts = Vec::new();
    for (place, word) in template.iter().zip(&glob) {
        match place.starts_with('<') {
            true => parts.push(*word),
            false if matches(word, place) => {}
            false => return None,
        }
    }
    (template.len() == glob.len()).then(|| parts.join("/"))
}

fn ask(items: &mut Vec<Item>, consent: &Consent) -> Result<(), PlanError> {
    let refused =
        |item: &Item| item.spec.risk.needs_consent() && !consent.allow.contains(&item.spec.risk);
    let risky: Vec<_> = items
        .iter()
        .filter(|item| refused(item))
        .map(|item| (item.knob.clone(), item.spec.risk))
        .collect();
    if !risky.is_empty() && !consent.skip_risky {
        return Err(PlanError::Risky(risky));
    }
    items.retain(|item| !refused(item));
    Ok(())
}

fn exclude(items: &[Item]) -> Result<(), PlanError> {
    for item in items {
        let partner = item.spec.couplings.excludes.as_ref();
        if let Some(partner) = partner.filter(|name| items.iter().any(|i| i.knob == **name)) {
            return Err(PlanError::Exclusive(item.knob.clone(), partner.clone()));
        }
    }
    Ok(())
}

/// Adds the knobs that the writes move and that the profile does not set.
fn keep_moved(catalog: &Catalog, items: &mut Vec<Item>) {
    let mut at = 0;
    while at < items.len() {
        let item = items[at].clone();
        let couplings = &item.spec.couplings;
        for name in couplings.resets.iter().chain(&couplings.excludes) {
            let Ok(spec) = catalog.find(name) else {
                continue;
            };
            let instance = match spec.name.contains('<') {
                true => Some(item.instance.clone().unwrap_or_else(|| "*".to_owned())),
                false => None,
            };
            let knob = fill(&spec.name, instance.as_deref());
            if !items.iter().any(|item| item.knob == knob) {
                items.push(Item {
                    knob,
                    instance,
                    spec: spec.clone(),
                    value: None,
                    why: String::new(),
                });
            }
        }
        at += 1;
    }
}

/// A knob comes before those that its write moves.
fn ordered(mut items: Vec<Item>) -> Vec<Item> {
    let moves = |first: &Item, second: &Item| {
        let couplings = &first.spec.couplings;
        let files = couplings.resets_files.iter();
        let mut of_second = second.spec.paths.iter();
        couplings.resets.contains(&second.spec.name)
            || second.spec.couplings.commit.as_ref() == Some(&first.spec.name)
            || files
                .clone()
                .any(|glob| of_second.any(|place| matches(glob, &place.file)))
    };
    let mut sorted: Vec<Item> = Vec::with_capacity(items.len());
    while !items.is_empty() {
        let free = |item: &Item| {
            !items
                .iter()
                .any(|other| other != item && moves(other, item))
        };
        let next = items.iter().position(free).unwrap_or(0);
        sorted.push(items.remove(next));
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Places;
    use crate::profile::profile_values;
    use kilter_api::Risk;
    use std::path::Path;

    pub(super) fn of_profile(name: &str) -> Vec<Item> {
        let places = Places::new(Path::new("/nonexistent"), true);
        let (_, values) = profile_values(&places, name).unwrap();
        let consent = Consent {
            allow: vec![Risk::Security, Risk::Durability, Risk::Hang],
            skip_risky: false,
        };
        items(&Catalog::built_in(), &values, &consent).unwrap()
    }

    #[test]
    fn what_is_moved_comes_after_what_moves_it() {
        let items = of_profile("ktweak-script");
        let at = |knob: &str| {
            let found = items.iter().position(|item| item.knob == knob);
            found.unwrap_or_else(|| panic!("{knob} is missing"))
        };
        for (first, second) in [
            ("block.*.scheduler", "block.*.nr_requests"),
            ("block.*.iostats", "block.*.read_ahead_kb"),
            ("block.*.scheduler", "block.*.wbt_lat_usec"),
            ("sched.tunable_scaling", "sched.latency_ns"),
            ("cpufreq.*.governor", "cpufreq.*.schedutil.rate_limit_us"),
            ("vm.dirty_ratio", "vm.dirty_bytes"),
        ] {
            assert!(at(first) < at(second), "{first} comes after {second}");
        }
        assert_eq!(items[at("vm.dirty_bytes")].value, None, "kept, not set");
    }

    #[test]
    fn risks_need_a_yes() {
        let places = Places::new(Path::new("/nonexistent"), true);
        let (_, values) = profile_values(&places, "ktweak-script").unwrap();
        let refused = items(&Catalog::built_in(), &values, &Consent::default());
        assert!(matches!(refused, Err(PlanError::Risky(risky)) if risky.len() == 3));
    }
}
