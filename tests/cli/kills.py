"""Killing kilter without warning, and watching whether the settings come back."""

from __future__ import annotations

import os
import random
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from .program import (
    BINARY,
    SLOW,
    children,
    finish,
    is_alive,
    kill_quietly,
    started,
    wait_until,
)
from .roots import Root, Tree

KILLS = 6 if SLOW else 24
PROMISED_S = 1.0
"""The settings are back this long after kilter was killed."""
LOADED_S = 40.0 if SLOW else 5.0
"""What is asserted: a machine under load is slower than the promise."""
TUNE_KILLS = int(os.environ.get("KILTER_TUNE_KILLS", "2"))
"""Kills of a tune for each choice of victims; a study takes long to begin."""
MORE = 12
"""Further kills while none has met settings in force: a baseline's run may have come between."""


@dataclass
class Machine:
    """Where kills happen: a fake root or the real kernel, and the settings of the experiment."""

    root: Root
    options: list[str]
    """The experiment's knobs: ``--set`` options, or their names alone."""
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

    def count(self, in_force: bool, took_s: float) -> None:
        """Add a kill."""
        if in_force:
            self.seconds.append(took_s)
        else:
            self.early += 1

    def tell(self, what: str) -> None:
        """Print the result; pytest shows it with -rP or -s."""
        median = statistics.median(self.seconds) if self.seconds else float("nan")
        worst = max(self.seconds, default=float("nan"))
        print(
            f"\n{what}: {len(self.seconds)} of {len(self.seconds) + self.early} kills found settings "
            f"in force; back after {median * 1000:.1f} ms (median), {worst * 1000:.1f} ms (worst); "
            f"seed {self.seed}"
        )


def is_kilter(pid: int) -> bool:
    """Whether a process runs the binary under test."""
    try:
        return Path(f"/proc/{pid}/exe").readlink() == BINARY.resolve()
    except OSError:
        return False


def guardians(pid: int) -> list[int]:
    """The guardian of a kilter: its child that is kilter too."""
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
        # Every other one soon after the first write, in the middle of the others.
        aim = number % 2 == 0
        delay = dice.uniform(0, within_s / (10 if aim else 1))
        with started("run", *machine.options, "--", *workload, root=machine.root.path) as child:
            if aim:
                wait_until(
                    lambda child=child: (
                        machine.now() != machine.contents  # type: ignore[misc]
                        or child.poll() is not None
                    ),
                    "settings in force",
                )
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
            kills.count(in_force, took)
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


def writers(tune: int) -> list[int]:
    """Of a tune: the kilter that writes settings, and its guardian, as far as they are there.

    At first the tune is that kilter itself, which tries the ranges; then it becomes the lab, whose
    child is a batch.
    """
    owners = [tune] if is_kilter(tune) else guardians(tune)
    return owners + [guardian for owner in owners for guardian in guardians(owner)]


VICTIMS = ("lab", "batch", "lab and batch", "all")


def victims_of(choice: str, tune: int) -> list[int]:
    """Whom to kill, in the order of the kills: a guardian would see its owner die."""
    owner, guardian = (*writers(tune), tune, tune)[:2]
    chosen = {
        "lab": [tune],
        "batch": [owner],
        "lab and batch": [owner, tune],
        "all": [guardian, owner, tune],
    }
    return list(dict.fromkeys(chosen[choice]))


@dataclass(frozen=True)
class Tunes:
    """A tune to be killed again and again, each time under the name of a new study."""

    machine: Machine
    words: list[str]
    """The command, but for ``--study``."""
    within_s: float
    """The latest kill, counted from the start."""
    prefix: tuple[str, ...] = ()

    def kill_at_random(self, choice: str) -> Kills:
        """Kill some of its processes; the guardian or the next command must put all back."""
        kills = Kills(random.SystemRandom().randrange(1 << 32))
        dice = random.Random(f"{kills.seed} {choice}")
        number = 0
        while number < TUNE_KILLS or (not kills.seconds and number < TUNE_KILLS + MORE):
            study = f"killed-{kills.seed}-{number}"
            kills.count(*self._kill(choice, study, dice, aim=number % 2 == 0))
            number += 1
        assert kills.seconds, "some kill must hit settings in force"
        return kills

    def _kill(
        self, choice: str, study: str, dice: random.Random, *, aim: bool
    ) -> tuple[bool, float]:
        """One kill: whether it met settings in force, and the seconds until they were back.

        ``aim`` waits from the random moment until settings are in force.
        """
        machine = self.machine
        command, *rest = self.words
        words = (command, "--study", study, *rest)
        with started(*words, root=machine.root.path, prefix=self.prefix) as tune:
            if aim:
                self._wait_for_runs(tune.pid)
            time.sleep(dice.uniform(0, self.within_s))
            if aim:
                wait_until(lambda: machine.now() != machine.contents, "settings in force", 60)
            victims = victims_of(choice, tune.pid)
            in_force = machine.now() != machine.contents
            begun = time.monotonic()
            for victim in victims:
                kill_quietly(victim)
            if choice == "all":
                wait_until(lambda: not any(map(is_alive, victims)), "all are dead")
                begun = time.monotonic()
                done = machine.root("revert")
                assert done.returncode == 0, done
            what = f"restored ({study}, {choice})"
            wait_until(lambda: machine.now() == machine.contents, what, LOADED_S)
            took = time.monotonic() - begun
            done = finish(tune)
            assert "Traceback" not in done.stderr
            wait_until(machine.is_restored, what, LOADED_S)
        return in_force, took

    def _wait_for_runs(self, tune: int) -> None:
        def is_lab() -> bool:
            return not is_kilter(tune) and bool(writers(tune))

        wait_until(is_lab, "the lab makes runs", 60)
