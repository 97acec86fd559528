//! Groups as they are now, and what else decides on shares: autogroup, systemd.

use crate::config::DEFAULT_WEIGHT;
use crate::groups::{owner, weight};
use crate::process::Proc;
use kilter_api::{GroupInfo, GroupsStatus};
use kilter_kernel::{CgroupVersion, CpuTree, CpuTreeError, Kernel, name_of};
use std::path::Path;
use std::time::{Duration, Instant};

/// Clock ticks in a second (`USER_HZ`, fixed for userspace on every architecture but alpha).
const TICKS_PER_S: f64 = 100.0;

/// CPU time of a group before and after.
struct Usage {
    cpu_s: f64,
    throttled_s: f64,
    throttled: u64,
}

/// Looks at the groups twice, `interval` apart.
///
/// # Errors
/// There is no hierarchy with the cpu controller.
pub fn status(kernel: &Kernel, interval: Duration) -> Result<GroupsStatus, CpuTreeError> {
    let tree = CpuTree::find(kernel)?;
    let names = tree.groups()?;
    let proc = Proc::open(kernel).ok();
    let look = |group: &String| usage(&tree, proc.as_ref(), group);
    let begin = Instant::now();
    let before: Vec<Usage> = names.iter().map(look).collect();
    if !names.is_empty() {
        std::thread::sleep(interval);
    }
    let elapsed_s = begin.elapsed().as_secs_f64();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let groups = names.iter().zip(before).map(|(group, before)| {
        let now = look(group);
        let used_s = (now.cpu_s - before.cpu_s).max(0.0);
        GroupInfo {
            cpu_percent: 100.0 * used_s / (elapsed_s * cpus),
            throttled: now.throttled,
            throttled_s: now.throttled_s,
            ..info(kernel.root(), &tree, group)
        }
    });
    let groups = groups.collect();
    Ok(GroupsStatus {
        hierarchy: tree.mount().to_owned(),
        version: match tree.version() {
            CgroupVersion::V1 => "v1".to_owned(),
            CgroupVersion::V2 => "v2".to_owned(),
        },
        autogroup: autogroup(kernel),
        interval_s: elapsed_s,
        groups,
    })
}

fn info(root: &Path, tree: &CpuTree, group: &str) -> GroupInfo {
    let number = |file: &str| tree.read(group, file).ok()?.trim().parse::<i64>().ok();
    let (weight, max_percent, tasks) = match tree.version() {
        CgroupVersion::V1 => (
            number("cpu.shares").map(|shares| weight(shares.clamp(0, i64::from(u32::MAX)) as u32)),
            quota(number("cpu.cfs_quota_us"), number("cpu.cfs_period_us")),
            "tasks",
        ),
        CgroupVersion::V2 => {
            let text = tree.read(group, "cpu.max").unwrap_or_default();
            let mut words = text.split_whitespace().map(|word| word.parse().ok());
            let max = quota(words.next().flatten(), words.next().flatten());
            let weight = number("cpu.weight").and_then(|weight| u32::try_from(weight).ok());
            (weight, max, "cgroup.threads")
        }
    };
    let uid = owner(group);
    GroupInfo {
        group: group.to_owned(),
        uid,
        user: uid.and_then(|uid| name_of(root, uid)),
        weight: weight.unwrap_or(DEFAULT_WEIGHT),
        idle: number("cpu.idle") == Some(1),
        max_percent,
        processes: tree.processes(group).map_or(0, |pids| pids.len()),
        tasks: tree
            .read(group, tasks)
            .map_or(0, |text| text.lines().count()),
        cpu_percent: 0.0,
        throttled: 0,
        throttled_s: 0.0,
    }
}

fn quota(quota: Option<i64>, period: Option<i64>) -> Option<f64> {
    match (quota, period) {
        (Some(quota), Some(period)) if quota > 0 && period > 0 => {
            Some(100.0 * quota as f64 / period as f64)
        }
        _ => None,
    }
}

fn usage(tree: &CpuTree, proc: Option<&Proc>, group: &str) -> Usage {
    let stat = tree.read(group, "cpu.stat").unwrap_or_default();
    let field = |name: &str| -> Option<f64> {
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
    };
    // In v1 only cpuacct counts, which may be a hierarchy of its own, without kilter's groups.
    let accounted = || {
        tree.read(group, "cpuacct.usage")
            .ok()?
            .trim()
            .parse::<f64>()
            .ok()
    };
    let cpu_s = field("usage_usec")
        .map(|usec| usec / 1e6)
        .or_else(|| accounted().map(|nsec| nsec / 1e9))
        .unwrap_or_else(|| ticks(tree, proc, group) / TICKS_PER_S);
    Usage {
        cpu_s,
        throttled: field("nr_throttled").unwrap_or(0.0) as u64,
        throttled_s: field("throttled_usec")
            .map(|usec| usec / 1e6)
            .or_else(|| field("throttled_time").map(|nsec| nsec / 1e9))
            .unwrap_or(0.0),
    }
}

