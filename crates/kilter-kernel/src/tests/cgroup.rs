//! Finding the cpu controller's hierarchy, and what its groups may be called.

use super::*;

fn root(mountinfo: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, Kernel) {
    let dir = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put("proc/self/mountinfo", mountinfo);
    files.iter().for_each(|(path, text)| put(path, text));
    let kernel = Kernel::new(dir.path());
    (dir, kernel)
}

const ANDROID: &str = "27 24 0:23 / /dev/cpuctl rw,nosuid,nodev - cgroup none rw,cpu\n\
    28 24 0:24 / /sys/fs/cgroup rw - cgroup2 none rw,memory_recursiveprot\n";
const DEBIAN: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";

#[test]
fn the_hierarchy_is_found_wherever_it_is_mounted() {
    let v1 = [
        ("dev/cpuctl/cpu.shares", "1024\n"),
        ("dev/cpuctl/release_agent", "\n"),
        ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
    ];
    let (_dir, kernel) = root(ANDROID, &v1);
    let tree = CpuTree::find(&kernel).unwrap();
    assert_eq!(tree.mount(), "/dev/cpuctl");
    assert_eq!(tree.version(), CgroupVersion::V1);

    let v2 = [
        ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory\n"),
        ("sys/fs/cgroup/cgroup.subtree_control", "\n"),
    ];
    let (_dir, kernel) = root(DEBIAN, &v2);
    let tree = CpuTree::find(&kernel).unwrap();
    assert_eq!(tree.version(), CgroupVersion::V2);
    assert!(Move::into_groups("k", &tree).enables_cpu);
}

#[test]
fn cpuset_alone_is_not_the_cpu_controller() {
    let line = "29 24 0:25 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
    let (_dir, kernel) = root(line, &[("sys/fs/cgroup/cpuset/cpu.shares", "1\n")]);
    assert!(matches!(
        CpuTree::find(&kernel),
        Err(CpuTreeError::NoController)
    ));
    let files = [("sys/fs/cgroup/cgroup.controllers", "cpuset memory\n")];
    let (_dir, kernel) = root(DEBIAN, &files);
    assert!(matches!(
        CpuTree::find(&kernel),
        Err(CpuTreeError::NoController)
    ));
}

#[test]
fn a_containers_part_of_the_hierarchy_is_not_its_root() {
    let files = [
        ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
        ("sys/fs/cgroup/cgroup.type", "domain\n"),
    ];
    let (_dir, kernel) = root(DEBIAN, &files);
    let error = CpuTree::find(&kernel).unwrap_err();
    assert!(
        error.to_string().contains("/sys/fs/cgroup is not the root"),
        "{error}"
    );
}

#[test]
fn only_kilters_own_groups_can_be_changed() {
    let files = [
        ("sys/fs/cgroup/cgroup.controllers", "cpu\n"),
        ("sys/fs/cgroup/cgroup.subtree_control", "cpu\n"),
        ("sys/fs/cgroup/cgroup.procs", "1\n0\n42\n"),
        ("sys/fs/cgroup/docker/cpu.weight", "100\n"),
        ("secret/cpu.weight", "100\n"),
    ];
    let (dir, kernel) = root(DEBIAN, &files);
    let tree = CpuTree::find(&kernel).unwrap();
    let journaled = Move::into_groups("k", &tree);
    assert!(!journaled.enables_cpu);
    let held = HeldTree::new(&kernel, &journaled).unwrap();
    assert_eq!(held.processes("").unwrap(), [1, 42]);
    for name in ["docker", "../secret", "kilter-/../docker", "kilter-a/b", ""] {
        assert!(held.make(name).is_err(), "{name}");
        assert!(held.remove(name).is_err(), "{name}");
        assert!(held.set(name, "cpu.weight", "1").is_err(), "{name}");
    }
    std::os::unix::fs::symlink(
        dir.path().join("secret"),
        dir.path().join("sys/fs/cgroup/kilter-link"),
    )
    .unwrap();
    assert!(held.set("kilter-link", "cpu.weight", "1").is_err());
    assert!(held.make("kilter-1000").unwrap());
    assert!(!held.make("kilter-1000").unwrap());
    assert_eq!(held.groups().unwrap(), ["kilter-1000"]);
    assert!(held.remove("kilter-1000").unwrap());
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_as_mounts_without_a_panic(text in ".{0,200}") {
        for (point, _) in mounts(&text) {
            proptest::prop_assert!(point.starts_with('/'));
        }
    }
}
