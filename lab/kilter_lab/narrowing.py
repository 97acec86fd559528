"""How the interval of a confirmation closed in, block by block; pure.

Two kinds of sequence, by the verdict that stands at their end. Where the number of blocks was fixed
beforehand there was one look, after the last block: the intervals before it are t intervals of so
many blocks, which show how the data came and decide nothing. Where the blocks were looked at as
they came, each interval is a repeated one (:mod:`kilter_lab.sequential`), and each one counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from kilter_lab import sequential, stats
from kilter_lab.comparison import Look
from kilter_lab.messages import VerdictRecord
from kilter_lab.sequential import Design
from kilter_lab.study import Run

FEWEST = 2
"""Blocks that an interval takes."""


def block_logs(runs: Iterable[Run], metric: str, base: str = "base") -> list[float]:
    """The log ratio of each block in which every run has the metric, in the order of the blocks."""
    blocks: dict[int, tuple[list[float], list[float]]] = {}
    spoiled: set[int] = set()
    for run in runs:
        value = run.metrics.get(metric, math.nan)
        if not (math.isfinite(value) and value > 0):
            spoiled.add(run.block)
            continue
        blocks.setdefault(run.block, ([], []))[run.arm != base].append(value)
    return [
        stats.log_ratio(*pair)
        for number, pair in sorted(blocks.items())
        if number not in spoiled and all(pair)
    ]


def narrowing(logs: Sequence[float], verdict: VerdictRecord, planned: int) -> list[Look]:
    """The estimate and its interval after each block that could be looked at.

    ``planned``: most blocks of a design with several looks; its widths follow from it.
    """
    alpha = 1.0 - verdict.confidence
    if not 0.0 < alpha < 0.5:
        return []
    if verdict.looks > 1 and planned >= len(logs):
        design = sequential.design(alpha, planned)
        return [_look(design, logs[:n]) for n in design.looks if FEWEST <= n <= len(logs)]
    return [_look(sequential.fixed(alpha, n), logs[:n]) for n in range(FEWEST, len(logs) + 1)]


def _look(design: Design, logs: Sequence[float]) -> Look:
    interval = design.interval(logs)
    mean, low, high = (math.exp(x) for x in (interval.mean, interval.low, interval.high))
    return Look(interval.n, mean, low, high)
