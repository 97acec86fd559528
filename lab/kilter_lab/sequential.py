"""Intervals that may be looked at after every block: a group-sequential design with t statistics.

The log ratios of the blocks are looked at up to a number of blocks fixed beforehand. At each look
the interval is that of Student's t, only wider: wide enough that over all looks together it misses
the truth with probability ``alpha``. These are the repeated confidence intervals of Jennison and
Turnbull (*Group Sequential Methods*, 2000, chapter 9), so one may stop at any look for any reason
and the interval holds. Up to 50 blocks all looks have the same level, as Pocock's (Biometrika 64,
1977), which calls clear effects soonest; beyond, levels tighten the earlier looks and spare the
last ones, as in the family of Wang and Tsiatis (Biometrics 43, 1987). The level is calibrated by
simulation of the t statistics themselves (Jennison and Turnbull's chapter 4.4 calls for that where
the variance is estimated from a few observations).

What makes this hold on real machines is the order of the runs. In a block ABBA or BAAB is chosen
by a coin, so if nothing differs, the sign of a block's log ratio is that coin's, whatever the
noise does: tails, drift, runs that resemble their neighbours.

Stopping at a large value makes that value too large on average. The estimate is therefore not the
mean but one adjusted for the stop by the stage-wise order (the same book, chapter 8): the effect
for which a result at least as extreme, or an earlier stop, is as likely as not. The same few
blocks tell the noise, and a comparison stops where they happen to lie close together; the estimate
allows for that too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, stdtrit

from kilter_lab import stats
from kilter_lab.stats import Interval, deviation

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

FEWEST = 5
"""Blocks before the first look: a variance from fewer means next to nothing."""

EVERY = 50
"""Blocks up to which each is looked at; beyond, every two in a hundred."""

SHAPE = 0.4
"""Wang and Tsiatis' Δ beyond :data:`EVERY`: the less it is, the narrower are the last looks."""

PATHS = 20_000
"""Simulated comparisons behind a calibration; its standard error is 3 % of an error of 0.05."""

INFLATION = 1.35
"""Blocks at the last look over those of a single look with the same power."""

WIDENING = 1.37
"""Width of the last look's interval over Student's."""

ALIKE = 20
"""Simulated comparisons that ended like the one at hand, below which they tell nothing."""

SEED = 1977
"""Of the calibration, so that the same question always has the same answer."""


@dataclass(frozen=True)
class Design:
    """When to look, and how wide an interval is then."""

    alpha: float
    """Chance that any look's interval misses the truth."""
    looks: tuple[int, ...]
    """Numbers of blocks at which there is a look, ascending."""

    @property
    def most(self) -> int:
        """Blocks of the last look."""
        return self.looks[-1]

    @cached_property
    def widths(self) -> dict[int, float]:
        """Standard errors from the mean to an end of the interval, by number of blocks."""
        return dict(zip(self.looks, _calibrated(self.alpha, self.looks), strict=True))

    def looks_until(self, blocks: int) -> int:
        """How many looks there are at up to so many blocks."""
        return sum(look <= blocks for look in self.looks)

    def is_look(self, blocks: int) -> bool:
        """Whether so many blocks are looked at."""
        return blocks in self.widths

    def interval(self, logs: Sequence[float]) -> Interval:
        """The interval at the last look that these blocks reach, around their mean."""
        n = max((look for look in self.looks if look <= len(logs)), default=0)
        mean = math.fsum(logs) / len(logs) if logs else 0.0
        if n < 2:
            return Interval(mean, -math.inf, math.inf, len(logs))
        seen = list(logs[:n])
        mean = math.fsum(seen) / n
        half = self.widths[n] * deviation(seen) / math.sqrt(n)
        return Interval(mean, mean - half, mean + half, n)

    def estimate(self, logs: Sequence[float]) -> float:
        """The mean, adjusted for having stopped, for blocks that ended at a look.

        Blocks beyond the first look that had left 0 were made for another metric's or a guard's
        sake. This one's stop did not choose them, so they enter with their plain mean.
        """
        n = max((look for look in self.looks if look <= len(logs)), default=0)
        if n < 2:
            return self.interval(logs).mean
        left = (look for look in self.looks if look < n and self._leaves_zero(logs[:look]))
        stop = next(left, n)
        return (stop * self._at_stop(logs[:stop]) + math.fsum(logs[stop:n])) / n

    def _leaves_zero(self, logs: Sequence[float]) -> bool:
        interval = self.interval(logs)
        return interval.low > 0 or interval.high < 0

    def _at_stop(self, logs: Sequence[float]) -> float:
        n, sd = len(logs), deviation(logs)
        mean = math.fsum(logs) / n
        looks = tuple(look for look in self.looks if look <= n)
        if sd == 0 or len(looks) == 1:
            return mean
        widths = tuple(self.widths[look] for look in looks)
        return math.copysign(sd * _median_unbiased(looks, widths, abs(mean) / sd), mean)


