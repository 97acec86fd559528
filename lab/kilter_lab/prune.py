"""The pruning: knobs that do not matter go back to their old values before anything is confirmed.

The winner runs against itself without a group of its knobs, side by side: first all whose gain
the search leaves in doubt, then the clear ones but for the strongest; a group that must stay is
halved, down to single knobs. What fresh blocks say and what the search knew of the group are
weighed by their precision. A group goes if the loss is within an allowance that holds for the sum
of all that went, so that many small losses cannot add up.

Where runs vary so much that no test comes near showing a loss to be that small, nothing is run: a
knob stays only if the search's model is sure of its gain. What goes is bounded by the same
allowance: each knob's gain by the model, and the sum of these gains less what the best of a knob's
few values gains by luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from kilter_lab import stats
from kilter_lab.console import Bar
from kilter_lab.effects import Effects
from kilter_lab.messages import Metric, Settings
from kilter_lab.race import DOUBT, NORMAL_95, weigh
from kilter_lab.session import Session
from kilter_lab.space import NumberAxis, Point
from kilter_lab.study import Block, Dropped, Loss
from kilter_lab.wording import count

WINNER = "winner"

LOSS_SHARE = 0.10
"""Part of the winner's gain that pruning may cost in all, if more than the region."""

FEWEST = 2
"""Blocks of one test."""

SHARE = 0.6
"""Part of the runs left for pruning that one test may take."""

SAFE = 0.7
"""Standard deviations by which a group's loss must be below the allowance (one-sided 75 %)."""

CLEAR = 2.0
"""Standard deviations of a knob's gain in the search below which it is doubtful. Where nothing can
be measured, such a knob goes."""

LUCK = 0.8
"""Standard deviations that the best of a knob's values seems to gain where none does anything: the
expected maximum of zero and two or three standard normal numbers is 0.7 to 1."""

HOPELESS = 2.0
"""Multiple of the allowance that the longest test must be able to exclude, or the model decides.
Measured on planted gains in 5 % noise: the model drops more of what does nothing and, where knobs
gain only together, of what helps; up to twice the allowance tests with the search's word are
better."""

SURE = 1.3
"""Standard deviations from the allowance at which a test ends early (one-sided 90 %)."""


