//! `kilter import`: other tools' files become profiles. Only the profile's file is written.

use crate::cli::{AsProfile, Import as Command};
use crate::commands::import_script;
use crate::fail::{Failure, Outcome};
use crate::machine::{Machine, quote};
use crate::say;
use kilter_api::{Imported, Profile};
use kilter_knobs::{Import, import_sysctl, import_tuned, read_config, save_profile, valid_name};
use std::path::Path;

/// Runs the command.
pub fn run(machine: &Machine, command: &Command) -> Outcome {
    let catalog = machine.catalog()?;
    match command {
        Command::Tuned { source, as_profile } => {
            let root = machine.kernel.root();
            let guest = kilter_measure::fingerprint(root).virtualisation != "none";
            let import = import_tuned(&catalog, root, source, guest).map_err(|error| {
                Failure::new(error.to_string()).hint("ls /usr/lib/tuned /etc/tuned")
            })?;
            let conf = source.strip_suffix("/tuned.conf").unwrap_or(source);
            finish(
                machine,
                import,
                stem(conf),
                &format!("TuneD's {source}"),
                as_profile,
            )
        }
        Command::Sysctl { file, as_profile } => {
            let text = read_config(file).map_err(|error| Failure::new(error.to_string()))?;
            let import = import_sysctl(&catalog, file, &text);
            let shown = file.display().to_string();
            finish(machine, import, stem(&shown), &shown, as_profile)
        }
        Command::Script {
            file,
            timeout,
            every_kernel,
            as_profile,
            arguments,
        } => {
            let script = import_script::read(file, timeout, arguments)?;
            let import = import_script::import(machine, &catalog, script, *every_kernel)?;
            let shown = file.display().to_string();
            finish(machine, import, stem(&shown), &shown, as_profile)
        }
    }
}

/// A profile's name out of a file's: what is allowed of it, in lower case.
fn stem(source: &str) -> String {
    let name = Path::new(source)
        .file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().to_lowercase());
    let plain = |c: char| match c {
        'a'..='z' | '0'..='9' | '-' | '_' | '.' => c,
        _ => '-',
    };
    let name: String = name.chars().map(plain).take(64).collect();
    name.trim_start_matches(['-', '_', '.']).to_owned()
}

fn finish(
    machine: &Machine,
    import: Import,
    default_name: String,
    source: &str,
    args: &AsProfile,
) -> Outcome {
    let name = args.name.clone().unwrap_or(default_name);
    if !valid_name(&name) {
        return Err(Failure::new(format!("`{name}` is no name of a profile"))
            .hint("give one: --name NAME (lower-case letters, digits, `-`, `_`, `.`)"));
    }
    let profile = Profile {
        name: name.clone(),
        summary: format!("Imported from {source}"),
        set: import.set,
        ..Profile::default()
    };
    let path = machine
        .places
        .own_catalog
        .join("profiles")
        .join(format!("{name}.toml"));
    let known = kilter_knobs::all_profiles(&machine.places)?;
    let taken = path.exists() || known.iter().any(|known| known.name == name);
    if taken && !args.force && !args.dry_run {
        return Err(Failure::new(format!("there is a profile `{name}` already"))
            .hint("choose another name with --name NAME, or write over it with --force"));
    }
    let saved = match args.dry_run || profile.set.is_empty() {
        true => None,
        false => Some(
            save_profile(&machine.places, &profile)?
                .display()
                .to_string(),
        ),
    };
    let imported = Imported {
        profile,
        saved,
        left_out: import.left_out,
    };
    match machine.json {
        true => say::json(&imported)?,
        false => tell(&imported),
    }
    Ok(0)
}

fn tell(imported: &Imported) {
    let set = &imported.profile.set;
    let rows: Vec<Vec<String>> = set
        .iter()
        .map(|(knob, value)| vec![knob.clone(), value.value.clone(), say::faint(&value.why)])
        .collect();
    say::table(&rows);
    if !imported.left_out.is_empty() {
        let left = imported.left_out.iter();
        let rows: Vec<Vec<String>> = left
            .map(|left| {
                vec![
                    format!("  {}", left.what),
                    left.reason.clone(),
                    say::faint(&left.from),
                ]
            })
            .collect();
        say::line(format!(
            "\nNot imported, {}:",
            say::count(rows.len(), "line")
        ));
        say::table(&rows);
    }
    match &imported.saved {
        Some(path) => {
            let name = quote(&imported.profile.name);
            say::note(format!(
                "Saved {} as {path}.",
                say::count(set.len(), "knob")
            ));
            say::hint(format!("kilter apply {name} --dry-run"));
        }
        None if set.is_empty() => say::note("Nothing of it is a knob; no profile was saved."),
        None => {}
    }
}
