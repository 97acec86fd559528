"""The HRRN scheduler where one can run: started, watched, changed, and ended in every way.

What a guest cannot tell, being emulated and on a busy machine, are times: shares have wide bounds
here, and the bars with times stand in ``bench/sched``.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cli.program import GUEST, finish, is_alive, kilter, started, wait_until
from vm.hogs import Hog, hogs, shares

SCHED_EXT = Path("/sys/kernel/sched_ext")
PARAMETERS = Path("/run/kilter/sched/hrrn")
CPU1 = Path("/sys/devices/system/cpu/cpu1/online")


@pytest.fixture(scope="module", autouse=True)
def _scheduler() -> None:
    """A kernel that takes one, and a kilter that has one."""
    if not SCHED_EXT.exists():
        pytest.skip("this kernel has no sched_ext")
    if "built without" in kilter("sched", "run", "hrrn", "--monitor").stderr:
        pytest.skip("this kilter was built without the scheduler")


def state() -> str:
    return (SCHED_EXT / "state").read_text().strip()


def wait_for_the_kernels_own() -> None:
    wait_until(lambda: state() == "disabled", "the kernel's own scheduler")


def ask() -> dict[str, Any] | None:
    done = kilter("sched", "status", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout).get("hrrn")
    assert found is None or isinstance(found, dict)
    return found


def asked() -> dict[str, Any]:
    found = ask()
    assert found
    return found


def is_another_than(start_s: float) -> bool:
    """Whether a scheduler is in force that took another time to start."""
    found = ask()
    return found is not None and found["start_s"] != start_s and state() == "enabled"


@contextmanager
def running(*options: str) -> Iterator[int]:
    """A scheduler in force, which nothing but SIGINT ends; its process."""
    with started("sched", "run", "hrrn", *options) as child:
        wait_until(lambda: child.poll() is not None or ask() is not None, "hrrn", 90.0)
        assert child.poll() is None, finish(child).stderr
        yield child.pid
        if child.poll() != -signal.SIGKILL:
            assert child.poll() is None, finish(child).stderr
            child.send_signal(signal.SIGINT)
            done = finish(child)
            assert done.returncode == 0, done.stderr
            assert "the kernel ended" not in done.stderr, done.stderr
    wait_for_the_kernels_own()


def test_it_runs_counts_and_ends_with_sigint() -> None:
    with running():
        assert state() == "enabled"
        assert (SCHED_EXT / "root/ops").read_text().strip() == "hrrn"
        assert kilter("load", "messaging", "-g1", "-l20").returncode == 0
        total = asked()["total"]
        assert total["picks"] > 100
        assert sum(total["waits"]) > 100
        second = kilter("sched", "run", "hrrn")
        assert second.returncode == 2
        assert "`hrrn` is loaded" in second.stderr
    assert not PARAMETERS.exists()


def test_a_killed_one_leaves_the_kernels_own() -> None:
    with running() as pid:
        os.kill(pid, signal.SIGKILL)
        wait_for_the_kernels_own()
        assert ask() is None
        done = kilter("run", "--set", "hrrn.latency_us=5", "--", "true")
        assert done.returncode == 125


def test_it_uses_what_the_kernel_has() -> None:
    """A kernel with functions missing in its type information is served by the fallback."""
    with started("sched", "run", "hrrn", "--verbose", "--wakeup-threshold", "100") as child:
        wait_until(lambda: child.poll() is not None or ask() is not None, "hrrn", 90.0)
        assert kilter("load", "messaging", "-g1", "-l50").returncode == 0
        preempted = asked()["total"]["preempted_wakeup"]
        child.send_signal(signal.SIGINT)
        done = finish(child)
    assert done.returncode == 0, done.stderr
    assert preempted > 0
    defective = GUEST == "scx-defective"
    assert ("scx_bpf_kick_cpu cannot be called" in done.stderr) == defective, done.stderr


def test_parameters_are_knobs() -> None:
    with running():
        file = PARAMETERS / "max_lifetime_ms"
        done = kilter("run", "--set", "hrrn.max_lifetime_ms=777", "--", "cat", file)
        assert (done.stdout, done.returncode) == ("777\n", 0)
        assert file.read_text() == "10000\n"
        assert kilter("sched", "set", "hrrn", "latency_us=-5000").returncode == 0
        wait_until(lambda: isinstance(asked().get("change_seen_ms"), float), "the change is seen")
        assert asked()["params"] == {
            "latency_us": -5000,
            "max_lifetime_ms": 10000,
            "max_wait_ms": 500,
            "slice_us": 1000,
            "wakeup_threshold": 200,
        }
        file.write_text("junk\n")
        wait_until(lambda: file.read_text() == "10000\n", "the value in force is back")


def test_a_shorter_life_is_lived_at_once() -> None:
    """The parameter reaches the program in the kernel: its own counter of resets tells."""
    with running(), hogs([Hog(0), Hog(0)]):

        def resets(seconds: float) -> int:
            before = asked()["total"]["resets"]
            time.sleep(seconds)
            return int(asked()["total"]["resets"] - before)

        assert kilter("sched", "set", "hrrn", "max_lifetime_ms=3600000").returncode == 0
        time.sleep(1)
        assert resets(3) == 0
        assert kilter("sched", "set", "hrrn", "max_lifetime_ms=10").returncode == 0
        assert resets(3) > 20


def test_it_can_be_tried_for_one_run() -> None:
    for value in ("hrrn", "hrrn-seed"):
        done = kilter("run", "--set", f"sched={value}", "--", "cat", SCHED_EXT / "root/ops")
        assert (done.stdout, done.returncode) == ("hrrn\n", 0), done.stderr
        assert state() == "disabled"
    with started("run", "--set", "sched=hrrn", "--", "sleep", "100") as child:
        wait_until(lambda: state() == "enabled", "hrrn", 90.0)
        child.kill()
        wait_for_the_kernels_own()


def test_a_stalled_one_is_told_and_tried_again_and_given_up() -> None:
    with started("sched", "run", "hrrn", "--fault", "stall", "--timeout-ms", "1000") as child:
        load = ("load", "messaging", "-g1", "-l2000")
        with started(*load), started(*load):
            wait_until(lambda: child.poll() is not None, "it stays off", 180.0)
        done = finish(child)
    assert done.returncode == 1
    assert done.stderr.count("the kernel ended hrrn: ") == 3, done.stderr
    assert "SCX_EXIT_ERROR_STALL" in done.stderr
    assert "stays off" in done.stderr
    assert state() == "disabled"


def test_a_wrong_call_ends_it() -> None:
    with started("sched", "run", "hrrn", "--fault", "queue", "--verbose") as child:
        with hogs([Hog()] * 4):
            wait_until(lambda: child.poll() is not None, "it stays off", 180.0)
        done = finish(child)
    assert done.returncode in (1, 2), done.stderr
    assert "(SCX_EXIT_ERROR)" in done.stderr, done.stderr
    assert "non-existent DSQ" in done.stderr, done.stderr
    assert state() == "disabled"


def test_sysrq_ends_it_for_good() -> None:
    with started("sched", "run", "hrrn") as child:
        wait_until(lambda: child.poll() is not None or ask() is not None, "hrrn", 90.0)
        Path("/proc/sysrq-trigger").write_text("S")
        done = finish(child)
    assert done.returncode == 1, done.stderr
    assert "SCX_EXIT_SYSRQ" in done.stderr
    assert "starts again" not in done.stderr
    assert state() == "disabled"


@pytest.fixture
def _second_cpu() -> Iterator[None]:
    """The second CPU, online again afterwards."""
    if not CPU1.exists():
        pytest.skip("the second CPU cannot be taken away")
    yield
    if CPU1.read_text() != "1\n":
        CPU1.write_text("1\n")


@pytest.mark.usefixtures("_second_cpu")
def test_a_cpu_that_goes_and_comes_starts_it_anew() -> None:
    with running():
        for online in ("0\n", "1\n"):
            first = asked()["start_s"]
            CPU1.write_text(online)
            wait_until(partial(is_another_than, first), "hrrn starts anew")


def test_equal_hogs_get_equal_shares() -> None:
    with running(), hogs([Hog(0), Hog(0)]) as pids:
        time.sleep(2)
        assert shares(pids, 8) == pytest.approx([50, 50], abs=8)


def test_a_nice_hog_gets_what_the_formula_gives() -> None:
    with running(), hogs([Hog(0), Hog(0, nice=19)]) as pids:
        time.sleep(2)
        assert shares(pids, 12)[1] == pytest.approx(100 / 21, rel=0.5)


def test_four_hogs_of_a_user_get_no_more_than_one_of_another() -> None:
    crowd = [Hog(0, uid=64_301)] * 4 + [Hog(0, uid=64_302)]
    with running("--per-uid"), hogs(crowd) as pids:
        time.sleep(2)
        assert shares(pids, 10)[4] == pytest.approx(50, abs=10)
    with running(), hogs(crowd) as pids:
        time.sleep(2)
        assert shares(pids, 10)[4] == pytest.approx(20, abs=8)


def test_nobody_starves_in_a_crowd() -> None:
    """Every one of many pinned hogs runs, and whoever sleeps in between gets on too."""
    with (
        running(),
        hogs([Hog(0, work_us=100), Hog(1, work_us=100)]) as sleepers,
        hogs([Hog(number % 2) for number in range(60)]) as pids,
    ):
        parts = shares(sleepers + pids, 20)
        assert all(is_alive(pid) for pid in sleepers + pids)
        assert min(parts) > 0, parts
        assert asked()["total"]["wait_max_ns"] < 10e9
