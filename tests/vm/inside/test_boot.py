"""The guest itself: without these, what the other tests say means nothing."""

from __future__ import annotations

import os
from pathlib import Path


def test_root_two_cpus_and_debugfs() -> None:
    assert os.geteuid() == 0
    assert os.cpu_count() == 2
    assert Path("/sys/kernel/debug").is_mount()


def test_it_is_a_guest_and_writes_nothing_to_the_host() -> None:
    assert "virtme" in Path("/proc/cmdline").read_text()
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    (root,) = [mount for mount in mounts if mount[1] == "/"]
    assert root[2] in ("9p", "virtiofs")
    assert "ro" in root[3].split(",")
