//! Checks of values against the catalog, and of catalog entries against themselves.

use crate::wish::Wish;
use kilter_api::{Format, KnobSpec, Search, ValueKind};
use kilter_kernel::{KernelPath, parse_value};
use std::ops::RangeInclusive;

/// Digits and commas of a set of CPUs at most: 2048 CPUs.
const MASK_DIGITS: usize = 576;

/// A value that the catalog does not allow. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{knob}: `{value}` is not allowed; {allowed}")]
pub struct ValueError {
    /// The knob.
    pub knob: String,
    /// The value as it was given.
    pub value: String,
    /// What is allowed, in words.
    pub allowed: String,
}

/// The value in the form that is written, or why it is refused.
pub fn check_value(knob: &str, spec: &KnobSpec, value: &str) -> Result<String, ValueError> {
    let trimmed = value.trim();
    if Wish::parse(trimmed).is_some_and(|wish| wish.fits(spec)) {
        return Ok(trimmed.to_owned());
    }
    let checked = match &spec.value {
        ValueKind::Int { min, max } => trimmed
            .parse::<i64>()
            .ok()
            .filter(|number| (min..=max).contains(&number))
            .map(|number| number.to_string()),
        ValueKind::Bool => match trimmed {
            "1" | "on" | "true" | "yes" => Some("1".to_owned()),
            "0" | "off" | "false" | "no" => Some("0".to_owned()),
            _ => None,
        },
        ValueKind::Choice { choices } => choices.iter().find(|choice| *choice == trimmed).cloned(),
        ValueKind::List { min, max, most } => list(trimmed, *min..=*max, *most),
        ValueKind::Mask => mask(trimmed),
    };
    checked.ok_or_else(|| ValueError {
        knob: knob.to_owned(),
        value: value.to_owned(),
        allowed: allowed(spec),
    })
}

fn list(text: &str, range: RangeInclusive<i64>, most: usize) -> Option<String> {
    let numbers: Vec<i64> = text
        .split_whitespace()
        .map(|word| word.parse().ok().filter(|number| range.contains(number)))
        .collect::<Option<_>>()?;
    let words: Vec<String> = numbers.iter().map(i64::to_string).collect();
    (1..=most).contains(&words.len()).then(|| words.join(" "))
}

fn mask(text: &str) -> Option<String> {
    let fits = text.len() <= MASK_DIGITS && text.chars().all(|c| c.is_ascii_hexdigit() || c == ',');
    fits.then(|| parse_value(Format::Mask, "", text).ok())
        .flatten()
}

/// What is allowed, in words.
pub fn allowed(spec: &KnobSpec) -> String {
    match &spec.value {
        ValueKind::Int { min, max } if spec.unit.is_empty() => {
            format!("the range is {min} to {max}")
        }
        ValueKind::Int { min, max } => format!("the range is {min} to {max} {}", spec.unit),
        ValueKind::Bool => "it is 0 or 1".to_owned(),
        ValueKind::Choice { choices } => format!("it is one of {}", choices.join(", ")),
        ValueKind::List { min, max, most } => {
            format!("it is up to {most} numbers, each from {min} to {max}")
        }
        ValueKind::Mask => "it is a set of CPUs in hexadecimal (3: CPUs 0 and 1)".to_owned(),
    }
}

