"""What a series of runs looks like beyond its mean: two groups, neighbours that are alike.

Pure functions on logarithms of runs. Their limits were chosen by simulation over the kinds of
noise of ``bench/evidence`` (``--only doubts``): of series without the pattern, skewed ones
included, at most 2 in 100 are told to have it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

FEWEST = 20
"""Runs below which no pattern is told."""

MANY = 40
"""Runs from which chance seldom makes groups, so that a weaker split is believed."""

EXPLAINED, EXPLAINED_OF_FEW = 0.85, 0.90
"""Share of the variance that lies between the groups; normal noise has 0.64, even noise 0.75."""

SMALLEST = 0.10
"""Share of the runs in the smaller group."""


def two_groups(logs: Sequence[float]) -> frozenset[int] | None:
    """Indices of the higher group of runs, where they fall into two; else None.

    The best split into two means (Jenks' natural breaks with one break), where it leaves little
    variance within the groups.
    """
    x = np.asarray(logs, dtype=float)
    n = len(x)
    if n < FEWEST:
        return None
    order = np.argsort(x, kind="stable")
    centred = x[order] - x.mean()
    total = float(centred @ centred)
    if total <= 0:
        return None
    sizes = np.arange(1, n)
    between = np.cumsum(centred)[:-1] ** 2 * n / (sizes * (n - sizes))
    allowed = (sizes >= SMALLEST * n) & (n - sizes >= SMALLEST * n)
    cut = int(np.argmax(np.where(allowed, between, -1.0)))
    needed = EXPLAINED if n >= MANY else EXPLAINED_OF_FEW
    if between[cut] < needed * total:
        return None
    return frozenset(int(i) for i in order[cut + 1 :])


@dataclass(frozen=True)
class Resemblance:
    """Correlation of neighbouring runs, and how likely chance alone makes it as large."""

    correlation: float
    p: float


def resemblance(logs: Sequence[float]) -> Resemblance | None:
    """Lag-1 autocorrelation without the linear trend; None where there is too little to say.

    Its bias in short series (Kendall, Biometrika 41, 1954) is taken out to first order.
    """
    x = np.asarray(logs, dtype=float)
    n = len(x)
    if n < FEWEST:
        return None
    time = np.arange(n) - (n - 1) / 2
    rest = x - x.mean()
    rest = rest - time * float(time @ rest) / float(time @ time)
    total = float(rest @ rest)
    if total <= 0:
        return None
    correlation = float(rest[1:] @ rest[:-1]) / total + 2 / n
    return Resemblance(correlation, float(ndtr(-correlation * math.sqrt(n))))


def sobered(p: float, logs: Sequence[float]) -> float:
    """A trend's two-sided p value, with neighbours that are alike counted as fewer runs.

    A machine whose moods last wanders, and a wander looks like a trend to a test that takes its
    runs for independent.
    """
    found = resemblance(logs)
    if found is None or not 0 < found.correlation < 1 or not 0 < p < 1:
        return p
    z = float(ndtri(p / 2)) * math.sqrt((1 - found.correlation) / (1 + found.correlation))
    return 2 * float(ndtr(z))
