//! Which CPUs there can be, and which share a last-level cache.

use std::fs;

const CPUS: &str = "/sys/devices/system/cpu";

/// The number above that of every possible CPU.
pub(crate) fn cpus() -> usize {
    let possible = fs::read_to_string(format!("{CPUS}/possible")).unwrap_or_default();
    last(&possible).map_or(1, |last| last + 1)
}

/// For each CPU a number that those have in common which share its last-level cache. CPUs of which
/// nothing is known share one.
pub(crate) fn caches(cpus: usize) -> Vec<u32> {
    (0..cpus).map(|cpu| cache_of(cpu).unwrap_or(0)).collect()
}

fn cache_of(cpu: usize) -> Option<u32> {
    let dir = format!("{CPUS}/cpu{cpu}/cache");
    let read = |index: &str, file: &str| fs::read_to_string(format!("{dir}/{index}/{file}")).ok();
    let indices = fs::read_dir(&dir).ok()?.flatten();
    let largest = indices
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter_map(|index| {
            let level: u32 = read(&index, "level")?.trim().parse().ok()?;
            Some((level, index))
        })
        .max()?;
    first(&read(&largest.1, "shared_cpu_list")?)
}

/// The first number of a list such as `0-3,8`.
fn first(list: &str) -> Option<u32> {
    list.trim().split([',', '-']).next()?.parse().ok()
}

/// The last number of a list such as `0-3,8`.
fn last(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_ends() {
        for (list, wanted) in [("0-3,8\n", (0, 8)), ("5\n", (5, 5)), ("2,4-7", (2, 7))] {
            assert_eq!(first(list).zip(last(list)), Some(wanted), "{list}");
        }
        assert_eq!((first(""), last("")), (None, None));
    }

    #[test]
    fn this_machine_has_cpus() {
        let cpus = cpus();
        assert!(cpus >= 1);
        assert_eq!(caches(cpus).len(), cpus);
    }
}
