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
from kilter_lab.measure import OK
from kilter_lab.messages import Question, Settings
from kilter_lab.planning import FEWEST_CONFIRM, MOST_CONFIRM
from kilter_lab.prune import WINNER
from kilter_lab.session import Session, pair_values
from kilter_lab.study import BASE, Block
from kilter_lab.wording import duration

USUAL = 10
"""Blocks that a confirmation has where there is room, whatever the noise."""


class Design(msgspec.Struct):
    """What was decided when the confirmation began."""

    winner: Settings
    blocks: int
    others: list[Settings] = []
    """Further members of a Pareto set, beside the winner in each block."""


@dataclass
class Confirmed:
    """The blocks of a confirmation and what they say."""

    blocks: list[Block]
    planned: int
    judged: Judged
    """Without verdicts where no block came through."""
    failed: int
    """Runs of the candidate that failed."""


def blocks_needed(gain: float, noise: float, question: Question) -> int:
    """Blocks that show half the promised log gain, or the least effect of interest if more."""
    effect = max(gain / 2, math.log1p(question.detect_percent / 100))
    needed = stats.blocks_to_detect(effect, noise, MOST_CONFIRM, question.alpha)
    return max(USUAL, needed)


def arm_name(member: int) -> str:
    """What the blocks call a candidate: ``winner``, ``winner 2`` and so on."""
    return WINNER if member == 0 else f"{WINNER} {member + 1}"


def confirm(session: Session, winner: Settings, needed: int, runs: int) -> Confirmed:
    """Measure the winner on fresh blocks."""
    (confirmed,) = confirm_all(session, [winner], needed, runs)
    return confirmed


def confirm_all(
    session: Session, members: list[Settings], needed: int, runs: int
) -> list[Confirmed]:
    """Measure all candidates on the same fresh blocks; the error is shared among them."""
    each = 2 * (1 + len(members))
    design = session.ledger.read("confirm", Design)
    if design is None or [design.winner, *design.others] != members:
        blocks_planned = max(FEWEST_CONFIRM, min(needed, runs // each))
        design = Design(members[0], blocks_planned, members[1:])
        session.ledger.write("confirm", design)
    blocks: list[Block] = []
    arms = {BASE: {}, **{arm_name(i): settings for i, settings in enumerate(members)}}
    with session.console.progress("confirm", design.blocks, "blocks") as bar:
        for index in range(design.blocks):
            recorded = session.recorded("confirm", index, arms)
            if index >= 2 and not recorded and not session.fits(each):
                break
            blocks.append(session.block("confirm", index, arms))
            left = each * session.run_s() * (design.blocks - index - 1)
            bar.at(index + 1, f"{duration(left)} left")
    return [
        Confirmed(
            blocks,
            design.blocks,
            judged(session, blocks, arm, len(members)),
            sum(r.arm == arm and r.outcome != OK for b in blocks for r in b.runs),
        )
        for arm in list(arms)[1:]
    ]


def judged(session: Session, blocks: list[Block], arm: str, arms: int) -> Judged:
    """Verdicts, guards and shown metrics by these blocks, looked at once.

    ``arms``: candidates that share the error. Empty where no block came through.
    """

    def values(metric: str) -> list[Values]:
        pairs = (pair_values(b.runs, BASE, arm, metric) for b in blocks)
        return [p for p in pairs if p is not None]

    good = len(values(session.metric))
    if good == 0:
        return Judged([], [], [])
    head = session.head
    return fixed_judge(head.question, head.metrics, arms, max(2, good)).judge(values)
