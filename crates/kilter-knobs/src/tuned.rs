//! TuneD's profiles: sections of plugins, with variables and includes.
//!
//! What a plugin writes is taken over as far as the catalog has a knob for it. Functions
//! (`${f:…}`) are TuneD's own code and are not run, but for `virt_check`.

use crate::catalog::Catalog;
use crate::import::Import;
use crate::sysctl::read;
use crate::tuned_plugins::Given;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How deep profiles may include each other.
const MAX_DEPTH: usize = 8;

/// Where TuneD looks for profiles, the administrator's first.
const DIRS: [&str; 4] = [
    "etc/tuned/profiles",
    "etc/tuned",
    "usr/lib/tuned/profiles",
    "usr/lib/tuned",
];

/// A profile of TuneD's that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TunedError {
    /// A file of it.
    #[error(transparent)]
    File(#[from] crate::files::FileProblem),
    /// No such profile.
    #[error("there is no TuneD profile `{name}` (looked in {})", .looked.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// The directories.
        looked: Vec<String>,
    },
    /// Profiles that include each other.
    #[error("TuneD profile `{0}` includes itself or goes deeper than 8 profiles")]
    Depth(String),
}

/// One section: the plugin's options in their order of writing.
#[derive(Debug, Default, Clone)]
struct Section {
    options: BTreeMap<String, String>,
    /// The profile that it was last written in.
    from: String,
}

/// A profile with everything that it includes.
#[derive(Debug, Default)]
struct Tuned {
    sections: BTreeMap<String, Section>,
    variables: BTreeMap<String, String>,
    /// Includes that could not be followed.
    lost: Vec<(String, String)>,
}

/// What a profile sets. `source` is a name, or the path of a `tuned.conf`; `virtual_machine` is what
/// `virt_check` is told.
pub fn import_tuned(
    catalog: &Catalog,
    root: &Path,
    source: &str,
    virtual_machine: bool,
) -> Result<Import, TunedError> {
    let file = match source.contains('/') {
        true => PathBuf::from(source),
        false => find(root, None, source)?,
    };
    let mut tuned = Tuned::default();
    collect(root, &file, virtual_machine, &mut tuned, 0)?;
    let mut import = Import::default();
    for (from, include) in &tuned.lost {
        import.leave(
            from,
            &format!("include={include}"),
            "which profile depends on the machine",
        );
    }
    for (name, section) in &tuned.sections {
        take_section(catalog, &mut import, name, section, &tuned.variables);
    }
    import.settle_pairs(catalog);
    Ok(import)
}

fn find(root: &Path, beside: Option<&Path>, name: &str) -> Result<PathBuf, TunedError> {
    let plain = !name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.');
    let siblings = beside.and_then(Path::parent).and_then(Path::parent);
    let dirs = DIRS.iter().map(|dir| root.join(dir));
    let mut dirs = siblings.map(Path::to_owned).into_iter().chain(dirs);
    plain
        .then(|| {
            dirs.find_map(|dir| Some(dir.join(name).join("tuned.conf")).filter(|f| f.is_file()))
        })
        .flatten()
        .ok_or_else(|| TunedError::Unknown {
            name: name.to_owned(),
            looked: DIRS.iter().map(|dir| format!("/{dir}")).collect(),
        })
}

