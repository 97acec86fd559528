"""The HRRN scheduler where none can run. Where one can: ``tests/vm/inside/test_hrrn.py``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .program import Done, kilter
from .roots import Root, machine_alone

SCHED_EXT = Path("/sys/kernel/sched_ext")


@pytest.fixture
def alone() -> Iterator[None]:
    """No other test has an experiment running meanwhile."""
    with machine_alone():
        yield


without = pytest.mark.skipif(SCHED_EXT.exists(), reason="this kernel has sched_ext")


def is_built() -> bool:
    return "built without" not in kilter("sched", "run", "hrrn").stderr


def refused(done: Done, *words: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    for word in words:
        assert word in done.stderr


@without
def test_a_kernel_without_sched_ext_is_refused_with_the_reason() -> None:
    if not is_built():
        pytest.skip("this kilter was built without the scheduler")
    done = kilter("sched", "run", "hrrn")
    refused(done, os.uname().release, "has no sched_ext", "CONFIG_SCHED_CLASS_EXT")


@without
@pytest.mark.usefixtures("alone")
def test_nothing_runs_and_nothing_can_be_set() -> None:
    status = kilter("sched", "status")
    assert (status.returncode, status.stderr) == (0, "")
    assert "no sched_ext" in status.stdout
    assert json.loads(kilter("sched", "status", "--json").stdout) == {"supported": False}
    for words in (("set", "hrrn", "latency_us=5"), ("top",), ("run", "hrrn", "--monitor")):
        refused(kilter("sched", *words), "no HRRN scheduler", "hint: sudo kilter sched run hrrn")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("latency=5", "there are: max_lifetime_ms, latency_us"),
        ("max_lifetime_ms=0", "from 1 to 3600000"),
        ("hrrn.max_lifetime_ms=1.5", "not a whole number"),
        ("latency_us", "not KNOB=VALUE"),
    ],
)
def test_values_are_checked_first(setting: str, said: str) -> None:
    refused(kilter("sched", "set", "hrrn", setting), said)


def test_options_are_checked_first() -> None:
    refused(kilter("sched", "run", "hrrn", "--max-wait-ms", "10001"), "from 0 to 10000")
    for words in (("--timeout-ms", "999"), ("--stats", "0"), ("--compare", "wrong")):
        assert kilter("sched", "run", "hrrn", *words).returncode == 2
    assert kilter("sched", "run", "cfs").returncode == 2


def test_another_root_has_no_scheduler(root: Root) -> None:
    refused(kilter("sched", "run", "hrrn", root=root.path), "not under --root")
    done = kilter("sched", "status", "--json", root=root.path)
    assert json.loads(done.stdout) == {"supported": False}


def test_its_parameters_are_knobs_that_need_it(root: Root) -> None:
    done = kilter("knobs", "list", "--all", "hrrn.*", root=root.path)
    assert done.stdout.count(" absent ") == 5
    done = kilter("knobs", "show", "hrrn.latency_us", root=root.path)
    assert "no scheduler of kilter is running" in done.stdout
    done = kilter("run", "--set", "hrrn.latency_us=5", "--", "true", root=root.path)
    assert done.returncode == 125
    assert "kilter sched run hrrn" in done.stderr
    done = kilter("run", "--set", "hrrn.max_lifetime_ms=0", "--", "true", root=root.path)
    assert done.returncode == 125
    assert "the range is 1 to 3600000" in done.stderr


@without
@pytest.mark.usefixtures("alone")
@pytest.mark.real_kernel
def test_it_cannot_be_tried_without_sched_ext() -> None:
    done = kilter("run", "--set", "sched=hrrn", "--", "echo", "ran")
    assert (done.stdout, done.returncode) == ("", 125)
    assert "sched" in done.stderr
    assert "put back" in done.stderr


def test_what_a_killed_scheduler_left_is_no_setting(root: Root) -> None:
    left = root.path / "run/kilter/sched/hrrn"
    left.mkdir(parents=True)
    (left / "lock").touch()
    (left / "latency_us").write_text("0\n")
    done = kilter("run", "--set", "hrrn.latency_us=5", "--", "true", root=root.path)
    assert done.returncode == 125
    assert (left / "latency_us").read_text() == "0\n"
