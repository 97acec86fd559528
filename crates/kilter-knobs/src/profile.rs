//! Profiles: found by name, included, flattened, saved.

use crate::files::{FileProblem, read_toml, toml_files};
use crate::names::{UnknownName, is_glob, matches, valid_name};
use crate::places::Places;
use kilter_api::{Profile, ProfileValue, Settings};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How deep profiles may include each other.
const MAX_DEPTH: usize = 8;

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Its file.
    #[error(transparent)]
    File(#[from] FileProblem),
    /// No such profile.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// A name that is no profile's name.
    #[error(
        "`{0}` is no name of a profile: at most 64 lower-case letters, digits, `-`, `_`, `.`, never a path"
    )]
    Name(String),
    /// Profiles that include each other.
    #[error("profile `{0}` includes itself or goes deeper than 8 profiles")]
    Depth(String),
    /// It could not be saved.
    #[error("{}: {source}", path.display())]
    Save {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// All profiles, sorted by name; later catalogs override earlier ones.
pub fn all_profiles(places: &Places) -> Result<Vec<Profile>, ProfileError> {
    let mut profiles = built_in();
    for dir in &places.catalogs {
        for path in toml_files(&dir.join("profiles"))? {
            if let Some(profile) = load(&path)? {
                profiles.retain(|known| known.name != profile.name);
                profiles.push(profile);
            }
        }
    }
    profiles.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(profiles)
}

fn built_in() -> Vec<Profile> {
    let json = include_bytes!(concat!(env!("OUT_DIR"), "/profiles.json"));
    serde_json::from_slice(json).expect("written by the build script")
}

fn load(path: &Path) -> Result<Option<Profile>, ProfileError> {
    let Some(profile) = read_toml::<Profile>(path)? else {
        return Ok(None);
    };
    let stem = path
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    if profile.name != stem {
        let problem = format!(
            "the profile's name is `{}` and the file's is `{stem}`",
            profile.name
        );
        return Err(FileProblem::new(path, problem).into());
    }
    match valid_name(&profile.name) {
        true => Ok(Some(profile)),
        false => Err(ProfileError::Name(profile.name)),
    }
}

/// One profile as it is written, without what it includes. Opens only files of that name.
fn find(places: &Places, name: &str) -> Result<Profile, ProfileError> {
    if !valid_name(name) {
        return Err(ProfileError::Name(name.to_owned()));
    }
    for dir in places.catalogs.iter().rev() {
        if let Some(profile) = load(&dir.join("profiles").join(format!("{name}.toml")))? {
            return Ok(profile);
        }
    }
    match built_in().into_iter().find(|profile| profile.name == name) {
        Some(profile) => Ok(profile),
        None => {
            let known = all_profiles(places)?;
            let names = known.iter().map(|profile| profile.name.as_str());
            Err(UnknownName::new("profile", name, names).into())
        }
    }
}

/// A profile with everything that it includes, flattened: its own values win.
pub fn resolve_profile(places: &Places, name: &str) -> Result<(Profile, Settings), ProfileError> {
    let (profile, values) = profile_values(places, name)?;
    let settings = values
        .into_iter()
        .map(|(knob, value)| (knob, value.value))
        .collect();
    Ok((profile, settings))
}

/// Values with their reasons, by the knob's name or glob.
pub type ProfileValues = BTreeMap<String, ProfileValue>;

/// The same with the reason of each value.
pub fn profile_values(
    places: &Places,
    name: &str,
) -> Result<(Profile, ProfileValues), ProfileError> {
    let profile = find(places, name)?;
    let mut values = ProfileValues::new();
    collect(places, &profile, &mut values, 0)?;
    Ok((profile, values))
}

/// The reason that a profile gives for a knob's value, by its name or by the glob that decides it;
/// empty for none.
pub fn reason_for<'a>(values: &'a ProfileValues, knob: &str) -> &'a str {
    let by_glob = || {
        // Of several globs the last decides, as in a plan.
        let globs = values.iter().rev().filter(|(name, _)| is_glob(name));
        globs
            .filter(|(glob, _)| matches(glob, knob))
            .map(|(_, value)| value)
            .next()
    };
    let value = values.get(knob).or_else(by_glob);
    value.map_or("", |value| value.why.trim())
}

fn collect(
    places: &Places,
    profile: &Profile,
    values: &mut ProfileValues,
    depth: usize,
) -> Result<(), ProfileError> {
    if depth >= MAX_DEPTH {
        return Err(ProfileError::Depth(profile.name.clone()));
    }
    for name in &profile.include {
        collect(places, &find(places, name)?, values, depth + 1)?;
    }
    let own = profile.set.iter();
    values.extend(own.map(|(knob, value)| (knob.clone(), value.clone())));
    Ok(())
}

/// Saves a profile as `NAME.toml` in the caller's own catalog, in one step, and returns the file.
pub fn save_profile(places: &Places, profile: &Profile) -> Result<PathBuf, ProfileError> {
    if !valid_name(&profile.name) {
        return Err(ProfileError::Name(profile.name.clone()));
    }
    let dir = places.own_catalog.join("profiles");
    let path = dir.join(format!("{}.toml", profile.name));
    let text = toml::to_string_pretty(profile).expect("a profile is plain data");
    let part = dir.join(format!(".{}.toml.{}", profile.name, std::process::id()));
    let write = || -> std::io::Result<()> {
        kilter_kernel::make_dir(&dir)?;
        // Nobody else's to write, whatever the caller's umask is.
        let mut options = fs::File::options();
        options.write(true).create(true).truncate(true).mode(0o644);
        let mut file = options.open(&part)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, &path)
    };
    match write() {
        Ok(()) => Ok(path),
        Err(source) => {
            let _ = fs::remove_file(&part);
            Err(ProfileError::Save { path, source })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_found_by_name_or_by_glob() {
        let value = |why: &str| ProfileValue {
            value: "0".into(),
            why: why.into(),
        };
        let values = ProfileValues::from([
            ("block.*.iostats".to_owned(), value("for all disks\n")),
            ("block.vda.*".to_owned(), value("for vda")),
            ("block.vdb.iostats".to_owned(), value("for vdb")),
        ]);
        assert_eq!(reason_for(&values, "block.vdb.iostats"), "for vdb");
        assert_eq!(reason_for(&values, "block.vdc.iostats"), "for all disks");
        assert_eq!(reason_for(&values, "block.vda.iostats"), "for vda");
        assert_eq!(reason_for(&values, "vm.swappiness"), "");
    }
}
