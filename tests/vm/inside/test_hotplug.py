"""CPUs and disks that come and go while a layer is in force."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.program import kilter, wait_until

from .machine import Machine, ask, read

CPU = Path("/sys/devices/system/cpu/cpu1/online")
SCHED = ("sched.base_slice_ns", "sched.latency_ns", "sched.min_granularity_ns")


@pytest.fixture
def second_cpu() -> Iterator[Path]:
    """The second CPU, online again afterwards."""
    if not CPU.exists():
        pytest.skip("the second CPU cannot be taken away")
    yield CPU
    if CPU.read_text() != "1\n":
        CPU.write_text("1\n")


class Times:
    """The scheduler's times, each twice what it was."""

    def __init__(self, machine: Machine) -> None:
        knobs = {k["name"]: k["state"] for k in machine.knobs if k["state"]["state"] == "present"}
        self.files = {knob: Path(knobs[knob]["path"]) for knob in SCHED if knob in knobs}
        assert self.files, "every kernel has one of these"
        self.wanted = {knob: str(2 * int(knobs[knob]["value"])) for knob in self.files}
        self.settings = [f"{knob}={value}" for knob, value in self.wanted.items()]

    def held(self) -> bool:
        """Whether the kernel shows them."""
        shown = {knob: file.read_text().strip() for knob, file in self.files.items()}
        return shown == self.wanted


def test_scheduler_times_come_back_with_a_cpu(machine: Machine, second_cpu: Path) -> None:
    times = Times(machine)
    with machine.undisturbed():
        profile = hold("returns", times.settings)
        # CFS scales them with the number of CPUs meanwhile (2 CPUs to 1: half).
        second_cpu.write_text("0\n")
        second_cpu.write_text("1\n")
        held, verified = times.held(), kilter("verify").returncode
        done = kilter("revert", profile)
        assert (held, verified, done.returncode) == (True, 0, 0), done
        # What has returned must survive too.
        second_cpu.write_text("0\n")
        second_cpu.write_text("1\n")


def test_without_scaling_scheduler_times_stay(machine: Machine, second_cpu: Path) -> None:
    times = Times(machine)
    with machine.undisturbed():
        profile = hold("stays", [*times.settings, "sched.tunable_scaling=0"])
        second_cpu.write_text("0\n")
        while_away = times.held(), kilter("verify").returncode
        second_cpu.write_text("1\n")
        afterwards = times.held(), kilter("verify").returncode
        done = kilter("revert", profile)
        assert (while_away, afterwards, done.returncode) == ((True, 0), (True, 0), 0), done
        second_cpu.write_text("0\n")
        second_cpu.write_text("1\n")


def test_a_layer_taken_back_while_a_cpu_is_away(machine: Machine, second_cpu: Path) -> None:
    with machine.undisturbed():
        profile = hold("away", ["vm.swappiness=17", "vm.stat_interval=5"])
        second_cpu.write_text("0\n")
        done = kilter("revert", profile)
        second_cpu.write_text("1\n")
        assert done.returncode == 0, done


def hold(name: str, settings: list[str]) -> str:
    """A profile of these settings, applied."""
    lines = [f'"{knob}" = {{ value = "{value}" }}\n' for knob, _, value in map(split, settings)]
    file = Path("/etc/kilter/profiles") / f"{name}.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'name = "{name}"\nsummary = "Of a test"\n\n[set]\n{"".join(lines)}')
    done = kilter("apply", name)
    assert done.returncode == 0, done
    return name


def split(setting: str) -> tuple[str, str, str]:
    """A knob and its value."""
    return setting.partition("=")


@pytest.fixture
def scsi_disk() -> Iterator[str]:
    """A disk that can be pulled out."""
    before = set(disks())
    subprocess.run(["modprobe", "scsi_debug", "dev_size_mb=8"], check=True)
    wait_until(lambda: bool(disks() - before), "the disk has come")
    (disk,) = disks() - before
    wait_until(lambda: Path("/sys/block", disk, "queue/nr_requests").exists(), "its queue has come")
    yield disk
    wait_until(scsi_debug_is_gone, "nothing holds the disk")


def scsi_debug_is_gone() -> bool:
    """Whether the disk's driver could be removed."""
    return subprocess.run(["rmmod", "scsi_debug"], capture_output=True, check=False).returncode == 0


def disks() -> set[str]:
    """SCSI disks."""
    return {path.name for path in Path("/sys/block").glob("sd*")}


def queue_settings(disk: str) -> list[str]:
    """Some that every SCSI disk has."""
    return [
        f"block.{disk}.read_ahead_kb=512",
        f"block.{disk}.nomerges=2",
        f"block.{disk}.iostats=0",
        "vm.swappiness=23",
    ]


def test_a_disk_pulled_out_of_an_applied_profile(machine: Machine, scsi_disk: str) -> None:
    with machine.undisturbed():
        profile = hold("pulled", queue_settings(scsi_disk))
        Path("/sys/block", scsi_disk, "device/delete").write_text("1\n")
        wait_until(lambda: scsi_disk not in disks(), "the disk has gone")
        assert kilter("status").returncode == 0
        done = kilter("revert", profile)
        assert "panicked" not in done.stderr
        assert ask("status")["layers"] == [], done
    assert read(Path("/proc/sys/vm/swappiness")) != "23\n"


def test_a_disk_pulled_out_of_a_run(machine: Machine, scsi_disk: str) -> None:
    options = [word for setting in queue_settings(scsi_disk) for word in ("--set", setting)]
    delete = f"/sys/block/{scsi_disk}/device/delete"
    with machine.undisturbed():
        done = kilter("run", *options, "--", "sh", "-c", f"echo 1 > {delete}; exit 9")
        assert done.returncode == 9, done
        assert ask("status")["layers"] == []


def test_a_disk_that_comes_while_a_profile_holds(machine: Machine) -> None:
    with machine.undisturbed():
        profile = hold("comes", ["vm.swappiness=29", "block.*.nomerges=1"])
        try:
            subprocess.run(["modprobe", "scsi_debug", "dev_size_mb=8"], check=True)
            wait_until(lambda: bool(disks()), "the disk has come")
            (disk,) = disks()
            assert kilter("verify").returncode in (0, 1)
            assert f"block.{disk}.nomerges" not in str(ask("status"))
        finally:
            assert kilter("revert", profile).returncode == 0
        wait_until(scsi_debug_is_gone, "nothing holds the disk")
