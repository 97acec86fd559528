"""Killing kilter without warning, and watching whether the settings come back."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from .program import (
    BINARY,
    children,
    finish,
    is_alive,
    kill_quietly,
    started,
    wait_until,
)
from .roots import Root, Tree

KILLS = 24
PROMISED_S = 1.0
"""The settings are back this long after kilter was killed."""
LOADED_S = 5.0
"""What is asserted: a machine under load is slower than the promise."""


@dataclass
class Machine:
    """Where kills happen: a fake root or the real kernel, and the settings of the experiment."""

    root: Root
    options: list[str]
    """``--set`` options of the experiment."""
    before: Tree = field(default_factory=dict)
    """All that must be the same afterwards."""

    files: list[Path] = field(default_factory=list)
    """The files of the experiment's settings, read directly: kilter would take too long."""
    contents: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.before = self.root.settings()
        names = {word.partition("=")[0] for word in self.options}
        for knob in self.root.json("knobs", "list"):
            if knob["name"] in names:
                self.files.append(self.root.path / knob["state"]["path"].lstrip("/"))
        self.contents = self.now()

    def now(self) -> list[str]:
        """What the files of the experiment show."""
        return [file.read_text() for file in self.files]

    def layers(self) -> list[dict[str, object]]:
        """Layers in force, as ``kilter status`` tells them."""
        found: list[dict[str, object]] = self.root.json("status")["layers"]
        return found

    def is_restored(self) -> bool:
        """Whether everything is as it was."""
        return self.root.settings() == self.before and self.layers() == []


@dataclass
class Kills:
    """What a series of kills met."""

    seed: int
    seconds: list[float] = field(default_factory=list)
    """For kills that found settings in force: the time until they were back."""
    early: int = 0
    """Kills that came before anything had been written, or after all was back."""

    def tell(self, what: str) -> None:
        """Print the result; pytest shows it with -rP or -s."""
        median = statistics.median(self.seconds) if self.seconds else float("nan")
        worst = max(self.seconds, default=float("nan"))
        print(
            f"\n{what}: {len(self.seconds)} of {len(self.seconds) + self.early} kills found settings "
            f"in force; back after {median * 1000:.1f} ms (median), {worst * 1000:.1f} ms (worst); "
            f"seed {self.seed}"
        )


def guardians(pid: int) -> list[int]:
    """The guardian of a kilter: its child that is kilter too."""

    def is_kilter(child: int) -> bool:
        try:
            return Path(f"/proc/{child}/exe").readlink() == BINARY.resolve()
        except OSError:
            return False

    return [child for child in children(pid) if is_kilter(child)]


def pid_in(file: Path) -> int | None:
    """The process number that a workload has written, if it came that far."""
    text = file.read_text() if file.exists() else ""
    return int(text) if text.endswith("\n") else None


def kill_at_random(machine: Machine, workload: list[str], told: Path, within_s: float) -> Kills:
    """Kill kilter at random moments of a run; the guardian must put everything back."""
    kills = Kills(random.SystemRandom().randrange(1 << 32))
    dice = random.Random(kills.seed)
    for number in range(KILLS):
        told.unlink(missing_ok=True)
        # Every other one early, in the middle of the writes.
        delay = dice.uniform(0, within_s / (10 if number % 2 else 1))
        with started("run", *machine.options, "--", *workload, root=machine.root.path) as child:
            time.sleep(delay)
            in_force = machine.now() != machine.contents
            child.kill()
            took = wait_until(
                lambda: machine.now() == machine.contents,
                f"restored (seed {kills.seed})",
                LOADED_S,
            )
            child.wait()
            wait_until(machine.is_restored, f"restored (seed {kills.seed})", LOADED_S)
            if in_force:
                kills.seconds.append(took)
            else:
                kills.early += 1
            pid = pid_in(told)
            if pid is not None:
                wait_until(lambda pid=pid: not is_alive(pid), "the workload has ended")  # type: ignore[misc]
    return kills


def kill_with_guardian(machine: Machine, workload: list[str], told: Path) -> None:
    """Kill kilter and its guardian: the settings stay, until the next command."""
    told.unlink(missing_ok=True)
    with started("run", *machine.options, "--", *workload, root=machine.root.path) as child:
        wait_until(lambda: pid_in(told) is not None, "the workload runs")
        (guardian,) = guardians(child.pid)
        # The guardian first: it would see its owner die.
        kill_quietly(guardian)
        child.kill()
        child.wait()
        wait_until(lambda: not is_alive(guardian), "the guardian is dead")
        done = finish(child)
        assert "put back" not in done.stderr
    pid = pid_in(told)
    assert pid is not None
    kill_quietly(pid)
    assert machine.root.settings() != machine.before
    (layer,) = machine.layers()
    assert layer["alive"] is False
