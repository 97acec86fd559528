"""The pruning: knobs that do not matter go back to their old values before anything is confirmed.

The winner runs against itself without a group of its knobs, side by side: first all whose gain
the search leaves in doubt, then the clear ones but for the strongest; a group that must stay is
halved, down to single knobs. What fresh blocks say and what the search knew of the group are
weighed by their precision. A group goes if the loss is within an allowance that holds for the sum
of all that went, so that many small losses cannot add up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kilter_lab import stats
from kilter_lab.console import Bar
from kilter_lab.effects import Effects
from kilter_lab.messages import Settings
from kilter_lab.race import DOUBT, NORMAL_95, weigh
from kilter_lab.session import Session
from kilter_lab.space import NumberAxis, Point
from kilter_lab.study import Block, Dropped
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
"""Standard deviations of a knob's gain in the search below which it is doubtful."""

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
        with self.session.console.progress("prune", self.runs) as self._bar:
            for group in self._groups():
                if group:
                    self._try(group)

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
        most = max(FEWEST, int(SHARE * self.runs) // 4)
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
        interval = stats.t_interval(self._costs(blocks, arm))
        metric = self.session.head.metrics[0]
        if metric.direction == "max":
            interval = stats.Interval(-interval.mean, -interval.high, -interval.low, interval.n)
        told = stats.record(metric.name, metric.direction, interval, 0.0, 1.0, 1.0)
        self.decisions.append(Dropped(group, dropped, told.ratio, told.low, told.high, told.blocks))
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
