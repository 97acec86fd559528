//! On what a number was measured: machine, kernel, boot.

use crate::CpuList;
use crate::read_below;
use crate::virtualisation::virtualisation;
use kilter_api::Fingerprint;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const KIB_PER_GIB: u64 = 1 << 20;

/// Reads the fingerprint from the files below `root` (`/` for this machine). What cannot be read
/// is `unknown`, 0 or `none`, so that a fingerprint exists on every machine.
#[must_use]
pub fn fingerprint(root: &Path) -> Fingerprint {
    let cpuinfo = read_below(root, "proc/cpuinfo").unwrap_or_default();
    let mut print = Fingerprint {
        id: String::new(),
        kernel: line(root, "proc/sys/kernel/osrelease").unwrap_or_else(unknown),
        arch: arch(root),
        os: os_name(root).unwrap_or_else(unknown),
        cpu: cpu_model(root, &cpuinfo),
        cpus: cpus(root, &cpuinfo),
        memory_kib: memory_kib(root).unwrap_or(0),
        cgroup: cgroup(root).to_owned(),
        virtualisation: virtualisation(root, &cpuinfo),
        cpufreq: cpufreq(root),
        sched_ext: sched_ext(root),
        boot_id: line(root, "proc/sys/kernel/random/boot_id").unwrap_or_default(),
    };
    print.id = identity(&print);
    print
}

/// The identity that the same machine has under another kernel release: tells a result of another
/// kernel from one of another machine.
#[must_use]
pub fn identity_under(print: &Fingerprint, kernel: &str) -> String {
    identity(&Fingerprint {
        kernel: kernel.to_owned(),
        ..print.clone()
    })
}

/// What makes results comparable, hashed to 12 hexadecimal digits. Memory counts in whole GiB:
/// `MemTotal` changes by some KiB from boot to boot.
fn identity(print: &Fingerprint) -> String {
    let gib = (print.memory_kib + KIB_PER_GIB / 2) / KIB_PER_GIB;
    let (cpus, gib) = (print.cpus.to_string(), gib.to_string());
    let parts = [
        &print.kernel,
        &print.arch,
        &print.cpu,
        &cpus,
        &gib,
        &print.virtualisation,
    ];
    let mut hash = FNV_OFFSET;
    for part in parts {
        // The separator keeps ("ab", "c") and ("a", "bc") apart.
        for byte in part.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
    }
    format!("{:012x}", (hash >> 48) ^ (hash & 0xFFFF_FFFF_FFFF))
}

// FNV-1a, 64 bits: the same in every version of kilter, unlike the standard hasher.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

fn unknown() -> String {
    "unknown".to_owned()
}

/// The first line of a file, without the space around it; nothing if it is empty.
fn line(root: &Path, path: &str) -> Option<String> {
    let text = read_below(root, path)?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// The kernel tells its architecture in a file since 6.1.
fn arch(root: &Path) -> String {
    let asked = || {
        rustix::system::uname()
            .machine()
            .to_string_lossy()
            .into_owned()
    };
    line(root, "proc/sys/kernel/arch").unwrap_or_else(asked)
}

fn os_name(root: &Path) -> Option<String> {
    let text =
        read_below(root, "etc/os-release").or_else(|| read_below(root, "usr/lib/os-release"))?;
    let value = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("PRETTY_NAME="))?
        .trim();
    let unquoted = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    let name = unquoted('"').or_else(|| unquoted('\'')).unwrap_or(value);
    (!name.is_empty()).then(|| name.to_owned())
}

/// x86 and many others name the model; ARM gives numbers, and two kinds of cores may be mixed.
fn cpu_model(root: &Path, cpuinfo: &str) -> String {
    let named = [
        "model name",
        "cpu model",
        "uarch",
        "cpu",
        "Processor",
        "processor 0",
    ];
    let name = named
        .into_iter()
        .find_map(|key| values(cpuinfo, key).next());
    let arm = || {
        let implementer = values(cpuinfo, "CPU implementer").next()?;
        let parts: BTreeSet<_> = values(cpuinfo, "CPU part").collect();
        let parts: Vec<_> = parts.into_iter().collect();
        Some(format!(
            "ARM implementer {implementer} part {}",
            parts.join("+")
        ))
    };
    let board = || read_below(root, "proc/device-tree/model");
    let model = name
        .map(str::to_owned)
        .or_else(arm)
        .or_else(board)
        .unwrap_or_else(unknown);
    let words: Vec<_> = model
        .split(|c: char| c.is_whitespace() || c == '\0')
        .collect();
    words
        .into_iter()
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The non-empty values of `key` in lines `key : value`.
pub(crate) fn values<'a>(cpuinfo: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    let pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let matching = pairs.filter(move |(name, _)| name.trim() == key);
    matching
        .map(|(_, value)| value.trim())
        .filter(|value| !value.is_empty())
}

