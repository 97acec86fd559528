//! The catalog: built in, then `/usr/share/kilter`, then `/etc/kilter`, later ones override.

use crate::check::check_spec;
use crate::files::{FileProblem, read_toml, toml_files};
use crate::names::{UnknownName, nearest};
use crate::places::Places;
use kilter_api::{KnobSpec, Workload};
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

    /// The entry of a knob and its full name, which may fill a placeholder: `block.vda.iostats`.
    pub fn find(&self, name: &str) -> Result<&KnobSpec, UnknownName> {
        let direct = self.knobs.iter().find(|spec| spec.name == name);
        direct
            .or_else(|| {
                self.knobs
                    .iter()
                    .find(|spec| instance_of(&spec.name, name).is_some())
            })
            .ok_or_else(|| {
                let known = self.knobs.iter().map(|spec| spec.name.as_str());
                UnknownName {
                    what: "knob",
                    name: name.to_owned(),
                    nearest: nearest(name, known),
                }
            })
    }
}

/// What fills the placeholder of a template in a full name: `vda`.
pub(crate) fn instance_of<'a>(template: &str, name: &'a str) -> Option<&'a str> {
    let (before, rest) = template.split_once('<')?;
    let (_, after) = rest.split_once('>')?;
    let middle = name.strip_prefix(before)?.strip_suffix(after)?;
    (!middle.is_empty() && !middle.contains(['.', '/', '<', '*'])).then_some(middle)
}

/// The template with its placeholder filled.
pub(crate) fn fill(template: &str, instance: Option<&str>) -> String {
    match (template.find('<'), template.find('>'), instance) {
        (Some(start), Some(end), Some(instance)) => {
            format!("{}{instance}{}", &template[..start], &template[end + 1..])
        }
        _ => template.to_owned(),
    }
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
    fn placeholders_are_filled_and_found() {
        assert_eq!(
            instance_of("block.<dev>.iostats", "block.vda.iostats"),
            Some("vda")
        );
        assert_eq!(instance_of("block.<dev>.iostats", "block..iostats"), None);
        assert_eq!(
            instance_of("block.<dev>.iostats", "block.a/b.iostats"),
            None
        );
        assert_eq!(instance_of("vm.swappiness", "vm.swappiness"), None);
        assert_eq!(
            fill("/sys/block/<dev>/queue/iostats", Some("vda")),
            "/sys/block/vda/queue/iostats"
        );
    }
}
