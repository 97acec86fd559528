"""The HRRN scheduler: what is said where none can run, and the whole of it where one can."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .program import Done, finish, kilter, started, wait_until
from .roots import Root

SCHED_EXT = Path("/sys/kernel/sched_ext")
PARAMETERS = Path("/run/kilter/sched/hrrn")

without = pytest.mark.skipif(SCHED_EXT.exists(), reason="this kernel has sched_ext")
within = [
    pytest.mark.real_kernel,
    pytest.mark.skipif(not SCHED_EXT.exists(), reason="this kernel has no sched_ext"),
]


def state() -> str:
    return (SCHED_EXT / "state").read_text().strip()


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


@contextmanager
def running(*options: str) -> Iterator[int]:
    """A scheduler in force; its process."""
    with started("sched", "run", "hrrn", *options) as child:
        wait_until(lambda: child.poll() is not None or ask() is not None, "hrrn", 60.0)
        assert child.poll() is None, finish(child).stderr
        yield child.pid
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
            done = finish(child)
            assert done.returncode == 0, done.stderr
    wait_until(lambda: state() == "disabled", "the kernel's own scheduler")


def ask() -> dict[str, object] | None:
    status = json.loads(kilter("sched", "status", "--json").stdout)
    found = status.get("hrrn")
    assert found is None or isinstance(found, dict)
    return found


class TestOnSchedExt:
    """In a guest, or wherever the kernel can."""

    pytestmark = within

    def test_it_runs_counts_and_ends(self) -> None:
        with running():
            assert state() == "enabled"
            assert (SCHED_EXT / "root/ops").read_text().strip() == "hrrn"
            done = kilter("load", "messaging", "-g1", "-l20")
            assert done.returncode == 0
            found = ask()
            assert found
            total = found["total"]
            assert isinstance(total, dict)
            assert total["picks"] > 100
            assert sum(total["waits"]) > 100
            refused(kilter("sched", "run", "hrrn"), "`hrrn` is loaded")
        assert not PARAMETERS.exists()

    def test_a_killed_one_leaves_the_kernels_own(self) -> None:
        with running() as pid:
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: state() == "disabled", "the kernel's own scheduler")
            assert ask() is None
            done = kilter("run", "--set", "hrrn.latency_us=5", "--", "true")
            assert done.returncode == 125

    def test_parameters_are_knobs(self) -> None:
        with running():
            file = PARAMETERS / "max_lifetime_ms"
            done = kilter("run", "--set", "hrrn.max_lifetime_ms=777", "--", "cat", file)
            assert (done.stdout, done.returncode) == ("777\n", 0)
            assert file.read_text() == "10000\n"
            assert kilter("sched", "set", "hrrn", "latency_us=-5000").returncode == 0
            time.sleep(0.5)
            found = ask()
            assert found
            assert found["params"] == {
                "latency_us": -5000,
                "max_lifetime_ms": 10000,
                "max_wait_ms": 500,
                "slice_us": 0,
                "wakeup_threshold": 400,
            }
            assert isinstance(found["change_seen_ms"], float)
            assert found["change_seen_ms"] < 10
            file.write_text("junk\n")
            wait_until(lambda: file.read_text() == "10000\n", "the value in force is back")

    def test_it_can_be_tried_for_one_run(self) -> None:
        for value in ("hrrn", "hrrn-seed"):
            done = kilter("run", "--set", f"sched={value}", "--", "cat", SCHED_EXT / "root/ops")
            assert (done.stdout, done.returncode) == ("hrrn\n", 0), done.stderr
            assert state() == "disabled"
        with started("run", "--set", "sched=hrrn", "--", "sleep", "100") as child:
            wait_until(lambda: state() == "enabled", "hrrn", 60.0)
            child.kill()
            wait_until(lambda: state() == "disabled", "the kernel's own scheduler")

    def test_an_ejected_one_is_told_and_tried_again_and_given_up(self) -> None:
        with started("sched", "run", "hrrn", "--stall", "--timeout-ms", "1000") as child:
            load = ("load", "messaging", "-g1", "-l2000")
            with started(*load), started(*load):
                wait_until(lambda: child.poll() is not None, "it stays off", 100.0)
            done = finish(child)
        assert done.returncode == 1
        assert done.stderr.count("the kernel ended hrrn: ") == 3
        assert "SCX_EXIT_ERROR_STALL" in done.stderr
        assert "stays off" in done.stderr
        assert state() == "disabled"
