"""The confirmation: the winner against the baseline on fresh blocks, their number fixed before.

Nothing is claimed from any other number. The count is decided from the noise and the promise when
the confirmation begins, and kept with the study, so that neither a look at the blocks nor an
interruption can stop it at a lucky moment; only the end of the time budget can cut it short.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from kilter_lab import stats
from kilter_lab.judging import Judged, Values, fixed_judge
from kilter_lab.ledger import Block
from kilter_lab.measure import OK
from kilter_lab.messages import Question, Settings
from kilter_lab.planning import FEWEST_CONFIRM, MOST_CONFIRM
from kilter_lab.prune import WINNER
from kilter_lab.session import BASE, Session, pair_values
from kilter_lab.wording import duration

USUAL = 10
"""Blocks that a confirmation has where there is room, whatever the noise."""


class Design(msgspec.Struct):
    """What was decided when the confirmation began."""

    winner: Settings
    blocks: int


@dataclass
class Confirmed:
    """The blocks of a confirmation and what they say."""

    blocks: list[Block]
    planned: int
    judged: Judged
    """Without verdicts where no block came through."""
    failed: int
    """Runs of the winner that failed."""


def blocks_needed(gain: float, noise: float, question: Question) -> int:
    """Blocks that show half the promised log gain, or the least effect of interest if more."""
    effect = max(gain / 2, math.log1p(question.detect_percent / 100))
    needed = stats.blocks_to_detect(effect, noise, MOST_CONFIRM, question.alpha)
    return max(USUAL, needed)


def confirm(session: Session, winner: Settings, needed: int, runs: int) -> Confirmed:
    """Measure the winner on fresh blocks."""
    design = session.ledger.read("confirm", Design)
    if design is None or design.winner != winner:
        design = Design(winner, max(FEWEST_CONFIRM, min(needed, runs // 4)))
        session.ledger.write("confirm", design)
    blocks: list[Block] = []
    with session.console.progress("confirm", design.blocks, "blocks") as bar:
        for index in range(design.blocks):
            arms = {BASE: {}, WINNER: winner}
            recorded = session.recorded("confirm", index, arms)
            if index >= 2 and not recorded and not session.fits(4):
                break
            blocks.append(session.block("confirm", index, arms))
            left = 4 * session.run_s() * (design.blocks - index - 1)
            bar.at(index + 1, f"{duration(left)} left")
    failed = sum(r.arm == WINNER and r.outcome != OK for b in blocks for r in b.runs)
    return Confirmed(blocks, design.blocks, judged(session, blocks, WINNER), failed)


def judged(session: Session, blocks: list[Block], arm: str) -> Judged:
    """Verdicts, guards and shown metrics by these blocks, looked at once.

    Empty where no block came through.
    """

    def values(metric: str) -> list[Values]:
        pairs = (pair_values(b.runs, BASE, arm, metric) for b in blocks)
        return [p for p in pairs if p is not None]

    good = len(values(session.metric))
    if good == 0:
        return Judged([], [], [])
    head = session.head
    return fixed_judge(head.question, head.metrics, 1, max(2, good)).judge(values)
