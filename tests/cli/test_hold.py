"""``kilter hold``: a profile for good, and what happens to it meanwhile."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from .program import finish, started, wait_until
from .roots import RealKernel, Root, machine_alone, undisturbed
from .schemas import check

WANTED = {"vm.swappiness": "10", "vm.stat_interval": "7"}


@contextmanager
def holding(root: Root, *options: str, name: str = "mine") -> Iterator[subprocess.Popen[str]]:
    """``kilter hold run`` that has applied its profile."""
    with started("hold", "run", name, *every(options), *options, root=root.path) as child:
        wait_until(lambda: child.poll() is not None or bool(running(root)), "it holds")
        yield child


def every(options: tuple[str, ...]) -> tuple[str, ...]:
    return () if "--every" in options else ("--every", "0.1s")


def running(root: Root) -> list[Any]:
    holds = root("--json", "hold", "status")
    found: list[Any] = json.loads(holds.stdout)
    for hold in found:
        check("hold-info", hold)
    return [hold for hold in found if "pid" in hold]


def drifted(root: Root) -> dict[str, str]:
    return {drift["knob"]: drift["value"] for hold in running(root) for drift in hold["drifted"]}


@pytest.fixture
def mine(root: Root) -> Root:
    root.profile("mine", WANTED)
    return root


def end(child: subprocess.Popen[str]) -> str:
    child.send_signal(signal.SIGTERM)
    done = finish(child)
    assert done.returncode == 0, done
    return done.stderr


@pytest.mark.parametrize("policy", ["yield", "warn"])
def test_a_later_change_wins_and_is_told(mine: Root, policy: str) -> None:
    mine.put("etc/sysctl.d/99-admin.conf", "vm.swappiness = 42")
    with holding(mine, "--policy", policy) as child:
        assert mine.get("vm.swappiness") == "10"
        assert mine("hold", "status").returncode == 0
        mine.set("vm.swappiness", "42")
        wait_until(lambda: drifted(mine) == {"vm.swappiness": "42"}, "the change is noticed")
        assert mine("hold", "status").returncode == 1
        assert mine.get("vm.swappiness") == "42"
        mine.set("vm.swappiness", "10")
        wait_until(lambda: not drifted(mine), "the return is noticed")
        said = end(child)
    assert said.count("somebody has changed 10 to 42") == 1
    assert "/etc/sysctl.d/99-admin.conf:1" in said
    assert ("warning:" in said) == (policy == "warn")
    assert mine.get("vm.stat_interval") == "7", "settings outlive it unless asked otherwise"
    assert mine("revert", "mine").returncode == 0


def test_enforcing_sets_it_again(mine: Root) -> None:
    with holding(mine, "--policy", "enforce") as child:
        mine.set("vm.swappiness", "42")
        wait_until(lambda: mine.get("vm.swappiness") == "10", "it is set again")
        wait_until(lambda: running(mine)[0]["set_again"] == 1, "and counted")
        assert not drifted(mine)
        said = end(child)
    assert "set again to 10" in said


def test_its_end_reverts_only_where_asked(mine: Root) -> None:
    before = mine.settings()
    with holding(mine, "--revert-on-stop") as child:
        assert mine.settings() != before
        end(child)
    assert mine.settings() == before
    assert mine.layers() == []
    with holding(mine) as child:
        end(child)
    assert mine.settings() != before
    assert mine("revert").returncode == 0
    assert mine.settings() == before


def test_a_change_by_the_administrator_survives_the_revert(mine: Root) -> None:
    with holding(mine, "--revert-on-stop") as child:
        mine.set("vm.swappiness", "42")
        wait_until(lambda: bool(drifted(mine)), "the change is noticed")
        said = end(child)
    assert mine.get("vm.swappiness") == "42"
    assert mine.get("vm.stat_interval") == "1"
    assert "left at 42" in said


def test_killed_it_reverts_too_where_asked(mine: Root) -> None:
    before = mine.settings()
    with holding(mine, "--revert-on-stop") as child:
        child.kill()
        wait_until(lambda: mine.settings() == before, "the guardian puts everything back")
    with holding(mine) as child:
        child.kill()
        child.wait()
    assert mine.get("vm.swappiness") == "10", "and leaves it where not"
    assert running(mine) == []
    with holding(mine) as child:
        assert mine.get("vm.swappiness") == "10", "a second start takes it over"
        end(child)
    assert mine("revert").returncode == 0
    assert mine.settings() == before


def test_a_value_that_vanishes_and_returns_is_set_again(mine: Root) -> None:
    """As a CPU's settings do when it goes offline and comes back."""
    file = mine.path / "proc/sys/vm/swappiness"
    with holding(mine) as child:
        file.unlink()
        wait_until(lambda: running(mine)[0].get("gone") == ["vm.swappiness"], "it is gone")
        mine.set("vm.swappiness", "60")
        wait_until(lambda: mine.get("vm.swappiness") == "10", "it is set again")
        assert not drifted(mine)
        end(child)


