"""What the machine's noise allows, from a few runs of the base alone; pure.

Base against base is the comparison whose answer is known, so what it shows is noise: the
deviation of a block's log ratio, had those runs been a block. With it the price of an answer is
told before anything is spent: which effect the runs at hand can show, what the effect asked for
takes, and what "no difference" takes, which is often ten times as much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.special import chdtri

from kilter_lab import sequential, stats, warmup
from kilter_lab.messages import Question
from kilter_lab.outcome import shared_alpha
from kilter_lab.warmup import WarmUp
from kilter_lab.wording import count, duration, percent, quantity, rounded

Array = npt.NDArray[np.float64]

FEWEST, ENOUGH, MOST = 4, 12, 24
"""Base runs: at least, where nothing is odd, and while a warm-up goes on."""

SHARE = 0.1
"""Of the budget, for the base runs."""

BLOCK_RUNS = 4
"""Runs of a block of two arms."""

PRUDENCE = 0.7
"""Chance that the noise is no greater than what is planned with."""

FREEDOM = 0.6
"""Degrees of freedom of the block's noise for each base run beyond the first (simulated)."""

LIMIT = 2_500
"""Blocks beyond which a plan is no plan: 10,000 runs of two arms."""

QUIET = 1e-4
"""Least deviation of a block that is believed: clocks and counters are no better."""


class Preflight(msgspec.Struct, frozen=True):
    """The noise, and what it makes possible; effects and deviations in log units."""

    warm_up: WarmUp
    run_s: float
    """Seconds a run takes, everything around it included."""
    block_runs: int
    """Runs of a block of all arms."""
    run_noise: float
    """Deviation from run to run."""
    block_noise: float
    """Deviation of a block's log ratio of two arms."""
    planned_noise: float
    """What plans are made with: the noise is seldom greater, for a few runs tell it roughly."""
    afforded: int | None
    """Blocks that the limits of runs and time leave; None without limits."""
    blocks: int
    """Most blocks of the comparison: what the effect asked for takes, within the limits; as many
    as "no difference" takes, where the limits allow it."""
    detectable: float
    """Smallest effect that these blocks show with the planned power."""
    detect_blocks: int | None
    """Most blocks that the effect asked for takes; None beyond :data:`LIMIT`."""
    equal_blocks: int | None
    """Most blocks that "no difference" takes where there is none; None beyond :data:`LIMIT`."""


def measure_needed(run_s: float, budget_s: float | None) -> int:
    """How many base runs to make for the preflight: a tenth of the budget, 4 to 12."""
    if budget_s is None or run_s <= 0:
        return ENOUGH
    return max(FEWEST, min(ENOUGH, int(SHARE * budget_s / run_s)))


def more_needed(logs: Sequence[float], run_s: float, budget_s: float | None) -> int:
    """How many more base runs to make: none, or as many again as a warm-up has taken.

    At most 24 in all, and a fifth of the budget: a warm-up that is not over would otherwise be
    measured into the first blocks.
    """
    found = warmup.detect(logs)
    if found.discard == 0:
        return 0
    most = MOST
    if budget_s is not None and run_s > 0:
        most = min(most, int(2 * SHARE * budget_s / run_s))
    kept = len(logs) - found.discard
    return max(0, min(most - len(logs), ENOUGH - kept))


def assess(
    logs: Sequence[float],
    run_s: float,
    question: Question,
    arms: int = 1,
    left_s: float | None = None,
    left_runs: int | None = None,
) -> Preflight:
    """Judge the logarithms of at least two consecutive base runs, oldest first.

    ``arms`` besides the base; ``left_s`` and ``left_runs`` limit what may still be spent.
    """
    found = warmup.detect(logs)
    kept = np.asarray(logs, dtype=float)[found.discard :]
    noise = max(QUIET, block_noise(kept))
    planned = noise * prudence(len(kept))
    runs = 2 * (1 + arms)
    alpha = shared_alpha(question.alpha, question.objectives, arms)
    detect = detect_blocks(math.log1p(question.detect_percent / 100), planned, alpha)
    equal = equal_blocks(stats.region_log(question.region_percent), planned, alpha)
    afforded = _afforded(runs, run_s, left_s, left_runs)
    most = LIMIT if afforded is None else max(2, afforded)
    blocks = min(most, detect or LIMIT)
    if equal is not None and equal <= most:
        blocks = max(blocks, equal)
    return Preflight(
        warm_up=found,
        run_s=run_s,
        block_runs=runs,
        run_noise=stats.deviation(kept.tolist()),
        block_noise=noise,
        planned_noise=planned,
        afforded=afforded,
        blocks=blocks,
        detectable=sequential.detectable(planned, alpha, blocks),
        detect_blocks=detect,
        equal_blocks=equal,
    )


