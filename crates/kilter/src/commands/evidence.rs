//! `kilter evidence`: verdicts kept on this machine, and moved between machines.

use super::evidence_import::{imported, recorded};
use super::evidence_text::listing;
use crate::cli::{Evidence as Args, EvidenceCommand};
use crate::fail::{Failure, Outcome};
use crate::machine::{Machine, quote};
use crate::output::write_whole;
use crate::say;
use kilter_api::{
    Evidence, EvidenceDocument, EvidenceImported, Fingerprint, Knob, KnobState, KnownEvidence,
    Settings,
};
use kilter_knobs::{EvidenceFile, check_value, is_glob};
use std::path::Path;
use wildmatch::WildMatch;

/// Verdicts that a search is given at most, the newest.
const PRIOR: usize = 500;

/// Runs the command.
pub fn run(machine: &Machine, args: &Args) -> Outcome {
    match &args.command {
        None => list(machine, args.knob.as_deref()),
        Some(EvidenceCommand::List { knob }) => list(machine, knob.as_deref()),
        Some(EvidenceCommand::Export { knob, output }) => {
            export(machine, knob.as_deref(), output.as_deref())
        }
        Some(EvidenceCommand::Import { file }) => import(machine, file),
        Some(EvidenceCommand::Record) => record(machine),
    }
}

fn list(machine: &Machine, knob: Option<&str>) -> Outcome {
    let mut verdicts = about(machine, knob)?;
    newest_first(&mut verdicts);
    let known = known(machine, &verdicts);
    if machine.json {
        say::json(&known)?;
    } else if known.is_empty() {
        let on = knob.map_or(String::new(), |knob| format!(" on {knob}"));
        say::line(format!(
            "No evidence yet{on}. To gather some: kilter compare, kilter tune, kilter audit."
        ));
    } else {
        listing(&known).iter().for_each(say::line);
    }
    Ok(0)
}

fn export(machine: &Machine, knob: Option<&str>, output: Option<&Path>) -> Outcome {
    let document = EvidenceDocument {
        kilter_evidence: EvidenceDocument::FORMAT,
        evidence: about(machine, knob)?,
    };
    let Some(path) = output else {
        say::json(&document)?;
        return Ok(0);
    };
    let mut bytes = serde_json::to_vec_pretty(&document)?;
    bytes.push(b'\n');
    write_whole("--output", path, &bytes)?;
    say::note(format!(
        "Wrote {} to {}.",
        say::count(document.evidence.len(), "verdict"),
        path.display()
    ));
    say::hint(format!(
        "on the other machine: kilter evidence import {}",
        quote(&path.display().to_string())
    ));
    Ok(0)
}

fn import(machine: &Machine, path: &Path) -> Outcome {
    let given = imported(path)?;
    let file = ledger(machine);
    let new = file
        .append_new(&given)
        .map_err(|error| told(&file, &error))?;
    let told = EvidenceImported {
        new: u32::try_from(new).unwrap_or(u32::MAX),
        known: u32::try_from(given.len() - new).unwrap_or(u32::MAX),
    };
    match machine.json {
        true => say::json(&told)?,
        false => say::line(format!(
            "{}: {} new, {} here already.",
            say::count(given.len(), "verdict"),
            told.new,
            told.known
        )),
    }
    Ok(0)
}

fn record(machine: &Machine) -> Outcome {
    let file = ledger(machine);
    file.append(&recorded()?)
        .map_err(|error| told(&file, &error))?;
    Ok(0)
}

fn ledger(machine: &Machine) -> EvidenceFile {
    EvidenceFile::new(machine.places.evidence())
}

fn told(file: &EvidenceFile, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", file.path().display()))
}

/// All evidence, oldest first by its date: what was imported lies behind what is older.
fn all(machine: &Machine) -> Result<Vec<Evidence>, Failure> {
    let file = ledger(machine);
    let found = file.read().map_err(|error| told(&file, &error))?;
    if found.unreadable > 0 {
        say::warning(format!(
            "{}: {} cannot be read (torn, or written by a later kilter) and left out",
            file.path().display(),
            say::count(found.unreadable, "line")
        ));
    }
    let mut verdicts = found.verdicts;
    verdicts.sort_by_key(time);
    Ok(verdicts)
}

