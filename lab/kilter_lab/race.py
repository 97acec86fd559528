"""The race: a few candidates side by side in fresh blocks with the baseline, losers dropped.

Numbers of the search are forgotten here: a candidate that was lucky there starts anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kilter_lab import stats
from kilter_lab.ledger import Block
from kilter_lab.messages import Settings
from kilter_lab.session import BASE, Session
from kilter_lab.wording import count

PROMISING = 0.8
"""One-sided confidence that the race's winner gains anything, below which nothing is confirmed."""

SIMPLER = 1.0
"""Standard errors by which more knobs must gain more than fewer do."""

FEWEST = 2
"""Blocks of a round."""
MOST = 8

FIELD = 4
"""Candidates at the start, where the runs allow."""


@dataclass
class Raced:
    """The race's winner with its log costs, block by block."""

    settings: Settings
    blocks: list[Block]
    arm: str
    costs: list[float]

    @property
    def promising(self) -> bool:
        """Whether it probably gains anything at all."""
        n = len(self.costs)
        if n < 2:
            return n == 1 and self.costs[0] < 0
        interval = stats.t_interval(self.costs, 2 * PROMISING - 1)
        return interval.high < 0


def race(session: Session, candidates: list[Settings], runs: int) -> Raced | None:
    """Race within about so many runs; None where no candidate comes through.

    Each round halves the field; the last two are left to one more round, so that the winner has
    blocks from every round.
    """
    size = field_size(runs)
    field = {f"candidate {i + 1}": settings for i, settings in enumerate(candidates[:size])}
    blocks: list[Block] = []
    rounds = _rounds(len(field))
    with session.console.progress("race", 1.0) as bar:
        for i, size in enumerate(rounds):
            field = _best(session, field, blocks, size) if blocks else field
            for k in range(_blocks_of_round(runs, rounds, i)):
                if blocks and not session.fits(2 * (len(field) + 1)):
                    break
                blocks.append(session.block("race", len(blocks), {BASE: {}, **field}))
                bar.at(
                    (i + (k + 1) / _blocks_of_round(runs, rounds, i)) / len(rounds),
                    f"{count(len(field), 'candidate')} left",
                )
    last = list(_best(session, field, blocks, 2))
    if not last:
        return None
    winner = _simpler(session, field, blocks, last)
    own = [b for b in blocks if winner in b.arms]
    return Raced(field[winner], own, winner, session.costs(own, BASE, winner))


def field_size(runs: int) -> int:
    """The most candidates whose shortest race stays within the runs."""
    fitting = [n for n in range(1, FIELD + 1) if FEWEST * _runs_of_a_pass(_rounds(n)) <= runs]
    return max(fitting, default=1)


def _simpler(
    session: Session, field: dict[str, Settings], blocks: list[Block], last: list[str]
) -> str:
    """Of the last two (best first) the one with fewer knobs, unless the other clearly gains more.

    Clearly: by over one standard error of their difference in the blocks that they share.
    """
    if len(last) < 2 or len(field[last[1]]) >= len(field[last[0]]):
        return last[0]
    shared = [b for b in blocks if last[0] in b.arms and last[1] in b.arms]
    lead = session.costs(shared, last[0], last[1])
    error = stats.deviation(lead) / math.sqrt(max(1, len(lead)))
    return last[1] if math.fsum(lead) / max(1, len(lead)) < SIMPLER * error else last[0]


def _rounds(candidates: int) -> list[int]:
    """Sizes of the field: 4, 2; or 3, 2; or 2; or 1."""
    sizes = [candidates]
    while sizes[-1] > 2:
        sizes.append(math.ceil(sizes[-1] / 2))
    return sizes


def _blocks_of_round(runs: int, rounds: list[int], i: int) -> int:
    """Each round has the same number of blocks, as many as the runs allow."""
    return max(FEWEST, min(MOST, runs // _runs_of_a_pass(rounds)))


def _runs_of_a_pass(rounds: list[int]) -> int:
    """Runs of one block in every round."""
    return sum(2 * (size + 1) for size in rounds)


def _best(
    session: Session, field: dict[str, Settings], blocks: list[Block], size: int
) -> dict[str, Settings]:
    """The ``size`` candidates with the least mean cost; those that always failed are out."""
    means = {}
    for arm in field:
        costs = session.costs([b for b in blocks if arm in b.arms], BASE, arm)
        if costs and 2 * len(costs) >= len(blocks):
            means[arm] = math.fsum(costs) / len(costs)
    return {arm: field[arm] for arm in sorted(means, key=means.__getitem__)[:size]}
