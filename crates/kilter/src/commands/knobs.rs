//! `kilter knobs`: the catalog against this kernel.

use super::evidence::known_about;
use super::evidence_text::listing;
use crate::cli::Knobs;
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use crate::page;
use crate::say;
use kilter_api::{Knob, KnobDetails, KnobState, KnownEvidence, Profile, UnavailableReason};
use kilter_knobs::{UnknownName, all_profiles, is_glob, nearest, probe_all};
use wildmatch::WildMatch;

/// Verdicts that `knobs show` cites at most.
const LATEST: usize = 5;

/// Columns of a list's ranges on a terminal; `knobs show` has the longest in full.
const RANGE_COLUMNS: usize = 24;

/// Runs the command.
pub fn run(machine: &Machine, command: &Knobs) -> Outcome {
    match command {
        Knobs::List { globs, all } => list(machine, globs, *all),
        Knobs::Show { knob } => show(machine, knob),
    }
}

fn list(machine: &Machine, globs: &[String], all: bool) -> Outcome {
    let knobs = probe_all(&machine.kernel, &machine.catalog()?);
    let chosen = choose(&knobs, globs)?;
    let here = |knob: &Knob| matches!(knob.state, KnobState::Present { .. });
    if machine.json {
        let listed: Vec<&Knob> = chosen
            .into_iter()
            .filter(|knob| all || here(knob))
            .collect();
        say::json(&listed)?;
        return Ok(0);
    }
    let mut rows = vec![
        ["knob", "now", "range", "risk", "summary"]
            .map(say::bold)
            .to_vec(),
    ];
    let mut hidden = 0;
    for knob in chosen {
        let now = match &knob.state {
            KnobState::Present { value, .. }
                if !knob.virtual_device || !globs.is_empty() || all =>
            {
                value.clone()
            }
            KnobState::Unavailable(why) if all => say::faint(reason(why.reason)),
            _ => {
                hidden += 1;
                continue;
            }
        };
        rows.push(vec![
            knob.name.clone(),
            now,
            say::cut_for_terminal(page::range(&knob.spec), RANGE_COLUMNS),
            page::risk(&knob.spec),
            knob.spec.summary.clone(),
        ]);
    }
    say::table(&rows);
    if hidden > 0 {
        say::note(format!(
            "\n{} more that this kernel lacks or that belong to virtual devices: kilter knobs list --all",
            hidden
        ));
    }
    Ok(0)
}

fn choose<'a>(knobs: &'a [Knob], globs: &[String]) -> Result<Vec<&'a Knob>, Failure> {
    for glob in globs {
        let wild = WildMatch::new(glob);
        if !knobs
            .iter()
            .any(|knob| wild.matches(&knob.name) || wild.matches(&knob.spec.name))
        {
            let names = knobs.iter().map(|knob| knob.name.as_str());
            return Err(UnknownName {
                what: "knob",
                name: glob.clone(),
                nearest: nearest(glob, names),
            }
            .into());
        }
    }
    let named = |knob: &&Knob| {
        globs.is_empty()
            || globs.iter().any(|glob| {
                WildMatch::new(glob).matches(&knob.name)
                    || WildMatch::new(glob).matches(&knob.spec.name)
            })
    };
    Ok(knobs.iter().filter(named).collect())
}

fn show(machine: &Machine, name: &str) -> Outcome {
    let catalog = machine.catalog()?;
    if is_glob(name) {
        return Err(Failure::new(format!(
            "`{name}` is a glob; `knobs show` explains one knob"
        ))
        .hint(format!("kilter knobs list '{name}'")));
    }
    let (name, spec) = catalog.resolve(name)?;
    let matching = |knob: &&Knob| knob.name == name || knob.spec.name == name;
    let knobs = probe_all(&machine.kernel, &catalog);
    let mut found: Vec<&Knob> = knobs.iter().filter(matching).collect();
    if found.is_empty() {
        found.extend(knobs.iter().find(|knob| knob.spec.name == spec.name));
    }
    let details = found
        .into_iter()
        .map(|knob| {
            Ok(KnobDetails {
                evidence: known_about(machine, &knob.name)?,
                knob: knob.clone(),
            })
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    match machine.json {
        true => say::json(&details)?,
        false => {
            let profiles = all_profiles(&machine.places)?;
            for details in &details {
                entry(&details.knob, &details.evidence, &profiles);
            }
        }
    }
    Ok(0)
}

fn entry(knob: &Knob, evidence: &[KnownEvidence], profiles: &[Profile]) {
    let spec = &knob.spec;
    say::line(format!("{} — {}\n", say::bold(&knob.name), spec.summary));
    let mut rows = Vec::new();
    let mut row = |name: &str, text: String| rows.push(vec![format!("  {name}"), text]);
    match &knob.state {
        KnobState::Present {
            value,
            path,
            writable,
        } => {
            row("now", page::with_unit(value, &spec.unit));
            row(
                "file",
                if *writable {
                    path.clone()
                } else {
                    format!("{path} (not writable by you)")
                },
            );
        }
        KnobState::Unavailable(why) => {
            row("now", format!("{}: {}", reason(why.reason), why.detail))
        }
    }
    if !knob.offered.is_empty() {
        row("offered here", knob.offered.join(", "));
    }
    for (name, text) in page::facts(spec) {
        row(name, text);
    }
    say::table(&rows);
    say::line(format!("\n{}\n", say::reflow(&spec.why, 0)));
    match evidence {
        [] => say::line("Evidence: none yet on this machine."),
        known => {
            say::line("Evidence:");
            let latest = &known[..known.len().min(LATEST)];
            listing(latest).iter().for_each(say::line);
            if known.len() > LATEST {
                say::line(format!(
                    "And {}: kilter evidence {}",
                    say::count(known.len() - LATEST, "older verdict"),
                    knob.name
                ));
            }
        }
    }
    let setting = page::set_by(&knob.spec, profiles);
    if !setting.is_empty() {
        say::line("\nIn profiles:");
        for set in setting {
            let line = format!("{} = {}", set.profile, set.value);
            say::line(format!("  {}", say::bold(&line)));
            if !set.why.is_empty() {
                say::line(say::reflow(&set.why, 4));
            }
        }
    }
    say::line("\nSources:");
    spec.sources
        .iter()
        .for_each(|source| say::line(say::reflow(source, 2)));
}

/// Why a knob cannot be used, in two words.
pub fn reason(reason: UnavailableReason) -> &'static str {
    match reason {
        UnavailableReason::Absent => "absent",
        UnavailableReason::LockedDown => "locked down",
        UnavailableReason::ReadOnly => "read-only",
        UnavailableReason::NotPermitted => "not permitted",
        UnavailableReason::Unsupported => "unsupported",
        UnavailableReason::NotMounted => "debugfs not mounted",
        UnavailableReason::ByHand => "by hand",
    }
}
