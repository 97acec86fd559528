//! The space of a search: which knobs, which ranges, what is held.

use crate::cli::Tune;
use crate::commands::apply::begin;
use crate::fail::Failure;
use crate::machine::{Machine, parse_settings};
use crate::say;
use kilter_api::{Knob, KnobSpec, KnobState, Search, Settings, ValueKind};
use kilter_kernel::{Guardian, LayerError, this_process};
use kilter_knobs::{Catalog, Consent, UnknownName, check_value, nearest, plan, probe_all};
use std::collections::BTreeMap;
use wildmatch::WildMatch;

/// What `tune` searches.
pub struct Space {
    /// Knobs with their values now and their ranges.
    pub knobs: Vec<Knob>,
    /// Values held in every arm.
    pub fixed: Settings,
    /// Pairs of which the first must not be above the second.
    pub at_most: Vec<(String, String)>,
    /// Values of knobs in such pairs that are not searched.
    pub known: BTreeMap<String, String>,
}

/// Chooses and checks the space.
pub fn space(machine: &Machine, args: &Tune) -> Result<Space, Failure> {
    let catalog = machine.catalog()?;
    let all = probe_all(&machine.kernel, &catalog);
    let fixed = fixed(machine, &catalog, &args.fix)?;
    let ranges = ranges(&args.range)?;
    let mut knobs = match args.knobs.is_empty() && ranges.is_empty() {
        true => by_default(&all),
        false => named(&all, &args.knobs, &ranges)?,
    };
    knobs.retain(|knob| !fixed.contains_key(&knob.name));
    for (name, low, high) in &ranges {
        let knob = knobs.iter_mut().find(|knob| knob.name == *name);
        narrow(
            knob.ok_or_else(|| Failure::new(format!("--range {name}: this knob is fixed")))?,
            low,
            high,
        )?;
    }
    drop_excluded(&mut knobs);
    knobs.sort_by(|a, b| a.spec.risk.cmp(&b.spec.risk).then(a.name.cmp(&b.name)));
    if knobs.is_empty() {
        return Err(Failure::new("there is no knob to search").hint("kilter knobs list"));
    }
    let (at_most, known) = constraints(&knobs, &all, &fixed);
    Ok(Space {
        knobs,
        fixed,
        at_most,
        known,
    })
}

fn fixed(
    machine: &Machine,
    catalog: &kilter_knobs::Catalog,
    texts: &[String],
) -> Result<Settings, Failure> {
    let given = parse_settings(texts)?;
    let planned = plan(&machine.kernel, catalog, "fix", &given, &Consent::default())?;
    if let Some(skip) = planned.plan.skipped.first() {
        return Err(
            Failure::new(format!("--fix {}: {}", skip.knob, skip.because.detail))
                .hint(format!("kilter knobs show {}", skip.knob)),
        );
    }
    Ok(planned
        .plan
        .changes
        .into_iter()
        .map(|change| (change.knob, change.new))
        .collect())
}

/// `KNOB=LOW..HIGH`.
fn ranges(texts: &[String]) -> Result<Vec<(String, String, String)>, Failure> {
    let parse = |text: &String| {
        let (knob, range) = text.split_once('=')?;
        let (low, high) = range.split_once("..")?;
        Some((
            knob.trim().to_owned(),
            low.trim().to_owned(),
            high.trim().to_owned(),
        ))
    };
    texts
        .iter()
        .map(|text| {
            parse(text).ok_or_else(|| Failure::new(format!("--range {text}: write KNOB=LOW..HIGH")))
        })
        .collect()
}

fn writable(knob: &Knob) -> bool {
    matches!(knob.state, KnobState::Present { writable: true, .. })
        || matches!(knob.state, KnobState::Present { .. }) && !kilter_kernel::is_root()
}

/// Knobs that have a range, can be set here, belong to real devices, and blind no measurement.
fn by_default(all: &[Knob]) -> Vec<Knob> {
    let searched = |knob: &&Knob| {
        knob.spec.search.is_some()
            && knob.spec.blinds.is_empty()
            && !knob.virtual_device
            && writable(knob)
    };
    all.iter().filter(searched).cloned().collect()
}