def test_a_revert_by_somebody_ends_it(mine: Root) -> None:
    before = mine.settings()
    with holding(mine) as child:
        assert mine("revert", "mine").returncode == 0
        done = finish(child)
    assert done.returncode == 0
    assert "held no more" in done.stderr
    assert mine.settings() == before


def test_hangup_applies_the_profile_as_it_is_now(mine: Root) -> None:
    with holding(mine) as child:
        mine.profile("mine", {"vm.swappiness": "20"})
        child.send_signal(signal.SIGHUP)
        wait_until(lambda: mine.get("vm.swappiness") == "20", "the new value")
        assert mine.get("vm.stat_interval") == "1"
        end(child)


def test_nobody_else_can_write_who_holds(mine: Root) -> None:
    """Who writes that record decides which process ``hold remove`` ends."""
    old = os.umask(0)
    try:
        with holding(mine) as child:
            end(child)
        (mine.path / "etc/systemd/system").mkdir(parents=True)
        assert mine("hold", "mine").returncode == 0
    finally:
        os.umask(old)
    kept = mine.path / "run/kilter"
    (unit,) = (mine.path / "etc/systemd/system").iterdir()
    for path in (kept, *kept.rglob("*"), unit):
        mode = path.stat().st_mode
        assert not mode & (stat.S_IWOTH | stat.S_IWGRP), f"{path}: {oct(mode)}"


def test_a_profile_is_held_once(mine: Root) -> None:
    with holding(mine):
        again = mine("hold", "run", "mine")
    assert again.returncode == 2
    assert "already" in again.stderr


def test_an_experiment_is_left_in_peace(mine: Root) -> None:
    with holding(mine, "--policy", "enforce") as child:
        ran = mine("run", "--set", "vm.swappiness=77", "--", "sleep", "0.5")
        assert ran.returncode == 0, ran
        assert mine.get("vm.swappiness") == "10"
        said = end(child)
    assert "set again" not in said


def test_a_risky_profile_needs_a_yes(mine: Root) -> None:
    mine.profile("risky", {"vm.dirty_writeback_centisecs": "0"})
    for words in (("hold", "risky", "--dry-run"), ("hold", "run", "risky")):
        refused = mine(*words)
        assert refused.returncode == 2, words
        assert "--allow" in refused.stderr
    unit = mine("hold", "risky", "--allow", "durability", "--dry-run")
    assert "--allow durability" in unit.stdout


def test_the_unit_is_installed_and_removed(mine: Root) -> None:
    assert mine("hold", "status").returncode == 0
    nowhere = mine("hold", "mine")
    assert nowhere.returncode == 1
    assert "rc-update add kilter-hold-mine" in nowhere.stdout
    assert "exec " in nowhere.stdout
    (mine.path / "etc/systemd").mkdir(parents=True)
    assert mine("hold", "mine", "--policy", "enforce", "--revert-on-stop").returncode == 0
    unit = mine.path / "etc/systemd/system/kilter-hold-mine.service"
    text = unit.read_text()
    assert "hold run mine --policy enforce --every 30s --revert-on-stop" in text
    (hold,) = mine.json("hold", "status", code=1)
    assert hold["unit"] == "/etc/systemd/system/kilter-hold-mine.service"
    assert "pid" not in hold
    with holding(mine) as child:
        assert mine("hold", "remove", "mine").returncode == 0
        assert finish(child).returncode == 0
    assert not unit.exists()
    assert mine("hold", "remove", "mine").returncode == 2