fn collect(
    root: &Path,
    file: &Path,
    virtual_machine: bool,
    tuned: &mut Tuned,
    depth: usize,
) -> Result<(), TunedError> {
    let name = file.parent().and_then(Path::file_name).map_or_else(
        || file.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    );
    if depth >= MAX_DEPTH {
        return Err(TunedError::Depth(name));
    }
    let sections = parse(&read(file)?);
    let main = sections.iter().filter(|(section, ..)| section == "main");
    for (_, _, includes) in main.filter(|(_, key, _)| key == "include") {
        let includes = match virt_check(includes, virtual_machine) {
            Some(one) => one,
            None if includes.contains("${") => {
                tuned.lost.push((name.clone(), includes.clone()));
                continue;
            }
            None => includes.clone(),
        };
        let names = includes
            .split([',', ';', ' '])
            .filter(|name| !name.is_empty());
        for include in names {
            let optional = include.strip_prefix('-');
            match find(root, Some(file), optional.unwrap_or(include)) {
                Ok(file) => collect(root, &file, virtual_machine, tuned, depth + 1)?,
                Err(_) if optional.is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }
    for (section, key, value) in sections {
        match section.as_str() {
            "main" => {}
            "variables" => drop(tuned.variables.insert(key, value)),
            _ => {
                let section = tuned.sections.entry(section).or_default();
                section.from.clone_from(&name);
                if key == "replace" && matches!(value.as_str(), "1" | "true") {
                    section.options.clear();
                }
                section.options.insert(key, value);
            }
        }
    }
    Ok(())
}

/// `${f:virt_check:IN_A_GUEST:ELSE}` by what the machine is.
fn virt_check(text: &str, virtual_machine: bool) -> Option<String> {
    let inner = text.strip_prefix("${f:virt_check:")?.strip_suffix('}')?;
    let (guest, bare) = inner.split_once(':')?;
    Some(if virtual_machine { guest } else { bare }.to_owned())
}

/// Section, key and value of each line; an empty section stands for itself with no option.
fn parse(text: &str) -> Vec<(String, String, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            name.trim().clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once('=') {
            let value = value.split(" #").next().unwrap_or(value).trim();
            let value = value.trim_matches('"').to_owned();
            found.push((section.clone(), key.trim().to_owned(), value));
        }
    }
    found
}

fn take_section(
    catalog: &Catalog,
    import: &mut Import,
    name: &str,
    section: &Section,
    variables: &BTreeMap<String, String>,
) {
    let option = |key: &str| section.options.get(key).map(String::as_str);
    let plugin = option("type").unwrap_or(name);
    let from = format!("TuneD {} [{name}]", section.from);
    let condition = ["uname_regex", "cpuinfo_regex", "virt", "devices_udev_regex"]
        .into_iter()
        .find(|key| section.options.contains_key(*key));
    let off = matches!(option("enabled"), Some("0" | "false"));
    for (key, raw) in &section.options {
        let about = [
            "type",
            "enabled",
            "priority",
            "replace",
            "devices",
            "pre_script",
        ];
        let about = about.contains(&key.as_str()) || condition == Some(key.as_str());
        if about || off || key.ends_with("_regex") {
            continue;
        }
        let what = format!("{key}={raw}");
        if let Some(condition) = condition {
            import.leave(
                &from,
                &what,
                &format!("depends on the machine ({condition})"),
            );
            continue;
        }
        let value = expand(raw, variables);
        if value.contains("${") {
            import.leave(&from, &what, "a function or variable of TuneD's");
            continue;
        }
        let option = Given {
            key,
            value: &value,
            devices: option("devices").unwrap_or("*"),
            from: &from,
        };
        if !option.take(catalog, import, plugin) {
            import.leave(
                &from,
                &what,
                &format!("plugin {plugin}: no knob of the catalog's"),
            );
        }
    }
}

/// Variables in a value; those of functions and of unknown names stay.
fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut text = text.to_owned();
    // Variables may stand for others; a bound keeps those that stand for themselves from looping.
    for _ in 0..MAX_DEPTH {
        let before = text.clone();
        for (name, value) in variables {
            // What grows without end is of no use either.
            if text.len() < 4096 {
                text = text.replace(&format!("${{{name}}}"), value);
            }
        }
        if text == before {
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imported(files: &[(&str, &str)]) -> Result<Import, TunedError> {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let dir = root.path().join("etc/tuned").join(name);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("tuned.conf"), text).unwrap();
        }
        import_tuned(&Catalog::built_in(), root.path(), files[0].0, true)
    }

    fn values(import: &Import) -> Vec<(&str, &str)> {
        let set = import.set.iter();
        set.map(|(knob, value)| (knob.as_str(), value.value.as_str()))
            .collect()
    }

    #[test]
    fn plugins_become_knobs_and_the_rest_is_told() {
        let import = imported(&[
            (
                "mine",
                "[main]\ninclude=base\n[variables]\nlow=5\n[sysctl]\nvm.swappiness=${low}\nkernel.pid_max=>4194304\n\
                 net.core.somaxconn=>2048\n[cpu]\ngovernor=conservative|powersave\nforce_latency=cstate.id:1|3\n\
                 [audio]\ntimeout=10\n[sysctl.arm]\ntype=sysctl\nuname_regex=aarch64\nkernel.numa_balancing=0\n\
                 [script]\nscript=${i:PROFILE_DIR}/x.sh\n",
            ),
            (
                "base",
                "[sysctl]\nvm.swappiness=10\nvm.dirty_ratio = 40\n[disk]\nreadahead=>4096\nelevator=none\n\
                 [disk-sd]\ntype=disk\ndevices=sd*\nreadahead=1024 s\n[vm]\ntransparent_hugepages=never\n\
                 [scheduler]\nsched_min_granularity_ns = 10000000\nruntime=0\n",
            ),
        ])
        .unwrap();
        assert_eq!(
            values(&import),
            [
                ("block.*.read_ahead_kb", "at-least:4096"),
                ("block.*.scheduler", "none"),
                ("cpufreq.*.governor", "first:conservative,powersave"),
                ("net.core.somaxconn", "at-least:2048"),
                ("pm_qos.cpu_dma_latency_us", "3"),
                ("sched.min_granularity_ns", "10000000"),
                ("thp.enabled", "never"),
                ("vm.dirty_ratio", "40"),
                ("vm.swappiness", "5"),
            ]
        );
        let left: Vec<&str> = import
            .left_out
            .iter()
            .map(|left| left.what.as_str())
            .collect();
        for what in [
            "timeout=10",
            "kernel.numa_balancing=0",
            "runtime=0",
            "script=${i:PROFILE_DIR}/x.sh",
        ] {
            assert!(left.contains(&what), "{what} is not told: {left:?}");
        }
    }

    #[test]
    fn includes_are_followed_and_bounded() {
        let guest = imported(&[
            ("a", "[main]\ninclude=${f:virt_check:guest:bare}\n"),
            ("guest", "[sysctl]\nvm.swappiness=30\n"),
        ]);
        assert_eq!(values(&guest.unwrap()), [("vm.swappiness", "30")]);
        let round = imported(&[("a", "[main]\ninclude=b\n"), ("b", "[main]\ninclude=a\n")]);
        assert!(matches!(round, Err(TunedError::Depth(_))));
        let missing = imported(&[("a", "[main]\ninclude=../../etc/passwd\n")]);
        assert!(matches!(missing, Err(TunedError::Unknown { .. })));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in "(\\[(sysctl|disk|cpu|main|variables|vm)\\]\n|[a-z._${}:|<>=0-9 ]{0,20}\n){0,30}") {
            let _ = imported(&[("a", &text)]);
        }
    }
}
