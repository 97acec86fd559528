"""`kilter reclaim` on real processes: the right one, nothing but it, and the truth about it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from . import schemas
from .program import BINARY, GUEST, Done, children, finish, kilter, started, stat_fields, wait_until
from .roots import machine_alone

APP = Path(__file__).with_name("background.py")
CONTROL = Path("/sys/class/zram-control")
MEMORY = Path("/sys/fs/cgroup/memory")
FREEZER = Path("/sys/fs/cgroup/freezer")
UNIFIED = Path("/sys/fs/cgroup")
PARAMETERS = Path("/run/kilter/reclaim")
MIB = 1 << 20

pytestmark = pytest.mark.real_kernel


class App:
    """A process with memory."""

    def __init__(self, process: subprocess.Popen[str], mib: int) -> None:
        self.process, self.pid, self.mib = process, process.pid, mib

    def tell(self, command: str) -> str:
        """Its answer to a command."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def field(self, name: str) -> int:
        """Bytes of a line of its ``status``."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        return 0

    @property
    def swapped(self) -> int:
        """Bytes of it in swap."""
        return self.field("VmSwap")

    def score(self, value: int) -> None:
        """Set its oom_score_adj."""
        Path(f"/proc/{self.pid}/oom_score_adj").write_text(str(value))


@contextmanager
def app(mib: int, *words: str, group: Path | None = None) -> Iterator[App]:
    """An app, ready; in a cgroup where one is given."""
    command = [sys.executable, "-S", str(APP), str(mib), *words]
    if group is not None:
        command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *command]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, encoding="utf-8") as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
            yield App(process, mib)
        finally:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


class Swap:
    """A swap device in compressed memory of this test's own."""

    def __init__(self, number: int) -> None:
        self.device = Path(f"/dev/zram{number}")
        self.block = Path(f"/sys/block/zram{number}")
        self.made = False
        if not self.device.exists():
            major, minor = map(int, (self.block / "dev").read_text().split(":"))
            os.mknod(self.device, 0o600 | 0o060000, os.makedev(major, minor))
            self.made = True

    def on(self, mib: int) -> None:
        """Swap to it."""
        (self.block / "disksize").write_text(f"{mib}M")
        subprocess.run(["mkswap", self.device], check=True, capture_output=True)
        # Before any other: what is swapped in this test goes here.
        subprocess.run(["swapon", "-p", "1000", self.device], check=True)

    def off(self) -> None:
        """Swap to it no longer."""
        subprocess.run(["swapoff", self.device], check=False, capture_output=True)
        (self.block / "reset").write_text("1")


@contextmanager
def zram_device() -> Iterator[Swap]:
    """A device that nobody else has."""
    if GUEST and not CONTROL.exists():
        subprocess.run(["modprobe", "zram", "num_devices=0"], check=True)
    if os.geteuid() != 0 or not (CONTROL / "hot_add").exists():
        pytest.skip("no zram device can be added to this kernel")
    number = int((CONTROL / "hot_add").read_text())
    swap = Swap(number)
    try:
        yield swap
    finally:
        swap.off()
        (CONTROL / "hot_remove").write_text(str(number))
        if swap.made:
            swap.device.unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """The machine, for one test at a time."""
    with machine_alone():
        yield


@pytest.fixture
def swap() -> Iterator[Swap]:
    """1 GiB of swap on zram."""
    with zram_device() as swap:
        swap.on(1024)
        yield swap


@contextmanager
def memory_group(name: str, limit_mib: int) -> Iterator[Path]:
    """A memory cgroup with a limit."""
    if (MEMORY / "memory.limit_in_bytes").exists():
        group, limit = MEMORY / name, "memory.limit_in_bytes"
    elif "memory" in controllers():
        (UNIFIED / "cgroup.subtree_control").write_text("+memory")
        group, limit = UNIFIED / name, "memory.max"
    else:
        pytest.skip("no cgroup hierarchy has the memory controller")
    group.mkdir()
    try:
        (group / limit).write_text(f"{limit_mib}M")
        yield group
    finally:
        wait_until(lambda: removed(group), f"{group} is empty")


