"""Knobs as axes: what a trial writes, what it leaves alone, and which points are allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation import request
from synthetic import knob, knobs

from kilter_lab.errors import RequestError
from kilter_lab.messages import Knob, Linear, Log, Unavailable, Values
from kilter_lab.space import Axis, ChoiceAxis, NumberAxis, Point, Space, build, make_axis


def axis(current: str, search: Linear | Log | Values, offered: list[str] | None = None) -> Axis:
    made = knob("k", current, search)
    made.offered = offered or []
    found = make_axis(made)
    assert found is not None
    return found


numbers = st.builds(
    lambda low, steps, step, current: axis(str(current), Linear(low, low + steps * step, step)),
    st.integers(-50, 50),
    st.integers(1, 40),
    st.integers(1, 30),
    st.integers(-200, 2000),
)
logs = st.builds(
    lambda low, factor, current: axis(str(current), Log(low, low * factor)),
    st.integers(1, 1000),
    st.integers(2, 10**6),
    st.integers(0, 10**9),
)


@given(st.one_of(numbers, logs))
def test_every_level_lies_on_the_grid(of: NumberAxis) -> None:
    levels = of.levels()
    assert 2 <= len(levels) <= 3
    for level in levels:
        assert of.low <= int(level) <= of.high
        assert (int(level) - of.low) % of.step == 0


@given(st.one_of(numbers, logs))
def test_the_current_value_is_a_level_if_the_range_holds_it(of: NumberAxis) -> None:
    if of.holds_current:
        assert of.kept() in of.levels()
        assert of.text(of.kept()) is None
    assert of.domain()._contains(of.coordinate(of.kept()))
    assert of.parameter(of.coordinate(of.kept())) == of.kept()


@given(st.one_of(numbers, logs), st.floats(0, 1))
def test_places_and_values_agree(of: NumberAxis, place: float) -> None:
    value = of.at(place)
    assert of.low <= value <= of.high
    assert of.at(of.place(value)) == value


def test_a_value_off_the_grid_counts_as_its_neighbour() -> None:
    off = axis("61", Linear(0, 100, 10))
    assert off.kept() == 60
    assert off.text(60) is None
    assert off.text(70) == "70"


def test_a_value_outside_the_range_can_only_be_kept_by_the_baseline() -> None:
    out = axis("400", Linear(0, 100, 25))
    assert out.kept() == 100
    assert out.text(100) == "100"
    assert out.levels() == [0, 50, 100]


def test_current_is_always_among_the_choices() -> None:
    odd = axis("weird", Values(["a", "b"]))
    assert isinstance(odd, ChoiceAxis)
    assert odd.values == ("a", "b", "weird")
    assert odd.text("weird") is None


def test_what_the_kernel_does_not_offer_is_not_tried() -> None:
    some = axis("none", Values(["none", "bfq", "kyber"]), offered=["none", "kyber"])
    assert isinstance(some, ChoiceAxis)
    assert some.values == ("none", "kyber")
    only = knob("k", "none", Values(["none", "bfq"]))
    only.offered = ["none"]
    assert make_axis(only) is None


def test_a_knob_without_a_choice_is_left_out() -> None:
    only = knob("one.choice", "none", Values(["none"]))
    space, left_out = build(request(1, knobs=[*knobs(), only], at_most=[]))
    assert left_out == ["one.choice"]
    assert len(space.axes) == 12


@pytest.mark.parametrize(
    "broken",
    [
        Knob("k", Unavailable("absent", "not on this kernel"), False, knobs()[0].spec),
        knob("k", "lots", Linear(0, 10)),
    ],
)
def test_knobs_that_cannot_be_searched(broken: Knob) -> None:
    with pytest.raises(RequestError, match="k "):
        build(request(1, knobs=[broken]))


def test_nothing_to_search() -> None:
    with pytest.raises(RequestError, match="no knob is left to search"):
        build(request(1, knobs=[]))


SMALL = Space(
    (
        NumberAxis("low", "10", 1, 60),
        NumberAxis("high", "20", 5, 80),
        NumberAxis("top", "50", 0, 100, 10),
        ChoiceAxis("free", "a", ("a", "b")),
    ),
    (("low", "high"), ("high", "top"), ("low", "limit")),
    {"limit": "40"},
)


def test_the_baseline_writes_nothing() -> None:
    assert SMALL.settings(SMALL.baseline()) == {}


@given(st.integers(1, 60), st.integers(5, 80), st.integers(0, 10), st.sampled_from(["a", "b"]))
def test_repaired_points_keep_every_pair(low: int, high: int, top: int, free: str) -> None:
    point: Point = {"low": low, "high": high, "top": top * 10, "free": free}
    settings = SMALL.settings(point)
    values = {"low": 10, "high": 20, "top": 50, "limit": 40} | {
        k: int(v) for k, v in settings.items() if k != "free"
    }
    assert values["low"] <= values["high"] <= values["top"]
    assert values["low"] <= values["limit"]
    assert settings.get("free", "a") == free
    assert SMALL.settings(SMALL.repair(point)) == settings


@given(st.integers(1, 20), st.integers(20, 40))
def test_allowed_points_are_left_alone(low: int, high: int) -> None:
    point: Point = {"low": low, "high": high, "top": 60, "free": "a"}
    assert SMALL.repair(point) == point


def test_a_pair_that_the_machine_itself_breaks_is_not_ours_to_mend() -> None:
    broken = Space(
        (NumberAxis("low", "30", 1, 60), NumberAxis("high", "20", 5, 80)), (("low", "high"),), {}
    )
    assert broken.settings(broken.baseline()) == {}
    assert broken.settings({"low": 30, "high": 10}) == {"low": "10", "high": "10"}
