"""One sitting of a study: makes blocks, or takes them from the record, and minds the budget.

The rule of resumption: decisions follow from the record and the seed alone. A phase that is gone
through again asks for the same blocks by phase and number; one that was made with the same arms
is taken from the record instead of being run, and from the first that differs on, fresh blocks
are made. Blocks carry their own baseline, so old and new ones may stand side by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kilter_lab import doubts, planning, stats
from kilter_lab.blocks import dice, palindrome
from kilter_lab.coding import Coding
from kilter_lab.console import Console
from kilter_lab.errors import WorkloadError
from kilter_lab.ledger import Head, Ledger, Origin, Plan
from kilter_lab.measure import OK, Bench, Observation
from kilter_lab.messages import Arm, Ran, Settings, TuneRequest
from kilter_lab.space import Point, Space
from kilter_lab.study import BASE, Block, Phase, Run

HOPELESS = 3
"""Runs of the baseline that fail in a row, after which the study stops."""


@dataclass
class Budget:
    """The time there is; without an end, there is as much as wanted."""

    now: float
    end: float | None = None

    def left(self, now: float) -> float:
        """Seconds left."""
        return math.inf if self.end is None else self.end - now


@dataclass
class Session:
    """What all phases share."""

    request: TuneRequest
    space: Space
    bench: Bench
    ledger: Ledger
    console: Console
    head: Head
    budget: Budget
    earlier_s: float = 0.0
    """Seconds that earlier sittings took."""
    plan: Plan | None = None
    _base_failures: int = 0
    _origin: Origin | None = field(default=None)

    # Time

    def spent_s(self) -> float:
        """Seconds that the study has taken, earlier sittings included."""
        return self.earlier_s + self.bench.runner.now() - self.budget.now

    def left_s(self) -> float:
        """Seconds until everything must have ended; infinite without a time budget."""
        return self.budget.left(self.bench.runner.now())

    def fits(self, runs: int, reserve_s: float = 0.0) -> bool:
        """Whether so many runs probably end in time, with ``reserve_s`` seconds to spare."""
        return self.left_s() - reserve_s >= runs * self.run_s()

    def run_s(self) -> float:
        """Seconds that a run takes, everything around it included."""
        return self.bench.seconds_a_run() or (self.plan.run_s if self.plan else 0.0)

    def runs_left(self, *before: Phase) -> int:
        """Runs that may still be made after these phases, by the time left or by the trials asked.

        By trials it is counted from the record, so that a resumed study has the same answer.
        """
        if math.isfinite(self.left_s()):
            # Another run's time must fit the estimate's error and the slower arms.
            return max(0, int(0.95 * self.left_s() / max(self.run_s(), 1e-9)))
        trials = planning.DEFAULT_TRIALS if self.request.trials is None else self.request.trials
        repeats = self.plan.repeats if self.plan else 1
        made = planning.CHECK_RUNS + self.ledger.runs_of(*before)
        return max(0, planning.total_runs(trials, repeats, self.head.question.objectives) - made)

    # Blocks

    @cached_property
    def coding(self) -> Coding:
        """The rows of the model of effects for this space."""
        return Coding(self.space)

    @property
    def metric(self) -> str:
        """The deciding metric's name."""
        return self.head.metrics[0].name

    def block(
        self,
        phase: Phase,
        index: int,
        arms: dict[str, Settings],
        order: Sequence[int] | None = None,
        points: Sequence[Point] = (),
    ) -> Block:
        """A recorded or fresh block of ``arms``; a palindrome unless an order is given.

        ``points``: what the trials of a block of the search are.
        """
        if self.recorded(phase, index, arms):
            return self.ledger.blocks()[phase, index]
        if order is None:
            order = palindrome(len(arms), dice(self.head.seed, phase, index))
        runs = self.runs(phase, index, arms, order)
        block = Block(arms, runs, self.spent_s(), list(points))
        self.ledger.add_block(phase, index, block)
        return block

    def recorded(self, phase: Phase, index: int, arms: dict[str, Settings]) -> bool:
        """Whether this block was made already."""
        block = self.ledger.blocks().get((phase, index))
        return block is not None and block.arms == arms

    def runs(
        self, phase: Phase, index: int, arms: dict[str, Settings], order: Sequence[int]
    ) -> list[Run]:
        """Make the runs of a block, not recorded yet."""
        labels = list(arms)
        made = [
            Arm(label, self.request.command, {**self.request.fixed, **arms[label]})
            for label in labels
        ]
        observations = self.bench.block(made, order)
        self._watch_base(observations, labels)
        return [self._run(phase, index, labels[o.arm], o) for o in observations]

    def _watch_base(self, observations: Sequence[Observation], labels: Sequence[str]) -> None:
        for run in (o for o in observations if labels[o.arm] == BASE):
            self._base_failures = 0 if run.outcome == OK else self._base_failures + 1
            if self._base_failures >= HOPELESS:
                raise WorkloadError(
                    f"the command no longer works with the base's settings: it failed "
                    f"{HOPELESS} times in a row ({run.outcome})"
                )

    def _run(self, phase: Phase, index: int, arm: str, o: Observation) -> Run:
        return Run(
            phase=phase,
            block=index,
            arm=arm,
            at_s=round(self._at(o), 3),
            wall_s=o.wall_s,
            steal_s=o.steal_s,
            metrics=o.values,
            outcome=o.outcome,
            figures=doubts.figures(o),
        )

    def _at(self, o: Observation) -> float:
        begun = o.reply.record.started_boottime_s if isinstance(o.reply, Ran) else None
        machine = self.bench.machine
        if begun is None or machine is None:
            return self.spent_s()
        if self._origin is None:
            self._origin = self.ledger.read("origin", Origin)
        if self._origin is None or self._origin.boot_id != machine.boot_id:
            at = 0.0 if self._origin is None else self.spent_s()
            self._origin = Origin(machine.boot_id, begun, at)
            self.ledger.write("origin", self._origin)
        return self._origin.at_s + begun - self._origin.boottime_s

    # Numbers

    def costs(self, blocks: Sequence[Block], base: str, arm: str) -> list[float]:
        """Log cost of ``arm`` over ``base`` in each block where both came through; less is better.

        Raises NotPositiveError where the deciding metric has no logarithm.
        """
        pairs = (pair_values(b.runs, base, arm, self.metric) for b in blocks)
        return [self.cost(*p) for p in pairs if p is not None]

    def logs(
        self, blocks: Sequence[Block], base: str, arm: str, metric: str | None = None
    ) -> list[float]:
        """Log ratio of a metric, ``arm`` over ``base``, in each block where both came through.

        Empty where the metric, other than the deciding one, has no logarithm.
        """
        pairs = (pair_values(b.runs, base, arm, metric or self.metric) for b in blocks)
        try:
            return [stats.log_ratio(*p, metric or self.metric) for p in pairs if p is not None]
        except stats.NotPositiveError:
            if metric in (None, self.metric):
                raise
            return []

    def cost(self, base: Sequence[float], arm: Sequence[float]) -> float:
        """Log cost of arm values over base values; less is better."""
        direction = self.head.metrics[0].direction
        return stats.toward_cost(stats.log_ratio(base, arm, self.metric), direction)


def pair_values(
    runs: Sequence[Run], base: str, arm: str, metric: str
) -> tuple[list[float], list[float]] | None:
    """(base values, arm values) of a block; None where it lacks either or a run of them failed."""
    pair = [r for r in runs if r.arm in (base, arm)]
    if {r.arm for r in pair} != {base, arm} or any(metric not in r.metrics for r in pair):
        return None
    return (
        [r.metrics[metric] for r in pair if r.arm == base],
        [r.metrics[metric] for r in pair if r.arm == arm],
    )