def controllers() -> list[str]:
    """Those of cgroup v2."""
    file = UNIFIED / "cgroup.controllers"
    return file.read_text().split() if file.exists() else []


@contextmanager
def freezer(name: str, group: Path) -> Iterator[tuple[Path, tuple[str, str], tuple[str, str]]]:
    """A cgroup that can be frozen, and what is written to which of its files for it and against."""
    if (group / "cgroup.freeze").exists():
        yield group, ("cgroup.freeze", "1"), ("cgroup.freeze", "0")
        return
    if not (FREEZER / "cgroup.procs").exists():
        pytest.skip("no cgroup hierarchy has a freezer")
    frozen = FREEZER / name
    frozen.mkdir()
    try:
        yield frozen, ("freezer.state", "FROZEN"), ("freezer.state", "THAWED")
    finally:
        wait_until(lambda: removed(frozen), f"{frozen} is empty")


def removed(group: Path) -> bool:
    """Remove a cgroup if it is empty."""
    with suppress(OSError):
        group.rmdir()
    return not group.exists()


def once(target: object, *options: object, code: int = 0) -> dict[str, Any]:
    """What `kilter reclaim once` told."""
    done = kilter("reclaim", "once", target, *options, "--json")
    assert done.returncode == code, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    schemas.check("reclaim-once", told)
    return told


def status() -> dict[str, Any]:
    """What `kilter reclaim status` tells of the daemon."""
    told: dict[str, Any] = json.loads(kilter("reclaim", "status", "--json").stdout)
    schemas.check("reclaim-status", told)
    daemon: dict[str, Any] = told["daemon"]
    return daemon


def followed(pid: int) -> dict[str, Any]:
    """The app of a process; empty if the daemon does not follow it."""
    apps: list[dict[str, Any]] = [found for found in status()["apps"] if pid in found["pids"]]
    return apps[0] if apps else {}


def is_running() -> bool:
    """Whether a daemon runs; what a killed one has left is none."""
    return "daemon" in json.loads(kilter("reclaim", "status", "--json").stdout)


@contextmanager
def daemon(tmp_path: Path, config: str, *options: object) -> Iterator[subprocess.Popen[str]]:
    """The daemon, once it is ready."""
    if is_running():
        pytest.skip("a daemon of reclaim is running on this machine")
    path = tmp_path / "reclaim.toml"
    path.write_text(config)
    with started("reclaim", "run", "--config", path, *options) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("Ready"):
                break
        else:
            pytest.fail("".join(said))
        yield process


def end(process: subprocess.Popen[str]) -> Done:
    """End the daemon as a person would."""
    process.send_signal(signal.SIGINT)
    return finish(process)


@pytest.fixture
def no_experiment() -> None:
    """Nobody else's experiment: there is one at a time on a machine."""
    until = time.monotonic() + 60
    while "experiment" in json.loads(kilter("status", "--json").stdout):
        if time.monotonic() > until:
            pytest.skip("an experiment is running on this machine")
        time.sleep(0.2)


# once


def test_it_tells_the_truth_and_loses_nothing(swap: Swap) -> None:
    with app(64) as background:
        told = once(background.pid)
        assert told["ended"] == "whole"
        assert told["method"] == "process_madvise"
        assert told["reclaimed_bytes"] > 60 * MIB
        assert told["before"]["swapped_bytes"] == 0
        assert abs(told["after"]["swapped_bytes"] - background.swapped) < MIB
        assert 60 * MIB < told["after"]["swapped_bytes"] < 80 * MIB
        assert 10 * MIB < told["zram_grew_bytes"] < 40 * MIB, "it compresses to a third"
        grew = told["zram_grew_bytes"] + told["swap_cache_grew_bytes"]
        assert told["gained_bytes"] == told["reclaimed_bytes"] - grew
        assert told["swap_cache_grew_bytes"] < MIB
        assert told["calls"] >= 64
        assert {"special"} <= {skip["reason"] for skip in told["skipped"]}
        again = once(background.pid)
        assert again["reclaimed_bytes"] < MIB
        assert again["walked_bytes"] > 60 * MIB, "the kernel counts what it walked"
        assert background.tell("touch") == "whole"
        assert background.swapped < 8 * MIB