fn named(
    all: &[Knob],
    globs: &[String],
    ranges: &[(String, String, String)],
) -> Result<Vec<Knob>, Failure> {
    let mut chosen: Vec<Knob> = Vec::new();
    let exact = ranges.iter().map(|(name, ..)| name.clone());
    for glob in globs.iter().cloned().chain(exact) {
        let wild = WildMatch::new(&glob);
        let is_exact = !kilter_knobs::is_glob(&glob);
        let matching: Vec<&Knob> = all
            .iter()
            .filter(|knob| wild.matches(&knob.name) && (is_exact || !knob.virtual_device))
            .collect();
        if matching.is_empty() {
            let names = all.iter().map(|knob| knob.name.as_str());
            return Err(UnknownName {
                what: "knob",
                nearest: nearest(&glob, names),
                name: glob,
            }
            .into());
        }
        let ranged = |knob: &Knob| ranges.iter().any(|(name, ..)| *name == knob.name);
        for knob in matching {
            let mut knob = knob.clone();
            if let (true, Some(all)) = (is_exact, every_value(&knob.spec.value)) {
                knob.spec.search.get_or_insert(all);
            }
            let usable = writable(&knob)
                && (knob.spec.search.is_some() || ranged(&knob))
                && !knob.spec.risk.needs_consent();
            if !usable && is_exact {
                return Err(unusable(&knob));
            }
            if usable && !chosen.iter().any(|other| other.name == knob.name) {
                chosen.push(knob);
            }
        }
    }
    Ok(chosen)
}

/// The range of a switch or of a choice that is asked for by its name.
fn every_value(value: &ValueKind) -> Option<Search> {
    let values = match value {
        ValueKind::Bool => vec!["0".to_owned(), "1".to_owned()],
        ValueKind::Choice { choices } => choices.clone(),
        _ => return None,
    };
    Some(Search::Values { values })
}

fn unusable(knob: &Knob) -> Failure {
    let why = match &knob.state {
        KnobState::Unavailable(why) => why.detail.clone(),
        _ if knob.spec.risk.needs_consent() => {
            format!("a knob of risk {:?} is never searched", knob.spec.risk).to_lowercase()
        }
        KnobState::Present {
            writable: false, ..
        } => "it cannot be written here".to_owned(),
        KnobState::Present { .. } if matches!(knob.spec.value, ValueKind::Int { .. }) => {
            "the catalog gives it no search range; give one with --range KNOB=LOW..HIGH".to_owned()
        }
        KnobState::Present { .. } => "the catalog has no values of it to search".to_owned(),
    };
    Failure::new(format!("{}: {why}", knob.name)).hint(format!("kilter knobs show {}", knob.name))
}

/// Gives a knob the range that was asked for, on the scale it had.
fn narrow(knob: &mut Knob, low: &str, high: &str) -> Result<(), Failure> {
    let low = check_value(&knob.name, &knob.spec, low)?;
    let high = check_value(&knob.name, &knob.spec, high)?;
    let (ValueKind::Int { .. }, Ok(min), Ok(max)) =
        (&knob.spec.value, low.parse::<i64>(), high.parse::<i64>())
    else {
        return Err(Failure::new(format!(
            "--range {}: only whole numbers have a range",
            knob.name
        )));
    };
    if min >= max {
        return Err(Failure::new(format!(
            "--range {}={low}..{high}: the range is empty",
            knob.name
        )));
    }
    knob.spec.search = Some(match &knob.spec.search {
        Some(Search::Log { .. }) if min > 0 => Search::Log { min, max },
        Some(Search::Linear { step, .. }) if *step < max - min => Search::Linear {
            min,
            max,
            step: *step,
        },
        _ => Search::Linear { min, max, step: 1 },
    });
    Ok(())
}

/// Of two members that zero each other, the one in use is searched.
fn drop_excluded(knobs: &mut Vec<Knob>) {
    let unused: Vec<String> = knobs
        .iter()
        .filter(|knob| {
            knob.spec
                .couplings
                .excludes
                .as_ref()
                .is_some_and(|partner| knobs.iter().any(|other| other.name == *partner))
        })
        .filter(|knob| value_now(knob) == Some("0"))
        .map(|knob| knob.name.clone())
        .collect();
    knobs.retain(|knob| !unused.contains(&knob.name));
}

fn value_now(knob: &Knob) -> Option<&str> {
    match &knob.state {
        KnobState::Present { value, .. } => Some(value),
        KnobState::Unavailable(_) => None,
    }
}

fn constraints(
    knobs: &[Knob],
    all: &[Knob],
    fixed: &Settings,
) -> (Vec<(String, String)>, BTreeMap<String, String>) {
    let searched = |name: &str| knobs.iter().any(|knob| knob.name == name);
    let (mut pairs, mut known) = (Vec::new(), BTreeMap::new());
    let limit_of = |spec: &KnobSpec| spec.couplings.at_most.clone();
    for knob in all {
        let Some(limit) = limit_of(&knob.spec) else {
            continue;
        };
        if !searched(&knob.name) && !searched(&limit) {
            continue;
        }
        let mut is_known = true;
        for name in [&knob.name, &limit]
            .into_iter()
            .filter(|name| !searched(name))
        {
            let now = all
                .iter()
                .find(|other| other.name == **name)
                .and_then(value_now)
                .map(str::to_owned);
            match fixed.get(name).cloned().or(now) {
                // Zero is "unused" for the members of an excluding pair: it limits nothing.
                Some(value) if value != "0" => drop(known.insert(name.clone(), value)),
                _ => is_known = false,
            }
        }
        if is_known {
            pairs.push((knob.name.clone(), limit));
        }
    }
    (pairs, known)
}

