"""Random halves of a profile's lines, side by side: what each line does on average; pure.

A pair of runs holds every line exactly once, in one half or the other, so the log ratio of the
pair is a sum over all lines with a plus or a minus each. Least squares over many pairs gives every
line's own effect; with n pairs its standard error is near that of one line tried n times alone.
Effects of two lines *together* fall out of the ratio and remain in the product of the two runs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import msgspec
import numpy as np

from kilter_lab import stats
from kilter_lab.messages import AuditLine, Metric

LOOKED_AT = 2.0
"""Standard errors from 0 at which a line's interactions are looked at."""


@dataclass(frozen=True)
class Split:
    """One split of the lines, with what its two runs came to."""

    first: tuple[bool, ...]
    """Whether each line is in the first half."""
    ratio: float = math.nan
    """Log cost of the first half over the second; less is better."""
    product: float = math.nan
    """Sum of both log costs."""

    def parts(self, lines: Sequence[AuditLine]) -> tuple[list[AuditLine], list[AuditLine]]:
        """The lines of either half."""
        one = [line for line, first in zip(lines, self.first, strict=True) if first]
        return one, [line for line in lines if line not in one]

    def measured(self, first: float, second: float, metric: Metric) -> Split:
        """The split with the values of its runs."""
        sign = 1 if metric.direction == "min" else -1
        a, b = (sign * stats.mean_log([v], metric.name) for v in (first, second))
        return replace(self, ratio=a - b, product=a + b)


class Estimate(msgspec.Struct):
    """A line's own effect: log cost (below 0 is better), with its standard error."""

    knob: str
    log_change: float
    error: float

    @property
    def strength(self) -> float:
        """Distance from 0 in standard errors."""
        return abs(self.log_change) / self.error if self.error > 0 else 0.0


class Interaction(msgspec.Struct):
    """Two lines that together do more or less than their sum."""

    knobs: tuple[str, str]
    log_change: float
    low: float
    high: float


class Halves(msgspec.Struct):
    """What the halves showed."""

    knobs: list[str]
    estimates: list[tuple[float, float]]
    """(log cost, standard error), by line."""
    interactions: list[Interaction]

    def estimates_by_knob(self) -> list[Estimate]:
        """One a line."""
        return [Estimate(k, *e) for k, e in zip(self.knobs, self.estimates, strict=True)]

    def of(self, knob: str) -> Estimate:
        """The estimate of one line."""
        return Estimate(knob, *self.estimates[self.knobs.index(knob)])


def split(lines: int, rng: random.Random) -> Split:
    """A random split: a coin for each line.

    Not exactly equal halves: those cannot tell what all lines do alike.
    """
    return Split(tuple(rng.random() < 0.5 for _ in range(lines)))


def estimate(splits: Sequence[Split], lines: int) -> list[tuple[float, float]]:
    """(log cost, standard error) of each line; infinitely uncertain where splits are too few."""
    if len(splits) <= lines:
        return [(0.0, math.inf)] * lines
    x = np.array([[1.0 if f else -1.0 for f in s.first] for s in splits])
    y = np.array([s.ratio for s in splits])
    inverse = np.linalg.pinv(x.T @ x)
    effects = inverse @ x.T @ y
    rest = y - x @ effects
    variance = float(rest @ rest) / (len(splits) - np.linalg.matrix_rank(x))
    errors = np.sqrt(np.maximum(np.diag(inverse) * variance, 0.0))
    return [(float(e), float(s)) for e, s in zip(effects, errors, strict=True)]


def interactions(splits: Sequence[Split], found: Halves, alpha: float) -> list[Interaction]:
    """Pairs of strong lines whose joint effect is told from 0, all pairs sharing the error."""
    strong = [i for i, e in enumerate(found.estimates_by_knob()) if e.strength > LOOKED_AT]
    pairs = list(combinations(strong, 2))
    if not pairs or len(splits) < 2 * len(pairs) + 8:
        return []
    same = [[float(s.first[i] == s.first[j]) for i, j in pairs] for s in splits]
    x = np.column_stack([np.ones(len(splits)), np.linspace(-1, 1, len(splits)), np.array(same)])
    y = np.array([s.product for s in splits])
    inverse = np.linalg.pinv(x.T @ x)
    effects = inverse @ x.T @ y
    rest = y - x @ effects
    freedom = len(splits) - x.shape[1]
    errors = np.sqrt(np.diag(inverse) * float(rest @ rest) / freedom)
    width = stats.t_quantile(1 - alpha / 2 / len(pairs), freedom)
    told = []
    for (i, j), effect, error in zip(pairs, effects[2:], errors[2:], strict=True):
        low, high = effect - width * error, effect + width * error
        if low > 0 or high < 0:
            names = (found.knobs[i], found.knobs[j])
            told.append(Interaction(names, float(effect), float(low), float(high)))
    return told