def test_cold_takes_nothing_out(swap: Swap) -> None:
    with app(32) as background:
        told = once(background.pid, "--cold")
        assert (told["anon"], told["file"]) == ("cold", "cold")
        assert told["reclaimed_bytes"] < MIB
        assert background.swapped < MIB


def test_each_kind_of_memory_has_its_hint(swap: Swap) -> None:
    with app(32) as background:
        told = once(background.pid, "--file")
        assert (told["anon"], told["file"]) == ("leave", "pageout")
        # Pages of a program that were written to are its own.
        assert background.swapped < 4 * MIB
        assert "not asked for" in {skip["reason"] for skip in told["skipped"]}
        told = once(background.pid, "--anon=pageout", "--file=cold", "--workers", 2)
        assert (told["anon"], told["file"], told["workers"]) == ("pageout", "cold", 2)
        assert background.swapped > 30 * MIB
        assert background.tell("touch") == "whole"


def test_without_swap_it_says_so() -> None:
    if len(Path("/proc/swaps").read_text().splitlines()) > 1:
        pytest.skip("this machine swaps")
    with app(16) as background:
        told = once(background.pid)
        assert told["reclaimed_bytes"] < 8 * MIB
        assert "no swap" in " ".join(told["warnings"])


def test_memory_shared_with_a_child_stays_and_is_told(swap: Swap) -> None:
    with app(48, "share") as background:
        told = once(background.pid)
        assert told["walked_bytes"] > 45 * MIB
        assert told["reclaimed_bytes"] < 8 * MIB, "it is mapped twice"
        assert told["shared_bytes"] > 40 * MIB
        assert "copy-on-write" in " ".join(told["warnings"])


def test_locked_memory_is_left_out_and_told(swap: Swap) -> None:
    with app(32, "lock") as background:
        told = once(background.pid)
        locked = {skip["reason"]: skip["bytes"] for skip in told["skipped"]}
        assert locked["locked"] == 32 * MIB
        assert background.field("VmRSS") > 32 * MIB


def test_many_mappings_are_scanned(swap: Swap) -> None:
    with app(160, "mappings=20000") as background:
        told = once(background.pid)
        assert told["mappings"] > 1000
        assert told["scan"] == "pagemap_scan"
        assert told["reclaimed_bytes"] > 150 * MIB
        assert background.tell("touch") == "whole"


def test_a_hundred_thousand_mappings(swap: Swap) -> None:
    limit = Path("/proc/sys/vm/max_map_count")
    before = limit.read_text()
    limit.write_text("150000")
    try:
        with app(400, "mappings=100000") as background:
            told = once(background.pid)
            assert told["mappings"] > 1000
            assert told["reclaimed_bytes"] > 380 * MIB
            assert background.tell("touch") == "whole"
    finally:
        limit.write_text(before)


def test_locked_memory_among_many_mappings_is_left_out(swap: Swap) -> None:
    with app(80, "mappings=10000", "lock") as background:
        told = once(background.pid)
        skipped = {skip["reason"]: skip["bytes"] for skip in told["skipped"]}
        assert skipped["locked"] >= 80 * MIB
        assert background.field("VmRSS") > 80 * MIB


def test_a_cgroup_is_all_of_its_processes(swap: Swap) -> None:
    with memory_group("kilter-test-once", 500) as group, ExitStack() as stack:
        apps = [stack.enter_context(app(24, group=group)) for _ in range(2)]
        told = once("kilter-test-once")
        assert told["cgroup"] == "/kilter-test-once"
        assert told["processes"] == 2
        assert all(background.swapped > 20 * MIB for background in apps)
        assert [background.tell("touch") for background in apps] == ["whole"] * 2


