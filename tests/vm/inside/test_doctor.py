"""``kilter doctor`` sees what a machine has: swap in memory, pressure, control groups, schedulers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .machine import Machine, ask

MIB = 1024 * 1024


def checks() -> dict[str, dict[str, Any]]:
    """The doctor's checks by name."""
    return {check["name"]: check for check in ask("doctor")["checks"]}


def test_pressure_and_control_groups() -> None:
    report = ask("doctor")
    assert report["fingerprint"]["cgroup"] == "v2"
    (pressure,) = [c for c in report["checks"] if c["name"] == "pressure stalls (PSI)"]
    there = Path("/proc/pressure/cpu").exists()
    assert pressure["state"] == ("works" if there else "impossible")


def test_a_bpf_scheduler_is_none_of_a_fresh_kernel() -> None:
    assert checks()["BPF scheduler"]["state"] == "works"


@pytest.fixture
def zram() -> Iterator[str]:
    """Swap in compressed memory."""
    subprocess.run(["modprobe", "zram", "num_devices=1"], check=True)
    Path("/sys/block/zram0/disksize").write_text(f"{64 * MIB}\n")
    subprocess.run(["/sbin/mkswap", "/dev/zram0"], check=True, capture_output=True)
    subprocess.run(["/sbin/swapon", "-p", "100", "/dev/zram0"], check=True)
    yield "zram0"
    subprocess.run(["/sbin/swapoff", "/dev/zram0"], check=True)
    Path("/sys/block/zram0/reset").write_text("1\n")
    subprocess.run(["rmmod", "zram"], check=False)


def test_no_swap_is_told() -> None:
    assert checks()["swap"]["detail"].startswith("none")


def test_swap_in_compressed_memory(machine: Machine, zram: str) -> None:
    swap = checks()["swap"]
    assert swap["state"] == "works"
    assert "zram0" in swap["detail"]
    assert "64 MiB" in swap["detail"]
    # A virtual device's queue is no target of a glob.
    queue = [knob for knob in ask("knobs", "list", "--all") if f".{zram}." in knob["name"]]
    assert queue
    assert all(knob["virtual_device"] for knob in queue)
    plan = ask("apply", "--dry-run", "ktweak", "--skip-risky")
    assert f"block.{zram}." not in str(plan)
