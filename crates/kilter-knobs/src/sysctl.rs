//! Files of `sysctl.d(5)`: what they ask for, by its rules.
//!
//! A key's first separator decides how it is read: after a dot, dots and slashes change places; after
//! a slash the key is a path already. `-` before a key means that a failure is of no account, and a key
//! alone with `-` keeps globs away from it. A setting by name wins over any glob, wherever it stands.

use crate::files::FileProblem;
use std::path::{Path, PathBuf};
use wildmatch::WildMatch;

/// The directories, those that win first.
const DIRS: [&str; 4] = [
    "etc/sysctl.d",
    "run/sysctl.d",
    "usr/local/lib/sysctl.d",
    "usr/lib/sysctl.d",
];

/// One line that asks for something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysctlLine {
    /// The file below `/proc/sys`, or a glob over such.
    pub path: String,
    /// The value; none for a line that keeps globs away.
    pub value: Option<String>,
    /// Whether a failure is of no account.
    pub optional: bool,
    /// Its number in the file, from 1.
    pub line: usize,
    /// The file it stands in.
    pub file: PathBuf,
}

/// A line that is none of this format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Its number in the file, from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
}

/// The lines of a text.
pub fn parse_sysctl(file: &Path, text: &str) -> (Vec<SysctlLine>, Vec<BadLine>) {
    let (mut lines, mut bad) = (Vec::new(), Vec::new());
    for (number, raw) in text.lines().enumerate() {
        let (line, number) = (raw.trim(), number + 1);
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let (optional, rest) = match line.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (key, value) = match rest.split_once('=') {
            Some((key, value)) => (key.trim(), Some(value.trim().to_owned())),
            None => (rest.trim(), None),
        };
        match path_of(key) {
            Some(path) if value.is_some() || optional => lines.push(SysctlLine {
                path,
                value,
                optional,
                line: number,
                file: file.to_owned(),
            }),
            Some(_) => bad.push(BadLine {
                line: number,
                problem: format!("`{line}` is not KEY = VALUE"),
            }),
            None => bad.push(BadLine {
                line: number,
                problem: format!("`{key}` is no name of a sysctl"),
            }),
        }
    }
    (lines, bad)
}

fn path_of(key: &str) -> Option<String> {
    let dotted = key
        .find(['.', '/'])
        .is_some_and(|at| key.as_bytes()[at] == b'.');
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        c => c,
    };
    let path: String = match dotted {
        true => key.chars().map(swap).collect(),
        false => key.trim_start_matches('/').to_owned(),
    };
    let path = path.strip_prefix("proc/sys/").unwrap_or(&path);
    let plain = |part: &str| !matches!(part, "" | "." | "..");
    let good =
        path.split('/').all(plain) && !path.contains(|c: char| c.is_whitespace() || c == '\0');
    good.then(|| format!("/proc/sys/{path}"))
}

/// Whether a line's path, perhaps a glob, stands for a file. A star does not cross a `/`.
pub fn sysctl_matches(pattern: &str, file: &str) -> bool {
    let (pattern, file): (Vec<&str>, Vec<&str>) =
        (pattern.split('/').collect(), file.split('/').collect());
    pattern.len() == file.len()
        && pattern
            .iter()
            .zip(&file)
            .all(|(pattern, part)| WildMatch::new(pattern).matches(part))
}

/// The line that decides a file's value: the last that names it, else the last glob that is not kept
/// away from it.
pub fn deciding_line<'a>(lines: &'a [SysctlLine], file: &str) -> Option<&'a SysctlLine> {
    let named = lines.iter().rev().find(|line| line.path == file);
    match named {
        Some(line) if line.value.is_none() => None,
        Some(line) => Some(line),
        None => lines
            .iter()
            .rev()
            .filter(|line| line.value.is_some())
            .find(|line| sysctl_matches(&line.path, file)),
    }
}

/// All lines that systemd-sysctl would apply below a root, in its order: by the files' names, and of
/// files with one name only that of the first directory. `/etc/sysctl.conf`, which procps reads last,
/// comes at the end.
pub fn system_sysctls(root: &Path) -> Vec<SysctlLine> {
    files_of(root, &DIRS, "conf")
        .into_iter()
        .chain([root.join("etc/sysctl.conf")])
        .filter_map(|file| {
            let text = read(&file).ok()?;
            let shown = Path::new("/").join(file.strip_prefix(root).unwrap_or(&file));
            Some(parse_sysctl(&shown, &text).0)
        })
        .flatten()
        .collect()
}

/// Files with an ending in directories of which earlier ones mask later ones, by name.
pub fn files_of(root: &Path, dirs: &[&str], ending: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for dir in dirs {
        let entries = std::fs::read_dir(root.join(dir)).into_iter().flatten();
        for path in entries.flatten().map(|entry| entry.path()) {
            let masked = found
                .iter()
                .any(|known| known.file_name() == path.file_name());
            if !masked && path.extension().is_some_and(|have| have == ending) {
                found.push(path);
            }
        }
    }
    found.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    found
}

/// A configuration file's text: a plain file of at most 1 MiB.
pub fn read(path: &Path) -> Result<String, FileProblem> {
    crate::files::read_text(path)?.ok_or_else(|| FileProblem::new(path, "there is no such file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<SysctlLine> {
        parse_sysctl(Path::new("x.conf"), text).0
    }

    #[test]
    fn keys_are_read_by_their_first_separator() {
        for (key, path) in [
            ("vm.swappiness", "/proc/sys/vm/swappiness"),
            ("vm/swappiness", "/proc/sys/vm/swappiness"),
            (
                "net.ipv4.conf.eth0/1.rp_filter",
                "/proc/sys/net/ipv4/conf/eth0.1/rp_filter",
            ),
            (
                "net/ipv4/conf/eth0.1/rp_filter",
                "/proc/sys/net/ipv4/conf/eth0.1/rp_filter",
            ),
            ("/proc/sys/vm/swappiness", "/proc/sys/vm/swappiness"),
        ] {
            assert_eq!(path_of(key).as_deref(), Some(path), "{key}");
        }
        for bad in ["", "vm..x", "../etc/passwd", "vm/../../x", "a b"] {
            assert_eq!(path_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_win_over_globs_and_exclusions_stop_them() {
        let found = lines(
            "net.ipv4.conf.*.rp_filter = 2\nnet.ipv4.conf.all.rp_filter = 1\n-net.ipv4.conf.lo.rp_filter\n\
             net.ipv4.conf.*.rp_filter = 0\n# comment\n; comment\n-vm.none = 3\n",
        );
        let value = |dev: &str| {
            let file = format!("/proc/sys/net/ipv4/conf/{dev}/rp_filter");
            deciding_line(&found, &file).and_then(|line| line.value.clone())
        };
        assert_eq!(value("all").as_deref(), Some("1"));
        assert_eq!(value("lo"), None);
        assert_eq!(value("eth0").as_deref(), Some("0"));
        assert!(
            found
                .iter()
                .any(|line| line.optional && line.value.is_some())
        );
    }

    #[test]
    fn bad_lines_are_told_by_their_numbers() {
        let (good, bad) = parse_sysctl(Path::new("x"), "vm.swappiness = 1\nnonsense\n = 3\n");
        assert_eq!(good.len(), 1);
        assert_eq!(bad.iter().map(|bad| bad.line).collect::<Vec<_>>(), [2, 3]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in "\\PC*") {
            for line in lines(&text) {
                proptest::prop_assert!(line.path.starts_with("/proc/sys/"));
                proptest::prop_assert!(!line.path.contains("/../"));
            }
        }
    }
}
