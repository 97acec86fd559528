//! The transaction of a plan: what couplings move is added, and all is put into the order of writing.

use crate::catalog::{Catalog, fill, instance_of};
use crate::late::Late;
use crate::names::matches;
use crate::order::{self, Before};
use crate::plan::Target;
use crate::probe::{self, Found, probe};
use kilter_api::{Format, KnobSpec};
use kilter_kernel::{Files, Kernel, KernelPath, Step, Transaction};
use std::collections::BTreeMap;

/// Adds what couplings move, and sorts.
pub(crate) fn compile(
    kernel: &Kernel,
    catalog: &Catalog,
    targets: &[Target<'_>],
    found: &BTreeMap<String, Found>,
    late: &BTreeMap<String, Late>,
) -> Transaction {
    let mut compiler = Compiler {
        kernel,
        catalog,
        steps: Vec::new(),
        before: Before::new(),
    };
    for target in targets {
        compiler.add(
            &target.name,
            target.spec,
            target.instance.as_deref(),
            &found[&target.name],
            Some(target.value.clone()),
        );
    }
    for target in targets {
        compiler.couple(
            target.spec,
            target.instance.as_deref(),
            &found[&target.name].path.clone(),
        );
    }
    for (name, late) in late {
        let path = &found[name].path;
        for switch in &late.switches {
            let pair = (found[switch].path.clone(), path.clone());
            compiler.before.insert(pair);
        }
        let steps = compiler.steps.iter_mut();
        for step in steps.filter(|step| step.knob == *name) {
            step.appears = true;
        }
    }
    Transaction {
        steps: order::sort(compiler.steps, &compiler.before),
    }
}

struct Compiler<'a> {
    kernel: &'a Kernel,
    catalog: &'a Catalog,
    steps: Vec<Step>,
    before: Before,
}

impl Compiler<'_> {
    fn add(
        &mut self,
        name: &str,
        spec: &KnobSpec,
        instance: Option<&str>,
        found: &Found,
        value: Option<String>,
    ) {
        let excludes = self.path_of(spec.couplings.excludes.as_deref(), instance);
        let commit = self.path_of(spec.couplings.commit.as_deref(), instance);
        if let Some(commit) = &commit {
            self.before.insert((commit.clone(), found.path.clone()));
        }
        self.steps.push(Step {
            knob: name.to_owned(),
            path: found.path.clone(),
            format: found.format,
            value,
            excludes,
            commit,
            appears: false,
        });
    }

    /// Adds, as files to be kept safe, whatever a write of this knob moves, and what that moves.
    fn couple(&mut self, spec: &KnobSpec, instance: Option<&str>, path: &KernelPath) {
        for name in spec.couplings.resets.iter().chain(&spec.couplings.excludes) {
            let ordered = spec.couplings.excludes.as_ref() != Some(name);
            let name = fill(name, instance);
            match self.catalog.find(&name) {
                // A knob of the whole machine that moves those of every device.
                Ok(coupled) if coupled.name.contains('<') && coupled.name == name => {
                    for each in probe::instances(self.kernel, coupled) {
                        self.watch(&fill(&name, each.as_deref()), path, ordered);
                    }
                }
                _ => self.watch(&name, path, ordered),
            }
        }
        for pattern in &spec.couplings.resets_files {
            self.watch_files(&fill(pattern, instance), path);
        }
    }

    fn watch(&mut self, name: &str, resetter: &KernelPath, ordered: bool) {
        let Ok(spec) = self.catalog.find(name) else {
            return;
        };
        let instance = instance_of(&spec.name, name);
        let instance = instance.as_deref();
        let Ok(found) = probe(self.kernel, name, spec, instance) else {
            return;
        };
        if ordered {
            self.before.insert((resetter.clone(), found.path.clone()));
        }
        if !self.steps.iter().any(|step| step.knob == name) {
            self.add(name, spec, instance, &found, None);
            self.couple(spec, instance, &found.path);
        }
    }

    fn watch_files(&mut self, pattern: &str, resetter: &KernelPath) {
        let Some((dir, last)) = pattern.rsplit_once('/') else {
            return;
        };
        for name in self
            .kernel
            .list(dir)
            .into_iter()
            .filter(|name| matches(last, name))
        {
            let Ok(path) = KernelPath::new(format!("{dir}/{name}")) else {
                continue;
            };
            self.before.insert((resetter.clone(), path.clone()));
            let known = self.steps.iter().any(|step| step.path == path);
            if !known && self.kernel.may_write(&path) && self.kernel.read(&path).is_ok() {
                let knob = path.to_string();
                self.steps.push(Step {
                    knob,
                    path,
                    format: Format::Plain,
                    value: None,
                    excludes: None,
                    commit: None,
                    appears: false,
                });
            }
        }
    }

    fn path_of(&self, name: Option<&str>, instance: Option<&str>) -> Option<KernelPath> {
        let name = fill(name?, instance);
        let spec = self.catalog.find(&name).ok()?;
        let instance = instance_of(&spec.name, &name);
        probe(self.kernel, &name, spec, instance.as_deref())
            .ok()
            .map(|found| found.path)
    }
}
