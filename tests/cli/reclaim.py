"""What tests of `kilter reclaim` need: apps, swap of their own, cgroups, the daemon."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from . import schemas
from .program import GUEST, Done, finish, kilter, started, wait_until

APP = Path(__file__).with_name("background.py")
CONTROL = Path("/sys/class/zram-control")
MEMORY = Path("/sys/fs/cgroup/memory")
FREEZER = Path("/sys/fs/cgroup/freezer")
UNIFIED = Path("/sys/fs/cgroup")
PARAMETERS = Path("/run/kilter/reclaim")
MIB = 1 << 20
SCORE = "[cached]\noom_score_adj = 900\nidle_s = 0\n"


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
        remove(group)


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
        remove(frozen)


def remove(group: Path) -> None:
    """Remove a cgroup as soon as it is empty."""

    def removed() -> bool:
        with suppress(OSError):
            group.rmdir()
        return not group.exists()

    wait_until(removed, f"{group} is empty")


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


def calm(seconds: float) -> bool:
    """Whether the daemon sleeps most of the time, and pages nothing out."""
    before, begun = status()["total"], time.monotonic()
    time.sleep(seconds)
    after, took = status()["total"], time.monotonic() - begun
    assert (after["wakeups"] - before["wakeups"]) / took < 8, "a busy loop"
    return bool(after["pageouts"] == before["pageouts"])
