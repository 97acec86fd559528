//! From names and values to a transaction: everything is checked before anything is written.

use crate::catalog::{Catalog, fill, instance_of};
use crate::check::{ValueError, check_value};
use crate::compile::compile;
use crate::late::{Fate, Late, Switches};
use crate::names::{UnknownName, is_glob, matches};
use crate::probe::{self, Found, probe};
use crate::wish::Wish;
use kilter_api::{Change, KnobSpec, Plan, Risk, Settings, Skipped, Unavailable, UnavailableReason};
use kilter_kernel::{Kernel, Transaction};
use std::collections::BTreeMap;

/// Which risks a person has said yes to.
#[derive(Clone, Debug, Default)]
pub struct Consent {
    /// Risks allowed by name.
    pub allow: Vec<Risk>,
    /// Leave risky knobs out instead of refusing.
    pub skip_risky: bool,
}

/// A plan for people and the transaction that carries it out.
#[derive(Clone, Debug, Default)]
pub struct Planned {
    /// What will be written, and what not.
    pub plan: Plan,
    /// The same with couplings, in the order of writing.
    pub transaction: Transaction,
}

/// Settings that are refused whole. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No such knob.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// A value outside what is allowed.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// Two members of a pair that zero each other.
    #[error("{0} and {1} exclude each other: a write of one sets the other to zero")]
    Exclusive(String, String),
    /// A value above its limit.
    #[error("{knob}={value} is above {limit}={limit_value}, which must not be below it")]
    Above {
        /// The knob.
        knob: String,
        /// Its value.
        value: String,
        /// The knob that limits it.
        limit: String,
        /// The limit's value.
        limit_value: String,
    },
    /// Values whose risk needs a yes.
    #[error("refused for their risk: {}", list(.0))]
    Risky(Vec<(String, Risk)>),
}

fn list(risky: &[(String, Risk)]) -> String {
    risky
        .iter()
        .map(|(knob, risk)| format!("{knob} ({})", word(*risk)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A risk as it is written on the command line.
fn word(risk: Risk) -> String {
    format!("{risk:?}").to_lowercase()
}

impl PlanError {
    /// Risks that would have to be allowed, as `--allow` takes them.
    pub fn risks(&self) -> Vec<String> {
        let PlanError::Risky(risky) = self else {
            return Vec::new();
        };
        let mut words: Vec<String> = risky.iter().map(|(_, risk)| word(*risk)).collect();
        words.sort();
        words.dedup();
        words
    }
}

/// A knob that is to get a value.
pub(crate) struct Target<'a> {
    pub name: String,
    pub spec: &'a KnobSpec,
    pub instance: Option<String>,
    pub value: String,
}

/// Checks settings and compiles them. `settings` may hold globs over devices (`block.*.iostats`);
/// an exact name wins over a glob.
pub fn plan(
    kernel: &Kernel,
    catalog: &Catalog,
    name: &str,
    settings: &Settings,
    consent: &Consent,
) -> Result<Planned, PlanError> {
    let mut skipped = Vec::new();
    let mut targets = expand(kernel, catalog, settings, &mut skipped)?;
    ask_consent(&mut targets, consent, &mut skipped)?;
    exclude(&targets)?;
    let (found, late) = find(kernel, catalog, &mut targets, &mut skipped);
    limits(kernel, catalog, &targets)?;
    let transaction = compile(kernel, catalog, &targets, &found, &late);
    let changes = transaction.steps.iter().filter_map(|step| {
        let here = found.get(&step.knob)?;
        let new = step.value.clone()?;
        Some(Change {
            knob: step.knob.clone(),
            path: step.path.to_string(),
            old: here.value.clone(),
            appears_with: match (late.get(&step.knob), here.value.is_empty()) {
                (Some(late), true) => late.with.clone(),
                _ => String::new(),
            },
            new,
            effective: None,
        })
    });
    let plan = Plan {
        name: name.to_owned(),
        changes: changes.collect(),
        skipped,
    };
    Ok(Planned { plan, transaction })
}

fn expand<'a>(
    kernel: &Kernel,
    catalog: &'a Catalog,
    settings: &Settings,
    skipped: &mut Vec<Skipped>,
) -> Result<Vec<Target<'a>>, PlanError> {
    let mut targets: BTreeMap<String, Target<'a>> = BTreeMap::new();
    let (globs, exact): (Vec<_>, Vec<_>) = settings.iter().partition(|(name, _)| is_glob(name));
    for (glob, value) in globs {
        let matched = matching(kernel, catalog, glob)?;
        if matched.is_empty() {
            let detail = format!("this machine has nothing that matches {glob}");
            skipped.push(Skipped {
                knob: glob.clone(),
                because: Unavailable {
                    reason: UnavailableReason::Absent,
                    detail,
                },
            });
        }
        for (name, spec, instance) in matched {
            let value = check_value(&name, spec, value)?;
            targets.insert(
                name.clone(),
                Target {
                    name,
                    spec,
                    instance,
                    value,
                },
            );
        }
    }
    for (name, value) in exact {
        let (name, spec) = catalog.resolve(name)?;
        let instance = instance_of(&spec.name, &name);
        let value = check_value(&name, spec, value)?;
        targets.insert(
            name.clone(),
            Target {
                name,
                spec,
                instance,
                value,
            },
        );
    }
    Ok(targets.into_values().collect())
}

