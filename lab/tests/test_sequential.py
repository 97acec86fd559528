"""Repeated intervals: calibrated, valid at every stop, and estimates without the stop's bias."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilter_lab import sequential, stats
from kilter_lab.sequential import Design, design, fixed

SAMPLES = 2000


def stopped(plan: Design, effect: float, seed: int) -> list[list[float]]:
    """Comparisons that end at the first interval clear of 0, or at the last look."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(SAMPLES):
        logs = rng.normal(effect, 1.0, plan.most)
        n = np.arange(1, plan.most + 1)
        mean = np.cumsum(logs) / n
        sd = np.sqrt(np.maximum(np.cumsum(logs**2) - n * mean**2, 0) / np.maximum(n - 1, 1))
        ends = [
            look for look in plan.looks
            if abs(mean[look - 1]) > plan.widths[look] * sd[look - 1] / math.sqrt(look)
        ]  # fmt: skip
        found.append([float(x) for x in logs[: ends[0] if ends else plan.most]])
    return found


@pytest.mark.parametrize(("alpha", "most"), [(0.05, 12), (0.05, 80), (0.01, 40)])
def test_looks_together_keep_the_error(alpha: float, most: int) -> None:
    plan = design(alpha, most)
    wrong = sum(misses(plan.interval(logs), 0.0) for logs in stopped(plan, 0.0, most)) / SAMPLES
    error = 4 * math.sqrt(alpha * (1 - alpha) / SAMPLES)
    assert alpha - error < wrong < alpha + error


def misses(interval: stats.Interval, truth: float) -> bool:
    return not interval.low <= truth <= interval.high


@pytest.mark.parametrize("effect", [0.3, 1.0])
def test_the_interval_covers_after_an_early_stop(effect: float) -> None:
    plan = design(0.05, 40)
    missed = sum(misses(plan.interval(logs), effect) for logs in stopped(plan, effect, 7))
    assert missed / SAMPLES < 0.05 + 0.012


def test_the_estimate_has_no_winners_curse() -> None:
    plan = design(0.05, 40)
    ended = stopped(plan, 0.6, 3)[:500]
    means = [plan.interval(logs).mean for logs in ended]
    estimates = [plan.estimate(logs) for logs in ended]
    curse = np.mean(means) - 0.6
    assert curse > 0.05  # The plain mean is too large: the test would see a bias.
    assert abs(np.mean(estimates) - 0.6) < 0.7 * curse  # Skewed, so its mean is not its median.
    assert 0.44 < np.mean(np.array(estimates) > 0.6) < 0.56


def test_estimates_turn_with_the_sign() -> None:
    plan = design(0.05, 20)
    logs = [0.5, 0.61, 0.42, 0.55, 0.47]
    assert plan.estimate([-x for x in logs]) == pytest.approx(-plan.estimate(logs))


def test_a_plan_has_the_power_that_it_is_made_for() -> None:
    noise, effect = 0.05, 0.03
    most = sequential.blocks_for(effect, noise, 0.05, 10_000)
    plan = design(0.05, most)
    ended = stopped(plan, effect / noise, 11)
    called = np.mean([plan.interval(logs).low > 0 for logs in ended])
    assert 0.88 < called < 0.96
    assert sequential.detectable(noise, 0.05, most) == pytest.approx(effect, rel=0.1)


def test_a_plan_shows_equality_where_it_is_made_for_it() -> None:
    region, noise = stats.region_log(2.0), 0.02
    most = sequential.blocks_for_equality(region, noise, 0.05, 10_000)
    plan = design(0.05, most)
    rng = np.random.default_rng(13)
    shown = 0
    for _ in range(500):
        interval = plan.interval([float(x) for x in rng.normal(0, noise, most)])
        shown += -region <= interval.low and interval.high <= region
    assert 0.85 < shown / 500 < 0.98


def test_one_look_is_students_interval() -> None:
    logs = [0.01, 0.03, -0.02, 0.04]
    ours, theirs = fixed(0.05, 4).interval(logs), stats.t_interval(logs)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))
    assert fixed(0.05, 4).estimate(logs) == pytest.approx(theirs.mean)


@given(st.integers(1, 100_000), st.integers(2, 8))
def test_looks_ascend_to_the_end(most: int, fewest: int) -> None:
    plan = design(0.05, most, fewest)
    assert plan.looks[0] == min(fewest, most)
    assert plan.most == most
    assert list(plan.looks) == sorted(set(plan.looks))


@given(st.lists(st.floats(-1, 1), max_size=40))
def test_blocks_between_looks_wait_for_the_next(logs: list[float]) -> None:
    plan = Design(0.05, (4, 10, 20))
    interval = plan.interval(logs)
    if len(logs) < 4:
        assert interval.low == -math.inf
        assert interval.high == math.inf
    else:
        assert interval.n == max(n for n in plan.looks if n <= len(logs))
        assert interval.low <= interval.mean <= interval.high
