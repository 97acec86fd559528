//! `kilter profile` and `kilter diff`.

use super::evidence::{known_of_values, known_verdict};
use super::evidence_text::listing;
use crate::cli::{Diff, ProfileCommand};
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use crate::say;
use kilter_api::{Evidence, KnownEvidence, Plan, Profile, Settings};
use kilter_knobs::{Consent, all_profiles, plan, profile_values, resolve_profile, save_profile};
use std::io::Read;

/// Verdicts that `profile show` cites at most.
const LATEST: usize = 5;

/// The largest profile that is read from standard input, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Runs `kilter profile`.
pub fn run(machine: &Machine, command: &ProfileCommand) -> Outcome {
    match command {
        ProfileCommand::List => list(machine),
        ProfileCommand::Show { name } => show(machine, name),
        ProfileCommand::Save => save(machine),
    }
}

fn list(machine: &Machine) -> Outcome {
    let profiles = all_profiles(&machine.places)?;
    if machine.json {
        say::json(&profiles)?;
        return Ok(0);
    }
    let mut rows = vec![
        ["profile", "knobs", "evidence", "summary"]
            .map(say::bold)
            .to_vec(),
    ];
    for profile in &profiles {
        let evidence = match profile.evidence {
            Some(_) => "measured",
            None if measured_here(machine, &profile.name)?.is_empty() => "unproven here",
            None => "measured here",
        };
        rows.push(vec![
            profile.name.clone(),
            profile.set.len().to_string(),
            evidence.to_owned(),
            profile.summary.clone(),
        ]);
    }
    say::table(&rows);
    Ok(0)
}

fn show(machine: &Machine, name: &str) -> Outcome {
    let (profile, values) = profile_values(&machine.places, name)?;
    if machine.json {
        say::json(&profile)?;
        return Ok(0);
    }
    say::line(format!(
        "{} — {}\n",
        say::bold(&profile.name),
        profile.summary
    ));
    for (knob, value) in &values {
        say::line(format!("{} = {}", say::bold(knob), value.value));
        let why = value.why.trim();
        if !why.is_empty() {
            say::line(say::reflow(why, 4));
        }
    }
    match profile.evidence {
        Some(evidence) => {
            let line = Evidence {
                when: evidence.when,
                machine: evidence.machine,
                kernel: evidence.kernel,
                boot_id: String::new(),
                command: evidence.command,
                base: Settings::new(),
                arm: values
                    .into_iter()
                    .map(|(knob, value)| (knob, value.value))
                    .collect(),
                old: Settings::new(),
                study: evidence.study,
                workload: String::new(),
                runs: 0,
                imported: false,
                cpu: String::new(),
                version: String::new(),
                verdict: evidence.verdict,
            };
            say::line("\nEvidence:");
            let known = known_verdict(machine, &line);
            listing(&[known]).iter().for_each(say::line);
        }
        None => match measured_here(machine, name)?.as_slice() {
            [] => say::line(format!(
                "\nUnproven here. To find out: kilter compare --with {} -- COMMAND",
                profile.name
            )),
            known => {
                say::line("\nEvidence:");
                let latest = &known[..known.len().min(LATEST)];
                listing(latest).iter().for_each(say::line);
            }
        },
    }
    Ok(0)
}

/// This machine's own verdicts on the values that a profile has here, the newest first.
fn measured_here(machine: &Machine, name: &str) -> Result<Vec<KnownEvidence>, Failure> {
    let (_, settings) = resolve_profile(&machine.places, name)?;
    let catalog = machine.catalog()?;
    let planned = plan(&machine.kernel, &catalog, name, &settings, &all_risks());
    // A profile that could not be applied has not been measured either.
    let Ok(planned) = planned else {
        return Ok(Vec::new());
    };
    let changes = planned.plan.changes.into_iter();
    known_of_values(
        machine,
        &changes.map(|change| (change.knob, change.new)).collect(),
    )
}

fn all_risks() -> Consent {
    Consent {
        allow: vec![
            kilter_api::Risk::Durability,
            kilter_api::Risk::Security,
            kilter_api::Risk::Hang,
        ],
        skip_risky: false,
    }
}

