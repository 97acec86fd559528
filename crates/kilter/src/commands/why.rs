//! `kilter why`: who set a knob, as far as the machine's own files tell.

use crate::commands::doctor::other_tuners;
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use crate::say;
use kilter_api::{Knob, KnobState, Setter, SetterKind, Why};
use kilter_knobs::{
    Catalog, check_value, deciding_line, files_of, is_glob, probe_all, probe_one, read_config,
    system_sysctls,
};
use std::path::{Path, PathBuf};

/// Where udev finds rules, those that win first.
const UDEV_DIRS: [&str; 4] = [
    "etc/udev/rules.d",
    "run/udev/rules.d",
    "usr/local/lib/udev/rules.d",
    "usr/lib/udev/rules.d",
];

/// Where systemd-tmpfiles finds its lines.
const TMPFILES_DIRS: [&str; 4] = [
    "etc/tmpfiles.d",
    "run/tmpfiles.d",
    "usr/local/lib/tmpfiles.d",
    "usr/lib/tmpfiles.d",
];

/// Runs the command.
pub fn run(machine: &Machine, name: &str) -> Outcome {
    if is_glob(name) {
        return Err(
            Failure::new(format!("`{name}` is a glob; `why` tells of one knob"))
                .hint(format!("kilter knobs list '{name}'")),
        );
    }
    let catalog = machine.catalog()?;
    let (name, spec) = catalog.resolve(name)?;
    let knobs = probe_all(&machine.kernel, &catalog);
    let found = knobs
        .iter()
        .find(|knob| knob.name == name)
        .or_else(|| knobs.iter().find(|knob| knob.spec.name == spec.name))
        .ok_or_else(|| Failure::new(format!("{name}: not on this machine")))?;
    let why = why(machine, found)?;
    match machine.json {
        true => say::json(&why)?,
        false => tell(&why),
    }
    Ok(0)
}

fn why(machine: &Machine, knob: &Knob) -> Result<Why, Failure> {
    let mut setters = layers(machine, &knob.name)?;
    if let KnobState::Present { value, path, .. } = &knob.state {
        let root = machine.kernel.root();
        let mut asked = tuned(root, path);
        asked.extend(udev(root, path));
        asked.extend(sysctls(root, path));
        asked.extend(tmpfiles(root, path));
        asked.extend(command_line(root, path));
        for setter in &mut asked {
            let meant = check_value(&knob.name, &knob.spec, &setter.value);
            setter.agrees = meant.as_ref() == Ok(value) || setter.value == *value;
        }
        // Who asks for the present value is the likelier setter.
        asked.sort_by_key(|setter| !setter.agrees);
        setters.extend(asked);
    }
    Ok(Why {
        knob: knob.name.clone(),
        state: knob.state.clone(),
        setters,
        tuners: other_tuners(machine),
        default: knob.spec.default.clone(),
    })
}

/// Who has probably given a knob the value it shows: the file that asks for it, or a tuner at work.
pub fn likely_setter(machine: &Machine, catalog: &Catalog, name: &str) -> Option<String> {
    let (name, spec) = catalog.resolve(name).ok()?;
    let knob = probe_one(&machine.kernel, &name, spec);
    let why = why(machine, &knob).ok()?;
    let by_file = why.setters.iter().find(|setter| {
        setter.agrees && setter.by != SetterKind::Layer && setter.by != SetterKind::CommandLine
    });
    match (by_file, why.tuners.as_slice()) {
        (Some(setter), _) => {
            let line = setter.line.map_or(String::new(), |line| format!(":{line}"));
            Some(format!("{}{line} asks for it", setter.place))
        }
        (None, []) => None,
        (None, tuners) => Some(format!("perhaps {}", tuners.join(", "))),
    }
}

