//! The file system that the script sees: the system's programs read-only, everything else in memory.

use super::originals::{Original, Originals};
use super::{SandboxError, Script};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
    mount_change, mount_remount, unmount,
};
use rustix::process::{chdir, pivot_root};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Where the view is put together. It covers what lies there, in the sandbox's own namespace only.
const BASE: &str = "/tmp";

/// Where programs and their libraries are, on Linux and on Android.
const PROGRAMS: [&str; 13] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
    "/system",
    "/vendor",
    "/apex",
    "/linkerconfig",
];

/// Files of `/etc` that programs need to start.
const CONFIGURATION: [&str; 5] = [
    "ld.so.cache",
    "ld.so.conf",
    "nsswitch.conf",
    "os-release",
    "localtime",
];

/// Directories that scripts expect.
const EMPTY: [&str; 13] = [
    "data/local/tmp",
    "dev/shm",
    "etc/init.d",
    "etc/sysctl.d",
    "etc/udev/rules.d",
    "home",
    "mnt",
    "root",
    "run",
    "tmp",
    "var/log",
    "var/run",
    "var/tmp",
];

/// Devices that lead nowhere.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// Stand-ins for programs of the system, first on the script's path.
pub(super) const STAND_INS: &str = "/stand-ins";

/// Nothing waits for a boot that has ended long ago, and who is root already needs nobody's leave.
const SHIMS: [(&str, &str); 8] = [
    ("sleep", "exit 0"),
    (
        "getprop",
        r#"case $1 in sys.boot_completed|init.svc.bootanim|dev.bootcomplete) echo 1 ;; esac"#,
    ),
    ("setprop", "exit 0"),
    ("resetprop", "exit 0"),
    ("sudo", ESCALATE),
    ("doas", ESCALATE),
    (
        "su",
        r#"while [ $# -gt 0 ]; do [ "$1" = -c ] && exec sh -c "$2"; shift; done; exec sh"#,
    ),
    ("udevadm", "exit 0"),
];

const ESCALATE: &str = r#"while :; do case $1 in -u|-g) shift 2 ;; --) shift; break ;; -*) shift ;; *=*) export "$1"; shift ;; *) break ;; esac; done; exec "$@""#;

/// Makes the view and enters it.
pub(super) fn enter(script: &Script, originals: &Originals) -> Result<(), SandboxError> {
    let part = |doing: &str| SandboxError::part::<io::Error>(format!("make the view: {doing}"));
    let base = Path::new(BASE);
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private)
        .map_err(io::Error::from)
        .map_err(part("keep its mounts to itself"))?;
    memory(base, c"size=256m,nr_inodes=400k,mode=755").map_err(part("a place in memory"))?;
    programs(base).map_err(part("the system's programs"))?;
    processes(base).map_err(part("its own /proc"))?;
    devices(base).map_err(part("/dev"))?;
    files(base, script).map_err(part("files"))?;
    copies(base, originals).map_err(part("copies of the kernel's files"))?;
    leave(base).map_err(part("leave the system's file system"))
}

fn memory(at: &Path, options: &std::ffi::CStr) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(mount("tmpfs", at, "tmpfs", flags, options)?)
}

fn programs(base: &Path) -> io::Result<()> {
    for dir in PROGRAMS {
        let inside = below(base, dir);
        let Ok(found) = fs::symlink_metadata(dir) else {
            continue;
        };
        if found.is_symlink() {
            symlink(fs::read_link(dir)?, &inside)?;
        } else if found.is_dir() {
            fs::create_dir_all(&inside)?;
            mount_bind_recursive(dir, &inside)?;
        }
    }
    for (point, noexec) in mounts_below(base)? {
        let mut flags =
            MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        // What the outside forbids must stay forbidden.
        if noexec {
            flags |= MountFlags::NOEXEC;
        }
        mount_remount(&point, flags, c"")?;
    }
    Ok(())
}

