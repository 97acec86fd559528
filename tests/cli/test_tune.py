"""What ``kilter tune`` searches."""

from __future__ import annotations

from pathlib import Path

import pytest

from .program import BINARY
from .roots import Root
from .workload import METRIC, Workload

pytestmark = pytest.mark.skipif(
    not (BINARY.parent / "python3").exists(),
    reason=f"there is no Python beside {BINARY}: tune is not installed",
)


def searched(root: Root, tmp_path: Path, knobs: str) -> set[str]:
    """The knobs of a short search."""
    workload = Workload(root, tmp_path, 0.2)
    words = ["tune", "--knobs", knobs, *METRIC, "--trials", "4", "--study", "s"]
    data = root.json(*words, "--", *workload.command)
    return {knob["name"] for knob in data["knobs"]}


def test_a_switch_without_a_range_is_searched_if_it_is_named(root: Root, tmp_path: Path) -> None:
    root.put("proc/sys/vm/numa_stat", "1\n")
    assert searched(root, tmp_path, "vm.numa_stat,vm.swappiness") == {
        "vm.numa_stat",
        "vm.swappiness",
    }


def test_a_glob_leaves_it_out(root: Root, tmp_path: Path) -> None:
    root.put("proc/sys/vm/numa_stat", "1\n")
    assert "vm.numa_stat" not in searched(root, tmp_path, "vm.*")
