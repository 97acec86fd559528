"""The race of several objectives: candidates side by side, and the front of those that remain.

A candidate is dropped when another one beats it: clearly, by an interval that holds at every look,
on one objective, and by the weighed estimates at least as good on all. What comes through
and is not beaten by more than the region of equivalence everywhere is the front. It is a proposal:
only the confirmation says what its members are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from kilter_lab import sequential, stats
from kilter_lab.messages import Metric, Settings
from kilter_lab.objectives import CANDIDATES, Objective
from kilter_lab.planning import MEMBERS
from kilter_lab.prune import CLEAR, LOSS_SHARE, SAFE, Pruning, allowed, told_loss
from kilter_lab.race import (
    DOUBT,
    DROPPING,
    FEWEST,
    NORMAL_95,
    PRIOR,
    Race,
    promising,
    weigh,
)
from kilter_lab.session import Session
from kilter_lab.stats import Interval
from kilter_lab.study import BASE, Block, Loss


@dataclass
class Member:
    """A candidate that came through the race."""

    settings: Settings
    blocks: list[Block]
    arm: str
    """In these blocks."""
    costs: list[Interval]
    """Log cost over the baseline by search and race, one an objective, with 95 % intervals."""
    noises: list[float]
    """Standard deviation of a block's log ratio, one an objective."""

    @property
    def promising(self) -> bool:
        """Whether it probably gains on at least one objective."""
        return any(promising(cost) for cost in self.costs)


def costs_by(
    session: Session, blocks: Sequence[Block], base: str, arm: str, metric: Metric
) -> list[float]:
    """Log costs of a metric, one a block where both came through; empty without logarithms."""
    if metric.name == session.metric:
        return session.costs(blocks, base, arm)
    logs = session.logs(blocks, base, arm, metric.name)
    return [stats.toward_cost(log, metric.direction) for log in logs]


@dataclass
class FrontRace(Race):
    """The state of a race over several objectives."""

    objectives: list[Objective] = field(default_factory=list)

    @property
    def dropping(self) -> float:
        """Each objective can drop a candidate, so each has its share of the error."""
        return DROPPING / len(self.objectives)

    def _drop(self, looks: sequential.Design) -> None:
        self._drop_failing()
        if not looks.is_look(len(self.blocks)):
            return
        for arm in list(self.entered):
            if any(self._beats(looks, other, arm) for other in self.entered if other != arm):
                del self.entered[arm]

    def _beats(self, looks: sequential.Design, better: str, arm: str) -> bool:
        clearly = any(
            looks.interval(costs_by(self.session, self.blocks, better, arm, o.metric)).low > 0
            for o in self.objectives
        )
        return clearly and all(
            self.weighed_by(o, better).mean <= self.weighed_by(o, arm).mean for o in self.objectives
        )

    def _drop_failing(self) -> None:
        super()._drop_failing()
        for arm in list(self.entered):
            for o in self.objectives:
                if 2 * len(costs_by(self.session, self.blocks, BASE, arm, o.metric)) < len(
                    self.blocks
                ):
                    del self.entered[arm]
                    break

    def weighed_by(self, objective: Objective, arm: str) -> Interval:
        """Log cost over the baseline by one objective: race and search, by their precision."""
        costs = costs_by(self.session, self.blocks, BASE, arm, objective.metric)
        point = self.session.space.point(self.entered[arm])
        known, error = objective.effects.predict(point)
        return weigh(known, DOUBT * error, costs, objective.noise)

    def members(self) -> list[Member]:
        """All that came through."""
        noises = [self._noise_by(o) for o in self.objectives]
        return [
            Member(
                settings,
                [b for b in self.blocks if arm in b.arms],
                arm,
                [self.weighed_by(o, arm) for o in self.objectives],
                noises,
            )
            for arm, settings in self.entered.items()
        ]

    def _noise_by(self, objective: Objective) -> float:
        arms = sorted({arm for b in self.blocks for arm in b.arms if arm != BASE})
        parts = [costs_by(self.session, self.blocks, BASE, a, objective.metric) for a in arms]
        squares = sum(stats.deviation(p) ** 2 * (len(p) - 1) for p in parts if len(p) > 1)
        freedom = sum(len(p) - 1 for p in parts if len(p) > 1)
        return math.sqrt((squares + PRIOR * objective.noise**2) / (freedom + PRIOR))


