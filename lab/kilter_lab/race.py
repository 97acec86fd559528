"""The race: a few candidates side by side in fresh blocks with the baseline, losers dropped.

A candidate goes as soon as it is clearly worse than the leader, by an interval that holds at every
look (``sequential``). What the model of the search says of the differences between candidates is
weighed in at the end, by precision: a few blocks alone would choose by luck.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kilter_lab import sequential, stats
from kilter_lab.effects import Effects
from kilter_lab.messages import Settings
from kilter_lab.outcome import judge_guard
from kilter_lab.session import Session
from kilter_lab.stats import Interval, t_quantile
from kilter_lab.study import BASE, Block
from kilter_lab.wording import count

PROMISING = 0.8
"""One-sided confidence that the race's winner gains anything, below which nothing is confirmed."""

DROPPING = 0.1
"""Chance that a candidate no worse than the leader is dropped before the end."""

DOUBT = 2.0
"""The model's errors are taken for so many times what it says: it knows few interactions."""

FEWEST = 2
"""Blocks of a race."""
MOST = 16

FIELD = 4
"""Candidates at the start, where the runs allow."""


@dataclass
class Raced:
    """The race's winner."""

    settings: Settings
    arm: str
    blocks: list[Block]
    """Those that it ran in."""
    cost: Interval
    """Its log cost over the baseline by search and race, with its 95 % interval."""
    noise: float
    """Standard deviation of a block's log ratio."""

    @property
    def promising(self) -> bool:
        """Whether it probably gains anything at all."""
        return promising(self.cost)


NORMAL_95 = 1.96


def promising(cost: Interval) -> bool:
    """Whether a cost with its 95 % interval is probably a gain."""
    error = (cost.high - cost.low) / (2 * NORMAL_95)
    return cost.mean + t_quantile(PROMISING, 100) * error < 0


@dataclass
class Race:
    """The state of a race."""

    session: Session
    effects: Effects
    noise: float
    """Standard deviation of one run, log units."""
    entered: dict[str, Settings]
    blocks: list[Block] = field(default_factory=list)

    def run(self, runs: int) -> Raced | None:
        """Race within about so many runs; None where no candidate comes through."""
        self.measure(runs)
        return self._winner()

    @property
    def dropping(self) -> float:
        """The error of a look's intervals."""
        return DROPPING

    def measure(self, runs: int) -> None:
        """Make blocks, and drop candidates as they lose."""
        most = max(FEWEST, min(MOST, runs // (2 * (len(self.entered) + 1))))
        looks = sequential.design(self.dropping, most, min(most, FEWEST + 1))
        with self.session.console.progress("race", most, "blocks") as bar:
            while len(self.blocks) < most and self._goes_on(runs):
                bar.at(len(self.blocks), f"{count(len(self.entered), 'candidate')} left")
                arms = {BASE: {}, **self.entered}
                self.blocks.append(self.session.block("race", len(self.blocks), arms))
                runs -= 2 * len(arms)
                self._drop(looks)
        self._drop_failing()

    def _goes_on(self, runs: int) -> bool:
        if len(self.blocks) < FEWEST:
            return bool(self.entered)
        cost = 2 * (len(self.entered) + 1)
        return len(self.entered) > 1 and runs >= cost and self.session.fits(cost)

    def _drop(self, looks: sequential.Design) -> None:
        self._drop_failing()
        if len(self.entered) < 2 or not looks.is_look(len(self.blocks)):
            return
        leader = min(self.entered, key=lambda arm: self.weighed(arm).mean)
        for arm in [a for a in self.entered if a != leader]:
            if looks.interval(self.session.costs(self.blocks, leader, arm)).low > 0:
                del self.entered[arm]

    def _drop_failing(self) -> None:
        """Those that failed in over half of their blocks, or clearly break a guard."""
        for arm in list(self.entered):
            costs = self.session.costs(self.blocks, BASE, arm)
            if 2 * len(costs) < len(self.blocks) or self._breaks_guard(arm):
                del self.entered[arm]

    def _breaks_guard(self, arm: str) -> bool:
        for guard in self.session.head.question.guards:
            logs = self.session.logs(self.blocks, BASE, arm, guard.metric)
            if logs and judge_guard(guard, stats.t_interval(logs)).outcome == "broken":
                return True
        return False

    def weighed(self, arm: str) -> Interval:
        """Log cost over the baseline: race and search, by their precision."""
        costs = self.session.costs(self.blocks, BASE, arm)
        known, error = self.effects.predict(self.session.space.point(self.entered[arm]))
        return weigh(known, DOUBT * error, costs, self.noise)

    def _winner(self) -> Raced | None:
        if not self.entered:
            return None
        arm = min(self.entered, key=lambda a: self.weighed(a).mean)
        own = [b for b in self.blocks if arm in b.arms]
        return Raced(self.entered[arm], arm, own, self.weighed(arm), self._block_noise())

    def _block_noise(self) -> float:
        """Of a block's log ratio: the baseline's runs, and what the race's blocks show."""
        arms = {arm for b in self.blocks for arm in b.arms if arm != BASE}
        parts = [self.session.costs(self.blocks, BASE, arm) for arm in sorted(arms)]
        squares = sum(stats.deviation(p) ** 2 * (len(p) - 1) for p in parts if len(p) > 1)
        freedom = sum(len(p) - 1 for p in parts if len(p) > 1)
        return math.sqrt((squares + PRIOR * self.noise**2) / (freedom + PRIOR))


PRIOR = 5
"""Degrees of freedom that the noise of the baseline's runs counts for."""


def weigh(known: float, error: float, fresh: list[float], noise: float) -> Interval:
    """A model's number and fresh ones, by precision, with a 95 % interval.

    ``noise``: standard deviation of a fresh number.
    """
    if not fresh:
        return Interval(known, known - NORMAL_95 * error, known + NORMAL_95 * error, 0)
    mean, variance = math.fsum(fresh) / len(fresh), max(noise, 1e-6) ** 2 / len(fresh)
    if error > 0:
        weight = variance / (variance + error**2)
        mean = weight * known + (1 - weight) * mean
        variance = 1 / (1 / variance + 1 / error**2)
    half = NORMAL_95 * math.sqrt(variance)
    return Interval(mean, mean - half, mean + half, len(fresh))


def race(
    session: Session, effects: Effects, noise: float, candidates: list[Settings], runs: int
) -> Raced | None:
    """The best of the candidates; None where none comes through."""
    chosen = candidates[: field_size(runs)]
    return Race(
        session, effects, noise, {f"candidate {i + 1}": s for i, s in enumerate(chosen)}
    ).run(runs)


def field_size(runs: int) -> int:
    """The most candidates whose shortest race stays within the runs."""
    return max(1, min(FIELD, runs // (2 * FEWEST) - 1))