def block_noise(logs: Sequence[float] | Array) -> float:
    """Deviation of a block's log ratio, from consecutive runs of one arm.

    Every four neighbours are taken for a block ABBA of twice the same arm, so that its mean is
    known to be 0 and runs that resemble each other count as they will in blocks. So few blocks
    tell little; the differences of neighbours steady them. Nothing is clipped: tails are part of
    what a comparison has to overcome.
    """
    x = np.asarray(logs, dtype=float)
    if len(x) < 2:
        return 0.0
    variance = float(np.mean(np.diff(x) ** 2)) / 2
    if len(x) > BLOCK_RUNS:
        halves = (x[:-3] - x[1:-2] - x[2:-1] + x[3:]) / 2
        variance = (variance + float(np.mean(halves**2))) / 2
    return math.sqrt(variance)


def prudence(runs: int) -> float:
    """Factor on the noise estimated from so many base runs, to plan with: it may be greater."""
    freedom = max(1.0, FREEDOM * (runs - 1))
    return math.sqrt(freedom / float(chdtri(freedom, PRUDENCE)))


def detect_blocks(effect: float, noise: float, alpha: float) -> int | None:
    """Most blocks of a comparison that calls ``effect``; None beyond :data:`LIMIT`."""
    return _within_limit(sequential.blocks_for(effect, noise, alpha, LIMIT))


def equal_blocks(region: float, noise: float, alpha: float) -> int | None:
    """Most blocks until "no difference" is told where there is none; None beyond :data:`LIMIT`."""
    return _within_limit(sequential.blocks_for_equality(region, noise, alpha, LIMIT))


def _within_limit(blocks: int) -> int | None:
    return None if blocks >= LIMIT else blocks


def told(found: Preflight, metric: str, question: Question) -> list[str]:
    """Warm-up, noise, and what answers cost: at most three lines."""
    base = count(found.warm_up.runs - found.warm_up.discard, "base run")
    shown = percent(math.expm1(found.detectable) * 100)
    runs = count(rounded(found.blocks * found.block_runs), "run")
    equal = f'"no difference" within ± {question.region_percent:g} %'
    answers = [
        (f"{question.detect_percent:g} %", found.detect_blocks),
        (equal, found.equal_blocks),
    ]
    missed = [_price(*a, found) for a in answers if a[1] is None or a[1] > found.blocks]
    also = "" if any(equal in text for text in missed) else f", and else {equal}"
    lines = [
        *warmup.told(found.warm_up, metric),
        f"A run takes {_short(found.run_s)}, {metric} varies by "
        f"{percent(found.run_noise * 100)} % ({base}): effects from {shown} % on will show, in at "
        f"most {runs}, {_time(found, found.blocks)}{also}.",
    ]
    return [*lines, f"Too few runs for {'; nor for '.join(missed)}."] if missed else lines


def _price(answer: str, blocks: int | None, found: Preflight) -> str:
    if blocks is None:
        return f"{answer}: that takes more than {count(LIMIT * found.block_runs, 'run')}"
    runs = rounded(blocks * found.block_runs)
    return f"{answer}: that takes up to {count(runs, 'run')}, {_time(found, blocks)}"


def _short(seconds: float) -> str:
    return quantity(seconds, "s") if 0 < seconds < 1 else duration(seconds)


def _time(found: Preflight, blocks: int) -> str:
    return duration(blocks * found.block_runs * found.run_s)


def _afforded(
    block_runs: int, run_s: float, left_s: float | None, left_runs: int | None
) -> int | None:
    limits = []
    if left_runs is not None:
        limits.append(left_runs // block_runs)
    if left_s is not None and run_s > 0:
        limits.append(int(left_s / (run_s * block_runs)))
    return min(limits, default=None)
