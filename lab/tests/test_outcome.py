"""Guards and conclusions: a win on one metric never hides a loss on another."""

from __future__ import annotations

import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilter_lab.messages import Guard, VerdictName
from kilter_lab.outcome import GuardOutcome, conclude, judge_guard, settled
from kilter_lab.stats import Interval

VERDICTS = st.lists(st.sampled_from(get_args(VerdictName)), min_size=1, max_size=4)
GUARDS = st.lists(st.sampled_from(get_args(GuardOutcome)), max_size=3)


def interval(low: float, high: float) -> Interval:
    """Ends as changes in percent."""
    bottom, top = math.log1p(low / 100), math.log1p(high / 100)
    return Interval((bottom + top) / 2, bottom, top, 10)


@pytest.mark.parametrize(
    ("guard", "low", "high", "outcome"),
    [
        (Guard("p99", "at-most", 5), -10, 4.9, "held"),
        (Guard("p99", "at-most", 5), -10, 5.1, "open"),
        (Guard("p99", "at-most", 5), 5.1, 20, "broken"),
        (Guard("p99", "at-most", -5), -20, -5.1, "held"),
        (Guard("p99", "at-most", -5), -3, 2, "broken"),
        (Guard("rate", "at-least", -5), -4.9, 30, "held"),
        (Guard("rate", "at-least", -5), -5.1, 30, "open"),
        (Guard("rate", "at-least", -5), -9, -5.1, "broken"),
    ],
)
def test_a_guard_is_held_only_if_its_bad_end_is(
    guard: Guard, low: float, high: float, outcome: str
) -> None:
    assert judge_guard(guard, interval(low, high)).outcome == outcome


def test_one_block_leaves_a_guard_open() -> None:
    record = judge_guard(Guard("p99", "at-most", 5), Interval(0.0, -math.inf, math.inf, 1))
    assert record.outcome == "open"
    assert (record.low, record.high) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("verdicts", "guards", "conclusion"),
    [
        (["better"], [], "better"),
        (["better"], ["held"], "better"),
        (["better"], ["open"], "inconclusive"),
        (["better"], ["broken"], "trade-off"),
        (["better", "no-difference"], [], "better"),
        (["better", "inconclusive"], [], "inconclusive"),
        (["better", "worse"], [], "trade-off"),
        (["no-difference"], ["broken"], "worse"),
        (["no-difference"], ["open"], "no-difference"),
        (["inconclusive", "worse"], [], "worse"),
    ],
)
def test_conclusions(
    verdicts: list[VerdictName], guards: list[GuardOutcome], conclusion: str
) -> None:
    assert conclude(verdicts, guards) == conclusion


@given(VERDICTS, GUARDS)
def test_better_hides_nothing(verdicts: list[VerdictName], guards: list[GuardOutcome]) -> None:
    if conclude(verdicts, guards) == "better":
        assert set(verdicts) <= {"better", "no-difference"}
        assert set(guards) <= {"held"}
        assert settled(verdicts, guards)


@given(VERDICTS, GUARDS)
def test_what_is_settled_is_concluded(
    verdicts: list[VerdictName], guards: list[GuardOutcome]
) -> None:
    if settled(verdicts, guards):
        assert conclude(verdicts, guards) != "inconclusive"