fn save(machine: &Machine) -> Outcome {
    let mut text = String::new();
    std::io::stdin().take(MAX_BYTES).read_to_string(&mut text)?;
    let profile: Profile = serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("standard input is not a profile: {error}")))?;
    let catalog = machine.catalog()?;
    for (knob, entry) in &profile.set {
        if !kilter_knobs::is_glob(knob) {
            kilter_knobs::check_value(knob, catalog.find(knob)?, &entry.value)?;
        }
    }
    let path = save_profile(&machine.places, &profile)?;
    match machine.json {
        true => say::json(&path)?,
        false => say::line(path.display()),
    }
    Ok(0)
}

/// Runs `kilter diff`.
pub fn diff(machine: &Machine, args: &Diff) -> Outcome {
    let (_, settings) = resolve_profile(&machine.places, &args.profile)?;
    match &args.other {
        Some(other) => {
            let (_, theirs) = resolve_profile(&machine.places, other)?;
            between(machine, (&args.profile, &settings), (other, &theirs))
        }
        None => with_machine(machine, &args.profile, &settings),
    }
}

fn with_machine(machine: &Machine, name: &str, settings: &Settings) -> Outcome {
    let mut plan = plan(
        &machine.kernel,
        &machine.catalog()?,
        name,
        settings,
        &all_risks(),
    )?
    .plan;
    plan.changes.retain(|change| change.old != change.new);
    let differs = !plan.changes.is_empty();
    match machine.json {
        true => say::json(&plan)?,
        false => print_plan(&plan, &format!("{name} changes nothing here.")),
    }
    Ok(u8::from(differs))
}

fn between(
    machine: &Machine,
    (name, ours): (&str, &Settings),
    (other, theirs): (&str, &Settings),
) -> Outcome {
    let mut knobs: Vec<&String> = ours.keys().chain(theirs.keys()).collect();
    knobs.sort();
    knobs.dedup();
    let value = |settings: &Settings, knob: &str| {
        settings
            .get(knob)
            .cloned()
            .unwrap_or_else(|| "-".to_owned())
    };
    let rows: Vec<Vec<String>> = knobs
        .into_iter()
        .filter(|knob| ours.get(*knob) != theirs.get(*knob))
        .map(|knob| vec![knob.clone(), value(ours, knob), value(theirs, knob)])
        .collect();
    let differs = !rows.is_empty();
    if machine.json {
        say::json(&rows)?;
    } else if differs {
        let mut table = vec![["knob", name, other].map(say::bold).to_vec()];
        table.extend(rows);
        say::table(&table);
    } else {
        say::line(format!("{name} and {other} set the same values."));
    }
    Ok(u8::from(differs))
}

/// Prints old → new, then what is skipped and why.
pub fn print_plan(plan: &Plan, nothing: &str) {
    if plan.changes.is_empty() {
        say::line(nothing);
    }
    let rows: Vec<Vec<String>> = plan
        .changes
        .iter()
        .map(|change| {
            let kept = change
                .effective
                .as_ref()
                .filter(|effective| **effective != change.new);
            let note = match kept {
                Some(kept) if *kept == change.old => {
                    format!("asked {}; the kernel ignored it", change.new)
                }
                Some(_) => format!("asked {}; the kernel rounded it", change.new),
                None if change.old == change.new => say::faint("unchanged"),
                None if change.effective.is_none() && !change.appears_with.is_empty() => {
                    say::faint(format!("appears with {}", change.appears_with))
                }
                None => String::new(),
            };
            let shown = kept.unwrap_or(&change.new);
            vec![
                change.knob.clone(),
                match change.old.is_empty() {
                    true => say::faint("-"),
                    false => change.old.clone(),
                },
                "→".to_owned(),
                say::bold(shown),
                note,
            ]
        })
        .collect();
    say::table(&rows);
    if !plan.skipped.is_empty() {
        say::line(format!(
            "\nSkipped {}:",
            say::count(plan.skipped.len(), "knob")
        ));
        let rows: Vec<Vec<String>> = plan
            .skipped
            .iter()
            .map(|skip| vec![format!("  {}", skip.knob), say::faint(&skip.because.detail)])
            .collect();
        say::table(&rows);
    }
}