@dataclass
class Pruning:
    """The state of the pruning."""

    session: Session
    effects: Effects
    settings: Settings
    noise: float
    """Standard deviation of a block's log ratio."""
    allowance: float
    """Log loss that may still be given away."""
    runs: int
    """Runs that may still be made."""
    decisions: list[Dropped] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    given: float = 0.0
    """Log loss given away, as estimated."""
    variance: float = 0.0
    """Of that estimate."""
    arm: str = WINNER
    """What the blocks call the candidate."""
    first: int = 0
    """Number of the first block; another candidate's pruning has those before."""
    _bar: Bar = field(default_factory=lambda: Bar(None, None))

    def run(self) -> None:
        """Try the doubtful knobs together, then the others but for the strongest."""
        if len(self.settings) < 2:
            return
        if not self._measurable():
            self._run_by_model()
            return
        with self.session.console.progress("prune", self.runs) as self._bar:
            for group in self._groups():
                if group:
                    self._try(group)

    def _measurable(self) -> bool:
        """Whether the longest test says enough about a group whose loss is none at all."""
        return self._affordable() and self._shows(self.noise, self.allowance)

    def _shows(self, noise: float, allowance: float) -> bool:
        return SAFE * noise / math.sqrt(self._most()) <= HOPELESS * allowance

    def _most(self) -> int:
        """Blocks of the longest test."""
        return max(FEWEST, int(SHARE * self.runs) // 4)

    def _run_by_model(self) -> None:
        """Drop knobs whose gain the model is not sure of, the least gain first."""
        self.session.console.note(
            "Runs vary too much to prune by measurement: the search's model decides."
        )
        doubtful, clear = self._groups()
        dropped: list[str] = []
        for knob in doubtful:
            group = [*dropped, knob]
            # Not where a limit between two knobs would change one that stays.
            rest = {k: v for k, v in self.settings.items() if k not in group}
            if self._settings_without(group) == rest and self._bounded(group):
                dropped.append(knob)
        kept = [k for k in [*doubtful, *clear] if k not in dropped]
        # All by the model alone, and each beside the winner as it came from the race.
        told = [self._by_model([knob], went=False) for knob in kept]
        if dropped:
            self.decisions.append(self._by_model(dropped, went=True))
            rest = self._settings_without(dropped)
            self._give(dropped, [], "")
            self.settings = rest
        self.decisions += told

    def _bounded(self, group: list[str]) -> bool:
        """Whether the model's loss without the last of a group, and without all, is allowed."""
        return allowed(self._known_loss, group, self.allowance)

    def _by_model(self, group: list[str], *, went: bool) -> Dropped:
        first, *others = self._losses(group, [], "")
        return Dropped(group, went, first.ratio, first.low, first.high, 0, others)

    def _groups(self) -> tuple[list[str], list[str]]:
        """Knobs whose gain may well be luck, and the rest without the strongest; weakest first."""
        known = {knob: self._known_loss([knob]) for knob in self.settings}
        order = sorted(known, key=lambda knob: (known[knob][0], knob))[:-1]
        doubtful = [k for k in order if known[k][0] < CLEAR * known[k][1]]
        return doubtful, [k for k in order if k not in doubtful]

    def _try(self, group: list[str]) -> None:
        """Drop a group, or else its halves, down to single knobs."""
        if not self._drop(group) and len(group) > 1:
            half = len(group) // 2
            self._try(group[:half])
            self._try(group[half:])

    def _affordable(self) -> bool:
        return self.runs >= 4 * FEWEST and self.session.fits(4)

    def _drop(self, group: list[str]) -> bool:
        """Test the winner without a group of knobs; True if they went."""
        if not self._affordable():
            return False
        rest = self._settings_without(group)
        if not rest or set(rest) >= set(self.settings):
            return False  # Repairing a pair brought them back, or nothing would be left.
        arm = f"without {', '.join(group)}"
        made: list[Block] = []
        most = self._most()
        while len(made) < most and self._affordable_block():
            block = self.session.block(
                "prune", self.first + len(self.blocks), {self.arm: self.settings, arm: rest}
            )
            self.blocks.append(block)
            self.runs -= 4
            self._bar.at(len(self.blocks) * 4, f"{count(len(self.settings), 'knob')} left")
            if not self._costs([block], arm):  # It does not even run without them.
                return False
            made.append(block)
            excess, error = self._excess(group, made, arm)
            if len(made) >= FEWEST and abs(excess) > SURE * error:
                break
        if len(made) < FEWEST:
            return False
        return self._decide(group, rest, made, arm)

    def _affordable_block(self) -> bool:
        return self.runs >= 4 and self.session.fits(4)

    def _costs(self, blocks: list[Block], arm: str) -> list[float]:
        return self.session.costs(blocks, self.arm, arm)

    def _excess(self, group: list[str], blocks: list[Block], arm: str) -> tuple[float, float]:
        """Loss without the group beyond what is allowed, and its standard deviation."""
        loss, error = self._weighed(group, self._costs(blocks, arm))
        return loss - self.allowance, error

    def _decide(self, group: list[str], rest: Settings, blocks: list[Block], arm: str) -> bool:
        excess, error = self._excess(group, blocks, arm)
        dropped = excess + SAFE * error <= 0
        first, *others = self._losses(group, blocks, arm)
        self.decisions.append(
            Dropped(group, dropped, first.ratio, first.low, first.high, len(blocks), others)
        )
        if dropped:
            self._give(group, blocks, arm)
            self.settings = rest
        return dropped

    def _give(self, group: list[str], blocks: list[Block], arm: str) -> None:
        """Count the loss of a group that goes."""
        loss, error = self._weighed(group, self._costs(blocks, arm))
        self.allowance -= max(0.0, loss)
        self.given += loss
        self.variance += error**2

    def _losses(self, group: list[str], blocks: list[Block], arm: str) -> list[Loss]:
        """What the blocks say of each deciding metric; where there are none, the model."""
        metric = self.session.head.metrics[0]
        return [told_loss(metric, self._costs(blocks, arm), self._known_loss(group))]

    def _settings_without(self, group: list[str]) -> Settings:
        """The settings with a group's knobs left as they are.

        No point stands for keeping a current value that lies out of the search range: such knobs
        are taken out of the settings themselves.
        """
        rest = self.session.space.settings(self._point_without(group))
        kept = set(self.settings) - set(group)
        outside = {
            axis.name
            for axis in self.session.space.axes
            if isinstance(axis, NumberAxis) and not axis.holds_current and axis.name not in kept
        }
        return {knob: value for knob, value in rest.items() if knob not in outside}

    def _point_without(self, group: list[str]) -> Point:
        point = self.session.space.point(self.settings)
        for axis in self.session.space.axes:
            if axis.name in group:
                point[axis.name] = axis.kept()
        return point

    def _known_loss(self, group: list[str]) -> tuple[float, float]:
        """What the search knew: log loss without the group, and its standard deviation."""
        start = self.session.space.point(self.settings)
        return self.effects.difference(start, self._point_without(group))

    def _weighed(self, group: list[str], costs: list[float]) -> tuple[float, float]:
        """Loss and its standard deviation: fresh blocks and the search, by their precision."""
        known, error = self._known_loss(group)
        found = weigh(known, DOUBT * error, costs, self.noise)
        return found.mean, (found.high - found.mean) / NORMAL_95


def allowed(
    known: Callable[[list[str]], tuple[float, float]], group: list[str], allowance: float
) -> bool:
    """Whether the last knob of a group adds no more than is allowed, and neither do all of them.

    ``known``: the model's log loss without some knobs, and its standard deviation. The sum is of
    what each knob adds to the loss, less what may be luck.
    """
    total, before, added = 0.0, 0.0, 0.0
    for n, knob in enumerate(group, 1):
        loss = known(group[:n])[0]
        added, before = loss - before, loss
        total += max(0.0, added - LUCK * known([knob])[1])
    return max(added, total) <= allowance


def told_loss(metric: Metric, costs: list[float], known: tuple[float, float]) -> Loss:
    """A log cost without some knobs as a ratio of its metric, with its 95 % interval.

    ``known``: what the search's model says, with its standard deviation; told where no block is.
    """
    mean, error = known
    interval = stats.Interval(mean, mean - NORMAL_95 * error, mean + NORMAL_95 * error, 0)
    if costs:
        interval = stats.t_interval(costs)
    ends = [stats.toward_cost(x, metric.direction) for x in (interval.low, interval.high)]
    low, high = sorted(ends)
    ratio = math.exp(stats.toward_cost(interval.mean, metric.direction))
    return Loss(metric.name, ratio, math.exp(low), _exp(high))


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf
