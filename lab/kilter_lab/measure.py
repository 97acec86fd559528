"""Arms and orders in, observations out: makes the requests of a block and reads its replies."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kilter_lab import metrics
from kilter_lab.messages import (
    Arm,
    BatchReply,
    Fingerprint,
    Interrupted,
    Ran,
    RunOptions,
    RunRequest,
    Settings,
)
from kilter_lab.runner import Runner

OK = "ok"

WORTH_TELLING = 0.05
"""Share of the runs from which their own warnings are passed on."""


@dataclass(frozen=True)
class Observation:
    """One run of one arm of a block."""

    arm: int
    reply: BatchReply
    values: dict[str, float]
    outcome: str

    @property
    def wall_s(self) -> float:
        """Wall-clock seconds; 0 where nothing ran."""
        return self.reply.record.wall_s if isinstance(self.reply, Ran) else 0.0

    @property
    def steal_s(self) -> float:
        """Seconds that the hypervisor kept CPUs away; 0 where nothing ran."""
        return self.reply.record.machine.steal_s if isinstance(self.reply, Ran) else 0.0


NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


@dataclass
class Bench:
    """Makes blocks of runs through one runner, and keeps what holds for all of them."""

    runner: Runner
    options: RunOptions
    on_run: Callable[[Observation], None] = lambda _: None
    machine: Fingerprint | None = None
    misread: dict[tuple[str, str], str] = field(default_factory=dict)
    """(knob, asked) → what the kernel read back instead."""
    warned: dict[str, list[str]] = field(default_factory=dict)
    """Warnings of the runs themselves, those together that differ in numbers alone."""
    runs_made: int = 0
    busy_s: float = 0.0
    """Seconds spent on all runs made, everything around them included."""

    def block(self, arms: Sequence[Arm], order: Sequence[int]) -> list[Observation]:
        """Run ``arms`` in ``order``. KeyboardInterrupt where the user ended a run."""
        begun = self.runner.now()
        requests = [self._request(i, arms[a]) for i, a in enumerate(order)]
        found = []
        for arm, reply in zip(order, self.runner.run(requests), strict=True):
            observation = self._observe(arm, arms[arm].settings, reply)
            found.append(observation)
            self.on_run(observation)
        self.runs_made += len(found)
        self.busy_s += self.runner.now() - begun
        return found

    def run_warnings(self) -> list[str]:
        """Each kind of warning once, in order, with the number of runs that it is about.

        What a few runs among many say belongs to them, not to the whole.
        """
        return [
            texts[0] if len(texts) == 1 else f"{texts[0]} (so or alike in {len(texts)} runs)"
            for texts in self.warned.values()
            if len(texts) >= WORTH_TELLING * self.runs_made
        ]

    def seconds_a_run(self) -> float:
        """Mean seconds that a run has taken so far, everything around it included."""
        return self.busy_s / self.runs_made if self.runs_made else 0.0

    def _request(self, index: int, arm: Arm) -> RunRequest:
        o = self.options
        return RunRequest(
            id=self.runs_made + index,
            settings=arm.settings,
            command=arm.command,
            prepare=o.prepare,
            cleanup=o.cleanup,
            timeout_s=o.timeout_s,
            settle_s=o.settle_s,
            cpus=o.cpus,
            metrics=o.metrics,
        )

    def _observe(self, arm: int, asked: Settings, reply: BatchReply) -> Observation:
        outcome = metrics.reply_text(reply, self.options.metrics[0])
        if not isinstance(reply, Ran):
            return Observation(arm, reply, {}, outcome)
        record = reply.record
        if isinstance(record.outcome, Interrupted):
            raise KeyboardInterrupt
        self.machine = self.machine or record.fingerprint
        for text in record.warnings:
            self.warned.setdefault(NUMBER.sub("#", text), []).append(text)
        for knob, value in asked.items():
            got = record.settings.get(knob, value)
            if got != value:
                self.misread[knob, value] = got
        found = metrics.values(record, self.options.metrics) if outcome == OK else {}
        return Observation(arm, reply, found, outcome)


def arm_values(observations: Sequence[Observation], arm: int, metric: str) -> list[float]:
    """The metric's values of one arm, in order; failed runs have none."""
    return [o.values[metric] for o in observations if o.arm == arm and metric in o.values]


def block_values(
    observations: Sequence[Observation], base: int, arm: int, metric: str
) -> tuple[list[float], list[float]] | None:
    """(base values, arm values) of a block; None where a run of either failed.

    A block with a failed run is no balanced comparison, so all of it is left out for that arm.
    """
    pair = [o for o in observations if o.arm in (base, arm)]
    if any(metric not in o.values for o in pair):
        return None
    return arm_values(pair, base, metric), arm_values(pair, arm, metric)