fn cpus(root: &Path, cpuinfo: &str) -> u32 {
    let listed = CpuList::online(root).map(|list| list.count());
    let counted = || {
        cpuinfo
            .lines()
            .filter(|line| line.starts_with("processor"))
            .count()
    };
    u32::try_from(listed.unwrap_or_else(counted)).unwrap_or(u32::MAX)
}

fn memory_kib(root: &Path) -> Option<u64> {
    let text = read_below(root, "proc/meminfo")?;
    let total = values(&text, "MemTotal").next()?;
    total.strip_suffix("kB")?.trim().parse().ok()
}

/// By the mounted hierarchies: `hybrid` where controllers of version 1 and the unified tree are
/// both mounted (systemd's transitional layout).
fn cgroup(root: &Path) -> &'static str {
    let mounts = read_below(root, "proc/mounts").unwrap_or_default();
    let mounted = |kind| {
        mounts
            .lines()
            .any(|line| line.split(' ').nth(2) == Some(kind))
    };
    match (mounted("cgroup"), mounted("cgroup2")) {
        (true, true) => "hybrid",
        (true, false) => "v1",
        (false, true) => "v2",
        (false, false) => "none",
    }
}

/// Drivers and governors in use, `intel_pstate/powersave`, each with its number of policies where
/// they differ.
fn cpufreq(root: &Path) -> String {
    let folder = "sys/devices/system/cpu/cpufreq";
    let entries = fs::read_dir(root.join(folder))
        .into_iter()
        .flatten()
        .flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut used = BTreeMap::<String, usize>::new();
    for policy in names.filter(|name| name.starts_with("policy")) {
        let read =
            |file: &str| line(root, &format!("{folder}/{policy}/{file}")).unwrap_or_else(unknown);
        let pair = format!("{}/{}", read("scaling_driver"), read("scaling_governor"));
        *used.entry(pair).or_default() += 1;
    }
    match used.len() {
        0 => "none".to_owned(),
        1 => used.into_keys().collect(),
        _ => {
            let counted = used
                .iter()
                .map(|(pair, policies)| format!("{pair} x{policies}"));
            counted.collect::<Vec<_>>().join(", ")
        }
    }
}