/// Layers that set the knob, the newest first.
fn layers(machine: &Machine, knob: &str) -> Result<Vec<Setter>, Failure> {
    let status = machine.store.status(&machine.kernel)?;
    let setters = status.layers.iter().rev().flat_map(|layer| {
        let of_knob = layer.values.iter().filter(|value| value.knob == knob);
        of_knob.map(|value| Setter {
            by: SetterKind::Layer,
            place: layer.name.clone(),
            line: None,
            value: value.held.clone(),
            agrees: matches!(value.now, kilter_api::Held::InForce),
        })
    });
    Ok(setters.collect())
}

fn setter(by: SetterKind, place: &Path, line: usize, value: &str) -> Setter {
    Setter {
        by,
        place: place.display().to_string(),
        line: Some(line),
        value: value.to_owned(),
        agrees: false,
    }
}

fn sysctls(root: &Path, path: &str) -> Vec<Setter> {
    let lines = system_sysctls(root);
    deciding_line(&lines, path)
        .and_then(|line| {
            let value = line.value.as_deref()?;
            Some(setter(SetterKind::Sysctl, &line.file, line.line, value))
        })
        .into_iter()
        .collect()
}

/// The lines of a machine's configuration files with their numbers.
fn each_line(root: &Path, files: Vec<PathBuf>, mut look: impl FnMut(&Path, usize, &str)) {
    for file in files {
        let shown = Path::new("/").join(file.strip_prefix(root).unwrap_or(&file));
        for (number, line) in read_config(&file).unwrap_or_default().lines().enumerate() {
            let line = line.trim();
            if !line.starts_with('#') {
                look(&shown, number + 1, line);
            }
        }
    }
}

/// Rules that assign to an attribute which is the end of the knob's path.
fn udev(root: &Path, path: &str) -> Vec<Setter> {
    let mut found = Vec::new();
    each_line(
        root,
        files_of(root, &UDEV_DIRS, "rules"),
        |file, number, line| {
            for (attribute, value) in assignments(line) {
                let of_file = match attribute {
                    ("ATTR", name) => {
                        path.starts_with("/sys/") && path.ends_with(&format!("/{name}"))
                    }
                    ("SYSCTL", name) => path == format!("/proc/sys/{}", name.replace('.', "/")),
                    _ => false,
                };
                if of_file {
                    found.push(setter(SetterKind::Udev, file, number, value));
                }
            }
        },
    );
    found
}

/// `KEY{NAME}="VALUE"` in a rule, with `=` or `:=`; comparisons are none.
fn assignments(line: &str) -> Vec<((&str, &str), &str)> {
    line.split(',')
        .filter_map(|part| {
            let (key, rest) = part.trim().split_once('{')?;
            let (name, rest) = rest.split_once('}')?;
            let value = rest.strip_prefix(":=").or_else(|| rest.strip_prefix('='))?;
            // `==` compares.
            let value = value.strip_prefix('"')?.strip_suffix('"')?;
            Some(((key, name), value))
        })
        .collect()
}

/// Lines of the types `w` and `w+`: write an argument into a file.
fn tmpfiles(root: &Path, path: &str) -> Vec<Setter> {
    let mut found = Vec::new();
    each_line(
        root,
        files_of(root, &TMPFILES_DIRS, "conf"),
        |file, number, line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let writes = words.first().is_some_and(|kind| kind.starts_with('w'));
            if writes && words.len() > 6 && kilter_knobs::sysctl_matches(words[1], path) {
                found.push(setter(
                    SetterKind::Tmpfiles,
                    file,
                    number,
                    &words[6..].join(" "),
                ));
            }
        },
    );
    found
}

