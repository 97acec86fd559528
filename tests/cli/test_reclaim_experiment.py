"""`kilter reclaim experiment` on the running kernel: the tables, and nothing left behind.

Takes a zram device that nobody uses, and a memory cgroup of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from .program import (
    SLOW,
    Done,
    check_sane,
    is_alive,
    kill_quietly,
    kilter,
    started,
    stat_fields,
    wait_until,
)
from .roots import machine_alone

SMALL = ("--apps", 3, "--app-mib", 24, "--limit-mib", 60, "--think", "50ms", "--seed", 3)
PATIENCE_S = 600.0
"""A busy machine: nothing here is about time."""
GROUP = "kilter-reclaim-experiment"
NOTE = Path("/run/kilter/reclaim-experiment.json")
BLOCK = Path("/sys/block")

pytestmark = pytest.mark.real_kernel


def memory_cgroups() -> Path | None:
    """The memory controller's hierarchy."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        place = Path(before.split(" ")[4])
        if kind == "cgroup" and "memory" in options.rpartition(" ")[2].split(","):
            return place
        if kind == "cgroup2" and "memory" in (place / "cgroup.controllers").read_text().split():
            return place
    return None


def zram() -> dict[str, str]:
    """Every zram device, and its size."""
    return {d.name: (d / "disksize").read_text().strip() for d in BLOCK.glob("zram*")}


def why_not() -> str:
    """What is missing here; empty if nothing is."""
    if os.geteuid() != 0:
        return "limiting memory and setting up swap needs root"
    if memory_cgroups() is None:
        return "there is no memory cgroup"
    if not Path("/sys/class/zram-control/hot_add").exists() and "0" not in zram().values():
        return "no zram device is free, and none can be added"
    if not shutil.which("mkswap", path="/usr/sbin:/sbin"):
        return "mkswap is missing"
    return ""


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    """Skips where it cannot run; afterwards everything is as it was."""
    if reason := why_not():
        pytest.skip(reason)
    with machine_alone():
        before = zram(), Path("/proc/swaps").read_text()
        yield
        wait_until(lambda: not NOTE.exists(), "the note of an experiment is gone", 60)
        assert (zram(), Path("/proc/swaps").read_text()) == before
        root = memory_cgroups()
        assert root is not None
        assert not (root / GROUP).exists()
        assert processes_with("apps.py") == []