/// What the processes that are in the group have used. Those that ended do not count.
fn ticks(tree: &CpuTree, proc: Option<&Proc>, group: &str) -> f64 {
    let pids = tree.processes(group).unwrap_or_default();
    let of = |pid: i32| {
        proc.and_then(|proc| proc.stat(pid))
            .map_or(0, |stat| stat.ticks)
    };
    pids.into_iter().map(of).sum::<u64>() as f64
}

/// Whether the kernel gives each session a share of its own in the root group
/// (`sched_autogroup_enabled`, sched(7)).
pub fn autogroup(kernel: &Kernel) -> bool {
    let path = kernel.below("/proc/sys/kernel/sched_autogroup_enabled");
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
}

/// systemd as the first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Systemd {
    /// Its version, 0 if it could not be told.
    pub version: u32,
}

/// systemd, if it runs this machine (sd_booted(3)).
pub fn systemd(kernel: &Kernel) -> Option<Systemd> {
    if !kernel.below("/run/systemd/system").is_dir() {
        return None;
    }
    // The library that systemd itself is linked with carries its version in its name.
    let library = |dir: &&str| {
        let names = std::fs::read_dir(kernel.below(dir))
            .into_iter()
            .flatten()
            .flatten();
        names
            .filter_map(|entry| version_of(entry.file_name().to_str()?))
            .max()
    };
    let places = [
        "/usr/lib/systemd",
        "/lib/systemd",
        "/usr/lib/x86_64-linux-gnu/systemd",
        "/usr/lib/aarch64-linux-gnu/systemd",
        "/usr/lib64/systemd",
    ];
    let version = places.iter().filter_map(library).max().unwrap_or(0);
    Some(Systemd { version })
}

/// `libsystemd-shared-257.so` is of systemd 257.
fn version_of(library: &str) -> Option<u32> {
    let rest = library.strip_prefix("libsystemd-shared-")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(files: &[(&str, &str)]) -> (tempfile::TempDir, Kernel) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let kernel = Kernel::new(dir.path());
        (dir, kernel)
    }

    #[test]
    fn groups_of_v2_are_read() {
        let group = "sys/fs/cgroup/kilter-1000";
        let files = [
            (
                "proc/self/mountinfo",
                "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            ),
            ("proc/sys/kernel/sched_autogroup_enabled", "1\n"),
            ("etc/passwd", "alice:x:1000:1000::/:/bin/sh\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu\n"),
            (&format!("{group}/cpu.weight"), "300\n"),
            (&format!("{group}/cpu.max"), "150000 100000\n"),
            (&format!("{group}/cpu.idle"), "0\n"),
            (&format!("{group}/cgroup.procs"), "12\n13\n"),
            (&format!("{group}/cgroup.threads"), "12\n13\n14\n"),
            (
                &format!("{group}/cpu.stat"),
                "usage_usec 5000000\nnr_periods 9\nnr_throttled 4\nthrottled_usec 250000\n",
            ),
            ("sys/fs/cgroup/kilter-overflow/cpu.weight", "100\n"),
            ("sys/fs/cgroup/docker/cpu.weight", "100\n"),
        ];
        let (_dir, kernel) = kernel(&files);
        let status = status(&kernel, Duration::from_millis(1)).unwrap();
        assert!(status.autogroup);
        let [alice, overflow] = &status.groups[..] else {
            panic!("{:?}", status.groups);
        };
        assert_eq!(
            (alice.uid, alice.user.as_deref()),
            (Some(1000), Some("alice"))
        );
        assert_eq!((alice.weight, alice.max_percent), (300, Some(150.0)));
        assert_eq!((alice.processes, alice.tasks), (2, 3));
        assert_eq!((alice.throttled, alice.throttled_s), (4, 0.25));
        assert_eq!(alice.cpu_percent, 0.0);
        assert_eq!(
            (overflow.uid, overflow.group.as_str()),
            (None, "kilter-overflow")
        );
    }

    #[test]
    fn systemd_is_told_with_its_version() {
        let (_dir, without) = kernel(&[("run/x", "")]);
        assert_eq!(systemd(&without), None);
        let files = [
            ("run/systemd/system/x", ""),
            (
                "usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-257.so",
                "",
            ),
        ];
        let (_dir, with) = kernel(&files);
        assert_eq!(systemd(&with), Some(Systemd { version: 257 }));
        let (_dir, bare) = kernel(&[("run/systemd/system/x", "")]);
        assert_eq!(systemd(&bare), Some(Systemd { version: 0 }));
    }
}
