//! Files that come and go with another knob's value: the tunables of a governor or of an I/O
//! scheduler, which a plan that also chooses that governor or scheduler can set.

use crate::catalog::{Catalog, fill, instance_of};
use crate::plan::Target;
use crate::probe::{self, Found, probe};
use kilter_api::{KnobSpec, PathSpec, Unavailable, UnavailableReason};
use kilter_kernel::{Kernel, KernelPath};
use std::collections::BTreeMap;

/// A knob whose file comes with others of the same plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Late {
    /// The knobs that bring it.
    pub switches: Vec<String>,
    /// The first of them with its value, for people: `block.vda.scheduler=bfq`.
    pub with: String,
}

/// What becomes of a knob's file under a plan.
pub(crate) enum Fate {
    /// No other knob of the plan moves it.
    Stays,
    /// It is there once the others are written; with what is known of it until then.
    Comes(Late, Found),
    /// It is there now, and will not be.
    Goes(Unavailable),
}

/// The values that the knobs of a plan have now and will have.
pub(crate) struct Switches<'a> {
    kernel: &'a Kernel,
    catalog: &'a Catalog,
    /// By name: the value now and then.
    planned: BTreeMap<String, (String, String)>,
}

impl<'a> Switches<'a> {
    /// Of targets whose wishes are granted, and what was found of them.
    pub fn new(
        kernel: &'a Kernel,
        catalog: &'a Catalog,
        targets: &[Target<'_>],
        found: &BTreeMap<String, Found>,
    ) -> Self {
        let moved = targets.iter().filter_map(|target| {
            let now = found.get(&target.name)?.value.clone();
            Some((target.name.clone(), (now, target.value.clone())))
        });
        Switches {
            kernel,
            catalog,
            planned: moved.collect(),
        }
    }

    /// What becomes of a knob, which may be here now.
    pub fn fate(&self, spec: &KnobSpec, instance: Option<&str>, here: Option<&Found>) -> Fate {
        for place in &spec.paths {
            let Some((template, value)) = place.appears_with.split_once('=') else {
                continue;
            };
            let Ok(path) = KernelPath::new(fill(&place.file, instance)) else {
                continue;
            };
            // A place of newer kernels is in use, whatever this one does.
            if here.is_some_and(|here| here.path != path) {
                continue;
            }
            let switches = self.instances(template, instance);
            let bringing: Vec<String> = switches
                .iter()
                .filter(|name| {
                    let moved = self.planned.get(*name);
                    // With the value now and no file, or one that cannot be written, this kernel
                    // just lacks it.
                    moved.is_some_and(|(now, then)| {
                        then == value && (here.is_some() || now != value)
                    })
                })
                .cloned()
                .collect();
            if let Some(first) = bringing.first() {
                let with = format!("{first}={value}");
                let late = Late {
                    switches: bringing,
                    with,
                };
                return Fate::Comes(late, self.unseen(place, path, instance));
            }
            let leaving = switches.iter().find_map(|name| {
                let (now, then) = self.planned.get(name)?;
                (now == value).then(|| format!("{name}={then}"))
            });
            if let Some(leaving) = leaving.filter(|_| here.is_some())
                && !switches
                    .iter()
                    .any(|name| self.will_be(name).as_deref() == Some(value))
            {
                return Fate::Goes(Unavailable {
                    reason: UnavailableReason::Absent,
                    detail: format!("it goes away with {leaving}: it is there only with {value}"),
                });
            }
        }
        Fate::Stays
    }

    /// The knobs that a template stands for; all of them for a knob of the whole machine.
    fn instances(&self, template: &str, instance: Option<&str>) -> Vec<String> {
        match (instance, self.catalog.find(template)) {
            (None, Ok(spec)) => probe::instances(self.kernel, spec)
                .into_iter()
                .map(|each| fill(template, each.as_deref()))
                .collect(),
            _ => vec![fill(template, instance)],
        }
    }

    fn will_be(&self, name: &str) -> Option<String> {
        if let Some((_, then)) = self.planned.get(name) {
            return Some(then.clone());
        }
        let spec = self.catalog.find(name).ok()?;
        let instance = instance_of(&spec.name, name);
        let found = probe(self.kernel, name, spec, instance.as_deref());
        found.ok().map(|found| found.value)
    }

    fn unseen(&self, place: &PathSpec, path: KernelPath, instance: Option<&str>) -> Found {
        Found {
            path,
            format: place.format,
            value: String::new(),
            offered: match place.offers.is_empty() {
                true => Vec::new(),
                false => probe::listed(self.kernel, fill(&place.offers, instance)),
            },
        }
    }
}
