//! `/etc/kilter/reclaim.toml`: which apps are cached and when to reclaim, checked whole before
//! anything is done.

use crate::params;
use crate::policy::Mode;
use kilter_kernel::{
    ConfigError, ConfigProblem as Problem, Parameters, known_uid, load_config, parse_config,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use wildmatch::WildMatch;

/// Where the configuration lies.
pub const CONFIG: &str = "/etc/kilter/reclaim.toml";

/// Cgroups that are apps, unless told otherwise: systemd's scopes and services of desktop apps,
/// containers.
const APP_CGROUPS: [&str; 9] = [
    "*/app.slice/app-*.scope",
    "*/app.slice/app-*.service",
    "*/app.slice/*/app-*.scope",
    "*/docker-*.scope",
    "/docker/*",
    "*/libpod-*.scope*",
    "/lxc.payload.*",
    "/lxc/*",
    "*/kubepods*/*/*",
];

/// A configuration, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// When to reclaim.
    pub mode: Mode,
    /// The cgroup whose limit counts, and whose processes alone are looked at.
    pub within: Option<String>,
    /// Cgroups that are one app each.
    pub cgroups: Vec<Glob>,
    /// The first one that fits decides.
    pub rules: Vec<Rule>,
    /// The parameters.
    pub params: Parameters,
}

/// A pattern of names: `*` and `?`.
#[derive(Clone, Debug, PartialEq)]
pub struct Glob(WildMatch);

impl Glob {
    /// A pattern.
    pub fn new(pattern: &str) -> Self {
        Glob(WildMatch::new(pattern))
    }

    /// Whether a text fits.
    pub fn fits(&self, text: &str) -> bool {
        self.0.matches(text)
    }
}

/// What is wanted for some apps.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Their names.
    pub name: Option<Glob>,
    /// Their cgroups.
    pub cgroup: Option<Glob>,
    /// Their user.
    pub uid: Option<u32>,
    /// When they are cached.
    pub cached: Cached,
    /// Their children count with them.
    pub tree: bool,
    /// How the rule is told.
    pub text: String,
}

