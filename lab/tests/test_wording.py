"""Numbers in plain words."""

from __future__ import annotations

import pytest

from kilter_lab.wording import duration, percent


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (4.25, "4.2"),
        (-0.04, "−0.04"),
        (-0.0, "0.0"),
        (123.4, "123"),
        (-9999.0, "−9999"),
        (96166171.2, "> 9999"),
        (float("-inf"), "< −9999"),
    ],
)
def test_percentages_have_as_many_digits_as_they_are_worth(value: float, shown: str) -> None:
    assert percent(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0.0 s"),
        (0.0004, "0.4 ms"),
        (0.0131, "13 ms"),
        (0.099, "99 ms"),
        (0.0996, "0.1 s"),
        (9.96, "10 s"),
        (125.0, "2 min 5 s"),
        (3780.0, "1 h 3 min"),
    ],
)
def test_spans_read_easily(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
