//! What the catalog says of a knob, in words: the one text behind `kilter knobs show` and `docs/knobs`.

use kilter_api::{Couplings, KnobSpec, Profile, Search, ValueKind};
use wildmatch::WildMatch;

/// A profile's value for a knob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetBy {
    /// The profile.
    pub profile: String,
    /// The value.
    pub value: String,
    /// The profile's reason.
    pub why: String,
}

/// Name and text of each fact, in order. They hold on every machine.
pub fn facts(spec: &KnobSpec) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("allowed", with_unit(&range(spec), &spec.unit)),
        (
            "searched",
            spec.search.as_ref().map_or("never".to_owned(), search),
        ),
        ("kernel default", spec.default.clone()),
        ("risk", risk(spec)),
    ];
    if !spec.blinds.is_empty() {
        facts.push(("blinds", spec.blinds.join(", ")));
    }
    let coupled = couplings(&spec.couplings);
    facts.extend(coupled.into_iter().map(|text| ("coupled", text)));
    let places = spec.paths.iter();
    facts.extend(places.map(|place| {
        let with = match place.appears_with.as_str() {
            "" => String::new(),
            with => format!(" (appears with {with})"),
        };
        ("kernels", format!("{}: {}{with}", place.era, place.file))
    }));
    if !spec.by_hand.is_empty() {
        facts.push(("by hand", spec.by_hand.clone()));
    }
    if !spec.successor.is_empty() {
        facts.push(("successor", spec.successor.clone()));
    }
    facts
}

/// The profiles that set a knob, with their values and reasons.
pub fn set_by(spec: &KnobSpec, profiles: &[Profile]) -> Vec<SetBy> {
    let generic = spec.name.replace(['<', '>'], "");
    let means = |name: &str| {
        name == spec.name || (name.contains(['*', '?']) && WildMatch::new(name).matches(&generic))
    };
    profiles
        .iter()
        .flat_map(|profile| profile.set.iter().map(move |set| (profile, set)))
        .filter(|(_, (name, _))| means(name))
        .map(|(profile, (_, set))| SetBy {
            profile: profile.name.clone(),
            value: set.value.clone(),
            why: set.why.trim().to_owned(),
        })
        .collect()
}

/// What is allowed, in words.
pub fn range(spec: &KnobSpec) -> String {
    match &spec.value {
        ValueKind::Int { min, max } => format!("{min} .. {max}"),
        ValueKind::Bool => "0, 1".to_owned(),
        ValueKind::Choice { choices } => choices.join(", "),
        ValueKind::List { min, max, most } => format!("{min} .. {max}, up to {most} numbers"),
        ValueKind::Mask => "a set of CPUs (hexadecimal)".to_owned(),
    }
}

/// The risk as it is written on the command line.
pub fn risk(spec: &KnobSpec) -> String {
    format!("{:?}", spec.risk).to_lowercase()
}

/// A text with its unit behind it.
pub fn with_unit(text: &str, unit: &str) -> String {
    match unit {
        "" => text.to_owned(),
        unit => format!("{text} {unit}"),
    }
}

fn search(search: &Search) -> String {
    match search {
        Search::Linear { min, max, step: 1 } => format!("{min} .. {max}"),
        Search::Linear { min, max, step } => format!("{min} .. {max} in steps of {step}"),
        Search::Log { min, max } => format!("{min} .. {max}, logarithmically"),
        Search::Values { values } => values.join(", "),
    }
}

fn couplings(couplings: &Couplings) -> Vec<String> {
    let mut texts = Vec::new();
    texts.extend(
        couplings
            .excludes
            .iter()
            .map(|other| format!("a write of this or of {other} sets the other to zero")),
    );
    let reset: Vec<&str> = couplings
        .resets
        .iter()
        .chain(&couplings.resets_files)
        .map(String::as_str)
        .collect();
    if !reset.is_empty() {
        texts.push(format!(
            "a write resets, so these come after it: {}",
            reset.join(", ")
        ));
    }
    let limit = couplings.at_most.iter();
    texts.extend(limit.map(|other| format!("must not be above {other}")));
    let commit = couplings.commit.iter();
    texts.extend(
        commit.map(|other| format!("kept over CPU hotplug by writing {other} its own value")),
    );
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilter_api::ProfileValue;
    use kilter_knobs::Catalog;
    use std::collections::BTreeMap;

    #[test]
    fn profiles_are_found_by_name_and_by_glob() {
        let value = |value: &str| ProfileValue {
            value: value.into(),
            why: "because\n".into(),
        };
        let profile = Profile {
            name: "p".into(),
            set: BTreeMap::from([
                ("block.*.iostats".to_owned(), value("0")),
                ("vm.swappiness".to_owned(), value("10")),
            ]),
            ..Profile::default()
        };
        let catalog = Catalog::built_in();
        for (knob, wanted) in [
            ("block.<dev>.iostats", Some("0")),
            ("vm.swappiness", Some("10")),
            ("vm.dirty_ratio", None),
        ] {
            let found = set_by(catalog.find(knob).unwrap(), std::slice::from_ref(&profile));
            assert_eq!(found.first().map(|set| set.value.as_str()), wanted);
        }
    }
}