def test_a_state_that_is_being_written_is_none_yet(mine: Root) -> None:
    """`hold remove` ends the process that it reads of, and would not find this one."""
    with holding(mine) as child:
        state = mine.path / "run/kilter/hold/mine.json"
        state.rename(state.with_name(".mine.json.7.part"))
        assert not running(mine)
        end(child)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
@pytest.mark.parametrize("options", [(), ("--revert-on-stop", "--policy", "enforce")])
def test_systemd_finds_nothing_wrong_with_the_unit(
    mine: Root, tmp_path: Path, options: tuple[str, ...]
) -> None:
    unit = tmp_path / "kilter-hold-mine.service"
    unit.write_text(mine("hold", "mine", "--dry-run", *options).stdout)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "kilter" in line]
    assert not ours, done.stderr
    assert done.returncode == 0, done.stderr


def test_systemd_is_told_when_it_is_ready(mine: Root, tmp_path: Path) -> None:
    place = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(place))
        told.settimeout(30)
        words = ("hold", "run", "mine", "--every", "0.1s")
        with started(*words, root=mine.path, env={"NOTIFY_SOCKET": str(place)}) as child:
            messages = [told.recv(1000).decode()]
            while messages[-1] != "READY=1":
                messages.append(told.recv(1000).decode())
            assert mine.get("vm.swappiness") == "10"
            end(child)
        while messages[-1] != "STOPPING=1":
            messages.append(told.recv(1000).decode())


@pytest.fixture
def real() -> Iterator[RealKernel]:
    with machine_alone():
        yield from undisturbed(RealKernel())


@contextmanager
def saved(name: str, values: dict[str, str]) -> Iterator[None]:
    """A profile of the machine's own catalog, for a while."""
    directory = Path("/etc/kilter/profiles")
    made = not directory.parent.exists()
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{name}.toml"
    lines = [f'"{knob}" = {{ value = "{value}" }}\n' for knob, value in values.items()]
    file.write_text(f'name = "{name}"\n[set]\n{"".join(lines)}')
    try:
        yield
    finally:
        file.unlink()
        if made:
            with suppress(OSError):
                directory.rmdir()
                directory.parent.rmdir()


@pytest.mark.real_kernel
@pytest.mark.parametrize("killed", [False, True], ids=["ended", "killed"])
def test_the_running_kernel_is_held(real: RealKernel, killed: bool) -> None:
    swappiness = Path("/proc/sys/vm/swappiness")
    name = "kilter-test-hold"
    with saved(name, {"vm.swappiness": "11", "vm.vfs_cache_pressure": "77"}):
        words = ("--policy", "enforce", "--revert-on-stop")
        with holding(real, *words, name=name) as child:
            assert swappiness.read_text() == "11\n"
            swappiness.write_text("12\n")
            wait_until(lambda: swappiness.read_text() == "11\n", "it is set again")
            child.send_signal(signal.SIGKILL if killed else signal.SIGTERM)
            child.wait()
            wait_until(lambda: not real.json("status")["layers"], "it is taken back")


@contextmanager
def loop_device(number: int) -> Iterator[Callable[[], None]]:
    """A block device that comes when asked for, with its event, and goes at the end."""
    add, remove = 0x4C80, 0x4C81
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        yield lambda: print(fcntl.ioctl(control, add, number))
    finally:
        with suppress(OSError):
            fcntl.ioctl(control, remove, number)
        os.close(control)


@pytest.mark.real_kernel
def test_a_device_that_comes_later_is_held_too(real: RealKernel) -> None:
    if not Path("/dev/loop-control").exists():
        pytest.skip("this kernel has no loop devices to add")
    name, knob = "kilter-test-hold", "block.loop77.read_ahead_kb"
    file = Path("/sys/block/loop77/queue/read_ahead_kb")
    with saved(name, {"vm.swappiness": "11", knob: "64"}), loop_device(77) as add:
        # The event wakes it; the next look would be in an hour.
        with holding(real, "--every", "3600s", "--revert-on-stop", name=name) as child:
            try:
                add()
            except OSError as error:
                pytest.skip(f"no loop device can be added: {error}")
            wait_until(lambda: file.exists() and file.read_text() == "64\n", "it is held")
            end(child)
        assert file.read_text() != "64\n"