/// Tries the ends of every range and every word on this kernel, each for a moment, and takes out
/// of the search what the kernel refuses or does not keep: a trial with one refused value would be
/// lost whole.
pub fn fit_to_kernel(machine: &Machine, knobs: &mut Vec<Knob>) -> Result<(), Failure> {
    let _experiment = machine.store.experiment()?;
    let _guardian = Guardian::start(&machine.kernel)?;
    let catalog = machine.catalog()?;
    say::note(format!(
        "Trying the range ends of {} on this kernel, each for a moment.",
        say::count(knobs.len(), "knob")
    ));
    let mut fitted = Vec::new();
    for mut knob in std::mem::take(knobs) {
        let Some(search) = knob.spec.search.take() else {
            continue;
        };
        let mut takes = |value: &str| takes(machine, &catalog, &knob.name, value);
        let search = match search {
            Search::Values { values } => {
                let mut kept = Vec::new();
                for value in values {
                    if takes(&value)? {
                        kept.push(value);
                    }
                }
                Search::Values { values: kept }
            }
            Search::Linear { min, max, step } => {
                let (min, max) = ends(&knob, min, max, &mut takes)?;
                Search::Linear { min, max, step }
            }
            Search::Log { min, max } => {
                let (min, max) = ends(&knob, min, max, &mut takes)?;
                Search::Log { min, max }
            }
        };
        match leaves_a_choice(&search) {
            true => fitted.push(Knob {
                spec: KnobSpec {
                    search: Some(search),
                    ..knob.spec
                },
                ..knob
            }),
            false => say::note(format!(
                "{} is not searched: this kernel takes no other value of its range",
                knob.name
            )),
        }
    }
    *knobs = fitted;
    match knobs.is_empty() {
        true => {
            Err(Failure::new("this kernel takes no value of any range").hint("kilter knobs list"))
        }
        false => Ok(()),
    }
}

/// An end that the kernel refuses moves to the value in force.
fn ends(
    knob: &Knob,
    min: i64,
    max: i64,
    takes: &mut impl FnMut(&str) -> Result<bool, Failure>,
) -> Result<(i64, i64), Failure> {
    let now = value_now(knob).and_then(|value| value.parse::<i64>().ok());
    let inside = now.filter(|now| (min..=max).contains(now));
    let low = if takes(&min.to_string())? {
        min
    } else {
        inside.unwrap_or(min)
    };
    let high = if takes(&max.to_string())? {
        max
    } else {
        inside.unwrap_or(max)
    };
    Ok((low, high))
}

fn leaves_a_choice(search: &Search) -> bool {
    match search {
        Search::Values { values } => values.len() > 1,
        Search::Linear { min, max, .. } | Search::Log { min, max } => min < max,
    }
}

/// Whether the kernel takes a value, and keeps a word as it was written.
fn takes(machine: &Machine, catalog: &Catalog, knob: &str, value: &str) -> Result<bool, Failure> {
    let settings = Settings::from([(knob.to_owned(), value.to_owned())]);
    // Refused by kilter itself, for a limit that the search knows too.
    let Ok(planned) = plan(
        &machine.kernel,
        catalog,
        "run",
        &settings,
        &Consent::default(),
    ) else {
        return Ok(true);
    };
    let lock = machine.lock()?;
    match begin(
        machine,
        &lock,
        "run",
        Some(this_process()),
        &planned.transaction,
    ) {
        Ok(begun) => {
            lock.undo(&machine.kernel, begun.id)?;
            let is_number = value.parse::<i64>().is_ok();
            Ok(is_number || begun.written.iter().all(|written| written.kept == value))
        }
        Err(LayerError::Refused { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_without_a_range_is_searched_where_it_is_named() {
        let catalog = kilter_knobs::Catalog::built_in();
        let spec = catalog.find("thp.64kB.enabled").unwrap().clone();
        let all = [Knob {
            name: "thp.64kB.enabled".to_owned(),
            state: KnobState::Present {
                value: "never".to_owned(),
                path: "/sys/kernel/mm".to_owned(),
                writable: true,
            },
            virtual_device: false,
            spec,
            offered: Vec::new(),
        }];
        assert!(by_default(&all).is_empty());
        let globbed = named(&all, &["thp.*".to_owned()], &[]).unwrap();
        assert!(globbed.is_empty());
        let chosen = named(&all, &["thp.64kB.enabled".to_owned()], &[]).unwrap();
        let Some(Search::Values { values }) = &chosen[0].spec.search else {
            panic!("{:?}", chosen[0].spec.search);
        };
        assert_eq!(values, &["always", "inherit", "madvise", "never"]);
    }
}
