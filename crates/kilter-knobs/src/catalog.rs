//! The catalog: built in, then `/usr/share/kilter`, then `/etc/kilter`, later ones override.

use crate::check::check_spec;
use crate::files::{FileProblem, read_toml, toml_files};
use crate::names::{UnknownName, nearest};
use crate::places::Places;
use kilter_api::{Format, KnobSpec, Workload};
use serde::Deserialize;
use std::path::Path;

/// All knobs and workloads that kilter knows.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// Knobs, sorted by name.
    pub knobs: Vec<KnobSpec>,
}

/// A catalog that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// A file of it.
    #[error(transparent)]
    File(#[from] FileProblem),
    /// A name that nothing has.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KnobFile {
    knob: Vec<KnobSpec>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadFile {
    workload: Vec<Workload>,
}

impl Catalog {
    /// The built-in catalog alone.
    pub fn built_in() -> Self {
        let json = include_bytes!(concat!(env!("OUT_DIR"), "/knobs.json"));
        let mut knobs: Vec<KnobSpec> =
            serde_json::from_slice(json).expect("written by the build script");
        knobs.sort_by(|a, b| a.name.cmp(&b.name));
        Catalog { knobs }
    }

    /// The built-in catalog with what this machine adds.
    pub fn load(places: &Places) -> Result<Self, CatalogError> {
        let mut catalog = Catalog::built_in();
        for dir in &places.catalogs {
            for path in toml_files(&dir.join("knobs"))? {
                catalog.add(&path)?;
            }
        }
        catalog.knobs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(catalog)
    }

    fn add(&mut self, path: &Path) -> Result<(), FileProblem> {
        let file: KnobFile =
            read_toml(path)?.ok_or_else(|| FileProblem::new(path, "the file vanished"))?;
        for spec in file.knob {
            if let Some(problem) = check_spec(&spec).into_iter().next() {
                return Err(FileProblem::new(path, problem));
            }
            self.knobs.retain(|known| known.name != spec.name);
            self.knobs.push(spec);
        }
        Ok(())
    }

    /// The entry of a knob by its full name, which may fill placeholders (`block.vda.iostats`), or by
    /// another name of it (see [`Catalog::resolve`]).
    pub fn find(&self, name: &str) -> Result<&KnobSpec, UnknownName> {
        self.resolve(name).map(|(_, spec)| spec)
    }

    /// The entry of a knob and its name in this catalog. A knob also answers to the name of its sysctl
    /// (`kernel.sched_latency_ns`) and to the path of its file.
    pub fn resolve(&self, name: &str) -> Result<(String, &KnobSpec), UnknownName> {
        let known = self
            .knobs
            .iter()
            .find(|spec| spec.name == name || instance_of(&spec.name, name).is_some());
        if let Some(spec) = known {
            return Ok((name.to_owned(), spec));
        }
        let file = match name.starts_with('/') {
            true => name.to_owned(),
            false => format!("/proc/sys/{}", name.replace('.', "/")),
        };
        self.by_file(&file).ok_or_else(|| {
            let known = self.knobs.iter().map(|spec| spec.name.as_str());
            UnknownName {
                what: "knob",
                name: name.to_owned(),
                nearest: nearest(name, known),
            }
        })
    }

    /// The knob that a kernel file holds, on whichever kernel, and its full name. A file that holds
    /// many (scheduler features) stands for none.
    pub fn by_file(&self, file: &str) -> Option<(String, &KnobSpec)> {
        self.knobs.iter().find_map(|spec| {
            let mut places = spec.paths.iter();
            places.find_map(|place| {
                if place.format == Format::Feature {
                    return None;
                }
                if place.file == file {
                    return Some((spec.name.clone(), spec));
                }
                let instance = instance_of(&place.file, file)?;
                Some((fill(&spec.name, Some(&instance)), spec))
            })
        })
    }
}

/// What fills the placeholders of a template in a full name: `vda`, `cpu0/state2`.
pub(crate) fn instance_of(template: &str, name: &str) -> Option<String> {
    let (before, mut template) = template.split_once('<')?;
    let mut rest = name.strip_prefix(before)?;
    let mut parts = Vec::new();
    loop {
        let (_, after) = template.split_once('>')?;
        let (literal, next) = match after.split_once('<') {
            Some((literal, next)) => (literal, Some(next)),
            None => (after, None),
        };
        let (part, left) = match next {
            Some(_) => rest.split_once(literal)?,
            None => (rest.strip_suffix(literal)?, ""),
        };
        if part.is_empty() || part.contains(['.', '/', '<', '*']) {
            return None;
        }
        parts.push(part);
        match next {
            Some(next) => (template, rest) = (next, left),
            None => return Some(parts.join("/")),
        }
    }
}

/// The template with its placeholders filled, the first with what stands before the first `/`.
pub(crate) fn fill(template: &str, instance: Option<&str>) -> String {
    let mut text = template.to_owned();
    for part in instance
        .into_iter()
        .flat_map(|instance| instance.split('/'))
    {
        if let (Some(start), Some(end)) = (text.find('<'), text.find('>')) {
            text.replace_range(start..=end, part);
        }
    }
    text
}

/// All workloads: built in, then this machine's.
pub(crate) fn workloads(places: &Places) -> Result<Vec<Workload>, FileProblem> {
    let json = include_bytes!(concat!(env!("OUT_DIR"), "/workloads.json"));
    let mut all: Vec<Workload> = serde_json::from_slice(json).expect("written by the build script");
    for dir in &places.catalogs {
        for path in toml_files(&dir.join("workloads"))? {
            let file: WorkloadFile =
                read_toml(&path)?.ok_or_else(|| FileProblem::new(&path, "the file vanished"))?;
            for workload in file.workload {
                all.retain(|known| known.name != workload.name);
                all.push(workload);
            }
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

impl Catalog {
    /// All workloads, sorted by name.
    pub fn workloads(places: &Places) -> Result<Vec<Workload>, CatalogError> {
        Ok(workloads(places)?)
    }

    /// One workload.
    pub fn workload(places: &Places, name: &str) -> Result<Workload, CatalogError> {
        let all = workloads(places)?;
        let known = all.iter().map(|workload| workload.name.as_str());
        let unknown = UnknownName::new("workload", name, known);
        all.into_iter()
            .find(|workload| workload.name == name)
            .ok_or(CatalogError::Unknown(unknown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knob_answers_to_its_files_and_sysctls() {
        let catalog = Catalog::built_in();
        for (other, name) in [
            ("kernel.sched_latency_ns", "sched.latency_ns"),
            ("/proc/sys/vm/swappiness", "vm.swappiness"),
            ("/sys/block/vda/queue/iostats", "block.vda.iostats"),
            ("kernel.sched_hrrn_max_lifetime_ms", "hrrn.max_lifetime_ms"),
            ("kernel.sched_hrrn_latency_us", "hrrn.latency_us"),
        ] {
            assert_eq!(catalog.resolve(other).unwrap().0, name);
        }
        for none in ["/sys/kernel/debug/sched/features", "/etc/passwd", "vm.none"] {
            assert!(catalog.resolve(none).is_err(), "{none}");
        }
    }

    #[test]
    fn placeholders_are_filled_and_found() {
        assert_eq!(
            instance_of("block.<dev>.iostats", "block.vda.iostats").as_deref(),
            Some("vda")
        );
        assert_eq!(instance_of("block.<dev>.iostats", "block..iostats"), None);
        assert_eq!(
            instance_of("block.<dev>.iostats", "block.a/b.iostats"),
            None
        );
        assert_eq!(instance_of("vm.swappiness", "vm.swappiness"), None);
        let two = "cpuidle.<cpu>.<state>.disable";
        assert_eq!(
            instance_of(two, "cpuidle.cpu0.state2.disable").as_deref(),
            Some("cpu0/state2")
        );
        assert_eq!(instance_of(two, "cpuidle.cpu0.disable"), None);
        assert_eq!(
            fill(two, Some("cpu0/state2")),
            "cpuidle.cpu0.state2.disable"
        );
        assert_eq!(
            fill("/sys/block/<dev>/queue/iostats", Some("vda")),
            "/sys/block/vda/queue/iostats"
        );
    }
}
