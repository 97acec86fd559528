"""Comparisons replayed on streams of noise, with the very functions that ``compare`` uses.

The order of a block, its log ratio, the looks with their intervals, the verdict and the estimate
are the package's own. Each look costs the judge all logarithms of all blocks anew, so the mass of
replays takes each logarithm once and asks the design for its interval; every twentieth goes
through :class:`kilter_lab.judging.Judge` as well, and must end alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from kilter_lab import stats
from kilter_lab.blocks import dice, palindrome
from kilter_lab.judging import Judge, Values, judge_for
from kilter_lab.messages import Metric, Question, Record, VerdictName
from noise import Array, Kind

WALL = Metric("wall_s", Record("wall_s"), "min", "s")

CHECKED = 20
"""Every so manieth replay goes through the judge."""

REGION = 1.0
"""Percent; what ``compare`` takes unless told otherwise."""


class DifferError(AssertionError):
    """The judge and the replay ended differently."""


@dataclass(frozen=True)
class Ended:
    """How a comparison of two arms came out."""

    verdict: VerdictName
    blocks: int
    """When it ended."""
    covered: bool
    """Whether the interval at its end holds the true effect."""
    missed: bool
    """Whether the interval of any look up to the last missed the true effect."""
    mean: float
    """Of the blocks' log ratios at the end."""
    logs: tuple[float, ...]
    """The log ratios of the blocks up to the end."""


def judge(most: int, region: float = REGION) -> Judge:
    """A question's looks: two arms, one metric, the default error."""
    return judge_for(Question(region_percent=region), [WALL], 1, most)


def blocks_of(stream: Array, effect: float, seed: int) -> Iterator[Values]:
    """(base values, arm values) of block after block of a comparison with this seed."""
    for index in range(len(stream) // 4):
        order = palindrome(2, dice(seed, "compare", index))
        values: tuple[list[float], list[float]] = ([], [])
        for position, arm in enumerate(order):
            values[arm].append(math.exp(stream[4 * index + position] + arm * effect))
        yield values


def replay(
    judge: Judge, kind: Kind, seed: int, number: int, effect: float, to_the_end: bool = False
) -> Ended:
    """One comparison of this kind of noise; see :func:`on_stream`."""
    stream = kind.stream(seed, number, 4 * judge.most)
    checked = number % CHECKED == 0
    return on_stream(judge, stream, seed + number, effect, to_the_end, checked)


def on_stream(
    judge: Judge,
    stream: Array,
    seed: int,
    effect: float,
    to_the_end: bool = False,
    checked: bool = False,
) -> Ended:
    """One comparison on the log noise of its runs, until its verdict or its last block.

    ``to_the_end`` goes on after the verdict, to see all looks' intervals; ``checked`` has the
    judge itself look at each, and raises DifferError where it says otherwise.
    """
    design = judge.deciding
    blocks: list[Values] = []
    logs: list[float] = []
    ended: Ended | None = None
    missed = False
    for values in blocks_of(stream[: 4 * judge.most], effect, seed):
        blocks.append(values)
        logs.append(stats.log_ratio(*values))
        if not design.is_look(len(logs)):
            continue
        interval = design.interval(logs)
        covered = interval.low <= effect <= interval.high
        missed |= not covered
        verdict = stats.judge(interval, judge.question.region_percent)
        if checked and ended is None:
            _check(judge, blocks, verdict)
        if ended is None and (verdict != "inconclusive" or len(logs) == design.most):
            ended = Ended(verdict, len(logs), covered, missed, interval.mean, tuple(logs))
            if not to_the_end:
                break
    assert ended is not None
    return Ended(ended.verdict, ended.blocks, ended.covered, missed, ended.mean, ended.logs)


def _check(judge: Judge, blocks: list[Values], verdict: VerdictName) -> None:
    (judged,) = judge.look(lambda _: blocks).verdicts
    if judged.verdict != verdict:
        raise DifferError(f"the judge says {judged.verdict}, the replay {verdict}")
