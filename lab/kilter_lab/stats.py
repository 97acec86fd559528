"""Verdicts from blocks of interleaved runs; pure functions.

A block yields one number: the mean of the logarithms of an arm's runs less that of the base's
runs in the same block. Blocks, not runs, are the independent repetitions (runs of one block share
the machine's mood), so a Student t interval on the block numbers is the interval of the log
ratio. Percentile bootstraps are too narrow at ten blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import stdtr, stdtrit

from kilter_lab.errors import LabError
from kilter_lab.messages import Direction, VerdictName, VerdictRecord

CONFIDENCE = 0.95
"""Confidence of every interval."""

POWER = 0.9
"""Chance of a verdict for which numbers of blocks are planned."""

MAX_BLOCKS_TOLD = 10_000
"""Estimates of missing blocks beyond this are not told: they mean "never"."""


class NotPositiveError(LabError):
    """A metric value is zero, negative or not a number: a ratio has no meaning."""


@dataclass(frozen=True)
class Interval:
    """An estimate of a mean with its confidence interval; infinite ends where there is none."""

    mean: float
    low: float
    high: float
    n: int

    def shifted(self, by: float, error: float = 0.0) -> Interval:
        """The interval of this quantity plus another one, known within ± ``error``."""
        return Interval(
            self.mean + by,
            self.mean + by - math.hypot(self.mean - self.low, error),
            self.mean + by + math.hypot(self.high - self.mean, error),
            self.n,
        )


def mean_log(values: Sequence[float], metric: str) -> float:
    """Mean of the logarithms of positive values."""
    for value in values:
        if not (math.isfinite(value) and value > 0):
            raise NotPositiveError(
                f"metric {metric}: a ratio needs positive numbers, and a run gave {value:g}"
            )
    return math.fsum(math.log(v) for v in values) / len(values)


def log_ratio(base: Sequence[float], arm: Sequence[float], metric: str = "value") -> float:
    """The block's number: log of the geometric mean of ``arm`` over that of ``base``."""
    return mean_log(arm, metric) - mean_log(base, metric)


def log_ratios(
    blocks: Sequence[tuple[Sequence[float], Sequence[float]]], metric: str = "value"
) -> list[float]:
    """The number of each block of (base values, arm values), all with as many runs an arm.

    Called after every block with all blocks so far, so all are worked out at once.
    """
    if not blocks:
        return []
    values = np.array(blocks, dtype=float)
    if not np.all((values > 0) & (values < math.inf)):
        return [log_ratio(base, arm, metric) for base, arm in blocks]  # Raises at the bad one.
    means = np.log(values).mean(axis=2)
    found: list[float] = (means[:, 1] - means[:, 0]).tolist()
    return found


def toward_cost(ratio_log: float, direction: Direction) -> float:
    """A log ratio turned so that less is better."""
    return ratio_log if direction == "min" else -ratio_log


@lru_cache(maxsize=4096)
def t_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t distribution."""
    return float(stdtrit(freedom, probability))


def t_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Two-sided t interval of the mean; without ends for fewer than two values."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return Interval(mean, -math.inf, math.inf, n)
    half = t_quantile((1 + confidence) / 2, n - 1) * deviation(values) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def deviation(values: Sequence[float]) -> float:
    """Sample standard deviation; 0 for fewer than two values."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def region_log(region_percent: float) -> float:
    """Half-width of the region of equivalence on the log scale (symmetric under swapping arms)."""
    return math.log1p(region_percent / 100)


def judge(cost: Interval, region_percent: float) -> VerdictName:
    """The verdict on the log ratio of a cost (less is better).

    *better*: the whole interval is below 0 and not all of it inside the region; *worse* mirrored;
    *no difference*: all of it inside the region; else *inconclusive*.
    """
    region = region_log(region_percent)
    if -region <= cost.low and cost.high <= region:
        return "no-difference"
    if cost.high < 0:
        return "better"
    if cost.low > 0:
        return "worse"
    return "inconclusive"


def verdict(
    metric: str,
    direction: Direction,
    blocks: Sequence[tuple[Sequence[float], Sequence[float]]],
    region_percent: float,
) -> VerdictRecord:
    """The verdict on blocks of (base values, arm values).

    One block gives no interval: both ends are then the ratio itself and the verdict is
    *inconclusive*. Raises NotPositiveError where a value has no logarithm.
    """
    if not blocks:
        raise ValueError("no blocks")
    logs = log_ratios(blocks, metric)
    interval = t_interval(logs)
    return record(
        metric,
        direction,
        interval,
        region_percent,
        float(np.median([v for base, _ in blocks for v in base])),
        float(np.median([v for _, arm in blocks for v in arm])),
    )