def test_a_signal_ends_it_between_two_calls(swap: Swap) -> None:
    with app(500) as background:
        with started("reclaim", "once", background.pid, "--json") as process:
            wait_until(lambda: background.swapped > 10 * MIB, "it has begun")
            done = end(process)
        assert done.returncode == 1, done.stderr
        told = json.loads(done.stdout)
        assert told["ended"] == "cancelled"
        assert 0 < told["reclaimed_bytes"] < 490 * MIB
        assert background.tell("touch") == "whole"


def test_a_process_that_is_killed_meanwhile_ends_it(swap: Swap) -> None:
    with app(500) as background:
        with started("reclaim", "once", background.pid, "--json") as process:
            wait_until(lambda: background.swapped > 10 * MIB, "it has begun")
            background.process.kill()
            done = finish(process)
        assert done.returncode == 1, done.stderr
        assert json.loads(done.stdout)["ended"] == "died"


def test_another_program_in_its_place_is_left_alone(swap: Swap) -> None:
    with app(400) as background:
        with started("reclaim", "once", background.pid, "--json") as process:
            wait_until(lambda: background.swapped > 10 * MIB, "it has begun")
            assert background.tell("exec") == "ready"
            done = finish(process)
        assert json.loads(done.stdout)["ended"] == "executed", done.stdout
        assert background.swapped < 8 * MIB, "none of the new program's memory"
        assert background.tell("touch") == "whole"


def test_what_cannot_be_a_target_is_refused() -> None:
    threads = [pid for pid in children(2) if stat_fields(pid)[:1] != ["Z"]]
    for target, said in [
        ("999999999", "there is none"),
        ("0", "there is none"),
        ("-5", "there is none"),
        (str(threads[0]), "kernel thread"),
        ("no-such-thing", "neither a process nor a cgroup"),
        ("../../etc", "neither a process nor a cgroup"),
    ]:
        done = kilter("reclaim", "once", "--json", "--", target)
        assert done.returncode == 2, (target, done)
        assert said in done.stderr, (target, done.stderr)
        assert done.stdout == ""
    assert kilter("reclaim", "once", os.getpid(), "--call-kib", 1000).returncode == 2
    assert kilter("reclaim", "once", os.getpid(), "--cold", "--pageout").returncode == 2
    done = kilter("reclaim", "once", 1, root=Path("/tmp"))
    assert done.returncode == 2
    assert "--root" in done.stderr


def test_a_zombie_is_told() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    try:
        wait_until(lambda: stat_fields(pid)[:1] == ["Z"], "it has ended")
        assert "only its parent" in kilter("reclaim", "once", pid).stderr
    finally:
        os.waitpid(pid, 0)


def test_without_the_right_nothing_is_done(swap: Swap) -> None:
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    with app(16) as background:
        done = kilter("reclaim", "once", background.pid, prefix=nobody)
        assert done.returncode == 2
        assert "not permitted" in done.stderr
        assert "hint: sudo kilter reclaim once" in done.stderr
        assert background.swapped == 0
    done = kilter("reclaim", "run", prefix=nobody)
    assert done.returncode == 2
    assert "needs root" in done.stderr


# run

SCORE = "[cached]\noom_score_adj = 900\nidle_s = 0\n"


