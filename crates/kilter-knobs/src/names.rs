//! Names: which are valid, and which was probably meant.

use wildmatch::WildMatch;

/// A name that nothing has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no {what} `{name}`{}", suggestion(nearest))]
pub struct UnknownName {
    /// `knob`, `profile`, `workload`.
    pub what: &'static str,
    /// The name as it was given.
    pub name: String,
    /// Names that look like it.
    pub nearest: Vec<String>,
}

fn suggestion(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        names => format!(" (did you mean {}?)", names.join(", ")),
    }
}

impl UnknownName {
    pub(crate) fn new<'a>(
        what: &'static str,
        name: &str,
        known: impl Iterator<Item = &'a str>,
    ) -> Self {
        UnknownName {
            what,
            name: name.to_owned(),
            nearest: nearest(name, known),
        }
    }
}

/// Whether a knob name stands for several.
pub fn is_glob(name: &str) -> bool {
    name.contains(['*', '?'])
}

/// Whether a name matches a glob (`*` any run of characters, `?` one).
pub(crate) fn matches(glob: &str, name: &str) -> bool {
    WildMatch::new(glob).matches(name)
}

/// Whether a profile, workload or study may have this name: at most 64 lower-case letters, digits,
/// `-`, `_`, `.`, beginning with a letter or digit. Never a path.
pub fn valid_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c))
}

/// At most three known names that look like this one, the likeliest first. The last part of a
/// dotted name counts by itself too: `swapiness` means `vm.swappiness`.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let wanted = name.to_lowercase();
    let score = |candidate: &str| {
        let candidate = candidate.to_lowercase();
        let last = candidate
            .rsplit('.')
            .next()
            .unwrap_or(&candidate)
            .to_owned();
        strsim::jaro_winkler(&wanted, &candidate).max(strsim::jaro_winkler(&wanted, &last))
    };
    let mut scored: Vec<(f64, &str)> = known
        .map(|name| (score(name), name))
        .filter(|(score, _)| *score > 0.85)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored
        .into_iter()
        .take(3)
        .map(|(_, name)| name.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_find_their_knob() {
        let known = ["vm.swappiness", "vm.dirty_ratio", "sched.nr_migrate"];
        for typo in ["swapiness", "vm.swapiness", "vm.swappines", "VM.SWAPPINESS"] {
            assert_eq!(
                nearest(typo, known.into_iter()).first().map(String::as_str),
                Some("vm.swappiness"),
                "{typo}"
            );
        }
        assert!(nearest("xyzzy", known.into_iter()).is_empty());
    }

    #[test]
    fn names_are_never_paths() {
        for good in ["desktop", "my-study.2", "0"] {
            assert!(valid_name(good), "{good}");
        }
        for bad in [
            "",
            "../x",
            "a/b",
            ".hidden",
            "-x",
            "A",
            "a b",
            "a\n",
            &"a".repeat(65),
        ] {
            assert!(!valid_name(bad), "{bad}");
        }
    }
}
