"""``kilter why``: who set a value, as the machine's own files tell it."""

from __future__ import annotations

import pytest

from .roots import Root
from .schemas import check


def setters(root: Root, knob: str) -> list[tuple[str, str, str, bool]]:
    why = root.json("why", knob)
    check("why", why)
    return [
        (s["by"], f"{s['place']}:{s.get('line', '')}".rstrip(":"), s["value"], s["agrees"])
        for s in why["setters"]
    ]


def test_nobody_asked(root: Root) -> None:
    assert setters(root, "vm.swappiness") == []
    told = root("why", "vm.swappiness").stdout
    assert "vm.swappiness is 60 (/proc/sys/vm/swappiness)" in told
    assert "the kernel's default" in told


def test_sysctl_files_win_by_their_names_and_directories(root: Root) -> None:
    root.put("usr/lib/sysctl.d/50-distribution.conf", "vm.swappiness = 30")
    root.put("etc/sysctl.d/90-mine.conf", "# mine\nvm.swappiness = 10")
    root.put("usr/lib/sysctl.d/90-mine.conf", "vm.swappiness = 99")
    assert setters(root, "vm.swappiness") == [
        ("sysctl", "/etc/sysctl.d/90-mine.conf:2", "10", False)
    ]
    root.set("vm.swappiness", "10")
    assert setters(root, "vm.swappiness")[0][3] is True


def test_globs_and_lines_that_keep_them_away(root: Root) -> None:
    root.put("etc/sysctl.d/1.conf", "vm.dirty_*ratio = 7\n-vm.dirty_background_ratio")
    assert setters(root, "vm.dirty_ratio") == [("sysctl", "/etc/sysctl.d/1.conf:1", "7", False)]
    assert setters(root, "vm.dirty_background_ratio") == []


def test_a_layer_comes_first(root: Root) -> None:
    root.put("etc/sysctl.d/1.conf", "vm.swappiness = 60")
    root.profile("mine", {"vm.swappiness": "10"})
    assert root("apply", "mine").returncode == 0
    assert setters(root, "vm.swappiness") == [
        ("layer", "mine", "10", True),
        ("sysctl", "/etc/sysctl.d/1.conf:1", "60", False),
    ]


def test_rules_tmpfiles_tuned_and_boot_options(root: Root) -> None:
    root.put("usr/lib/udev/rules.d/60-io.rules", 'KERNEL=="vd*", ATTR{queue/nr_requests}="256"')
    root.put("etc/tmpfiles.d/thp.conf", "w /sys/kernel/mm/*/enabled - - - - madvise")
    root.put("etc/tuned/active_profile", "throughput-performance")
    root.put("usr/lib/tuned/throughput-performance/tuned.conf", "[sysctl]\nvm.swappiness=10")
    root.put("proc/cmdline", "quiet sysctl.vm.stat_interval=1 transparent_hugepage=always")
    assert setters(root, "block.vda.nr_requests") == [
        ("udev", "/usr/lib/udev/rules.d/60-io.rules:1", "256", True)
    ]
    assert setters(root, "thp.enabled") == [
        ("tmpfiles", "/etc/tmpfiles.d/thp.conf:1", "madvise", True),
        ("command-line", "/proc/cmdline", "always", False),
    ]
    tuned = "/usr/lib/tuned/throughput-performance/tuned.conf:2"
    assert setters(root, "vm.swappiness") == [("tuned", tuned, "10", False)]
    assert setters(root, "vm.stat_interval") == [("command-line", "/proc/cmdline", "1", True)]


@pytest.mark.parametrize("name", ["vm.*", "vm.swapiness", "../etc/passwd"])
def test_bad_names(root: Root, name: str) -> None:
    done = root("why", name)
    assert done.returncode == 2
    assert "error:" in done.stderr


def test_a_knob_that_the_kernel_lacks(root: Root) -> None:
    told = root("why", "sched.latency_ns").stdout
    assert "sched.base_slice_ns" in told, "the successor"
