"""The confirmation: the winner against the baseline on fresh blocks, their number fixed before.

Nothing is claimed from any other number. The count is decided from the noise and the promise when
the confirmation begins, and kept with the study, so that neither a look at the blocks nor an
interruption can stop it at a lucky moment; only the end of the time budget can cut it short.
"""

from __future__ import annotations

import msgspec

from kilter_lab import stats
from kilter_lab.ledger import Block
from kilter_lab.measure import OK
from kilter_lab.messages import Settings, VerdictRecord
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


class Confirmed(msgspec.Struct):
    """The blocks of a confirmation and the verdicts on them."""

    blocks: list[Block]
    planned: int
    verdicts: list[VerdictRecord]
    """One a metric that has a ratio, the deciding one first; empty where no block came through."""
    failed: int
    """Runs of the winner that failed."""


def blocks_needed(gain: float, noise: float, region_percent: float, runs: int) -> int:
    """Blocks that show half the promised log gain, within the runs that there are."""
    most = max(FEWEST_CONFIRM, min(MOST_CONFIRM, runs // 4))
    effect = max(gain / 2, stats.region_log(region_percent))
    return max(min(USUAL, most), stats.blocks_to_detect(effect, noise, most))


def confirm(session: Session, winner: Settings, gain: float, noise: float, runs: int) -> Confirmed:
    """Measure the winner on fresh blocks."""
    design = session.ledger.read("confirm", Design)
    if design is None or design.winner != winner:
        design = Design(winner, blocks_needed(gain, noise, session.head.region_percent, runs))
        session.ledger.write("confirm", design)
    blocks: list[Block] = []
    with session.console.progress("confirm", design.blocks, "blocks") as bar:
        for index in range(design.blocks):
            if index >= 2 and not _recorded(session, index, winner) and not session.fits(4):
                break
            blocks.append(session.block("confirm", index, {BASE: {}, WINNER: winner}))
            left = 4 * session.run_s() * (design.blocks - index - 1)
            bar.at(index + 1, f"{duration(left)} left")
    failed = sum(r.arm == WINNER and r.outcome != OK for b in blocks for r in b.runs)
    return Confirmed(blocks, design.blocks, verdicts(session, blocks, WINNER), failed)


def _recorded(session: Session, index: int, winner: Settings) -> bool:
    block = session.ledger.blocks().get(("confirm", index))
    return block is not None and block.arms.get(WINNER) == winner


def verdicts(session: Session, blocks: list[Block], arm: str) -> list[VerdictRecord]:
    """Verdicts on all metrics; those without a ratio are left out, but for the deciding one."""
    found = []
    for metric in session.head.metrics:
        pairs = (pair_values(b.runs, BASE, arm, metric.name) for b in blocks)
        good = [p for p in pairs if p is not None]
        if not good:
            continue
        try:
            record = stats.verdict(metric.name, metric.direction, good, session.head.region_percent)
        except stats.NotPositiveError:
            if metric is session.head.metrics[0]:
                raise
            continue
        found.append(record)
    return found