/// A knob's full name, its entry, and what fills the placeholder.
type Instance<'a> = (String, &'a KnobSpec, Option<String>);

/// Instances that a glob names; virtual devices only where the glob spells their name out.
fn matching<'a>(
    kernel: &Kernel,
    catalog: &'a Catalog,
    glob: &str,
) -> Result<Vec<Instance<'a>>, UnknownName> {
    let mut found = Vec::new();
    let mut any_template = false;
    for spec in &catalog.knobs {
        any_template |= matches(glob, &spec.name);
        for instance in probe::instances(kernel, spec) {
            let name = fill(&spec.name, instance.as_deref());
            let spelled_out = instance
                .as_ref()
                .is_none_or(|instance| named_in(glob, instance));
            if matches(glob, &name)
                && (spelled_out || !probe::knob_is_virtual(spec, instance.as_deref()))
            {
                found.push((name, spec, instance));
            }
        }
    }
    match found.is_empty() && !any_template {
        true => Err(UnknownName::new(
            "knob",
            glob,
            catalog.knobs.iter().map(|spec| spec.name.as_str()),
        )),
        false => Ok(found),
    }
}

/// Whether a glob spells out one part at least of what fills the placeholders.
fn named_in(glob: &str, instance: &str) -> bool {
    instance
        .split('/')
        .any(|name| glob.split('.').any(|part| part == name))
}

fn ask_consent(
    targets: &mut Vec<Target<'_>>,
    consent: &Consent,
    skipped: &mut Vec<Skipped>,
) -> Result<(), PlanError> {
    let refused = |target: &Target| {
        target.spec.risk.needs_consent() && !consent.allow.contains(&target.spec.risk)
    };
    if !consent.skip_risky {
        let risky: Vec<_> = targets
            .iter()
            .filter(|target| refused(target))
            .map(|target| (target.name.clone(), target.spec.risk))
            .collect();
        return if risky.is_empty() {
            Ok(())
        } else {
            Err(PlanError::Risky(risky))
        };
    }
    for target in targets.iter().filter(|target| refused(target)) {
        let detail = format!("left out for its risk: {}", word(target.spec.risk));
        skipped.push(Skipped {
            knob: target.name.clone(),
            because: Unavailable {
                reason: UnavailableReason::NotPermitted,
                detail,
            },
        });
    }
    targets.retain(|target| !refused(target));
    Ok(())
}

