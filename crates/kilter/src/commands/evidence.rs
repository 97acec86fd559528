//! `kilter evidence`: verdicts kept on this machine.

use crate::cli::EvidenceCommand;
use crate::commands::knobs::evidence_line;
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use crate::say;
use kilter_api::Evidence;
use kilter_knobs::EvidenceFile;

/// Runs the command.
pub fn run(machine: &Machine, command: &EvidenceCommand) -> Outcome {
    let file = EvidenceFile::new(machine.places.evidence());
    match command {
        EvidenceCommand::List { knob } => list(machine, &file, knob.as_deref()),
        EvidenceCommand::Record => record(&file),
    }
}

fn list(machine: &Machine, file: &EvidenceFile, knob: Option<&str>) -> Outcome {
    let mut lines = file.read()?;
    lines.retain(|line| knob.is_none_or(|knob| line.arm.contains_key(knob)));
    if machine.json {
        say::json(&lines)?;
    } else if lines.is_empty() {
        say::line("No evidence yet. To gather some: kilter compare, kilter tune.");
    } else {
        lines.iter().for_each(|line| say::line(evidence_line(line)));
    }
    Ok(0)
}

/// Checks every line before it writes the first.
fn record(file: &EvidenceFile) -> Outcome {
    let mut all = Vec::new();
    for (number, line) in std::io::stdin().lines().enumerate() {
        let line = line?;
        if !line.trim().is_empty() {
            let evidence: Evidence = serde_json::from_str(&line).map_err(|error| {
                Failure::new(format!(
                    "standard input, line {}: not evidence: {error}",
                    number + 1
                ))
            })?;
            all.push(evidence);
        }
    }
    for evidence in &all {
        file.record(evidence)
            .map_err(|error| Failure::new(format!("{}: {error}", file.path().display())))?;
    }
    Ok(0)
}
