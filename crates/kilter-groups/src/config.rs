//! `/etc/kilter/groups.toml`: what people want for which users, checked whole before anything is
//! done.

use kilter_kernel::{ConfigError, ConfigProblem as Problem, known_uid, load_config, parse_config};
use serde::Deserialize;
use std::ops::RangeInclusive;
use std::path::Path;

/// Where the configuration lies.
pub const CONFIG: &str = "/etc/kilter/groups.toml";

/// Weight of a group that nothing else is said of, as in `cpu.weight` (cgroup-v2.rst).
pub const DEFAULT_WEIGHT: u32 = 100;

/// Groups at most, unless told otherwise.
const DEFAULT_MAX_GROUPS: u32 = 1000;

/// Seconds between sweeps, unless told otherwise.
const DEFAULT_SWEEP_S: u32 = 60;

/// A configuration, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Weight of users that no rule names, 1 to 10000.
    pub weight: u32,
    /// Groups at most; further users share one overflow group. 1 to 100000.
    pub max_groups: usize,
    /// Whether subordinate uids (`/etc/subuid`) count as their owner.
    pub fold_subuids: bool,
    /// Seconds between sweeps over all processes, 1 to 86400.
    pub sweep_s: u32,
    /// Only these users, where any are named; all others stay as they are.
    pub only: Vec<RangeInclusive<u32>>,
    /// The first one that fits a uid decides.
    pub rules: Vec<Rule>,
}

/// What is wanted for some uids.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The uids.
    pub uids: RangeInclusive<u32>,
    /// The share that each of their groups gets.
    pub share: Share,
    /// Leave their processes alone.
    pub leave: bool,
}

/// What a group gets of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Weight against other groups, 1 to 10000.
    pub weight: u32,
    /// Runs only when nobody else wants to (`cpu.idle`); the weight does not count then.
    pub idle: bool,
    /// Percent of one CPU that it never exceeds (`cpu.max`), 1 to 1000000.
    pub max_percent: Option<u32>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            weight: DEFAULT_WEIGHT,
            max_groups: DEFAULT_MAX_GROUPS as usize,
            fold_subuids: true,
            sweep_s: DEFAULT_SWEEP_S,
            only: Vec::new(),
            rules: Vec::new(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    weight: i64,
    max_groups: i64,
    fold_subuids: bool,
    sweep_s: i64,
    only: Vec<String>,
    rule: Vec<toml::Spanned<RawRule>>,
}