def race_front(
    session: Session, objectives: list[Objective], entered: Sequence[Settings], runs: int
) -> list[Member]:
    """Those candidates that come through a race of about so many runs."""
    size = max(1, min(CANDIDATES, runs // (2 * FEWEST) - 1))
    named = {f"candidate {i + 1}": s for i, s in enumerate(entered[:size])}
    first = objectives[0]
    racing = FrontRace(session, first.effects, first.noise, named, objectives=objectives)
    racing.measure(runs)
    return racing.members()


def front(members: Sequence[Member], weights: Sequence[float], region: float) -> list[Member]:
    """Members that probably gain somewhere and that no other one beats; the best sum first.

    ``region``: log difference up to which two members count as the same.
    """
    chosen: list[Member] = []

    def total(member: Member) -> float:
        return math.fsum(w * c.mean for w, c in zip(weights, member.costs, strict=True))

    # What beats another one everywhere has the better sum, so it is met first.
    for member in sorted((m for m in members if m.promising), key=total):
        if all(_adds(member, other, region) for other in chosen):
            chosen.append(member)
    return chosen[:MEMBERS]


def _adds(member: Member, other: Member, region: float) -> bool:
    """Whether a member is better than another one on some objective, by more than the region."""
    return any(
        own.mean < its.mean - region for own, its in zip(member.costs, other.costs, strict=True)
    )


@dataclass
class Side:
    """One objective of a pruning."""

    objective: Objective
    noise: float
    """Standard deviation of a block's log ratio."""
    allowance: float
    """Log loss that may still be given away."""
    given: float = 0.0
    variance: float = 0.0


@dataclass
class SharedPruning(Pruning):
    """A pruning in which a group of knobs goes only if no objective loses more than is allowed."""

    sides: list[Side] = field(default_factory=list)

    def _measurable(self) -> bool:
        return self._affordable() and all(self._shows(s.noise, s.allowance) for s in self.sides)

    def _bounded(self, group: list[str]) -> bool:
        return all(allowed(partial(self._known, s), group, s.allowance) for s in self.sides)

    def _losses(self, group: list[str], blocks: list[Block], arm: str) -> list[Loss]:
        return [
            told_loss(
                side.objective.metric,
                costs_by(self.session, blocks, self.arm, arm, side.objective.metric),
                self._known(side, group),
            )
            for side in self.sides
        ]

    def _known(self, side: Side, group: list[str]) -> tuple[float, float]:
        """What the search knew of one objective's loss without a group."""
        start, end = self.session.space.point(self.settings), self._point_without(group)
        return side.objective.effects.difference(start, end)

    def _groups(self) -> tuple[list[str], list[str]]:
        clear = {knob: self._clearness(knob) for knob in self.settings}
        order = sorted(clear, key=lambda knob: (clear[knob], knob))[:-1]
        doubtful = [k for k in order if clear[k] < CLEAR]
        return doubtful, [k for k in order if k not in doubtful]

    def _clearness(self, knob: str) -> float:
        """Standard deviations that the objective loses which needs the knob most."""
        found = [self._known(side, [knob]) for side in self.sides]
        return max(loss / error if error > 0 else 0.0 for loss, error in found)

    def _excess(self, group: list[str], blocks: list[Block], arm: str) -> tuple[float, float]:
        """Of the objective that is in the way the most."""
        found = []
        for side in self.sides:
            loss, error = self._lost(side, group, blocks, arm)
            found.append((loss - side.allowance, error))
        return max(found, key=lambda pair: pair[0] + SAFE * pair[1])

    def _lost(
        self, side: Side, group: list[str], blocks: list[Block], arm: str
    ) -> tuple[float, float]:
        costs = costs_by(self.session, blocks, self.arm, arm, side.objective.metric)
        known, error = self._known(side, group)
        found = weigh(known, DOUBT * error, costs, side.noise)
        return found.mean, (found.high - found.mean) / NORMAL_95

    def _give(self, group: list[str], blocks: list[Block], arm: str) -> None:
        for side in self.sides:
            loss, error = self._lost(side, group, blocks, arm)
            side.allowance -= max(0.0, loss)
            side.given += loss
            side.variance += error**2


def sides_of(session: Session, member: Member, objectives: Sequence[Objective]) -> list[Side]:
    """What each objective may lose: the region, or a share of its gain if more."""
    region = stats.region_log(session.head.region_percent)
    return [
        Side(objective, noise, max(region, LOSS_SHARE * -cost.mean))
        for objective, noise, cost in zip(objectives, member.noises, member.costs, strict=True)
    ]