/// Mount points below a directory, and whether each forbids execution.
fn mounts_below(base: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let mounts = table.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(4);
        let point = PathBuf::from(unescaped(fields.next()?));
        let noexec = fields.next()?.split(',').any(|option| option == "noexec");
        Some((point, noexec))
    });
    Ok(mounts
        .filter(|(point, _)| point != base && point.starts_with(base))
        .collect())
}

/// A field of mountinfo: space, tab, newline and backslash are octal there.
fn unescaped(field: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(field.to_owned(), |text, (code, plain)| {
        text.replace(code, plain)
    })
}

/// The processes of the sandbox. Nothing of it can be written, and `/proc/sys` is covered.
fn processes(base: &Path) -> io::Result<()> {
    let proc = base.join("proc");
    fs::create_dir(&proc)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    mount("proc", &proc, "proc", flags, c"")?;
    memory(&proc.join("sys"), c"size=64m,nr_inodes=100k,mode=555")
}

fn devices(base: &Path) -> io::Result<()> {
    let dev = base.join("dev");
    fs::create_dir(&dev)?;
    for device in DEVICES {
        let inside = dev.join(device);
        fs::write(&inside, "")?;
        mount_bind(Path::new("/dev").join(device), &inside)?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        symlink(target, dev.join(name))?;
    }
    fs::write(dev.join("kmsg"), "")
}

fn files(base: &Path, script: &Script) -> io::Result<()> {
    for dir in EMPTY {
        fs::create_dir_all(base.join(dir))?;
    }
    fs::set_permissions(base.join("tmp"), Permissions::from_mode(0o1777))?;
    let etc = base.join("etc");
    for name in CONFIGURATION {
        if let Ok(text) = fs::read(Path::new("/etc").join(name)) {
            fs::write(etc.join(name), text)?;
        }
    }
    fs::write(etc.join("passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    fs::write(etc.join("group"), "root:x:0:\n")?;
    alternatives(&etc)?;
    let stand_ins = below(base, STAND_INS);
    fs::create_dir(&stand_ins)?;
    for (name, line) in SHIMS {
        program(
            &stand_ins.join(name),
            format!("#!/bin/sh\n{line}\n").as_bytes(),
        )?;
    }
    program(&base.join("tmp").join(&script.name), &script.text)
}

/// Where Debian's and Fedora's links of awk, vi and others lead through.
fn alternatives(etc: &Path) -> io::Result<()> {
    let links = fs::read_dir("/etc/alternatives").into_iter().flatten();
    fs::create_dir(etc.join("alternatives"))?;
    for link in links.flatten() {
        if let Ok(target) = fs::read_link(link.path()) {
            symlink(target, etc.join("alternatives").join(link.file_name()))?;
        }
    }
    Ok(())
}

fn program(path: &Path, text: &[u8]) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, Permissions::from_mode(0o755))
}

/// Copies of the kernel's files; their directories cannot be added to, as the kernel's cannot.
fn copies(base: &Path, originals: &Originals) -> io::Result<()> {
    let mut dirs = Vec::new();
    for (path, original) in originals.iter() {
        let inside = below(base, path);
        match original {
            Original::Dir if inside.is_dir() => {}
            Original::Dir => {
                fs::create_dir(&inside)?;
                dirs.push(inside);
            }
            Original::Link { target } => symlink(target, inside)?,
            Original::File { mode, text } => {
                fs::write(&inside, text)?;
                fs::set_permissions(&inside, Permissions::from_mode(*mode))?;
            }
        }
    }
    for dir in dirs {
        fs::set_permissions(dir, Permissions::from_mode(0o555))?;
    }
    Ok(())
}

fn leave(base: &Path) -> io::Result<()> {
    chdir(base)?;
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    Ok(chdir("/")?)
}

fn below(base: &Path, path: &str) -> PathBuf {
    base.join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_unescaped() {
        assert_eq!(unescaped("/mnt/a\\040b\\134c"), "/mnt/a b\\c");
    }
}
