//! Checks of values against the catalog, and of catalog entries against themselves.

use kilter_api::{Format, KnobSpec, Search, ValueKind};
use kilter_kernel::KernelPath;

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
    };
    checked.ok_or_else(|| ValueError {
        knob: knob.to_owned(),
        value: value.to_owned(),
        allowed: allowed(spec),
    })
}

fn allowed(spec: &KnobSpec) -> String {
    match &spec.value {
        ValueKind::Int { min, max } if spec.unit.is_empty() => {
            format!("the range is {min} to {max}")
        }
        ValueKind::Int { min, max } => format!("the range is {min} to {max} {}", spec.unit),
        ValueKind::Bool => "it is 0 or 1".to_owned(),
        ValueKind::Choice { choices } => format!("it is one of {}", choices.join(", ")),
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
        "the name must be words joined by dots, with one <placeholder> at most",
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
    require(!spec.paths.is_empty(), "`paths` is empty");
    for path in &spec.paths {
        require(!path.era.trim().is_empty(), "a path has no `era`");
        require(
            placeholder(&path.file) == placeholder(&spec.name),
            "a path has another placeholder than the name",
        );
        let sample = path.file.replace(['<', '>'], "");
        require(
            KernelPath::new(sample).is_ok(),
            "a path is not a kernel setting's",
        );
        require(
            path.offers.is_empty()
                || (matches!(spec.value, ValueKind::Choice { .. })
                    && placeholder(&path.offers) == placeholder(&spec.name)
                    && KernelPath::new(path.offers.replace(['<', '>'], "")).is_ok()),
            "`offers` is for choices, and is a kernel file with the name's placeholder",
        );
        require(
            fits(&spec.value, path.format),
            "a path's format does not fit the value's type",
        );
    }
    match &spec.value {
        ValueKind::Int { min, max } => require(min < max, "the range is empty"),
        ValueKind::Choice { choices } => {
            require(choices.len() > 1, "a choice needs two words at least")
        }
        ValueKind::Bool => {}
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
        ValueKind::Int { .. } => matches!(format, Format::Plain | Format::Hex),
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
    !name.starts_with('<') && name.split('.').all(part) && name.matches('<').count() <= 1
}

/// The `<placeholder>` in a name or path.
pub(crate) fn placeholder(text: &str) -> Option<&str> {
    let start = text.find('<')?;
    let end = text.find('>')?;
    Some(&text[start..=end])
}
