//! Evidence for people: by setting, then by experiment, one line a metric.
//!
//! What it holds may come from another machine, so every text of it is escaped before it is shown.

use super::evidence_import::is_harmless;
use crate::machine::quote;
use crate::say;
use kilter_api::{Evidence, KnownEvidence, Verdict, VerdictRecord};

/// Columns that a command gets at least, however narrow the terminal.
const LEAST: usize = 24;

/// Changes of one setting that are spelled out.
const MOST_CHANGES: usize = 8;

/// A text in one line, without anything that a terminal would obey.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match is_harmless(c) {
            true => c.to_string(),
            false => c.escape_default().to_string(),
        })
        .collect()
}

/// Lines of a listing of verdicts, in the order given within each setting. Settings are sorted.
pub fn listing(known: &[KnownEvidence]) -> Vec<String> {
    laid_out(known, say::columns())
}

fn laid_out(known: &[KnownEvidence], columns: Option<usize>) -> Vec<String> {
    let mut by_setting: Vec<(String, Vec<&KnownEvidence>)> = Vec::new();
    for one in known {
        let heading = change(&one.evidence);
        match by_setting.iter_mut().find(|(other, _)| *other == heading) {
            Some((_, members)) => members.push(one),
            None => by_setting.push((heading, vec![one])),
        }
    }
    by_setting.sort_by(|a, b| a.0.cmp(&b.0));
    let widths = Widths::of(known.iter().map(|one| &one.evidence.verdict));
    let mut lines = Vec::new();
    for (heading, members) in by_setting {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(
            wrapped(&abridged(&heading), columns, "  ")
                .iter()
                .map(say::bold),
        );
        let mut shown: Option<&KnownEvidence> = None;
        for one in members {
            if !shown.is_some_and(|other| same_experiment(other, one)) {
                lines.extend(experiment(one, columns));
            }
            lines.push(format!("    {}", widths.row(&one.evidence.verdict)));
            shown = Some(one);
        }
    }
    lines
}

/// `vm.swappiness 60 → 10, vm.page-cluster 3 → 0`: what the arm changed against its base.
fn change(evidence: &Evidence) -> String {
    let (arm, base) = (&evidence.arm, &evidence.base);
    let mut knobs: Vec<&String> = arm.keys().chain(base.keys()).collect();
    knobs.sort();
    knobs.dedup();
    let texts = knobs.into_iter().filter_map(|knob| {
        let (from, to) = (base.get(knob), arm.get(knob));
        if from == to {
            return None;
        }
        let from = from.or(evidence.old.get(knob)).map(String::as_str);
        Some(match (from, to) {
            (Some(from), Some(to)) => format!("{knob} {from} → {to}"),
            (None, Some(to)) => format!("{knob} → {to}"),
            (from, None) => {
                let to = evidence.old.get(knob).map_or("current", String::as_str);
                format!("{knob} {} → {to}", from.unwrap_or("?"))
            }
        })
    });
    match plain(&texts.collect::<Vec<_>>().join(", ")) {
        none if none.is_empty() => "nothing changed".to_owned(),
        changes => changes,
    }
}

/// The first changes of many: a whole profile is told by its study or command.
fn abridged(heading: &str) -> String {
    let parts: Vec<&str> = heading.split(", ").collect();
    match parts.len().saturating_sub(MOST_CHANGES) {
        0 => heading.to_owned(),
        more => format!("{}, and {more} more", parts[..MOST_CHANGES].join(", ")),
    }
}

