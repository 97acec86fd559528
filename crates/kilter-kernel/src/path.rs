//! Paths that kilter may open: absolute, plain, and inside the trees that hold settings.

use std::fmt;

/// Trees whose files may be opened, writing included. A path lies in exactly one of them.
const TREES: [&str; 6] = [
    "/proc/sys",
    "/sys",
    crate::holder::TREE,
    SCHEDULERS,
    RECLAIM,
    STUNE,
];

/// Where Android kernels up to 4.19 mount their schedtune cgroups.
pub(crate) const STUNE: &str = "/dev/stune";

/// Where a running scheduler of kilter keeps its parameters: one directory a scheduler, one file a
/// parameter. This and the next are the listed exceptions to kernel files.
pub(crate) const SCHEDULERS: &str = "/run/kilter/sched";

/// Where the running daemon of reclaim keeps its parameters, one file each.
pub(crate) const RECLAIM: &str = "/run/kilter/reclaim";

/// A checked path of a kernel file, as the kernel names it (without the injected root).
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct KernelPath(String);

/// A path that is not a kernel setting's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` is not a path of a kernel setting: {problem}")]
pub struct PathError {
    path: String,
    problem: &'static str,
}

impl KernelPath {
    /// Checks that the path is absolute, has only plain components and lies in a known tree.
    pub fn new(path: impl Into<String>) -> Result<Self, PathError> {
        let path = path.into();
        let problem = if path.contains('\0') || path.contains('\n') {
            Some("it holds a control character")
        } else if path
            .split('/')
            .skip(1)
            .any(|part| matches!(part, "" | "." | ".."))
        {
            Some("each part must be a plain name")
        } else if tree_of(&path).is_none() {
            Some(
                "it must lie below /proc/sys, /sys, /dev/stune, /run/kilter/sched or /run/kilter/reclaim",
            )
        } else {
            None
        };
        match problem {
            Some(problem) => Err(PathError { path, problem }),
            None => Ok(KernelPath(path)),
        }
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tree (`/proc/sys`, `/sys`, that of the holders or of schedulers) and the rest below it.
    pub(crate) fn split(&self) -> (&'static str, &str) {
        let tree = tree_of(&self.0).expect("checked in new");
        (tree, &self.0[tree.len() + 1..])
    }

    /// The directory of the mechanism of kilter's whose parameter the file is; none for files of the
    /// kernel's.
    pub fn mechanism(&self) -> Option<&str> {
        let below = |tree: &str| {
            let rest = self.0.strip_prefix(tree)?;
            rest.starts_with('/').then_some(rest)
        };
        if below(RECLAIM).is_some() {
            return Some(RECLAIM);
        }
        let name = below(SCHEDULERS)?[1..].split('/').next()?;
        Some(&self.0[..SCHEDULERS.len() + 1 + name.len()])
    }

    /// Whether the file belongs to debugfs.
    pub fn in_debugfs(&self) -> bool {
        self.0.starts_with("/sys/kernel/debug/")
    }
}

fn tree_of(path: &str) -> Option<&'static str> {
    TREES.into_iter().find(|tree| {
        path.strip_prefix(tree)
            .is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
    })
}

impl TryFrom<String> for KernelPath {
    type Error = PathError;
    fn try_from(path: String) -> Result<Self, PathError> {
        KernelPath::new(path)
    }
}

impl From<KernelPath> for String {
    fn from(path: KernelPath) -> String {
        path.0
    }
}

impl fmt::Display for KernelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::KernelPath;

    #[test]
    fn only_settings_are_paths() {
        for good in [
            "/proc/sys/vm/swappiness",
            "/sys/block/vda/queue/scheduler",
            "/run/kilter/sched/hrrn/latency_us",
            "/dev/stune/top-app/schedtune.boost",
        ] {
            assert!(KernelPath::new(good).is_ok(), "{good}");
        }
        let path = |text| KernelPath::new(text).unwrap();
        let of = path("/run/kilter/sched/hrrn/latency_us");
        assert_eq!(of.mechanism(), Some("/run/kilter/sched/hrrn"));
        let of = path("/run/kilter/reclaim/idle_s");
        assert_eq!(of.mechanism(), Some("/run/kilter/reclaim"));
        assert_eq!(path("/proc/sys/vm/swappiness").mechanism(), None);
        for bad in [
            "",
            "/",
            "/sys",
            "/sys/",
            "/proc/sys",
            "/etc/passwd",
            "/proc/sysrq-trigger",
            "/proc/1/mem",
            "/run/kilter/layers/00000001",
            "/run/kilter/sched",
            "/run/kilter/reclaim",
            "/run/kilter/reclaimed/x",
            "/dev/stune",
            "/dev/mem",
            "/dev/stune/../mem",
            "/run/kilter/sched/../layers/00000001",
            "/sys/../etc/passwd",
            "/sys//block",
            "/sys/./x",
            "sys/block",
            "/sysx/y",
            "/sys/a\nb",
            "/sys/a\0",
        ] {
            assert!(KernelPath::new(bad).is_err(), "{bad}");
        }
    }
}
