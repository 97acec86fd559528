"""Warm-up: seldom seen where there is none, and caught where there is one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import noise
from kilter_lab import warmup

RUNS = 12
REPLAYS = 400
SOME_LUCK = 1.5
"""Of 400 replays, a share that is 5 % comes out below 7.5 % in 98 of 100 tests' seeds."""

LASTING = {"two modes that last", "drift 20 %, whole plan", "drift 20 %, 16 runs"}
"""Levels that change within a dozen runs: what they do is told as no level, or as a warm-up."""

logs = st.lists(st.floats(-3, 3), min_size=1, max_size=40)


def said(kind: noise.Kind, runs: int = RUNS, seed: int = 11) -> float:
    found = (warmup.detect(list(kind.stream(seed, r, runs))) for r in range(REPLAYS))
    return sum(w.discard > 0 for w in found) / REPLAYS


@pytest.mark.parametrize("kind", [k for k in noise.kinds() if k.name not in LASTING], ids=str)
def test_noise_is_no_warm_up(kind: noise.Kind) -> None:
    assert said(kind) <= 0.05 * SOME_LUCK


@pytest.mark.parametrize(("cv", "least"), [(0.01, 0.99), (0.03, 0.97), (0.05, 0.7)])
def test_a_slow_first_run_is_caught(cv: float, least: float) -> None:
    found = [
        warmup.detect([math.log(1.3) * (i == 0) + x for i, x in enumerate(noise_of(cv, r))])
        for r in range(REPLAYS)
    ]
    assert np.mean([w.discard > 0 for w in found]) >= least
    assert np.median([w.discard for w in found if w.discard]) == 1


@pytest.mark.parametrize(("cv", "least"), [(0.01, 0.99), (0.03, 0.9), (0.05, 0.75)])
def test_a_decay_over_five_runs_is_caught(cv: float, least: float) -> None:
    decay = [math.log(1.3) * math.exp(-i / 2) * (i < 5) for i in range(16)]
    found = [warmup.detect(list(np.add(decay, noise_of(cv, r, 16)))) for r in range(REPLAYS)]
    caught = [w for w in found if w.discard]
    assert len(caught) >= least * REPLAYS
    left = np.mean([np.mean(decay[w.discard :]) for w in caught])
    assert left < 0.25 * np.mean(decay)
    assert all(w.change > 0 for w in caught)


def test_faster_first_runs_are_a_warm_up_too() -> None:
    found = warmup.detect([-0.3, -0.28, *noise_of(0.01, 1, 12)])
    assert found.discard >= 2
    assert found.change < 0
    assert "Warmed up after" in warmup.told(found, "wall")[0]
    assert "less than it is since" in warmup.told(found, "wall")[0]


def test_a_ramp_is_told_as_no_level_and_nothing_is_left_out() -> None:
    ramp = np.linspace(0, math.log(1.2), 16)
    found = [warmup.detect(list(ramp + noise_of(0.01, r, 16))) for r in range(50)]
    assert all(w.steady is False and w.discard == 0 for w in found)
    assert "keeps no level" in warmup.told(found[0], "wall")[0]


def test_a_level_is_steady() -> None:
    found = [warmup.detect(list(noise_of(0.05, r, 16))) for r in range(REPLAYS)]
    assert np.mean([w.steady is True for w in found]) > 0.97


def test_few_runs_say_nothing() -> None:
    assert warmup.detect([1.0, 0.0, 0.0, 0.0]) == warmup.WarmUp(4, 0, 0.0, None)


@given(logs)
def test_any_numbers_are_judged(of: list[float]) -> None:
    found = warmup.detect(of)
    assert 0 <= found.discard <= len(of) // 2
    assert found.runs == len(of)
    assert len(warmup.told(found, "wall")) <= 1


@given(logs, st.floats(-5, 5))
def test_the_unit_does_not_matter(of: list[float], by: float) -> None:
    whole = [round(x * 1024) / 1024 for x in of]
    step = round(by * 1024) / 1024  # Sums without rounding: ties stay ties.
    assert warmup.detect(whole).discard == warmup.detect([x + step for x in whole]).discard


def noise_of(cv: float, replay: int, runs: int = RUNS) -> noise.Array:
    return noise.Kind(f"{cv}", noise.normal(cv)).stream(5, replay, runs)
