//! Whether this is a virtual machine, a container, or both.
//!
//! Files only, so that another machine's tree can be looked at: what containers leave at known
//! places, then the firmware's names, then what the kernel has noticed of its hypervisor.

use crate::fingerprint::values;
use crate::read_below;
use std::path::Path;

/// Names that the firmware shows (DMI), and the hypervisor behind them. The first match counts.
const FIRMWARE: [(&str, &str); 15] = [
    ("Google Compute Engine", "google"),
    ("Amazon EC2", "amazon"),
    ("KVM", "kvm"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "virtualbox"),
    ("VirtualBox", "virtualbox"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "hyper-v"),
    ("Apple Virtualization", "apple"),
    ("OpenStack", "kvm"),
];

/// DMI files that carry them.
const DMI: [&str; 4] = ["product_name", "sys_vendor", "board_vendor", "bios_vendor"];

/// Kernel clock sources that only guests have.
const CLOCKS: [(&str, &str); 4] = [
    ("kvm-clock", "kvm"),
    ("hyperv", "hyper-v"),
    ("xen", "xen"),
    ("vmware", "vmware"),
];

/// `none`; the container's kind; the hypervisor's; or `docker on kvm` where both are there.
pub(crate) fn virtualisation(root: &Path, cpuinfo: &str) -> String {
    match (container(root), hypervisor(root, cpuinfo)) {
        (Some(container), Some(hypervisor)) => format!("{container} on {hypervisor}"),
        (Some(kind), None) | (None, Some(kind)) => kind,
        (None, None) => "none".to_owned(),
    }
}

fn container(root: &Path) -> Option<String> {
    let noted = || {
        let text = read_below(root, "run/systemd/container")?;
        Some(text.trim().to_owned()).filter(|kind| !kind.is_empty())
    };
    let by_init = || {
        let variables = read_below(root, "proc/1/environ")?;
        let kind = variables
            .split('\0')
            .find_map(|entry| entry.strip_prefix("container="))?;
        Some(kind.to_owned()).filter(|kind| !kind.is_empty())
    };
    let exists = |path: &str, kind: &str| root.join(path).exists().then(|| kind.to_owned());
    noted()
        .or_else(by_init)
        .or_else(|| exists(".dockerenv", "docker"))
        .or_else(|| exists("run/.containerenv", "podman"))
        // Only inside an OpenVZ container is the first there without the second.
        .or_else(|| exists("proc/vz", "openvz").filter(|_| !root.join("proc/bc").exists()))
        .or_else(|| wsl(root))
}

fn wsl(root: &Path) -> Option<String> {
    let release = read_below(root, "proc/sys/kernel/osrelease")?;
    (release.contains("Microsoft") || release.contains("WSL")).then(|| "wsl".to_owned())
}

fn hypervisor(root: &Path, cpuinfo: &str) -> Option<String> {
    let found = by_firmware(root, cpuinfo)
        .or_else(|| by_xen(root))
        .or_else(|| by_device_tree(root))
        .or_else(|| by_clock(root))
        .map(str::to_owned);
    // All that the processor tells is that there is one.
    found.or_else(|| has_flag(cpuinfo).then(|| "vm".to_owned()))
}

fn by_firmware(root: &Path, cpuinfo: &str) -> Option<&'static str> {
    let read = |file: &&str| read_below(root, &format!("sys/class/dmi/id/{file}"));
    let names: Vec<_> = DMI.iter().filter_map(read).collect();
    let any = |start: &str| names.iter().any(|name| name.starts_with(start));
    let known = FIRMWARE
        .into_iter()
        .find(|(start, _)| any(start))
        .map(|(_, kind)| kind);
    // Microsoft is a vendor of laptops, too.
    let hyper_v = any("Virtual Machine") && any("Microsoft Corporation");
    known
        .or(hyper_v.then_some("hyper-v"))
        .filter(|kind| !is_rented_hardware(kind, &names, cpuinfo))
}

/// Clouds put the same names on machines that they rent out whole. Those show no hypervisor flag
/// (x86), or have `.metal` in the product's name.
fn is_rented_hardware(kind: &str, names: &[String], cpuinfo: &str) -> bool {
    let x86 = values(cpuinfo, "flags").next().is_some();
    let metal = names.iter().any(|name| name.contains(".metal"));
    matches!(kind, "amazon" | "google") && (metal || (x86 && !has_flag(cpuinfo)))
}

/// The first domain (dom0) owns the hardware, and is told apart by its capabilities.
fn by_xen(root: &Path) -> Option<&'static str> {
    let xen = read_below(root, "sys/hypervisor/type")?.trim() == "xen";
    let first =
        read_below(root, "proc/xen/capabilities").is_some_and(|text| text.contains("control_d"));
    xen.then_some(if first { "xen-dom0" } else { "xen" })
}

fn by_device_tree(root: &Path) -> Option<&'static str> {
    let compatible = read_below(root, "proc/device-tree/hypervisor/compatible")?;
    Some(match compatible.trim_end_matches('\0') {
        "linux,kvm" => "kvm",
        name if name.contains("xen") => "xen",
        name if name.contains("vmware") => "vmware",
        _ => "vm",
    })
}