def record(
    metric: str,
    direction: Direction,
    interval: Interval,
    region_percent: float,
    base_median: float,
    arm_median: float,
    confidence: float = CONFIDENCE,
    looks: int = 1,
) -> VerdictRecord:
    """The message for an interval of log(arm / base); ``looks`` is 0 where it has no ends."""
    cost = interval
    if direction == "max":
        cost = Interval(-interval.mean, -interval.high, -interval.low, interval.n)
    known = math.isfinite(interval.low) and math.isfinite(interval.high)
    return VerdictRecord(
        verdict=judge(cost, region_percent) if known else "inconclusive",
        metric=metric,
        direction=direction,
        ratio=math.exp(interval.mean),
        low=math.exp(interval.low if known else interval.mean),
        high=math.exp(interval.high if known else interval.mean),
        confidence=confidence,
        region_percent=region_percent,
        blocks=interval.n,
        looks=looks if known else 0,
        base_median=base_median,
        arm_median=arm_median,
    )


def detectable(block_deviation: float, blocks: int, alpha: float = 1 - CONFIDENCE) -> float:
    """Smallest log ratio that this many blocks tell from 0 with the planned power."""
    if blocks < 2:
        return math.inf
    spread = t_quantile(1 - alpha / 2, blocks - 1) + t_quantile(POWER, blocks - 1)
    return spread * block_deviation / math.sqrt(blocks)


def blocks_to_detect(
    effect: float, block_deviation: float, most: int, alpha: float = 1 - CONFIDENCE
) -> int:
    """Fewest blocks (2 … ``most``) whose detectable log ratio is at most ``effect``."""
    if effect <= 0:
        return most
    low, high = 2, max(2, most)
    while low < high:
        middle = (low + high) // 2
        if detectable(block_deviation, middle, alpha) <= effect:
            high = middle
        else:
            low = middle + 1
    return low


def blocks_to_tell(
    logs: Sequence[float], region_percent: float, width: float | None = None
) -> int | None:
    """How many more blocks would end an inconclusive comparison, if these logs are typical.

    ``width``: standard errors from the mean to an end of the interval; by default Student's.

    The nearer end counts: an interval clear of 0, or one inside the region. None where neither is
    in reach of MAX_BLOCKS_TOLD blocks, or one block says nothing of the noise.
    """
    if len(logs) < 2:
        return None
    mean, sd = abs(math.fsum(logs) / len(logs)), deviation(logs)
    gap = max(mean, region_log(region_percent) - mean)
    low, high = len(logs) + 1, len(logs) + MAX_BLOCKS_TOLD

    def told(n: int) -> bool:
        errors = t_quantile((1 + CONFIDENCE) / 2, n - 1) if width is None else width
        return errors * sd / math.sqrt(n) < gap

    if not told(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if told(middle) else (middle + 1, high)
    return low - len(logs)


def outliers(values: Sequence[float], limit: float = 5.0) -> list[int]:
    """Indices of values far from the median: more than ``limit`` scaled MADs on the log scale."""
    if len(values) < 5 or min(values) <= 0:
        return []
    logs = np.log(values)
    distance = np.abs(logs - np.median(logs))
    scale = 1.4826 * float(np.median(distance))
    if scale == 0:
        return []
    return [i for i, d in enumerate(distance) if d / scale > limit]


@dataclass(frozen=True)
class Drift:
    """A trend over the runs: log change from the first to the last, and its two-sided p value."""

    change: float
    p: float


def drift(times: Sequence[float], logs: Sequence[float]) -> Drift | None:
    """Linear trend of ``logs`` over ``times``; None where there is too little to say."""
    n = len(logs)
    if n < 6:
        return None
    t = np.asarray(times, dtype=float)
    y = np.asarray(logs, dtype=float)
    t = t - t.mean()
    spread = float(t @ t)
    if spread == 0:
        return None
    slope = float(t @ y) / spread
    rest = y - y.mean() - slope * t
    error = math.sqrt(float(rest @ rest) / (n - 2) / spread)
    change = slope * float(t.max() - t.min())
    if error == 0:
        return Drift(change, 1.0 if slope == 0 else 0.0)
    return Drift(change, 2 * float(stdtr(n - 2, -abs(slope / error))))