def design(alpha: float, most: int, fewest: int = FEWEST) -> Design:
    """Looks from ``fewest`` to ``most`` blocks; a single one where ``most`` is not more."""
    looks = [min(fewest, most)]
    while looks[-1] < most:
        looks.append(min(most, max(looks[-1] + 1, looks[-1] * (EVERY + 1) // EVERY)))
    return Design(alpha, tuple(looks))


def fixed(alpha: float, blocks: int) -> Design:
    """One look, at a number of blocks fixed beforehand: Student's t."""
    return Design(alpha, (blocks,))


def blocks_for(effect: float, noise: float, alpha: float, limit: int) -> int:
    """Most blocks of a design that calls ``effect`` with the planned power; at most ``limit``.

    ``effect`` and ``noise`` (standard deviation of a block's log ratio) in log units.
    """
    single = stats.blocks_to_detect(effect, noise, math.ceil(limit / INFLATION), alpha)
    return max(FEWEST, min(limit, math.ceil(INFLATION * single)))


def blocks_for_equality(region: float, noise: float, alpha: float, limit: int) -> int:
    """Most blocks of a design that shows no difference within ± ``region`` where there is none.

    At most ``limit``. The last look's interval must lie inside the region wherever chance puts its
    middle, to either side: hence the power's own two sides.
    """
    low, high = FEWEST, limit

    def shows(n: int) -> bool:
        width = WIDENING * stats.t_quantile(1 - alpha / 2, n - 1)
        sway = stats.t_quantile((1 + stats.POWER) / 2, n - 1)
        return (width + sway) * noise / math.sqrt(n) <= region

    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if shows(middle) else (middle + 1, high)
    return low


def detectable(noise: float, alpha: float, most: int) -> float:
    """Smallest log ratio that a design of at most so many blocks calls with the planned power."""
    return stats.detectable(noise, max(2, int(most / INFLATION)), alpha)


@lru_cache(maxsize=2)
def _paths(looks: tuple[int, ...]) -> tuple[Array, Array]:
    """Means and standard deviations of standard normal blocks at each look, one path a row."""
    rng = np.random.default_rng(SEED)
    total = np.zeros((PATHS, len(looks)))
    squares = np.zeros((PATHS, len(looks)))
    before = 0
    for i, n in enumerate(looks):
        # A batch of m normal numbers by its sum and its sum of squares.
        m = n - before
        batch = rng.standard_normal(PATHS) * math.sqrt(m)
        spread = batch**2 / m
        if m > 1:
            spread += rng.chisquare(m - 1, PATHS)
        total[:, i] = batch + (total[:, i - 1] if i else 0.0)
        squares[:, i] = spread + (squares[:, i - 1] if i else 0.0)
        before = n
    n_looks = np.asarray(looks, dtype=float)
    means = total / n_looks
    variances = np.maximum(squares - n_looks * means**2, 0.0) / np.maximum(n_looks - 1, 1)
    return means, np.sqrt(variances)


@lru_cache(maxsize=256)
def _calibrated(alpha: float, looks: tuple[int, ...]) -> tuple[float, ...]:
    if len(looks) == 1:
        return (float(stdtrit(looks[0] - 1, 1 - alpha / 2)),)
    means, deviations = _paths(looks)
    n = np.asarray(looks, dtype=float)
    statistics = np.abs(means) * np.sqrt(n) / deviations

    def widths(level: float) -> Array:
        """Student quantiles at the levels of a normal boundary that begins at this height."""
        heights = level * np.maximum(n / EVERY, 1.0) ** (SHAPE - 0.5)
        return np.asarray(stdtrit(n - 1, ndtr(heights)))

    allowed = alpha - 2 * math.sqrt(alpha * (1 - alpha) / PATHS)  # For the simulation errs too.
    low, high = 1.0, 6.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        crossed = float((statistics > widths(middle)).any(axis=1).mean())
        low, high = (middle, high) if crossed > allowed else (low, middle)
    return tuple(float(w) for w in widths(high))


def _median_unbiased(looks: tuple[int, ...], widths: tuple[float, ...], observed: float) -> float:
    """The effect whose stage-wise median is the outcome observed (mean over deviation, ≥ 0).

    In units of the observed deviation, freed from the stop as well: blocks that happen to lie
    close together end a comparison early.
    """
    means, deviations = _paths(looks)
    limits = np.asarray(widths) / np.sqrt(np.asarray(looks, dtype=float))
    rows = np.arange(len(means))

    def outcomes(effect: float) -> tuple[Array, Bools, Bools]:
        """Statistic at the last look; which had stopped above before it, and which had not."""
        t = (means + effect) / deviations
        up = t[:, :-1] > limits[:-1]
        stopped = up | (t[:, :-1] < -limits[:-1])
        return t[:, -1], up[rows, stopped.argmax(axis=1)], ~stopped.any(axis=1)

    def beyond(effect: float) -> float:
        """Chance of an outcome at least as high in the stage-wise order."""
        last, up, still = outcomes(effect)
        return float((up | (still & (last >= observed))).mean())

    low, high = -observed - 1.0, observed + 1.0
    while high - low > 1e-3 * max(observed, 0.1):
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(middle) > 0.5 else (middle, high)
    last, _, alike = outcomes(high)
    if observed > limits[-1]:
        alike &= last > limits[-1]
    if alike.sum() < ALIKE:
        return high
    return high / float(np.median(deviations[alike, -1]))