def processes_with(*words: str) -> list[int]:
    """Processes with all of these in their command lines."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if all(word in line for word in words) and is_alive(int(entry.name)):
                    found.append(int(entry.name))
    return found


def experiment(*args: object) -> Done:
    """Run an experiment to its end, however long that takes."""
    with started("reclaim", "experiment", *args) as child:
        out, err = child.communicate(timeout=PATIENCE_S)
        done = Done(child.args, child.returncode, out, err)
    check_sane(done)
    return done


def test_appswitch_tells_kills_and_launches() -> None:
    arms = ("--arms", "none,every-switch", "--blocks", 2, "--switches", 4)
    done = experiment("appswitch", *SMALL, *arms, "--json")
    assert done.returncode in (0, 1), done.stderr
    told = json.loads(done.stdout)
    base, arm = told["arms"]
    assert (base["arm"], arm["arm"]) == ("none", "every-switch")
    # Two of three fit: without swap the third costs a kill, with the others paged out none.
    assert base["means"]["kills"] >= 1
    assert arm["means"]["kills"] == 0
    # Two blocks may be too few for more, if something else ran meanwhile.
    assert arm["counts"]["kills"]["verdict"] in ("better", "inconclusive")
    assert base["means"]["cold_starts"] + base["means"]["hot_starts"] == 4
    assert arm["means"]["reclaim_cpu_s"] > 0 == base["means"]["reclaim_cpu_s"]
    assert arm["vmstat"]["pswpout"] > 24 * 256 > base["vmstat"]["pswpout"]
    (judged,) = told["comparison"]["arms"]
    assert [v["metric"] for v in judged["verdicts"]] == ["launch_p90_s", "launch_mean_s"]
    assert all(v["blocks"] == 2 for v in judged["verdicts"])


@pytest.mark.skipif(SLOW, reason="21 starts of an app take minutes under emulation")
def test_startup_tells_each_way() -> None:
    small = ("--kinds", "canvas", "--app-mib", 12, "--blocks", 2)
    done = experiment("startup", *small, "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["kinds"]
    arms = found["comparison"]["arms"]
    assert [arm["label"] for arm in arms] == ["hot", "resident", "pageout", "kill"]
    middle = {arm["label"]: arm["verdicts"][0]["arm_median"] for arm in arms}
    assert 0 < middle["resident"] < middle["hot"]
    assert 0 < middle["kill"] < middle["pageout"]


def running() -> tuple[int, int]:
    """The run of an experiment that is going on, and its caretaker."""
    found = processes_with("kilter_lab.reclaim.switching", '"arm"', "-I")
    runs = [pid for pid in found if not processes_of_kilter(pid)]
    caretaker = json.loads(NOTE.read_text())["caretaker"]
    (run,) = [pid for pid in runs if pid != caretaker]
    return run, caretaker


def processes_of_kilter(pid: int) -> bool:
    """Whether it is kilter itself, which was told the command."""
    return Path(f"/proc/{pid}/exe").resolve().name == "kilter"


def in_the_middle() -> bool:
    """Whether apps run."""
    root = memory_cgroups()
    assert root is not None
    with suppress(OSError):
        return NOTE.exists() and len((root / GROUP / "cgroup.procs").read_text().split()) >= 2
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_however_it_ends(number: signal.Signals) -> None:
    arms = ("--arms", "none,senpai", "--blocks", 2, "--switches", 1000)
    with started("reclaim", "experiment", "appswitch", *SMALL, *arms) as child:
        wait_until(in_the_middle, "apps run", PATIENCE_S)
        child.send_signal(number)
        child.communicate(timeout=PATIENCE_S)
    assert child.returncode != 0
    # The fixture checks the rest.


def test_what_nobody_could_take_back_the_next_one_does() -> None:
    arms = ("--arms", "none,senpai", "--blocks", 2, "--switches", 1000)
    with started("reclaim", "experiment", "appswitch", *SMALL, *arms) as child:
        wait_until(in_the_middle, "apps run", PATIENCE_S)
        run, caretaker = running()
        kill_quietly(caretaker)
        kill_quietly(run)
        child.communicate(timeout=PATIENCE_S)
    wait_until(lambda: stat_fields(run)[:1] in ([], ["Z"]), "the run is dead")
    assert NOTE.exists()
    short = ("--arms", "none,every-switch", "--blocks", 2, "--switches", 1)
    done = experiment("appswitch", *SMALL, *short)
    assert done.returncode in (0, 1), done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("appswitch", "--arms", "none"), "two or more different ones"),
        (("appswitch", "--arms", "none,none"), "two or more different ones"),
        (("appswitch", "--limit-mib", "100"), "two apps of 80 MiB have to fit"),
        (("appswitch", "--killer", "earlyoom", "--arms", "none,senpai"), "memory cgroup"),
        (("appswitch", "--killer", "kernel", "--arms", "none,swap"), "memory cgroup"),
        (("appswitch", "--think", "soon"), "--think soon"),
        (("startup", "--kinds", "magic"), "invalid value"),
        (("startup", "--blocks", "1"), "2..=1000"),
    ],
)
def test_what_makes_no_sense_is_refused(args: tuple[str, ...], said: str) -> None:
    done = kilter("reclaim", "experiment", *args)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_a_large_machine_as_a_whole_is_not_made_short_of_memory() -> None:
    if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") <= 4 << 30:
        pytest.skip("this machine is small enough for it")
    for killer in ("earlyoom", "kernel"):
        done = kilter("reclaim", "experiment", "appswitch", "--killer", killer)
        assert done.returncode == 2
        assert "a guest or a small machine" in done.stderr
        assert done.stdout == ""


def test_other_users_are_refused() -> None:
    nobody = ("setpriv", "--reuid=65534", "--clear-groups")
    done = kilter("reclaim", "experiment", "appswitch", prefix=nobody)
    assert done.returncode == 2
    assert "root" in done.stderr