fn sched_ext(root: &Path) -> String {
    match line(root, "sys/kernel/sched_ext/state").as_deref() {
        Some("enabled") => {
            let name = line(root, "sys/kernel/sched_ext/root/ops").unwrap_or_else(unknown);
            format!("enabled {name}")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtualisation::tests::tree;

    const X86: &str = "processor\t: 0\nmodel name\t: Intel(R) Core(TM) i7-8650U  CPU @ 1.90GHz\n\
                       flags\t\t: fpu sse2\n\nprocessor\t: 1\nmodel name\t: Intel(R) Core(TM)\n";

    fn laptop() -> tempfile::TempDir {
        tree(&[
            ("proc/cpuinfo", X86),
            (
                "proc/meminfo",
                "MemTotal:       16255840 kB\nMemFree:         1 kB\n",
            ),
            ("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"),
            ("proc/sys/kernel/osrelease", "6.12.107-amd64\n"),
            ("proc/sys/kernel/arch", "x86_64\n"),
            (
                "proc/sys/kernel/random/boot_id",
                "6a1c3d3e-0000-4000-8000-000000000001\n",
            ),
            (
                "etc/os-release",
                "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
            ),
            ("sys/devices/system/cpu/online", "0-7\n"),
            (
                "sys/devices/system/cpu/cpufreq/policy0/scaling_driver",
                "intel_pstate\n",
            ),
            (
                "sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
                "powersave\n",
            ),
            (
                "sys/devices/system/cpu/cpufreq/policy1/scaling_driver",
                "intel_pstate\n",
            ),
            (
                "sys/devices/system/cpu/cpufreq/policy1/scaling_governor",
                "powersave\n",
            ),
            ("sys/kernel/sched_ext/state", "enabled\n"),
            ("sys/kernel/sched_ext/root/ops", "hrrn\n"),
        ])
    }

    #[test]
    fn another_kernel_is_no_other_machine() {
        let root = laptop();
        let print = fingerprint(root.path());
        assert_eq!(identity_under(&print, &print.kernel), print.id);
        std::fs::write(root.path().join("proc/sys/kernel/osrelease"), "6.18.0\n").unwrap();
        let updated = fingerprint(root.path());
        assert_ne!(updated.id, print.id);
        assert_eq!(identity_under(&print, "6.18.0"), updated.id);
        std::fs::write(root.path().join("proc/meminfo"), "MemTotal: 8255840 kB\n").unwrap();
        assert_ne!(
            identity_under(&print, "6.18.0"),
            fingerprint(root.path()).id
        );
    }

    #[test]
    fn a_laptop() {
        let root = laptop();
        let print = fingerprint(root.path());
        let expected = Fingerprint {
            id: print.id.clone(),
            kernel: "6.12.107-amd64".into(),
            arch: "x86_64".into(),
            os: "Debian GNU/Linux 12 (bookworm)".into(),
            cpu: "Intel(R) Core(TM) i7-8650U CPU @ 1.90GHz".into(),
            cpus: 8,
            memory_kib: 16_255_840,
            cgroup: "v2".into(),
            virtualisation: "none".into(),
            cpufreq: "intel_pstate/powersave".into(),
            sched_ext: "enabled hrrn".into(),
            boot_id: "6a1c3d3e-0000-4000-8000-000000000001".into(),
        };
        assert_eq!(print, expected);
        // Written down so that evidence gathered by one version is found by the next.
        assert_eq!(print.id, "1136e62fd98f");
    }

    #[test]
    fn the_id_ignores_what_changes_by_itself_and_nothing_else() {
        let base = fingerprint(laptop().path());
        let id_with = |path: &str, text: &str| {
            let root = laptop();
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            fingerprint(root.path()).id
        };
        assert_eq!(id_with("proc/meminfo", "MemTotal: 16255212 kB\n"), base.id);
        assert_eq!(
            id_with("proc/sys/kernel/random/boot_id", "other\n"),
            base.id
        );
        assert_eq!(id_with("sys/kernel/sched_ext/state", "disabled\n"), base.id);
        assert_ne!(id_with("proc/meminfo", "MemTotal: 32255840 kB\n"), base.id);
        assert_ne!(
            id_with("proc/sys/kernel/osrelease", "6.12.108-amd64\n"),
            base.id
        );
        assert_ne!(id_with("proc/sys/kernel/arch", "aarch64\n"), base.id);
        assert_ne!(id_with("sys/devices/system/cpu/online", "0-3\n"), base.id);
        assert_ne!(id_with("proc/cpuinfo", "model name : other\n"), base.id);
        assert_ne!(id_with(".dockerenv", ""), base.id);
    }

    #[test]
    fn arm_has_numbers_and_mixed_cores() {
        let cpuinfo = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd03\n\n\
                       processor\t: 1\nCPU implementer\t: 0x41\nCPU part\t: 0xd09\n";
        let root = tree(&[("proc/cpuinfo", cpuinfo)]);
        let print = fingerprint(root.path());
        assert_eq!(print.cpu, "ARM implementer 0x41 part 0xd03+0xd09");
        assert_eq!(print.cpus, 2);
    }

    #[test]
    fn a_board_that_names_only_itself() {
        let root = tree(&[("proc/device-tree/model", "StarFive VisionFive 2\0")]);
        assert_eq!(fingerprint(root.path()).cpu, "StarFive VisionFive 2");
    }

    #[test]
    fn cgroup_layouts() {
        let layout = |mounts: &str| cgroup(tree(&[("proc/mounts", mounts)]).path());
        let v1 = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n";
        let v2 = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(layout(v1), "v1");
        assert_eq!(layout(v2), "v2");
        assert_eq!(layout(&format!("{v1}{v2}")), "hybrid");
        assert_eq!(layout("tmpfs /cgroup2 tmpfs rw 0 0\n"), "none");
    }

    #[test]
    fn policies_that_differ_are_counted() {
        let root = tree(&[
            (
                "sys/devices/system/cpu/cpufreq/policy0/scaling_driver",
                "cppc\n",
            ),
            (
                "sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
                "schedutil\n",
            ),
            (
                "sys/devices/system/cpu/cpufreq/policy4/scaling_driver",
                "cppc\n",
            ),
            (
                "sys/devices/system/cpu/cpufreq/policy4/scaling_governor",
                "performance\n",
            ),
            ("sys/devices/system/cpu/cpufreq/boost", "1\n"),
        ]);
        assert_eq!(
            cpufreq(root.path()),
            "cppc/performance x1, cppc/schedutil x1"
        );
    }

    #[test]
    fn an_empty_root_still_has_a_fingerprint() {
        let root = tree(&[]);
        let print = fingerprint(root.path());
        assert_eq!(
            (print.kernel.as_str(), print.cpu.as_str()),
            ("unknown", "unknown")
        );
        assert_eq!(
            (print.cgroup.as_str(), print.cpufreq.as_str()),
            ("none", "none")
        );
        assert_eq!((print.cpus, print.memory_kib), (0, 0));
        assert_eq!(print.id.len(), 12);
    }

    #[test]
    fn this_machine_says_the_same_twice() {
        let print = fingerprint(Path::new("/"));
        assert_eq!(print, fingerprint(Path::new("/")));
        assert!(print.cpus >= 1 && print.memory_kib > 0, "{print:?}");
        assert_ne!(print.kernel, "unknown");
    }
}