def test_the_longest_cached_goes_first_and_the_active_stays(swap: Swap, tmp_path: Path) -> None:
    with memory_group("kilter-test-run", 400) as group, ExitStack() as stack:
        process = stack.enter_context(daemon(tmp_path, SCORE, "--within", group))
        first = stack.enter_context(app(90, group=group))
        first.score(900)
        wait_until(lambda: followed(first.pid).get("state") == "cold", "the first is cold")
        assert first.swapped == 0, "memory is not scarce"
        second = stack.enter_context(app(90, group=group))
        second.score(905)
        wait_until(lambda: followed(second.pid).get("state") == "cold", "the second is cold")
        active = stack.enter_context(app(130, group=group))
        wait_until(lambda: first.swapped > 80 * MIB, "the first is out", 20)
        assert active.swapped < 8 * MIB
        wait_until(lambda: followed(first.pid)["state"] == "paged-out", "it is told")
        assert followed(second.pid)["state"] == "cold", "no more than needed"
        told = status()
        assert told["policy"] == "pressure"
        assert told["within"] == "/kilter-test-run"
        assert told["total"]["pageouts"] == 1
        explained = kilter("reclaim", "explain", first.pid)
        assert "oom_score_adj" in explained.stdout
        assert "last: pageout" in explained.stdout
        assert kilter("reclaim", "explain", os.getpid()).returncode == 2
        assert [one.tell("touch") for one in (first, second, active)] == ["whole"] * 3
        assert end(process).returncode == 0
    assert not PARAMETERS.exists(), "nothing is left"


def test_on_cached_pages_out_at_once_and_reads_back(swap: Swap, tmp_path: Path) -> None:
    with memory_group("kilter-test-eager", 900) as group, ExitStack() as stack:
        options = ("--policy", "on-cached", "--within", group)
        stack.enter_context(daemon(tmp_path, SCORE, *options))
        background = stack.enter_context(app(60, group=group))
        time.sleep(1.5)
        assert background.swapped == 0
        background.score(950)
        wait_until(lambda: background.swapped > 50 * MIB, "it is out", 20)
        wait_until(lambda: status()["total"]["pageouts"] == 1, "it is told")
        background.score(0)
        wait_until(lambda: status()["total"]["prefetches"] == 1, "it is read back", 20)
        assert background.tell("touch") == "whole"


def test_a_frozen_app_is_cached(swap: Swap, tmp_path: Path) -> None:
    with memory_group("kilter-test-freeze", 900) as group, ExitStack() as stack:
        frozen, freeze, thaw = stack.enter_context(freezer("kilter-test-frozen", group))
        options = ("--policy", "on-cached", "--within", group)
        stack.enter_context(daemon(tmp_path, SCORE, *options))
        background = stack.enter_context(app(40, group=group))
        (frozen / "cgroup.procs").write_text(str(background.pid))
        (frozen / freeze[0]).write_text(freeze[1])
        stack.callback(lambda: (frozen / thaw[0]).write_text(thaw[1]))
        wait_until(lambda: background.swapped > 30 * MIB, "it is out")
        assert followed(background.pid)["why"] == "it is frozen"
        (frozen / thaw[0]).write_text(thaw[1])
        wait_until(lambda: followed(background.pid)["state"] == "active", "it is back")
        assert background.tell("touch") == "whole"


