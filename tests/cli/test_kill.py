"""kilter is killed with SIGKILL: the guardian restores; without it, the next command does."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from . import kills
from .kills import Machine
from .program import finish, is_alive, kill_quietly, started, wait_until
from .roots import Root

SET = ["--set", "vm.swappiness=10", "--set", "vm.page-cluster=0", "--set", "sched.nr_migrate=8"]


@pytest.fixture
def machine(root: Root) -> Machine:
    """A fake root to be killed on."""
    root.profile("calm", {"vm.swappiness": "30"})
    return Machine(root, SET)


def sleeper(told: Path) -> list[str]:
    """A workload that tells its process number and then runs for a minute."""
    return ["sh", "-c", f"echo $$ > {told}; exec sleep 60"]


def test_killed_at_random_moments_of_a_long_run(machine: Machine, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    found = kills.kill_at_random(machine, sleeper(told), told, 0.2)
    found.tell("fake root, long runs")
    assert len(found.seconds) >= kills.KILLS // 4, "the kills must hit settings in force"


def test_killed_at_random_moments_of_short_runs(machine: Machine, tmp_path: Path) -> None:
    found = kills.kill_at_random(machine, ["true"], tmp_path / "pid", 0.02)
    found.tell("fake root, short runs")


def test_a_guardian_ends_the_whole_workload(machine: Machine, tmp_path: Path) -> None:
    child_told = tmp_path / "child"
    script = (
        f"sh -c 'trap \"\" TERM INT HUP; echo $$ > {child_told}; exec sleep 60' & "
        f"echo $$ > {tmp_path}/pid; wait"
    )
    args = ["run", *SET, "--", "sh", "-c", script]
    with started(*args, root=machine.root.path) as child:
        wait_until(lambda: kills.pid_in(child_told) is not None, "the workload runs")
        wait_until(lambda: kills.pid_in(tmp_path / "pid") is not None, "the workload runs")
        members = [kills.pid_in(tmp_path / "pid"), kills.pid_in(child_told)]
        child.kill()
        done = finish(child)
        assert "was killed; its settings were put back" in done.stderr
        for pid in members:
            assert pid is not None
            wait_until(lambda pid=pid: not is_alive(pid), "the workload has ended")  # type: ignore[misc]
    wait_until(machine.is_restored, "restored")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=str)
def test_a_guardian_takes_no_signal_but_kill(
    machine: Machine, tmp_path: Path, number: signal.Signals
) -> None:
    told = tmp_path / "pid"
    with started("run", *SET, "--", *sleeper(told), root=machine.root.path) as child:
        wait_until(lambda: kills.pid_in(told) is not None, "the workload runs")
        (guardian,) = kills.guardians(child.pid)
        subprocess.run(["kill", f"-{number.value}", str(guardian)], check=True)
        assert is_alive(guardian)
        child.kill()
        child.wait()
        wait_until(machine.is_restored, "restored")


def test_a_dead_guardian_does_not_end_the_run(machine: Machine, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"echo $$ > {tmp_path}/pid; until [ -e {go} ]; do sleep 0.01; done; exit 6"
    with started("run", *SET, "--", "sh", "-c", script, root=machine.root.path) as child:
        wait_until(lambda: kills.pid_in(tmp_path / "pid") is not None, "the workload runs")
        (guardian,) = kills.guardians(child.pid)
        kill_quietly(guardian)
        go.touch()
        done = finish(child)
    assert done.returncode == 6
    assert machine.is_restored()


# Commands that take the lock, and so put back what the dead left.
RECOVERERS = {
    "revert": (["revert"], 0),
    "revert run": (["revert", "run"], 0),
    "apply": (["apply", "calm"], 0),
    "run": (["run", "--set", "vm.stat_interval=2", "--", "true"], 0),
    "batch": (["run", "--batch"], 0),
    "apply --confirm": (["apply", "calm", "--confirm", "1"], 1),
}


@pytest.mark.parametrize("case", RECOVERERS.values(), ids=RECOVERERS.keys())
def test_with_the_guardian_killed_too_the_next_command_restores(
    machine: Machine, root: Root, tmp_path: Path, case: tuple[list[str], int]
) -> None:
    args, code = case
    told = tmp_path / "pid"
    kills.kill_with_guardian(machine, sleeper(told), told)
    done = root(*args)
    assert done.returncode == code, done
    if args[0] != "revert":
        assert "warning: put back the settings of a kilter that had been killed" in done.stderr
    if args[0] == "apply" and code == 0:
        assert root.get("vm.swappiness") == "30"
        assert root("revert").returncode == 0
    assert machine.is_restored()
    assert root.layers() == []


# Commands that only look: they tell, and change nothing.
TELLERS = {
    "status": ["status"],
    "run without settings": ["run", "--", "true"],
    "doctor": ["doctor"],
}


@pytest.mark.parametrize("args", TELLERS.values(), ids=TELLERS.keys())
def test_commands_that_only_look_tell_of_what_is_left(
    machine: Machine, root: Root, tmp_path: Path, args: list[str]
) -> None:
    told = tmp_path / "pid"
    kills.kill_with_guardian(machine, sleeper(told), told)
    left = root.settings()
    done = root(*args)
    assert done.returncode == 0, done
    said = done.stdout + done.stderr
    assert "a kilter was killed and its settings are still in force" in said
    assert "hint:" in done.stderr
    assert "kilter revert" in done.stderr
    assert root.settings() == left
    assert root("revert").returncode == 0
    assert machine.is_restored()


def test_a_leftover_under_a_profile_leaves_the_profile(
    machine: Machine, root: Root, tmp_path: Path
) -> None:
    assert root("apply", "calm").returncode == 0
    machine.before = root.settings()
    told = tmp_path / "pid"
    with started("run", *SET, "--", *sleeper(told), root=root.path) as child:
        wait_until(lambda: kills.pid_in(told) is not None, "the workload runs")
        child.kill()
        child.wait()
        wait_until(lambda: root.settings() == machine.before, "the profile's values are back")
    assert root("verify").returncode == 0


def test_what_somebody_set_after_the_kill_is_left_alone(
    machine: Machine, root: Root, tmp_path: Path
) -> None:
    told = tmp_path / "pid"
    kills.kill_with_guardian(machine, sleeper(told), told)
    root.set("vm.swappiness", "77")
    done = root("revert")
    assert "vm.swappiness: left at 77" in done.stderr
    assert (root.get("vm.swappiness"), root.get("vm.page-cluster")) == ("77", "3")


def test_a_killed_batch_is_put_back(machine: Machine, root: Root, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    request = {"id": 1, "command": sleeper(told), "settings": {"vm.swappiness": "10"}}
    with started("run", "--batch", root=root.path, stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        child.stdin.write(json.dumps(request) + "\n")
        child.stdin.flush()
        wait_until(lambda: kills.pid_in(told) is not None, "the workload runs")
        pid = kills.pid_in(told)
        assert pid is not None
        child.kill()
        child.wait()
        wait_until(machine.is_restored, "restored", kills.LOADED_S)
        wait_until(lambda: not is_alive(pid), "the workload has ended")


def test_a_batch_that_lost_its_reader_does_not_finish_the_run(
    machine: Machine, root: Root, tmp_path: Path
) -> None:
    told = tmp_path / "pid"
    request = {"id": 1, "command": sleeper(told), "settings": {"vm.swappiness": "10"}}
    with started("run", "--batch", root=root.path, stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(request) + "\n")
        child.stdin.flush()
        wait_until(lambda: kills.pid_in(told) is not None, "the workload runs")
        assert root.get("vm.swappiness") == "10"
        child.stdout.close()
        wait_until(lambda: child.poll() is not None, "the batch has ended", kills.LOADED_S)
        assert machine.is_restored()
        pid = kills.pid_in(told)
        assert pid is not None
        assert not is_alive(pid)
