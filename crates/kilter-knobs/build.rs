//! Turns the catalog's TOML into JSON at build time: the binary then starts without parsing TOML.

use kilter_api::{KnobSpec, Profile, Workload};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::path::Path;
use std::{env, fs};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Knobs {
    knob: Vec<KnobSpec>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Workloads {
    workload: Vec<Workload>,
}

fn main() {
    let catalog = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../catalog");
    embed(
        "knobs.json",
        &read::<Knobs>(&catalog.join("knobs"))
            .flat_map(|file| file.knob)
            .collect::<Vec<_>>(),
    );
    embed(
        "workloads.json",
        &read::<Workloads>(&catalog.join("workloads"))
            .flat_map(|file| file.workload)
            .collect::<Vec<_>>(),
    );
    embed(
        "profiles.json",
        &read::<Profile>(&catalog.join("profiles")).collect::<Vec<_>>(),
    );
}

fn read<T: DeserializeOwned>(dir: &Path) -> impl Iterator<Item = T> {
    println!("cargo::rerun-if-changed={}", dir.display());
    let mut files: Vec<_> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    files.sort();
    files.into_iter().map(|path| {
        println!("cargo::rerun-if-changed={}", path.display());
        let text = fs::read_to_string(&path).unwrap();
        toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    })
}

fn embed(name: &str, data: &impl Serialize) {
    let path = Path::new(&env::var("OUT_DIR").unwrap()).join(name);
    fs::write(path, serde_json::to_vec(data).unwrap()).unwrap();
}