def test_an_app_out_of_focus_is_cached(swap: Swap, tmp_path: Path) -> None:
    """The desktop says when a group lost the focus, in an attribute of its directory."""
    with memory_group("kilter-test-focus", 900) as group, ExitStack() as stack:
        if (group / "cgroup.freeze").exists() is False:
            pytest.skip("directories of cgroup v1 have no attributes of users")
        options = ("--policy", "on-cached", "--within", group)
        own = group / "app"
        own.mkdir()
        stack.callback(lambda: wait_until(lambda: removed(own), f"{own} is empty"))
        os.setxattr(own, "user.inactive-since", b"0")
        stack.enter_context(daemon(tmp_path, SCORE, *options))
        background = stack.enter_context(app(40, group=own))
        # Whoever has the focus is not cached, whatever its score says.
        background.score(950)
        wait_until(lambda: followed(background.pid).get("state") == "active", "it is followed")
        os.setxattr(own, "user.inactive-since", str(time.monotonic_ns() // 1000).encode())
        wait_until(lambda: background.swapped > 30 * MIB, "it is out")
        assert followed(background.pid)["why"].startswith("in focus: not for")
        os.setxattr(own, "user.inactive-since", b"0")
        wait_until(lambda: followed(background.pid)["state"] == "active", "it is back")
        assert background.tell("touch") == "whole"


def test_who_plays_sound_is_left_alone(swap: Swap, tmp_path: Path) -> None:
    """An app has memory in common with a sound server: a file without a name that tells its own."""
    options = ("--policy", "on-cached")
    with memory_group("kilter-test-sound", 900) as group, ExitStack() as stack:
        stack.enter_context(daemon(tmp_path, SCORE, *options, "--within", group))
        background = stack.enter_context(app(40, "sound", group=group))
        background.score(950)
        wait_until(lambda: followed(background.pid).get("state") == "left-out", "it is left out")
        assert "sound" in followed(background.pid)["why"]
        assert background.swapped == 0


def test_full_swap_is_told_and_nothing_is_lost(swap: Swap, tmp_path: Path) -> None:
    if len(Path("/proc/swaps").read_text().splitlines()) > 2:
        pytest.skip("this machine swaps elsewhere too")
    swap.off()
    swap.on(24)
    with app(64) as background:
        told = once(background.pid)
        assert told["reclaimed_bytes"] < 32 * MIB
        assert "swap" in " ".join(told["warnings"]), told["warnings"]
        assert background.tell("touch") == "whole"
    with memory_group("kilter-test-full", 900) as group, ExitStack() as stack:
        options = ("--policy", "on-cached", "--within", group)
        stack.enter_context(daemon(tmp_path, SCORE, *options))
        background = stack.enter_context(app(64, group=group))
        background.score(950)
        wait_until(lambda: "swap" in status().get("stopped", ""), "it is told")
        assert calm(3.0)
        assert background.tell("touch") == "whole"


def test_full_compressed_memory_is_told_and_nothing_is_lost(swap: Swap, tmp_path: Path) -> None:
    """Swap has room, but the memory behind it has reached its limit: writes to it fail."""
    (swap.block / "mem_limit").write_text("8M")
    with app(64) as background:
        told = once(background.pid)
        assert told["gained_bytes"] < 40 * MIB
        assert told["swap_cache_grew_bytes"] > 20 * MIB, "taken from it, but not written"
        assert "zram" in " ".join(told["warnings"]), told["warnings"]
        assert background.tell("touch") == "whole"
    with memory_group("kilter-test-limit", 900) as group, ExitStack() as stack:
        options = ("--policy", "on-cached", "--within", group)
        stack.enter_context(daemon(tmp_path, SCORE, *options))
        background = stack.enter_context(app(64, group=group))
        background.score(950)
        wait_until(lambda: "compressed" in status().get("stopped", ""), "it is told")
        assert calm(3.0)
        assert background.tell("touch") == "whole"


def calm(seconds: float) -> bool:
    """Whether the daemon sleeps most of the time, and pages nothing out."""
    before, begun = status()["total"], time.monotonic()
    time.sleep(seconds)
    after, took = status()["total"], time.monotonic() - begun
    assert (after["wakeups"] - before["wakeups"]) / took < 8, "a busy loop"
    return bool(after["pageouts"] == before["pageouts"])


def test_without_pressure_information_it_goes_by_the_clock(swap: Swap, tmp_path: Path) -> None:
    if not Path("/proc/pressure/memory").exists():
        pytest.skip("all tests here are without pressure information")
    hidden = ("unshare", "--mount", "sh", "-c")
    hidden += ('mount -t tmpfs none /proc/pressure; exec "$@"', "sh")
    config = tmp_path / "reclaim.toml"
    config.write_text(SCORE)
    with memory_group("kilter-test-clock", 200) as group, ExitStack() as stack:
        process = stack.enter_context(
            started("reclaim", "run", "--config", config, "--within", group, prefix=hidden)
        )
        wait_until(is_running, "it runs")
        background = stack.enter_context(app(90, group=group))
        background.score(900)
        stack.enter_context(app(80, group=group))
        wait_until(lambda: background.swapped > 60 * MIB, "it is out")
        assert calm(2.0)
        assert "no memory pressure" in end(process).stderr


def test_it_works_in_a_container(swap: Swap) -> None:
    """In a namespace of processes the numbers are those of the namespace."""
    inside = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", sys.executable, "-c")
    script = (
        "import json, subprocess, sys\n"
        "app = subprocess.Popen(sys.argv[2:], stdin=-1, stdout=-1, text=True)\n"
        "app.stdout.readline()\n"
        "words = [sys.argv[1], 'reclaim', 'once', str(app.pid), '--json']\n"
        "print(json.dumps([app.pid, json.loads(subprocess.check_output(words))]))\n"
        "app.stdin.close()\n"
    )
    own = [sys.executable, "-S", str(APP), "32"]
    done = subprocess.run(
        [*inside, script, str(BINARY), *own], capture_output=True, text=True, check=True
    )
    pid, told = json.loads(done.stdout)
    assert told["pid"] == pid < 100
    assert told["reclaimed_bytes"] > 28 * MIB


def test_rules_decide_and_what_must_stay_stays(swap: Swap, tmp_path: Path) -> None:
    rules = '[[rule]]\nname = "python*"\ncached = "always"\n'
    with memory_group("kilter-test-rules", 900) as group, ExitStack() as stack:
        options = ("--policy", "on-cached", "--within", group)
        stack.enter_context(daemon(tmp_path, SCORE + rules, *options))
        names = [stack.enter_context(app(24, *words, group=group)) for words in ((), ("lock",))]
        free, locked = names
        wait_until(lambda: free.swapped > 18 * MIB, "a rule says that it is cached", 20)
        wait_until(lambda: followed(locked.pid)["state"] == "left-out", "it has locked memory")
        assert "locked" in followed(locked.pid)["why"]
        assert locked.field("VmRSS") > 24 * MIB
        # A changed configuration is taken up.
        never = rules.replace("always", "never")
        (tmp_path / "reclaim.toml").write_text(SCORE + never)
        wait_until(lambda: followed(free.pid)["state"] == "left-out", "it is read again", 20)
        (tmp_path / "reclaim.toml").write_text("nonsense = 1\n")
        time.sleep(1)
        assert followed(free.pid)["state"] == "left-out", "what cannot be read changes nothing"


def test_swapoff_in_the_middle_stops_it(swap: Swap, tmp_path: Path) -> None:
    if len(Path("/proc/swaps").read_text().splitlines()) > 2:
        pytest.skip("this machine swaps elsewhere too")
    with memory_group("kilter-test-off", 900) as group, ExitStack() as stack:
        options = ("--policy", "on-cached", "--within", group)
        stack.enter_context(daemon(tmp_path, SCORE, *options))
        background = stack.enter_context(app(40, group=group))
        background.score(900)
        wait_until(lambda: background.swapped > 30 * MIB, "it is out", 20)
        subprocess.run(["swapoff", swap.device], check=True)
        wait_until(lambda: status().get("stopped") == "there is no swap", "it is told", 40)
        before, begun = status()["total"], time.monotonic()
        time.sleep(3)
        after = status()["total"]
        rate = (after["wakeups"] - before["wakeups"]) / (time.monotonic() - begun)
        assert rate < 8, "no busy loop"
        assert after["pageouts"] == before["pageouts"]
        assert background.tell("touch") == "whole"


def test_an_app_that_comes_back_at_once_is_left_alone(swap: Swap, tmp_path: Path) -> None:
    rule = '[[rule]]\nname = "python*"\ncached = "always"\n[params]\napp_throttle_s = 0\n'
    with memory_group("kilter-test-back", 900) as group, ExitStack() as stack:
        options = ("--policy", "on-cached", "--within", group)
        stack.enter_context(daemon(tmp_path, rule, *options))
        background = stack.enter_context(app(40, group=group))
        told: dict[str, Any] = {}
        until = time.monotonic() + 40
        while told.get("refaulted_bytes", 0) < 20 * MIB:
            assert time.monotonic() < until, told
            assert background.tell("touch") == "whole"
            told = followed(background.pid)
        assert told["strikes"] >= 1
        assert told["left_alone_s"] > 0
        for _ in range(30):
            assert background.tell("touch") == "whole"
            time.sleep(0.05)
        assert status()["total"]["pageouts"] <= 2


def test_parameters_are_files_that_change_while_it_runs(
    no_experiment: None, tmp_path: Path
) -> None:
    with daemon(tmp_path, SCORE, "--set", "min_app_mb=20") as process:
        assert (PARAMETERS / "min_app_mb").read_text() == "20\n"
        assert kilter("run", "--set", "reclaim.delta_mb=33", "--", "true").returncode == 0
        assert (PARAMETERS / "delta_mb").read_text() == "8\n", "put back"
        seen = kilter(
            "run", "--set", "reclaim.delta_mb=33", "--", "cat", PARAMETERS / "delta_mb"
        ).stdout
        assert seen.startswith("33\n")
        (PARAMETERS / "refault_percent").write_text("0\n")
        wait_until(lambda: (PARAMETERS / "refault_percent").read_text() == "1\n", "put back")
        second = kilter("reclaim", "run", "--config", tmp_path / "reclaim.toml")
        assert second.returncode == 2
        assert "another" in second.stderr
        done = end(process)
        assert done.returncode == 0
        assert "refault_percent=0: it must lie from 1 to 100" in done.stderr
    refused = kilter("run", "--set", "reclaim.delta_mb=33", "--", "true")
    assert refused.returncode == 125
    assert "kilter reclaim run" in refused.stderr


def test_after_sigkill_nothing_needs_undoing(tmp_path: Path) -> None:
    with daemon(tmp_path, SCORE) as process:
        process.kill()
        process.wait()
    assert json.loads(kilter("reclaim", "status", "--json").stdout) == {}
    with daemon(tmp_path, SCORE, "--set", "delta_mb=9"):
        assert (PARAMETERS / "delta_mb").read_text() == "9\n", "what was left is taken over"
    assert not PARAMETERS.exists()


def test_the_policy_is_a_knob(no_experiment: None) -> None:
    if is_running():
        pytest.skip("a daemon of reclaim is running on this machine")
    inside = ("--", BINARY, "reclaim", "status", "--json")
    done = kilter("run", "--set", "reclaim.policy=on-cached", *inside)
    assert done.returncode == 0, done.stderr
    assert '"policy": "on-cached"' in done.stdout
    assert not is_running()
    done = kilter("run", "--set", "reclaim.policy=eager", "--", "true")
    assert done.returncode == 125


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("nonsense = 1\n", "unknown field"),
        ('policy = "eager"\n', "on-cached"),
        ("[params]\nidle_s = -1\n", "from 0 to 86400"),
        ('\n\n[[rule]]\nname = "x"\n', ":3:"),
        ('within = "/no/such/group"\n', "neither a process nor a cgroup"),
    ],
)
def test_a_wrong_configuration_starts_nothing(tmp_path: Path, config: str, said: str) -> None:
    path = tmp_path / "reclaim.toml"
    path.write_text(config)
    done = kilter("reclaim", "run", "--config", path)
    assert done.returncode == 2
    assert said in done.stderr
    assert not is_running()


def test_without_a_daemon_there_is_nothing_to_tell() -> None:
    if is_running():
        pytest.skip("a daemon of reclaim is running on this machine")
    assert "No daemon" in kilter("reclaim", "status").stdout
    done = kilter("reclaim", "explain", "x")
    assert done.returncode == 2
    assert "hint: sudo kilter reclaim run" in done.stderr
