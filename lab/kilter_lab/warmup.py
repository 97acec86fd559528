"""Whether the first runs differ from those that follow, and how many to leave out; pure.

Caches, JIT compilers and clocks make first runs unlike later ones, but fewer than half of all
benchmarks ever settle as expected (Barrett et al., OOPSLA 2017, doi 10.1145/3133876): so warm-up
is tested for, not assumed. The test asks three things of the runs' logarithms, because on a busy
machine any few runs may lie apart by chance: that the first run is the farthest of all from the
level of the later ones; that the first runs together lie farther from it than any as long stretch
of later runs, by half at least; and that a t test, widened for runs that resemble their
neighbours, holds this for no accident. Where to cut is then the marginal standard error rule
(MSER: White, Simulation 69, 1997): the cut at which the mean of the rest is known best.

Calibrated by ``bench/evidence`` (``--only warm-up``): of series without a warm-up, simulated and
recorded, of twelve runs and more, fewer than 5 % are told to have one; a machine whose moods last
for several runs can look like one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.special import stdtr

from kilter_lab import stats
from kilter_lab.wording import count, percent

Array = npt.NDArray[np.float64]

FEWEST = 6
"""Runs below which nothing is said."""

LEVEL = 0.003
"""Two-sided p value of the first runs against the rest, for each number of first runs."""

MARGIN = 1.5
"""Distance of the first runs from the level, over that of any as long stretch of later runs."""

TOLERANCE = 0.2
"""The shortest warm-up is taken whose MSER is within this share of the least."""

ALIKE = 0.8
"""Most autocorrelation that is believed of a few runs."""

TREND_P = 0.005
TREND_LEAST = 0.03
"""A trend is told where it is less likely than this by chance, and at least this log change."""


class WarmUp(msgspec.Struct, frozen=True):
    """What a series of runs says of its beginning."""

    runs: int
    discard: int
    """Leading runs to leave out; 0 where none differ."""
    change: float
    """Log of the first run over the level of those that are kept; 0 without a warm-up."""
    steady: bool | None
    """Whether the kept runs keep a level; None where they are too few to tell."""


def detect(logs: Sequence[float]) -> WarmUp:
    """Judge the logarithms of consecutive runs of one arm, oldest first."""
    x = np.asarray(logs, dtype=float)
    n = len(x)
    if n < FEWEST:
        return WarmUp(n, 0, 0.0, None)
    cut = _cut(x) if _begins_apart(x) else 0
    steady = _level(x[cut:])
    if steady is False or cut == 0:
        # What goes on changing is a drift, and no number of first runs puts it right.
        return WarmUp(n, 0, 0.0, _level(x))
    return WarmUp(n, cut, float(x[0] - x[cut:].mean()), steady)


def told(found: WarmUp, metric: str) -> list[str]:
    """The finding in at most one sentence."""
    if found.discard:
        change = math.expm1(found.change) * 100
        more = "more" if change > 0 else "less"
        return [
            f"Warmed up after {count(found.discard, 'run')}, left out: {metric} began "
            f"{percent(abs(change))} % {more} than it is since."
        ]
    if found.steady is False:
        return [
            f"{metric} keeps no level over {count(found.runs, 'run')}: blocks cancel most of a "
            "drift, a quieter machine all of it."
        ]
    return []


def _begins_apart(x: Array) -> bool:
    return any(_apart(x, d) for d in range(1, len(x) // 3 + 1))


def _apart(x: Array, d: int) -> bool:
    """Whether the first ``d`` runs differ from the rest as a warm-up would."""
    head, rest = x[:d], x[d:]
    level = float(np.median(rest))
    away = np.abs(x - level)
    if away[0] < away[1:].max() or not _one_side(head - level):
        return False
    stretches = np.convolve(rest, np.ones(d) / d, "valid") - level
    if abs(float(head.mean()) - level) < MARGIN * float(np.abs(stretches).max()):
        return False
    return _p_value(head, rest) < LEVEL


def _one_side(away: Array) -> bool:
    return bool((away > 0).all() or (away < 0).all())


def _p_value(head: Array, rest: Array) -> float:
    """Of the difference in means, by the scatter of the rest."""
    d, m = len(head), len(rest)
    scatter = float(rest.std(ddof=1))
    if scatter == 0:
        return 0.0
    if d > 1:
        alike = min(ALIKE, max(0.0, _autocorrelation(rest)))
        scatter *= math.sqrt((1 + alike) / (1 - alike))
    t = float(head.mean() - rest.mean()) / (scatter * math.sqrt(1 / d + 1 / m))
    return 2 * float(stdtr(m - 1, -abs(t)))


def _autocorrelation(x: Array) -> float:
    """Of neighbours, with the bias of short series taken out to first order."""
    centred = x - x.mean()
    return float(centred[1:] @ centred[:-1] / (centred @ centred)) + 1 / len(x)


def _cut(x: Array) -> int:
    """The number of first runs to leave out, at least 1: MSER, not beyond the middle."""
    n = len(x)
    scores = np.array([x[d:].var() / (n - d) for d in range(1, n // 2 + 1)])
    return 1 + int(np.flatnonzero(scores <= scores.min() * (1 + TOLERANCE))[0])


def _level(x: Array) -> bool | None:
    if len(x) < FEWEST:
        return None
    trend = stats.drift(range(len(x)), x.tolist())
    return trend is None or trend.p > TREND_P or abs(trend.change) < TREND_LEAST