fn exclude(targets: &[Target<'_>]) -> Result<(), PlanError> {
    for target in targets {
        let Some(partner) = &target.spec.couplings.excludes else {
            continue;
        };
        let partner = fill(partner, target.instance.as_deref());
        if targets.iter().any(|other| other.name == partner) {
            return Err(PlanError::Exclusive(target.name.clone(), partner));
        }
    }
    Ok(())
}

/// What there is of the targets here, and what comes with others of them; the rest is skipped.
fn find(
    kernel: &Kernel,
    catalog: &Catalog,
    targets: &mut Vec<Target<'_>>,
    skipped: &mut Vec<Skipped>,
) -> (BTreeMap<String, Found>, BTreeMap<String, Late>) {
    let mut found = BTreeMap::new();
    let mut lacking = BTreeMap::new();
    for target in targets.iter_mut() {
        let name = target.name.clone();
        match settable(kernel, target) {
            Ok(here) => drop(found.insert(name, here)),
            Err(because) => drop(lacking.insert(name, because)),
        }
    }
    // All values that others depend on are known now.
    let switches = Switches::new(kernel, catalog, targets, &found);
    let mut late = BTreeMap::new();
    let mut granted = Vec::new();
    for (at, target) in targets.iter().enumerate() {
        match switches.fate(
            target.spec,
            target.instance.as_deref(),
            found.get(&target.name),
        ) {
            Fate::Stays => {}
            Fate::Goes(because) => drop(lacking.insert(target.name.clone(), because)),
            Fate::Comes(comes, place) => {
                late.insert(target.name.clone(), comes);
                if found.contains_key(&target.name) {
                    continue;
                }
                match grant(target, &place) {
                    Ok(value) => granted.push((at, value, place)),
                    Err(because) => drop(lacking.insert(target.name.clone(), because)),
                }
            }
        }
    }
    for (at, value, here) in granted {
        targets[at].value = value;
        lacking.remove(&targets[at].name);
        found.insert(targets[at].name.clone(), here);
    }
    targets.retain(|target| !lacking.contains_key(&target.name));
    late.retain(|knob, _| !lacking.contains_key(knob));
    let skips = lacking.into_iter();
    skipped.extend(skips.map(|(knob, because)| Skipped { knob, because }));
    (found, late)
}

/// What there is of the target here; its wish is granted on the way.
fn settable(kernel: &Kernel, target: &mut Target<'_>) -> Result<Found, Unavailable> {
    let found = probe(
        kernel,
        &target.name,
        target.spec,
        target.instance.as_deref(),
    )?;
    // Without root a plan can still be looked at; carrying it out needs root anyway.
    let settable = match kilter_kernel::is_root() {
        true => kernel.may_write(&found.path),
        false => !kernel.is_read_only(&found.path),
    };
    let because = || Unavailable {
        reason: UnavailableReason::ReadOnly,
        detail: format!("{} is read-only here", found.path),
    };
    if !settable {
        return Err(because());
    }
    target.value = grant(target, &found)?;
    Ok(found)
}

/// The target's value, found out among what the machine offers where it is a wish.
fn grant(target: &Target<'_>, found: &Found) -> Result<String, Unavailable> {
    let Some(wish) = Wish::parse(&target.value) else {
        return Ok(target.value.clone());
    };
    let unsupported = |detail: String| Unavailable {
        reason: UnavailableReason::Unsupported,
        detail,
    };
    let granted = wish.among(&found.offered, &found.value).ok_or_else(|| {
        unsupported(match found.offered.is_empty() {
            true => format!(
                "{}: this machine does not list what it offers",
                target.value
            ),
            false => format!("{}: offered are {}", target.value, found.offered.join(", ")),
        })
    })?;
    check_value(&target.name, target.spec, &granted).map_err(|error| unsupported(error.to_string()))
}

/// Both ends of every `at_most` as they will be: the new value, or else the current one.
fn limits(kernel: &Kernel, catalog: &Catalog, targets: &[Target<'_>]) -> Result<(), PlanError> {
    let will_be = |name: &str| -> Option<String> {
        if let Some(target) = targets.iter().find(|target| target.name == name) {
            return Some(target.value.clone());
        }
        let spec = catalog.find(name).ok()?;
        probe(kernel, name, spec, instance_of(&spec.name, name).as_deref())
            .ok()
            .map(|found| found.value)
    };
    let touched = |name: &str| targets.iter().any(|target| target.name == name);
    for spec in catalog
        .knobs
        .iter()
        .filter(|spec| spec.couplings.at_most.is_some())
    {
        for (knob, limit) in pairs(spec, targets) {
            if !touched(&knob) && !touched(&limit) {
                continue;
            }
            let (Some(value), Some(limit_value)) = (will_be(&knob), will_be(&limit)) else {
                continue;
            };
            // Zero means "unused" for the members of an excluding pair.
            let above = match (value.parse::<i64>(), limit_value.parse::<i64>()) {
                (Ok(_), Ok(0)) if spec.couplings.excludes.is_some() => false,
                (Ok(value), Ok(limit)) => value > limit,
                _ => false,
            };
            if above {
                return Err(PlanError::Above {
                    knob,
                    value,
                    limit,
                    limit_value,
                });
            }
        }
    }
    Ok(())
}

fn pairs(spec: &KnobSpec, targets: &[Target<'_>]) -> Vec<(String, String)> {
    let limit = spec.couplings.at_most.as_deref().unwrap_or_default();
    let mut instances: Vec<Option<&str>> = targets
        .iter()
        .map(|target| target.instance.as_deref())
        .collect();
    instances.sort();
    instances.dedup();
    let fits = |instance: &Option<&str>| instance.is_some() == spec.name.contains('<');
    let mut pairs: Vec<_> = instances
        .into_iter()
        .filter(fits)
        .map(|instance| (fill(&spec.name, instance), fill(limit, instance)))
        .collect();
    if pairs.is_empty() && !spec.name.contains('<') {
        pairs.push((spec.name.clone(), limit.to_owned()));
    }
    pairs
}