/// When an app is cached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cached {
    /// As without a rule.
    Usual,
    /// Always.
    Always,
    /// Never: it is left out.
    Never,
    /// After so many seconds without CPU time.
    After(f64),
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mode: Mode::Pressure,
            within: None,
            cgroups: APP_CGROUPS.iter().map(|glob| Glob::new(glob)).collect(),
            rules: Vec::new(),
            params: params::defaults(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    policy: Option<String>,
    within: Option<String>,
    apps: RawApps,
    cached: RawCached,
    params: BTreeMap<String, i64>,
    rule: Vec<toml::Spanned<RawRule>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawApps {
    cgroups: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawCached {
    oom_score_adj: Option<i64>,
    idle_s: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    name: Option<String>,
    cgroup: Option<String>,
    user: Option<String>,
    uid: Option<u32>,
    cached: Option<toml::Value>,
    #[serde(default)]
    tree: bool,
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
    let usual = Config::default();
    let mut params = usual.params;
    let cached = [
        ("oom_score_adj", raw.cached.oom_score_adj),
        ("idle_s", raw.cached.idle_s),
    ];
    let cached = cached
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    let given = raw
        .params
        .iter()
        .map(|(name, &value)| (name.as_str(), value));
    for (name, value) in cached.chain(given) {
        params
            .set(name, &value.to_string())
            .map_err(|error| (None, error.to_string()))?;
    }
    let rule = |raw: &toml::Spanned<RawRule>| {
        checked(root, raw.get_ref()).map_err(|problem| (Some(raw.span().start), problem))
    };
    Ok(Config {
        mode: match raw.policy {
            Some(name) => Mode::named(&name).ok_or_else(|| {
                (
                    None,
                    format!("policy {name:?}: there are `pressure` and `on-cached`"),
                )
            })?,
            None => usual.mode,
        },
        within: raw.within,
        cgroups: match raw.apps.cgroups {
            Some(globs) => globs.iter().map(|glob| Glob::new(glob)).collect(),
            None => usual.cgroups,
        },
        rules: raw.rule.iter().map(rule).collect::<Result<_, _>>()?,
        params,
    })
}

fn checked(root: &Path, raw: &RawRule) -> Result<Rule, String> {
    let uid = match (&raw.user, raw.uid) {
        (Some(_), Some(_)) => return Err("a rule names `user` or `uid`, not both".to_owned()),
        (None, uid) => uid,
        (Some(user), None) => Some(known_uid(root, user)?),
    };
    if raw.name.is_none() && raw.cgroup.is_none() && uid.is_none() {
        return Err("a rule names at least one of `name`, `cgroup`, `user` and `uid`".to_owned());
    }
    let cached = match &raw.cached {
        None => Cached::Usual,
        Some(toml::Value::String(word)) if word == "always" => Cached::Always,
        Some(toml::Value::String(word)) if word == "never" => Cached::Never,
        Some(toml::Value::Integer(seconds)) if (1..=86_400).contains(seconds) => {
            Cached::After(*seconds as f64)
        }
        Some(_) => {
            return Err("`cached` is \"always\", \"never\", or a number of seconds without CPU time (1 to 86400)".to_owned());
        }
    };
    if cached == Cached::Usual && !raw.tree {
        return Err("this rule changes nothing: give it `cached` or `tree`".to_owned());
    }
    let parts = [
        ("name", raw.name.clone()),
        ("cgroup", raw.cgroup.clone()),
        ("uid", uid.map(|uid| uid.to_string())),
    ];
    let text: Vec<String> = parts
        .into_iter()
        .filter_map(|(key, value)| Some(format!("{key} {}", value?)))
        .collect();
    Ok(Rule {
        name: raw.name.as_deref().map(Glob::new),
        cgroup: raw.cgroup.as_deref().map(Glob::new),
        uid,
        cached,
        tree: raw.tree,
        text: text.join(", "),
    })
}

impl Config {
    /// The rule for an app.
    pub fn rule(&self, name: &str, cgroup: &str, uid: u32) -> Option<&Rule> {
        self.rules.iter().find(|rule| {
            let fits = |glob: &Option<Glob>, text| glob.as_ref().is_none_or(|glob| glob.fits(text));
            fits(&rule.name, name)
                && fits(&rule.cgroup, cgroup)
                && rule.uid.is_none_or(|wanted| wanted == uid)
        })
    }

    /// Whether any rule puts children into their parent's app.
    pub fn has_trees(&self) -> bool {
        self.rules.iter().any(|rule| rule.tree)
    }

    /// Whether a cgroup is one app.
    pub fn is_app(&self, cgroup: &str) -> bool {
        self.cgroups.iter().any(|glob| glob.fits(cgroup))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Result<Config, Problem> {
        parse(Path::new("/"), text)
    }

    #[test]
    fn everything_can_be_said() {
        let config = parsed(
            "policy = \"on-cached\"\nwithin = \"/apps\"\n[cached]\noom_score_adj = 900\nidle_s = 0\n\
             [params]\nmin_app_mb = 5\n[apps]\ncgroups = [\"/x/*\"]\n\
             [[rule]]\nname = \"mpv*\"\ncached = \"never\"\n\
             [[rule]]\nuser = \"root\"\ncgroup = \"*.service\"\ncached = 30\n\
             [[rule]]\nname = \"chrome\"\ntree = true\n",
        )
        .unwrap();
        assert_eq!(
            (config.mode, config.within.as_deref()),
            (Mode::OnCached, Some("/apps"))
        );
        assert_eq!(config.params.get("oom_score_adj"), Ok(900));
        assert_eq!(config.params.get("idle_s"), Ok(0));
        assert_eq!(config.params.get("min_app_mb"), Ok(5));
        assert!(config.is_app("/x/y") && !config.is_app("/docker/y"));
        assert_eq!(config.rule("mpv2", "/", 5).unwrap().cached, Cached::Never);
        assert_eq!(
            config.rule("sshd", "/ssh.service", 0).unwrap().cached,
            Cached::After(30.0)
        );
        assert!(config.rule("sshd", "/ssh.service", 7).is_none());
        assert!(config.rule("chrome", "/", 7).unwrap().tree);
        assert_eq!(config.rules[1].text, "cgroup *.service, uid 0");
    }

    #[test]
    fn nothing_wrong_is_taken() {
        for (text, said) in [
            ("polizy = 1", "unknown field"),
            ("policy = \"eager\"", "on-cached"),
            ("[params]\nnone = 1", "no parameter"),
            ("[params]\nrefault_percent = 0", "from 1 to 100"),
            ("[cached]\noom_score_adj = 0", "from 1 to 1001"),
            ("[[rule]]\ncached = \"always\"", "at least one"),
            ("[[rule]]\nname = \"x\"", "changes nothing"),
            ("[[rule]]\nname = \"x\"\ncached = \"sometimes\"", "always"),
            ("[[rule]]\nname = \"x\"\ncached = 0", "1 to 86400"),
            (
                "[[rule]]\nuser = \"nobody-of-this-name\"\ncached = 5",
                "no user",
            ),
            ("[[rule]]\nuser = \"root\"\nuid = 0\ncached = 5", "not both"),
        ] {
            let (_, problem) = parsed(text).unwrap_err();
            assert!(problem.contains(said), "{text}: {problem}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reclaim.toml");
        assert_eq!(load(dir.path(), &path).unwrap(), Config::default());
        std::fs::write(&path, "\n\n[[rule]]\nname = \"x\"\n").unwrap();
        assert_eq!(load(dir.path(), &path).unwrap_err().line, Some(3));
        assert!(load(dir.path(), dir.path()).is_err());
    }

    #[test]
    fn usual_apps_have_groups() {
        let config = Config::default();
        for app in [
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-firefox-12.scope",
            "/system.slice/docker-0123.scope",
            "/docker/0123",
        ] {
            assert!(config.is_app(app), "{app}");
        }
        for other in [
            "/",
            "/system.slice/ssh.service",
            "/user.slice/user-1000.slice/session-1.scope",
        ] {
            assert!(!config.is_app(other), "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,300}") {
            let _ = parsed(&text);
        }
    }
}
