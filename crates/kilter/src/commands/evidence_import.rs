//! Evidence from outside, checked: lines from the lab, and documents from other machines, which may
//! hold anything.

use super::evidence_text::plain;
use crate::fail::Failure;
use kilter_api::{Direction, Evidence, EvidenceDocument, Settings, Verdict, VerdictRecord};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The largest document that is read, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// Longest name, word or value, in bytes.
const MAX_TEXT: usize = 4096;

/// Most words of a command, and most knobs of an arm.
const MAX_ITEMS: usize = 1024;

/// Characters of a parser's message that are shown: it may quote what it was given.
const SHOWN: usize = 300;

/// Verdicts as JSON lines on standard input, as the lab sends them, with this kilter's version where
/// none is told. All are read before the first is kept.
pub fn recorded() -> Result<Vec<Evidence>, Failure> {
    let mut all = Vec::new();
    for (number, line) in io::stdin().lines().enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let mut evidence: Evidence = serde_json::from_str(&line).map_err(|error| {
            Failure::new(format!(
                "standard input, line {}: not evidence: {error}",
                number + 1
            ))
        })?;
        if evidence.version.is_empty() {
            evidence.version = env!("CARGO_PKG_VERSION").to_owned();
        }
        all.push(evidence);
    }
    Ok(all)
}

/// The verdicts of a document (`-`: on standard input), each checked and marked as imported.
pub fn imported(path: &Path) -> Result<Vec<Evidence>, Failure> {
    let named = match path.to_str() {
        Some("-") => "standard input".to_owned(),
        _ => path.display().to_string(),
    };
    let fail = |problem: String| Failure::new(format!("{named}: {problem}"));
    let bytes = read(path).map_err(fail)?;
    let mut document = parse(&bytes).map_err(|problem| {
        fail(problem).hint("a document is made by `kilter evidence export --output FILE`")
    })?;
    for (index, evidence) in document.evidence.iter_mut().enumerate() {
        check(evidence).map_err(|problem| {
            fail(format!(
                "verdict {}: {problem}; nothing was imported",
                index + 1
            ))
        })?;
        evidence.imported = true;
    }
    Ok(document.evidence)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let source: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin()),
        _ => Box::new(File::open(path).map_err(|error| error.to_string())?),
    };
    let mut bytes = Vec::new();
    source
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    match bytes.len() as u64 > MAX_BYTES {
        true => Err("larger than 16 MiB; export fewer at a time, by knob".to_owned()),
        false => Ok(bytes),
    }
}

fn parse(bytes: &[u8]) -> Result<EvidenceDocument, String> {
    #[derive(Deserialize)]
    struct Version {
        kilter_evidence: u32,
    }
    let shown = |error: serde_json::Error| {
        let text: String = plain(&error.to_string()).chars().take(SHOWN).collect();
        format!("not a document of evidence: {text}")
    };
    let Version { kilter_evidence } = serde_json::from_slice(bytes).map_err(shown)?;
    match kilter_evidence {
        EvidenceDocument::FORMAT => serde_json::from_slice(bytes).map_err(shown),
        other => Err(format!(
            "form {other} of evidence; this kilter reads form {}",
            EvidenceDocument::FORMAT
        )),
    }
}

/// What is wrong with a verdict, if anything is: the first thing found, with its field.
fn check(evidence: &Evidence) -> Result<(), String> {
    if evidence.when.parse::<jiff::Timestamp>().is_err() {
        let when = plain(&evidence.when.chars().take(40).collect::<String>());
        return Err(format!("when: `{when}` is no time of RFC 3339"));
    }
    for (field, value, may_be_empty) in [
        ("when", &evidence.when, false),
        ("machine", &evidence.machine, false),
        ("kernel", &evidence.kernel, false),
        ("boot_id", &evidence.boot_id, true),
        ("workload", &evidence.workload, true),
        ("cpu", &evidence.cpu, true),
        ("version", &evidence.version, true),
        ("study", &evidence.study, true),
        ("verdict.metric", &evidence.verdict.metric, false),
    ] {
        text(field, value, is_harmless)?;
        if value.is_empty() && !may_be_empty {
            return Err(format!("{field} is empty"));
        }
    }
    command(&evidence.command)?;
    settings("base", &evidence.base)?;
    settings("arm", &evidence.arm)?;
    settings("old", &evidence.old)?;
    numbers(&evidence.verdict)
}

fn text(field: &str, value: &str, allowed: fn(char) -> bool) -> Result<(), String> {
    if value.len() > MAX_TEXT {
        return Err(format!("{field} is longer than {MAX_TEXT} bytes"));
    }
    match value.chars().find(|&c| !allowed(c)) {
        Some(bad) => Err(format!(
            "{field} holds the control character {}",
            bad.escape_unicode()
        )),
        None => Ok(()),
    }
}

