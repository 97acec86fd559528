"""Several kilters at once: one transaction after the other, one experiment at a time."""

from __future__ import annotations

import fcntl
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from .kills import pid_in
from .program import Done, finish, started, wait_until
from .roots import Root

LOW = {"vm.swappiness": "10", "vm.page-cluster": "0"}
HIGH = {"vm.swappiness": "150", "vm.stat_interval": "10"}


@pytest.fixture
def machine(root: Root) -> Root:
    """A machine with two profiles that share a knob."""
    root.profile("low", LOW)
    root.profile("high", HIGH)
    return root


@contextmanager
def experiment(root: Root, told: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A run that holds a setting until it is told to go."""
    told.unlink(missing_ok=True)
    script = f"echo $$ > {told}; until [ -e {told}.go ]; do sleep 0.01; done"
    args = ("run", *(options or ("--set", "vm.dirty_ratio=30")), "--", "sh", "-c", script)
    with started(*args, root=root.path) as child:
        wait_until(lambda: pid_in(told) is not None, "the experiment runs")
        yield child


def end(child: subprocess.Popen[str], told: Path) -> Done:
    """Let the experiment end."""
    Path(f"{told}.go").touch()
    return finish(child)


def test_applies_and_reverts_at_once_leave_a_consistent_machine(machine: Root) -> None:
    before = machine.settings()
    commands = [("apply", "low"), ("apply", "high"), ("revert", "low"), ("revert", "high")] * 4
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda args: machine(*args), commands))
    for result in done:
        # A revert may come when nothing is there to revert; nothing else goes wrong.
        assert result.returncode == 0 or "no layer" in result.stderr, result
    status = machine.json("status")
    names = [layer["name"] for layer in status["layers"]]
    assert len(names) == len(set(names)) <= 2
    assert machine("verify").returncode == 0
    assert machine("revert").returncode == 0
    assert machine.settings() == before
    assert machine.layers() == []


def test_the_same_profile_at_once_is_one_layer(machine: Root) -> None:
    before = machine.settings()
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: machine("apply", "low"), range(8)))
    assert [result.returncode for result in done] == [0] * 8
    assert len(machine.layers()) == 1
    assert machine("revert").returncode == 0
    assert machine.settings() == before


def test_short_runs_at_once_all_restore(machine: Root) -> None:
    """Those that come while another runs are refused; whoever runs puts everything back."""
    before = machine.settings()
    args = ("run", "--set", "vm.swappiness=10", "--", "true")
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda _: machine(*args), range(24)))
    for result in done:
        assert result.returncode == 0 or "another experiment is running" in result.stderr, result
    assert any(result.returncode == 0 for result in done)
    assert machine.settings() == before
    assert machine.layers() == []


def test_a_change_during_an_experiment_is_refused(machine: Root, tmp_path: Path) -> None:
    assert machine("apply", "high").returncode == 0
    told = tmp_path / "pid"
    with experiment(machine, told) as child:
        during = machine.settings()
        for args in (
            ("apply", "low"),
            ("apply", "low", "--confirm", "5"),
            ("revert",),
            ("revert", "high"),
            ("revert", "run"),
            ("revert", "--force"),
        ):
            done = machine(*args)
            assert done.returncode == 2, args
            assert f"an experiment is running (process {child.pid})" in done.stderr
            assert f"kill {child.pid}" in done.stderr
        assert machine.settings() == during
        assert machine("apply", "low", "--dry-run").returncode == 0
        assert end(child, told).returncode == 0
    assert machine("apply", "low").returncode == 0


def test_a_second_experiment_is_refused_and_the_first_goes_on(
    machine: Root, tmp_path: Path
) -> None:
    before = machine.settings()
    told = tmp_path / "pid"
    with experiment(machine, told) as child:
        during = machine.settings()
        for args in (("run", "--set", "vm.swappiness=1", "--", "true"), ("run", "--batch")):
            done = machine(*args)
            assert done.returncode == 125
            assert f"another experiment is running (process {child.pid})" in done.stderr
            assert "\nhint: wait for it" in done.stderr
        assert machine.settings() == during
        assert machine("run", "--", "true").returncode == 0, "measuring alone disturbs nobody"
        assert end(child, told).returncode == 0
    assert machine.settings() == before


def test_status_tells_of_the_experiment(machine: Root, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    with experiment(machine, told) as child:
        status = machine.json("status")
        assert status["experiment"] == child.pid
        (layer,) = status["layers"]
        assert (layer["name"], layer["alive"], layer["owner"]["pid"]) == ("run", True, child.pid)
        assert f"An experiment is running (process {child.pid})." in machine("status").stdout
        end(child, told)
    assert "experiment" not in machine.json("status")


def test_a_profile_under_an_experiment_survives_it(machine: Root, tmp_path: Path) -> None:
    before = machine.settings()
    assert machine("apply", "low").returncode == 0
    held = machine.settings()
    told = tmp_path / "pid"
    with experiment(machine, told, "--set", "vm.swappiness=99") as child:
        assert machine.get("vm.swappiness") == "99"
        child.send_signal(signal.SIGINT)
        finish(child)
    assert machine.settings() == held
    assert machine("revert").returncode == 0
    assert machine.settings() == before


def test_a_dead_experiment_does_not_block_the_next(machine: Root, tmp_path: Path) -> None:
    before = machine.settings()
    told = tmp_path / "pid"
    with experiment(machine, told) as child:
        child.kill()
        child.wait()
        wait_until(lambda: machine.settings() == before, "the guardian restores")
        wait_until(lambda: "experiment" not in machine.json("status"), "the lock is free")
    assert machine("run", "--set", "vm.swappiness=1", "--", "true").returncode == 0
    assert machine("apply", "low").returncode == 0


def test_a_lock_that_somebody_holds_is_waited_for(machine: Root) -> None:
    assert machine("revert").returncode == 0
    with (machine.path / "run/kilter/lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with started("apply", "low", root=machine.path) as child:
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(0.5)
            assert machine.get("vm.swappiness") == "60"
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert finish(child).returncode == 0
    assert machine.get("vm.swappiness") == "10"