impl Default for Raw {
    fn default() -> Self {
        Raw {
            weight: DEFAULT_WEIGHT.into(),
            max_groups: DEFAULT_MAX_GROUPS.into(),
            fold_subuids: true,
            sweep_s: DEFAULT_SWEEP_S.into(),
            only: Vec::new(),
            rule: Vec::new(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    user: Option<String>,
    uid: Option<i64>,
    uids: Option<String>,
    weight: Option<i64>,
    #[serde(default)]
    idle: bool,
    max_percent: Option<i64>,
    #[serde(default)]
    leave: bool,
}

/// Reads the configuration; the defaults where there is no file.
///
/// # Errors
/// It is no regular file, too large, not TOML, or says something that cannot be done.
pub fn load(root: &Path, path: &Path) -> Result<Config, ConfigError> {
    load_config(path, |text| parse(root, text))
}

fn parse(root: &Path, text: &str) -> Result<Config, Problem> {
    let raw: Raw = parse_config(text)?;
    let weight = number("weight", raw.weight, 1..=10_000).map_err(|problem| (None, problem))?;
    let rule = |raw: &toml::Spanned<RawRule>| {
        checked(root, raw.get_ref(), weight).map_err(|problem| (Some(raw.span().start), problem))
    };
    let whole = |name, value, range| number(name, value, range).map_err(|problem| (None, problem));
    Ok(Config {
        weight,
        max_groups: whole("max_groups", raw.max_groups, 1..=100_000)? as usize,
        fold_subuids: raw.fold_subuids,
        sweep_s: whole("sweep_s", raw.sweep_s, 1..=86_400)?,
        only: raw
            .only
            .iter()
            .map(|text| range(text).map_err(|problem| (None, format!("`only`: {problem}"))))
            .collect::<Result<_, _>>()?,
        rules: raw.rule.iter().map(rule).collect::<Result<_, _>>()?,
    })
}

fn checked(root: &Path, raw: &RawRule, weight: u32) -> Result<Rule, String> {
    let uids = match (&raw.user, raw.uid, &raw.uids) {
        (Some(user), None, None) => {
            let uid = known_uid(root, user)?;
            uid..=uid
        }
        (None, Some(uid), None) => {
            let uid = number("uid", uid, 0..=u32::MAX - 1)?;
            uid..=uid
        }
        (None, None, Some(uids)) => range(uids)?,
        _ => return Err("a rule names one of `user`, `uid` and `uids`".to_owned()),
    };
    if raw.leave && (raw.weight.is_some() || raw.idle || raw.max_percent.is_some()) {
        return Err("`leave` makes no group, so there is nothing to set for one".to_owned());
    }
    let within =
        |name, value: Option<i64>, range| value.map(|value| number(name, value, range)).transpose();
    Ok(Rule {
        uids,
        share: Share {
            weight: within("weight", raw.weight, 1..=10_000)?.unwrap_or(weight),
            idle: raw.idle,
            max_percent: within("max_percent", raw.max_percent, 1..=1_000_000)?,
        },
        leave: raw.leave,
    })
}

/// `1000` or `1000-1999`, as rules and `--only` have it.
///
/// # Errors
/// What is wrong with it, in words.
pub fn range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let number = |text: &str| {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let uid = text.parse::<u32>().ok().filter(|_| plain);
        // The all-ones id is none (setresuid(2)).
        uid.filter(|&uid| uid != u32::MAX)
    };
    let ends = match text.split_once('-') {
        Some((first, last)) => number(first.trim()).zip(number(last.trim())),
        None => number(text.trim()).map(|uid| (uid, uid)),
    };
    match ends {
        Some((first, last)) if first <= last => Ok(first..=last),
        _ => Err(format!(
            "{text:?} is no uid and no range of uids (1000-1999)"
        )),
    }
}

fn number(name: &str, value: i64, range: RangeInclusive<u32>) -> Result<u32, String> {
    let fits = u32::try_from(value)
        .ok()
        .filter(|value| range.contains(value));
    fits.ok_or_else(|| {
        let (low, high) = (range.start(), range.end());
        format!("`{name}` is {value}; the range is {low} to {high}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Result<Config, Problem> {
        parse(Path::new("/"), text)
    }

    #[test]
    fn rules_are_read_in_their_order() {
        let text = "weight = 200\nmax_groups = 3\nsweep_s = 5\nfold_subuids = false\n\
            [[rule]]\nuser = \"root\"\nweight = 1000\n\
            [[rule]]\nuid = 33\nidle = true\n\
            [[rule]]\nuids = \"1000-1999\"\nmax_percent = 150\n\
            [[rule]]\nuids = \"5-6\"\nleave = true\n";
        let config = parsed(text).unwrap();
        let share = |weight| Share {
            weight,
            idle: false,
            max_percent: None,
        };
        assert_eq!((config.weight, config.max_groups), (200, 3));
        assert_eq!((config.sweep_s, config.fold_subuids), (5, false));
        assert_eq!(
            (config.rules[0].uids.clone(), config.rules[0].share),
            (0..=0, share(1000))
        );
        assert_eq!(
            config.rules[1].share,
            Share {
                idle: true,
                ..share(200)
            }
        );
        assert_eq!(config.rules[2].uids, 1000..=1999);
        assert_eq!(config.rules[2].share.max_percent, Some(150));
        assert!(config.rules[3].leave);
        assert_eq!(parsed("").unwrap(), Config::default());
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_its_line() {
        for (text, line, says) in [
            ("weight = 0\n", None, "1 to 10000"),
            ("weight = 10001\n", None, "1 to 10000"),
            ("\n\nwieght = 5\n", Some(3), "wieght"),
            ("\n[[rule]]\nuser = \"no such user\"\n", Some(2), "no user"),
            ("[[rule]]\nuser = \"../../etc\"\n", Some(1), "no user"),
            ("[[rule]]\nuid = 4294967295\n", Some(1), "range"),
            ("[[rule]]\nuids = \"9-5\"\n", Some(1), "9-5"),
            ("[[rule]]\nuid = 1\nuser = \"root\"\n", Some(1), "one of"),
            (
                "[[rule]]\nuid = 1\nleave = true\nweight = 5\n",
                Some(1),
                "leave",
            ),
            (
                "[[rule]]\nuid = 1\nmax_percent = 0\n",
                Some(1),
                "max_percent",
            ),
            ("sweep_s = 0", None, "sweep_s"),
            ("only = ['5', 'x']", None, "`only`"),
            ("max_groups = -1", None, "max_groups"),
            ("= =", Some(1), ""),
        ] {
            let (at, problem) = parsed(text).unwrap_err();
            let found = at.map(|at| text[..at].matches('\n').count() + 1);
            assert_eq!(found, line, "{text}: {problem}");
            assert!(problem.contains(says), "{text}: {problem}");
        }
    }

    #[test]
    fn odd_files_are_errors_and_none_is_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("groups.toml");
        assert_eq!(load(dir.path(), &path).unwrap(), Config::default());
        std::fs::write(&path, "\n\nweight = 1000000\n").unwrap();
        assert!(load(dir.path(), &path).is_err());
        let error = load(dir.path(), dir.path()).unwrap_err().to_string();
        assert!(error.contains("not a file"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,300}") {
            let _ = parsed(&text);
        }

        #[test]
        fn a_range_is_what_was_written(first in 0..u32::MAX, more in 0..1000_u32) {
            let last = first.saturating_add(more).min(u32::MAX - 1);
            prop_assert_eq!(range(&format!("{first}-{last}")).unwrap(), first..=last);
            prop_assert_eq!(range(&format!(" {first} ")).unwrap(), first..=first);
        }

        #[test]
        fn every_weight_in_range_is_taken(weight in -10_i64..20_000) {
            let taken = parsed(&format!("[[rule]]\nuid = 7\nweight = {weight}\n"));
            prop_assert_eq!(taken.is_ok(), (1..=10_000).contains(&weight));
        }
    }
}