fn by_clock(root: &Path) -> Option<&'static str> {
    let clocks = "sys/devices/system/clocksource/clocksource0/available_clocksource";
    let clocks = read_below(root, clocks)?;
    let known = CLOCKS.into_iter().find(|(clock, _)| {
        clocks
            .split_ascii_whitespace()
            .any(|name| name.starts_with(clock))
    });
    known.map(|(_, kind)| kind)
}

fn has_flag(cpuinfo: &str) -> bool {
    values(cpuinfo, "flags").any(|flags| flags.split(' ').any(|flag| flag == "hypervisor"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs;

    /// A directory with these files.
    pub(crate) fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn kind_of(files: &[(&str, &str)]) -> String {
        let root = tree(files);
        let cpuinfo = read_below(root.path(), "proc/cpuinfo").unwrap_or_default();
        virtualisation(root.path(), &cpuinfo)
    }

    #[test]
    fn hardware_and_its_look_alikes() {
        assert_eq!(kind_of(&[]), "none");
        assert_eq!(
            kind_of(&[("sys/class/dmi/id/sys_vendor", "LENOVO\n")]),
            "none"
        );
        let surface = [
            ("sys/class/dmi/id/sys_vendor", "Microsoft Corporation\n"),
            ("sys/class/dmi/id/product_name", "Surface Laptop 4\n"),
        ];
        assert_eq!(kind_of(&surface), "none");
        let metal = [
            ("sys/class/dmi/id/sys_vendor", "Amazon EC2\n"),
            ("sys/class/dmi/id/product_name", "c5.metal\n"),
        ];
        assert_eq!(kind_of(&metal), "none");
        let whole = ("sys/class/dmi/id/sys_vendor", "Google Compute Engine\n");
        assert_eq!(
            kind_of(&[whole, ("proc/cpuinfo", "flags : fpu sse2\n")]),
            "none"
        );
        assert_eq!(
            kind_of(&[whole, ("proc/cpuinfo", "flags : fpu hypervisor\n")]),
            "google"
        );
    }

    #[test]
    fn virtual_machines() {
        let vendor = |name| kind_of(&[("sys/class/dmi/id/sys_vendor", name)]);
        assert_eq!(vendor("QEMU\n"), "qemu");
        assert_eq!(vendor("Amazon EC2\n"), "amazon");
        assert_eq!(vendor("VMware, Inc.\n"), "vmware");
        let hyper_v = [
            ("sys/class/dmi/id/sys_vendor", "Microsoft Corporation\n"),
            ("sys/class/dmi/id/product_name", "Virtual Machine\n"),
        ];
        assert_eq!(kind_of(&hyper_v), "hyper-v");
        let clocks = "sys/devices/system/clocksource/clocksource0/available_clocksource";
        assert_eq!(kind_of(&[(clocks, "kvm-clock tsc acpi_pm\n")]), "kvm");
        assert_eq!(kind_of(&[(clocks, "tsc hpet\n")]), "none");
        assert_eq!(
            kind_of(&[("proc/cpuinfo", "flags : fpu hypervisor lahf_lm\n")]),
            "vm"
        );
        assert_eq!(
            kind_of(&[("proc/cpuinfo", "flags : fpu hypervisors\n")]),
            "none"
        );
        assert_eq!(
            kind_of(&[("proc/device-tree/hypervisor/compatible", "linux,kvm\0")]),
            "kvm"
        );
        assert_eq!(kind_of(&[("sys/hypervisor/type", "xen\n")]), "xen");
        let first = [
            ("sys/hypervisor/type", "xen\n"),
            ("proc/xen/capabilities", "control_d\n"),
        ];
        assert_eq!(kind_of(&first), "xen-dom0");
    }

    #[test]
    fn containers() {
        assert_eq!(
            kind_of(&[("run/systemd/container", "systemd-nspawn\n")]),
            "systemd-nspawn"
        );
        assert_eq!(
            kind_of(&[("proc/1/environ", "PATH=/bin\0container=lxc\0TERM=x\0")]),
            "lxc"
        );
        assert_eq!(kind_of(&[("proc/1/environ", "container=\0")]), "none");
        assert_eq!(kind_of(&[(".dockerenv", "")]), "docker");
        assert_eq!(kind_of(&[("run/.containerenv", "")]), "podman");
        assert_eq!(kind_of(&[("proc/vz/x", ""), ("proc/bc/x", "")]), "none");
        let wsl = (
            "proc/sys/kernel/osrelease",
            "5.15.90.1-microsoft-standard-WSL2\n",
        );
        assert_eq!(kind_of(&[wsl]), "wsl");
    }

    #[test]
    fn a_container_in_a_virtual_machine() {
        let both = [
            (".dockerenv", ""),
            ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
        ];
        assert_eq!(kind_of(&both), "docker on qemu");
    }
}