/// Values that TuneD's active profile writes as they stand, without its includes.
fn tuned(root: &Path, path: &str) -> Vec<Setter> {
    let Ok(active) = read_config(&root.join("etc/tuned/active_profile")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for name in active
        .split_whitespace()
        .filter(|name| kilter_knobs::valid_name(name))
    {
        let dirs = ["etc/tuned", "usr/lib/tuned", "usr/lib/tuned/profiles"];
        let files = dirs
            .iter()
            .map(|dir| root.join(dir).join(name).join("tuned.conf"));
        let file: Vec<PathBuf> = files.filter(|file| file.is_file()).take(1).collect();
        each_line(root, file, |file, number, line| {
            if let Some((key, value)) = line.split_once('=') {
                let (key, value) = (key.trim(), value.trim().trim_start_matches('>'));
                let sysctl = format!("/proc/sys/{}", key.replace('.', "/"));
                if (key.contains('.') && sysctl == path) || key == path {
                    found.push(setter(SetterKind::Tuned, file, number, value));
                }
            }
        });
    }
    found
}

/// `sysctl.NAME=VALUE` and `MODULE.PARAMETER=VALUE`.
fn command_line(root: &Path, path: &str) -> Vec<Setter> {
    let text = read_config(&root.join("proc/cmdline")).unwrap_or_default();
    let option = match path.strip_prefix("/proc/sys/") {
        Some(rest) => format!("sysctl.{}", rest.replace('/', ".")),
        None => match path.strip_prefix("/sys/module/") {
            Some(rest) => rest.replace("/parameters/", "."),
            None => match path {
                "/sys/kernel/mm/transparent_hugepage/enabled" => "transparent_hugepage".to_owned(),
                "/sys/kernel/debug/sched/preempt" => "preempt".to_owned(),
                _ => return Vec::new(),
            },
        },
    };
    let words = text
        .split_whitespace()
        .filter_map(|word| word.split_once('='));
    words
        .filter(|(name, _)| name.replace('-', "_") == option.replace('-', "_"))
        .map(|(_, value)| Setter {
            by: SetterKind::CommandLine,
            place: "/proc/cmdline".to_owned(),
            line: None,
            value: value.to_owned(),
            agrees: false,
        })
        .collect()
}

fn tell(why: &Why) {
    match &why.state {
        KnobState::Present { value, path, .. } => {
            say::line(format!("{} is {value} ({path})\n", say::bold(&why.knob)));
        }
        KnobState::Unavailable(because) => {
            say::line(format!("{}: {}", say::bold(&why.knob), because.detail));
        }
    }
    let rows: Vec<Vec<String>> = why
        .setters
        .iter()
        .map(|setter| {
            let line = setter.line.map_or(String::new(), |line| format!(":{line}"));
            vec![
                format!("  {}", kind(setter.by)),
                format!("{}{line}", setter.place),
                setter.value.clone(),
                match setter.agrees {
                    true => "the value now".to_owned(),
                    false => say::faint("not in force"),
                },
            ]
        })
        .collect();
    say::table(&rows);
    let agrees = why.setters.iter().any(|setter| setter.agrees);
    if !agrees && matches!(why.state, KnobState::Present { .. }) {
        say::line(match why.tuners.as_slice() {
            [] => "Nothing that kilter can read asks for this value: the kernel's default, or somebody wrote it by hand.".to_owned(),
            tuners => format!(
                "No file asks for this value. {} may have written it, or somebody by hand; else it is the kernel's default.",
                tuners.join(", ")
            ),
        });
    }
    say::line(format!("Kernel default: {}", why.default));
}

fn kind(kind: SetterKind) -> &'static str {
    match kind {
        SetterKind::Layer => "layer",
        SetterKind::Tuned => "TuneD",
        SetterKind::Sysctl => "sysctl.d",
        SetterKind::Udev => "udev rule",
        SetterKind::Tmpfiles => "tmpfiles.d",
        SetterKind::CommandLine => "boot option",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_assign_and_compare() {
        let rule = r#"ACTION=="add|change", KERNEL=="sd*", ATTR{queue/rotational}=="0", ATTR{queue/scheduler}="none", SYSCTL{vm/swappiness}:="5""#;
        assert_eq!(
            assignments(rule),
            [
                (("ATTR", "queue/scheduler"), "none"),
                (("SYSCTL", "vm/swappiness"), "5")
            ]
        );
    }
}
