"""Ratios of counts, which may be 0, with intervals; pure.

Where a logarithm has no meaning the ratio of two means is still known by Fieller's theorem (Journal
of the Royal Statistical Society B 16, 1954): the interval holds every ratio ρ for which the blocks'
differences ``arm − ρ·base`` may have the mean 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from kilter_lab import stats
from kilter_lab.messages import VerdictName


class CountRatio(msgspec.Struct, frozen=True):
    """A count of an arm beside the base's."""

    base: float
    """Mean of the blocks."""
    arm: float
    ratio: float | None
    """None where the base counted nothing."""
    low: float | None
    high: float | None
    """None where the blocks do not bound it."""
    verdict: VerdictName
    """Less is better."""


def ratio(
    base: Sequence[float], arm: Sequence[float], alpha: float, region_percent: float
) -> CountRatio:
    """The ratio of the blocks' means with its interval at ``1 - alpha``."""
    a, b = (math.fsum(values) / len(values) for values in (arm, base))
    if b == 0:
        # Nothing to divide by: only whether they are alike can be said.
        return CountRatio(b, a, None, None, None, "no-difference" if a == 0 else "inconclusive")
    ends = fieller(base, arm, alpha)
    if ends is None:
        return CountRatio(b, a, a / b, None, None, "inconclusive")
    return CountRatio(b, a, a / b, *ends, _verdict(*ends, region_percent))


def fieller(
    base: Sequence[float], arm: Sequence[float], alpha: float
) -> tuple[float, float] | None:
    """Ends of the interval of ``mean(arm) / mean(base)``; None where it is not bounded."""
    n = len(base)
    if n < 2:
        return None
    a, b = float(np.mean(arm)), float(np.mean(base))
    (s_bb, s_ab), (_, s_aa) = np.cov(base, arm) / n
    t = stats.t_quantile(1 - alpha / 2, n - 1) ** 2
    square = b * b - t * s_bb
    if square <= 0:
        return None
    middle = a * b - t * s_ab
    root = math.sqrt(max(0.0, middle * middle - square * (a * a - t * s_aa)))
    return max(0.0, float((middle - root) / square)), float((middle + root) / square)


def _verdict(low: float, high: float, region_percent: float) -> VerdictName:
    within = 1 + region_percent / 100
    if low >= 1 / within and high <= within:
        return "no-difference"
    if high < 1:
        return "better"
    return "worse" if low > 1 else "inconclusive"