/// When it was given; an unreadable date counts as the oldest.
fn time(verdict: &Evidence) -> Option<jiff::Timestamp> {
    verdict.when.parse().ok()
}

/// Verdicts of one experiment, which have one time, stay in their order.
fn newest_first(verdicts: &mut [Evidence]) {
    verdicts.sort_by_key(|verdict| std::cmp::Reverse(time(verdict)));
}

/// The evidence on a knob, or all of it. A name that neither the evidence nor the catalog has is
/// probably a slip.
fn about(machine: &Machine, knob: Option<&str>) -> Result<Vec<Evidence>, Failure> {
    let mut verdicts = all(machine)?;
    if let Some(knob) = knob {
        let wild = WildMatch::new(knob);
        verdicts.retain(|verdict| changed(verdict).any(|name| wild.matches(name)));
        if verdicts.is_empty() && !is_glob(knob) {
            machine.catalog()?.find(knob)?;
        }
    }
    Ok(verdicts)
}

/// Knobs whose values differ between the two arms.
fn changed(verdict: &Evidence) -> impl Iterator<Item = &str> {
    let names = verdict.arm.keys();
    let only_base = verdict
        .base
        .keys()
        .filter(|name| !verdict.arm.contains_key(*name));
    names
        .chain(only_base)
        .filter(|name| verdict.arm.get(*name) != verdict.base.get(*name))
        .map(String::as_str)
}

/// Each verdict with how far it is from this machine as it runs now.
fn known(machine: &Machine, verdicts: &[Evidence]) -> Vec<KnownEvidence> {
    let here = kilter_measure::fingerprint(machine.kernel.root());
    let known = verdicts.iter();
    known.map(|verdict| placed(&here, verdict)).collect()
}

fn placed(here: &Fingerprint, verdict: &Evidence) -> KnownEvidence {
    KnownEvidence {
        same_machine: kilter_measure::identity_under(here, &verdict.kernel) == verdict.machine,
        same_kernel: here.kernel == verdict.kernel,
        evidence: verdict.clone(),
    }
}

/// One verdict, placed; for a profile's own.
pub fn known_verdict(machine: &Machine, verdict: &Evidence) -> KnownEvidence {
    placed(&kilter_measure::fingerprint(machine.kernel.root()), verdict)
}

/// What is known of a knob, the newest first.
pub fn known_about(machine: &Machine, knob: &str) -> Result<Vec<KnownEvidence>, Failure> {
    let mut verdicts = all(machine)?;
    verdicts.retain(|verdict| changed(verdict).any(|name| name == knob));
    newest_first(&mut verdicts);
    Ok(known(machine, &verdicts))
}

/// Verdicts of this machine itself on exactly these values, the newest first.
pub fn known_of_values(
    machine: &Machine,
    values: &Settings,
) -> Result<Vec<KnownEvidence>, Failure> {
    let mut verdicts = all(machine)?;
    verdicts.retain(|verdict| !verdict.imported && !values.is_empty() && verdict.arm == *values);
    newest_first(&mut verdicts);
    let mut known = known(machine, &verdicts);
    known.retain(|known| known.same_machine);
    Ok(known)
}

/// What a search over these knobs may start from: the newest verdicts on settings that it could
/// try itself, oldest first.
pub fn known_of(machine: &Machine, knobs: &[Knob]) -> Result<Vec<Evidence>, Failure> {
    let allowed = |(name, value): (&String, &String)| {
        let knob = knobs.iter().find(|knob| knob.name == *name);
        // An imported verdict may hold any value.
        knob.is_some_and(|knob| {
            matches!(knob.state, KnobState::Present { .. })
                && check_value(name, &knob.spec, value).is_ok()
        })
    };
    let mut verdicts = all(machine)?;
    verdicts.retain(|verdict| !verdict.arm.is_empty() && verdict.arm.iter().all(allowed));
    let older = verdicts.len().saturating_sub(PRIOR);
    Ok(verdicts.split_off(older))
}
