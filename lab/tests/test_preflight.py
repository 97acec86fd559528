"""The preflight: its noise against the truth, its plans against replayed comparisons."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import noise
from kilter_lab import preflight, sequential
from kilter_lab.messages import Question
from kilter_lab.preflight import assess, block_noise, measure_needed, more_needed, told

ABBA = np.array([1, -1, -1, 1]) / 2
QUIET = list(0.01 * np.random.default_rng(2).standard_normal(12))
NOISY = list(0.05 * np.random.default_rng(3).standard_normal(12))


def in_blocks(kind: noise.Kind) -> float:
    """The variance that blocks of this noise really have."""
    runs = np.concatenate([kind.stream(3, r, 200).reshape(-1, 4) for r in range(100)])
    return float(np.mean((runs @ ABBA) ** 2))


@pytest.mark.parametrize(
    "kind", [k for k in noise.simulated() if "that last" not in k.name], ids=str
)
def test_the_noise_of_blocks_is_estimated_without_bias(kind: noise.Kind) -> None:
    estimates = [block_noise(kind.stream(4, r, 12)) ** 2 for r in range(600)]
    assert np.mean(estimates) == pytest.approx(in_blocks(kind), rel=0.2)


def test_resembling_neighbours_make_blocks_less_noisy_than_runs() -> None:
    alike = next(k for k in noise.simulated() if "rho 0.4" in k.name)
    runs = [alike.stream(4, r, 24) for r in range(300)]
    assert np.mean([block_noise(x) ** 2 for x in runs]) < 0.8 * noise.CV**2


def test_plans_hold_the_power_that_they_promise() -> None:
    effect, called = math.log1p(0.05), 0
    question = Question(detect_percent=5)
    rng = np.random.default_rng(7)
    for _ in range(300):
        found = assess(list(0.05 * rng.standard_normal(12)), 0.4, question, left_runs=400)
        logs = list(effect + 0.05 * rng.standard_normal(found.blocks))
        design = sequential.design(0.05, found.blocks)
        called += any(design.interval(logs[:n]).low > 0 for n in design.looks)
    assert called >= 0.87 * 300


def test_no_difference_is_told_where_its_price_was_paid() -> None:
    question = Question(region_percent=2, detect_percent=10)
    rng = np.random.default_rng(8)
    region, told_equal = math.log1p(0.02), 0
    for _ in range(200):
        found = assess(list(0.03 * rng.standard_normal(12)), 0.4, question, left_runs=4000)
        design = sequential.design(0.05, found.blocks)
        logs = list(0.03 * rng.standard_normal(found.blocks))
        looks = [design.interval(logs[:n]) for n in design.looks]
        told_equal += any(-region <= i.low and i.high <= region for i in looks)
    assert told_equal >= 0.87 * 200


def test_what_an_answer_takes() -> None:
    found = assess(NOISY, 0.5, Question(), left_runs=80)
    assert found.blocks == found.afforded == 20
    lines = told(found, "wall", Question())
    assert len(lines) == 2
    assert "A run takes 500.0 ms, wall varies by" in lines[0]
    assert "in at most 80 runs, 40 s" in lines[0]
    assert lines[1].startswith("Too few runs for 2 %: that takes up to ")
    assert 'nor for "no difference" within ± 1 %: that takes up to ' in lines[1]


def test_where_all_answers_are_in_reach_one_line_is_enough() -> None:
    found = assess(QUIET, 0.5, Question(), left_runs=1000)
    (line,) = told(found, "wall", Question())
    assert line.endswith('and else "no difference" within ± 1 %.')


def test_more_arms_cost_more() -> None:
    one, two = assess(NOISY, 0.5, Question()), assess(NOISY, 0.5, Question(), arms=2)
    assert two.block_runs == 6
    assert two.detect_blocks > one.detect_blocks  # type: ignore[operator]


def test_the_time_left_limits_the_blocks() -> None:
    assert assess(NOISY, 0.5, Question(), left_s=60).blocks == 30
    assert assess(NOISY, 0.5, Question(), left_s=60, left_runs=40).blocks == 10
    assert assess(NOISY, 0.5, Question(), left_s=1).blocks == 2


def test_a_warm_up_is_left_out_and_more_runs_are_made() -> None:
    slow = [0.3, 0.2, *QUIET[:4]]
    assert more_needed(slow, 0.5, None) > 0
    assert more_needed(QUIET, 0.5, None) == 0
    assert more_needed(slow, 0.5, 10) == 0  # A fifth of ten seconds is four runs.
    found = assess([0.3, *QUIET], 0.5, Question())
    assert found.warm_up.discard >= 1
    assert found.run_noise < 0.02
    assert told(found, "wall", Question())[0].startswith("Warmed up after")


def test_how_many_base_runs() -> None:
    assert measure_needed(0.5, None) == preflight.ENOUGH
    assert measure_needed(0.5, 30) == 6
    assert measure_needed(10, 30) == preflight.FEWEST
    assert measure_needed(0.001, 30) == preflight.ENOUGH


@given(
    st.lists(st.floats(-2, 2), min_size=2, max_size=24),
    st.just(0.0) | st.floats(1e-6, 100),
    st.floats(0.1, 20),
    st.none() | st.floats(0, 1e5),
    st.none() | st.integers(0, 10_000),
    st.integers(1, 4),
)
def test_any_noise_gives_a_plan_in_three_lines(
    logs: list[float],
    run_s: float,
    percent: float,
    left_s: float | None,
    left_runs: int | None,
    arms: int,
) -> None:
    question = Question(detect_percent=percent, region_percent=percent)
    found = assess(logs, run_s, question, arms, left_s, left_runs)
    most = preflight.LIMIT if found.afforded is None else max(2, found.afforded)
    assert 2 <= found.blocks <= most
    assert found.detectable > 0
    assert 1 <= len(told(found, "wall", question)) <= 3
    more = more_needed(logs, run_s, left_s)
    assert 0 <= more <= preflight.MOST