/// Neither a control character nor one that turns the direction of writing.
pub fn is_harmless(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn command(words: &[String]) -> Result<(), String> {
    if words.is_empty() || words.len() > MAX_ITEMS {
        return Err(format!("command has not 1 to {MAX_ITEMS} words"));
    }
    // A script for `sh -c` has lines; they are escaped where they are shown.
    let allowed = |c: char| is_harmless(c) || matches!(c, '\n' | '\t');
    words
        .iter()
        .try_for_each(|word| text("command", word, allowed))
}

fn settings(field: &str, settings: &Settings) -> Result<(), String> {
    if settings.len() > MAX_ITEMS {
        return Err(format!("{field} has more than {MAX_ITEMS} knobs"));
    }
    let of_name = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
    for (name, value) in settings {
        if name.is_empty() || name.len() > 128 || !name.chars().all(of_name) {
            let name = plain(&name.chars().take(40).collect::<String>());
            return Err(format!("{field}: `{name}` is no name of a knob"));
        }
        text(field, value, is_harmless)?;
    }
    Ok(())
}

fn numbers(verdict: &VerdictRecord) -> Result<(), String> {
    let positive = |number: f64| number.is_finite() && number > 0.0;
    for (field, number) in [
        ("ratio", verdict.ratio),
        ("low", verdict.low),
        ("high", verdict.high),
    ] {
        if !positive(number) {
            return Err(format!(
                "verdict.{field} is {number}, and ratios are above 0"
            ));
        }
    }
    if verdict.low > verdict.high {
        return Err("verdict.low is above verdict.high".to_owned());
    }
    if !(0.0 < verdict.confidence && verdict.confidence < 1.0) {
        return Err(format!(
            "verdict.confidence is {}, and not between 0 and 1",
            verdict.confidence
        ));
    }
    if !(0.0 < verdict.region_percent && verdict.region_percent < 50.0) {
        return Err(format!(
            "verdict.region_percent is {}, and not between 0 and 50",
            verdict.region_percent
        ));
    }
    let is_lower = match (verdict.verdict, verdict.direction) {
        (Verdict::Better, Direction::Min) | (Verdict::Worse, Direction::Max) => true,
        (Verdict::Better, Direction::Max) | (Verdict::Worse, Direction::Min) => false,
        (Verdict::NoDifference | Verdict::Inconclusive, _) => return Ok(()),
    };
    match is_lower && verdict.high > 1.0 || !is_lower && verdict.low < 1.0 {
        true => Err("its verdict is not what its interval says".to_owned()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Evidence {
        let text = include_str!("../../../../schema/samples/evidence.0.json");
        serde_json::from_str(text).unwrap()
    }

    fn broken(change: impl FnOnce(&mut Evidence)) -> String {
        let mut evidence = sample();
        change(&mut evidence);
        check(&evidence).unwrap_err()
    }

    #[test]
    fn the_sample_is_good_and_each_damage_is_named() {
        assert_eq!(check(&sample()), Ok(()));
        for (problem, says) in [
            (broken(|e| e.when = "yesterday".into()), "when: `yesterday`"),
            (broken(|e| e.machine.clear()), "machine is empty"),
            (
                broken(|e| e.kernel = "6\u{1b}[2J".into()),
                "kernel holds the control",
            ),
            (
                broken(|e| e.cpu = "x\u{202e}y".into()),
                "cpu holds the control",
            ),
            (broken(|e| e.study = "x".repeat(5000)), "study is longer"),
            (broken(|e| e.command.clear()), "command has not 1"),
            (broken(|e| e.command[0] = "a\u{7}".into()), "command holds"),
            (
                broken(|e| drop(e.arm.insert("../../etc/passwd".into(), "1".into()))),
                "`../../etc/passwd` is no name of a knob",
            ),
            (
                broken(|e| drop(e.old.insert("vm.x".into(), "\n".into()))),
                "old holds the control",
            ),
            (
                broken(|e| e.verdict.metric = "\r".into()),
                "verdict.metric holds",
            ),
            (broken(|e| e.verdict.ratio = 0.0), "verdict.ratio is 0"),
            (broken(|e| e.verdict.low = -1.0), "verdict.low is -1"),
            (broken(|e| e.verdict.low = 2.0), "low is above"),
            (broken(|e| e.verdict.confidence = 1.0), "confidence is 1"),
            (
                broken(|e| e.verdict.region_percent = 0.0),
                "region_percent is 0",
            ),
            (
                broken(|e| e.verdict.verdict = Verdict::Worse),
                "not what its interval says",
            ),
        ] {
            assert!(problem.contains(says), "{says}: {problem}");
        }
        let mut script = sample();
        script.command = vec!["sh".into(), "-c".into(), "a\n\tb".into()];
        assert_eq!(check(&script), Ok(()));
    }

    #[test]
    fn other_forms_and_no_forms_are_refused() {
        for (text, says) in [
            ("", "not a document of evidence"),
            ("[]", "not a document of evidence"),
            ("{}", "kilter_evidence"),
            (r#"{"kilter_evidence": 2, "future": 1}"#, "reads form 1"),
            (r#"{"kilter_evidence": 1}"#, "evidence"),
            (
                r#"{"kilter_evidence": 1, "evidence": [], "x": 1}"#,
                "unknown field",
            ),
            (
                r#"{"kilter_evidence": 1, "evidence": [{}]}"#,
                "missing field",
            ),
        ] {
            let problem = parse(text.as_bytes()).unwrap_err();
            assert!(problem.contains(says), "{text}: {problem}");
        }
        let deep = "[".repeat(100_000);
        assert!(parse(deep.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Err(problem) = parse(&bytes) {
                prop_assert!(problem.chars().all(is_harmless));
            }
        }
    }
}
