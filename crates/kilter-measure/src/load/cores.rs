//! Kinds of cores: little and big ones, where a machine has such.

use crate::CpuList;
use std::path::Path;

/// On which cores a load runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cores {
    /// Wherever the kernel puts it.
    #[default]
    Any,
    /// Those with the least capacity; all where they are alike.
    Little,
    /// Those with the most capacity; all where they are alike.
    Big,
}

/// How strong each CPU is, by the kernel's `cpu_capacity`, else by its highest frequency; nothing
/// where neither is told.
fn capacities(root: &Path, cpus: &CpuList) -> Option<Vec<(u32, u64)>> {
    let number = |cpu: u32, file: &str| {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/{file}");
        crate::read_below(root, &path)?.trim().parse::<u64>().ok()
    };
    let all = |file: &str| {
        let each = cpus.iter().map(|cpu| Some((cpu, number(cpu, file)?)));
        each.collect::<Option<Vec<_>>>()
    };
    all("cpu_capacity").or_else(|| all("cpufreq/cpuinfo_max_freq"))
}

/// The CPUs of a kind below a root, in the kernel's list format, and whether the machine has more
/// than one kind; none where nothing has to be pinned.
pub(super) fn cpus_of(root: &Path, kind: Cores) -> Option<(CpuList, bool)> {
    let online = CpuList::online(root)?;
    if kind == Cores::Any {
        return None;
    }
    let Some(capacities) = capacities(root, &online) else {
        return Some((online, false));
    };
    let numbers = || capacities.iter().map(|(_, capacity)| *capacity);
    let (least, most) = (numbers().min()?, numbers().max()?);
    let wanted = match kind {
        Cores::Little => least,
        Cores::Big | Cores::Any => most,
    };
    let chosen: Vec<String> = capacities
        .iter()
        .filter(|(_, capacity)| *capacity == wanted)
        .map(|(cpu, _)| cpu.to_string())
        .collect();
    Some((chosen.join(",").parse().ok()?, least != most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart_by_capacity_or_by_clock() {
        let root = tempfile::tempdir().unwrap();
        let cpu = root.path().join("sys/devices/system/cpu");
        let put = |file: &str, text: &str| {
            let path = cpu.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("online", "0-3\n");
        let of = |kind| cpus_of(root.path(), kind).map(|(cpus, two)| (cpus.to_string(), two));
        assert_eq!(of(Cores::Any), None);
        assert_eq!(of(Cores::Big), Some(("0-3".to_owned(), false)));
        for (number, clock) in ["1800000", "1800000", "2800000", "2800000"]
            .iter()
            .enumerate()
        {
            put(&format!("cpu{number}/cpufreq/cpuinfo_max_freq"), clock);
        }
        assert_eq!(of(Cores::Little), Some(("0-1".to_owned(), true)));
        for (number, capacity) in ["512", "512", "512", "1024"].iter().enumerate() {
            put(&format!("cpu{number}/cpu_capacity"), capacity);
        }
        assert_eq!(of(Cores::Little), Some(("0-2".to_owned(), true)));
        assert_eq!(of(Cores::Big), Some(("3".to_owned(), true)));
    }
}