/// Broken at commas where it is longer than a line; further lines are indented.
fn wrapped(text: &str, columns: Option<usize>, indent: &str) -> Vec<String> {
    let width = columns.unwrap_or(usize::MAX);
    let mut lines = vec![String::new()];
    for part in text.split_inclusive(", ") {
        let last = lines.last_mut().expect("never empty");
        let length = last.chars().count() + part.trim_end().chars().count();
        match last.is_empty() || length <= width {
            true => last.push_str(part),
            false => lines.push(format!("{indent}{part}")),
        }
    }
    lines
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

fn same_experiment(a: &KnownEvidence, b: &KnownEvidence) -> bool {
    let (x, y) = (&a.evidence, &b.evidence);
    (&x.when, &x.machine, &x.kernel, &x.command) == (&y.when, &y.machine, &y.kernel, &y.command)
        && (&x.study, x.runs, x.imported) == (&y.study, y.runs, y.imported)
}

/// When, of what, from how much, and from where if not from here. The command is cut where the line
/// would not fit; where it came from never is.
fn experiment(known: &KnownEvidence, columns: Option<usize>) -> Vec<String> {
    let evidence = &known.evidence;
    let date = plain(evidence.when.get(..10).unwrap_or(&evidence.when));
    let what = match evidence.workload.as_str() {
        "" => evidence
            .command
            .iter()
            .map(|word| quote(&plain(word)))
            .collect::<Vec<_>>()
            .join(" "),
        workload => plain(workload),
    };
    let mut facts = Vec::new();
    if evidence.runs > 0 {
        facts.push(say::count(evidence.runs as usize, "run"));
    }
    if !evidence.study.is_empty() {
        facts.push(format!("study {}", plain(&evidence.study)));
    }
    let facts = match facts.is_empty() {
        true => String::new(),
        false => format!("  ({})", facts.join(", ")),
    };
    let taken = 4 + date.chars().count() + facts.chars().count();
    let what = columns.map_or(what.clone(), |columns| {
        say::cut(&what, columns.saturating_sub(taken).max(LEAST))
    });
    let mut lines = vec![format!("  {date}  {what}{}", say::faint(facts))];
    if let Some(mark) = mark(known) {
        let indent = " ".repeat(4 + date.chars().count());
        let marks = wrapped(&format!("{indent}{mark}"), columns, &indent);
        lines.extend(marks.iter().map(say::attention));
    }
    lines
}

/// Where a verdict is from, unless it is this machine's own under the kernel that runs.
fn mark(known: &KnownEvidence) -> Option<String> {
    let evidence = &known.evidence;
    let mut parts = Vec::new();
    if !known.same_machine {
        let cpu = match evidence.cpu.as_str() {
            "" => String::new(),
            cpu => format!(" ({})", plain(cpu)),
        };
        parts.push(format!("another machine{cpu}"));
    }
    if !known.same_kernel {
        parts.push(format!("another kernel: {}", plain(&evidence.kernel)));
    }
    if evidence.imported {
        parts.push("imported".to_owned());
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Columns of the verdicts' rows.
#[derive(Debug, Default)]
struct Widths {
    metric: usize,
    change: usize,
    low: usize,
    high: usize,
}

impl Widths {
    fn of<'a>(verdicts: impl Iterator<Item = &'a VerdictRecord>) -> Self {
        let mut widths = Widths::default();
        let grow = |width: &mut usize, text: String| *width = text.chars().count().max(*width);
        for verdict in verdicts {
            grow(&mut widths.metric, plain(&verdict.metric));
            grow(&mut widths.change, percent(verdict.ratio));
            grow(&mut widths.low, percent(verdict.low));
            grow(&mut widths.high, percent(verdict.high));
        }
        widths
    }

    fn row(&self, verdict: &VerdictRecord) -> String {
        let metric = plain(&verdict.metric);
        let name = match verdict.verdict {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::NoDifference => "no difference",
            Verdict::Inconclusive => "inconclusive",
        };
        let interval = match verdict.looks {
            0 => say::faint("too few blocks for an interval"),
            _ => format!(
                "({:>low$} … {:>high$} %)",
                percent(verdict.low),
                percent(verdict.high),
                low = self.low,
                high = self.high,
            ),
        };
        format!(
            "{metric:metrics$}  {name:13}  {:>change$} %  {interval}",
            percent(verdict.ratio),
            metrics = self.metric,
            change = self.change,
        )
    }
}

/// A ratio as a signed change.
fn percent(ratio: f64) -> String {
    format!("{:+.1}", (ratio - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilter_api::Settings;

    fn sample() -> KnownEvidence {
        let text = include_str!("../../../../schema/samples/known-evidence.0.json");
        let mut known: KnownEvidence = serde_json::from_str(text).unwrap();
        known.evidence.imported = false;
        known.evidence.workload.clear();
        known.same_kernel = true;
        known.evidence.verdict.metric = "time".into();
        (known.evidence.verdict.ratio, known.evidence.verdict.low) = (0.8, 0.79);
        known.evidence.verdict.high = 0.905;
        known
    }

    fn unstyled(lines: &[String]) -> Vec<String> {
        let line = |line: &String| {
            let parts = line.split('\x1b').enumerate();
            parts
                .map(|(at, part)| match at {
                    0 => part,
                    _ => part.split_once('m').unwrap().1,
                })
                .collect()
        };
        lines.iter().map(line).collect()
    }

    fn shown(known: &[KnownEvidence], columns: Option<usize>) -> Vec<String> {
        unstyled(&laid_out(known, columns))
    }

    #[test]
    fn one_experiment_is_told_once_with_a_row_a_metric() {
        let mut other = sample();
        other.evidence.verdict.metric = "max_rss_kib".into();
        other.evidence.verdict.verdict = Verdict::NoDifference;
        (other.evidence.verdict.ratio, other.evidence.verdict.low) = (1.001, 0.998);
        other.evidence.verdict.high = 1.004;
        assert_eq!(
            shown(&[sample(), other], None),
            [
                "vm.swappiness 60 → 10",
                "  2026-01-02  make -j2  (40 runs, study make)",
                "    time         better         -20.0 %  (-21.0 … -9.5 %)",
                "    max_rss_kib  no difference   +0.1 %  ( -0.2 … +0.4 %)",
            ]
        );
    }

    #[test]
    fn what_is_not_from_here_is_marked_and_the_mark_is_never_cut() {
        let mut known = sample();
        known.evidence.command = vec!["x".repeat(300)];
        known.same_kernel = false;
        let lines = shown(std::slice::from_ref(&known), Some(80));
        assert!(lines.iter().all(|line| line.chars().count() <= 80));
        assert!(lines[1].contains("xxx…  (40 runs, study make)"));
        assert_eq!(lines[2], "              another kernel: 6.12.107-amd64");
        (known.same_machine, known.evidence.imported) = (false, true);
        let lines = shown(&[known], Some(60));
        assert_eq!(
            lines[2..5],
            [
                "              another machine (AMD EPYC 7763),",
                "              another kernel: 6.12.107-amd64, imported",
                "    time  better         -20.0 %  (-21.0 … -9.5 %)",
            ]
        );
    }

    #[test]
    fn settings_are_told_against_their_base() {
        let mut known = sample();
        let set = |pairs: &[(&str, &str)]| -> Settings {
            let pairs = pairs.iter();
            pairs.map(|(k, v)| ((*k).into(), (*v).into())).collect()
        };
        known.evidence.arm = set(&[("a.x", "1"), ("b.same", "7"), ("c.new", "9")]);
        known.evidence.base = set(&[("a.x", "0"), ("b.same", "7"), ("d.gone", "2")]);
        known.evidence.old = set(&[("d.gone", "3")]);
        assert_eq!(
            change(&known.evidence),
            "a.x 0 → 1, c.new → 9, d.gone 2 → 3"
        );
        known.evidence.old.clear();
        assert_eq!(
            change(&known.evidence),
            "a.x 0 → 1, c.new → 9, d.gone 2 → current"
        );
        let narrow = wrapped(&change(&known.evidence), Some(24), "  ");
        assert_eq!(narrow, ["a.x 0 → 1, c.new → 9,", "  d.gone 2 → current"]);
    }

    #[test]
    fn equal_arms_are_said_so() {
        let mut known = sample();
        known.evidence.base = known.evidence.arm.clone();
        assert_eq!(change(&known.evidence), "nothing changed");
    }

    #[test]
    fn a_whole_profile_is_abridged() {
        let mut known = sample();
        let set = |value: &str| -> Settings {
            let knobs = (10..30).map(|number| (format!("vm.k{number}"), value.to_owned()));
            knobs.collect()
        };
        (known.evidence.arm, known.evidence.old) = (set("1"), set("0"));
        let lines = shown(&[known], None);
        assert!(lines[0].starts_with("vm.k10 0 → 1, vm.k11 0 → 1, "));
        assert!(lines[0].ends_with("vm.k17 0 → 1, and 12 more"));
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_shown() {
        let mut known = sample();
        let hostile = "\x1b[8m\r\n\t\u{9b}2J\u{202e}x";
        known.evidence.command = vec![hostile.into()];
        known.evidence.study = hostile.into();
        known.evidence.cpu = hostile.into();
        known.evidence.kernel = hostile.into();
        known.evidence.verdict.metric = hostile.into();
        known.evidence.arm = Settings::from([("vm.x".into(), hostile.into())]);
        (known.same_machine, known.same_kernel) = (false, false);
        let lines = shown(&[known], None);
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|line| line.chars().all(is_harmless)));
        assert!(lines[0].contains(r"\u{1b}[8m\r\n\t\u{9b}2J\u{202e}x"));
    }

    #[test]
    fn too_few_blocks_are_said_so() {
        let mut known = sample();
        known.evidence.verdict.looks = 0;
        known.evidence.verdict.verdict = Verdict::Inconclusive;
        let lines = shown(&[known], None);
        assert!(lines[2].ends_with("-20.0 %  too few blocks for an interval"));
    }
}