/// What is wrong with a catalog entry by itself; empty when nothing is.
pub fn check_spec(spec: &KnobSpec) -> Vec<String> {
    let mut problems = Vec::new();
    let mut require = |good: bool, problem: &str| {
        if !good {
            problems.push(format!("{}: {problem}", spec.name));
        }
    };
    require(
        valid_knob_name(&spec.name),
        "the name must be words with dots between them, with two <placeholders> at most",
    );
    require(
        !spec.summary.trim().is_empty() && !spec.summary.contains('\n'),
        "`summary` must be one line",
    );
    require(!spec.why.trim().is_empty(), "`why` is empty");
    require(!spec.default.trim().is_empty(), "`default` is empty");
    require(
        !spec.sources.is_empty() && spec.sources.iter().all(|source| !source.trim().is_empty()),
        "`sources` is empty",
    );
    require(
        spec.paths.is_empty() != spec.by_hand.is_empty(),
        "either `paths` or `by_hand` must say how it is set",
    );
    let filled = placeholders(&spec.name);
    let fillable = |text: &str| {
        let found = placeholders(text);
        found.as_ref().is_some_and(Vec::is_empty) || (found.is_some() && found == filled)
    };
    for path in &spec.paths {
        require(!path.era.trim().is_empty(), "a path has no `era`");
        require(
            placeholders(&path.file) == filled,
            "a path has another placeholder than the name",
        );
        let sample = path.file.replace(['<', '>'], "");
        require(
            KernelPath::new(sample).is_ok(),
            "a path is not a kernel setting's",
        );
        require(
            path.offers.is_empty()
                || (matches!(spec.value, ValueKind::Choice { .. } | ValueKind::Int { .. })
                    && fillable(&path.offers)
                    && KernelPath::new(path.offers.replace(['<', '>'], "")).is_ok()),
            "`offers` is for words and numbers, and is a kernel file with the name's placeholders",
        );
        let with = &path.appears_with;
        require(
            with.is_empty()
                || with.split_once('=').is_some_and(|(knob, value)| {
                    valid_knob_name(knob)
                        && !value.is_empty()
                        && (filled.as_ref().is_some_and(Vec::is_empty)
                            || placeholders(knob) == filled)
                }),
            "`appears_with` is another KNOB=VALUE with the name's placeholders",
        );
        require(
            fits(&spec.value, path.format),
            "a path's format does not fit the value's type",
        );
    }
    for pattern in &spec.couplings.resets_files {
        require(
            fillable(pattern),
            "`resets_files` has another placeholder than the name",
        );
    }
    match &spec.value {
        ValueKind::Int { min, max } => require(min < max, "the range is empty"),
        ValueKind::Choice { choices } => {
            require(choices.len() > 1, "a choice needs two words at least")
        }
        ValueKind::List { min, max, most } => {
            require(min < max && *most > 0, "the range is empty");
        }
        ValueKind::Bool | ValueKind::Mask => {}
    }
    if let Some(search) = &spec.search {
        require(
            !spec.risk.needs_consent(),
            "a knob of this risk is never searched",
        );
        require(
            search_fits(spec, search),
            "`search` leaves the range, is empty, or has a step below 1",
        );
    }
    problems
}

fn fits(value: &ValueKind, format: Format) -> bool {
    match value {
        ValueKind::Int { .. } => matches!(format, Format::Plain | Format::Hex | Format::Cpu0),
        ValueKind::List { .. } => format == Format::Spaced,
        ValueKind::Mask => format == Format::Mask,
        ValueKind::Bool => matches!(format, Format::Plain | Format::YesNo | Format::Feature),
        ValueKind::Choice { .. } => matches!(
            format,
            Format::Plain | Format::Bracketed | Format::Parenthesised
        ),
    }
}

fn search_fits(spec: &KnobSpec, search: &Search) -> bool {
    let inside = |number: &i64| check_value(&spec.name, spec, &number.to_string()).is_ok();
    match search {
        Search::Linear { min, max, step } => min < max && *step >= 1 && inside(min) && inside(max),
        Search::Log { min, max } => min < max && *min > 0 && inside(min) && inside(max),
        Search::Values { values } => {
            values.len() > 1
                && values
                    .iter()
                    .all(|value| check_value(&spec.name, spec, value).as_deref() == Ok(value))
        }
    }
}

fn valid_knob_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let part = |part: &str| match part
        .strip_prefix('<')
        .and_then(|rest| rest.strip_suffix('>'))
    {
        Some(inner) => !inner.is_empty() && inner.chars().all(plain),
        None => !part.is_empty() && part.chars().all(plain),
    };
    !name.starts_with('<') && name.split('.').all(part) && name.matches('<').count() <= 2
}

/// The `<placeholders>` in a name or path; none at all where a bracket has no partner.
fn placeholders(text: &str) -> Option<Vec<&str>> {
    let mut parts = text.split('<');
    let is_literal = |part: &&str| !part.contains('>');
    parts.next().filter(is_literal)?;
    parts
        .map(|part| {
            let (name, literal) = part.split_once('>')?;
            is_literal(&literal).then_some(name)
        })
        .collect()
}
