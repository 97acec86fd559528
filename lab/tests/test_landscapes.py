"""The bench of landscapes: that what it calls planted, found and covered is so."""

from __future__ import annotations

import math

import pytest
from simulation import Fresh, Study
from synthetic import Noise

import landscapes
from kilter_lab import planning
from landscapes import LANDSCAPES, Landscape, Task

SMALL = LANDSCAPES[0]


def study(true: float, fresh: Fresh | None, runs: int = 300) -> Study:
    return Study("better", runs, true, 0.0, 0.0, 1, fresh)


@pytest.mark.parametrize("land", LANDSCAPES, ids=lambda land: land.name)
def test_all_that_is_planted_can_be_had(land: Landscape) -> None:
    response = land.response(3)
    whole = math.prod([1 - gain for gain in (*landscapes.GAINS, landscapes.TOGETHER)])
    assert -math.expm1(-response.gain) == pytest.approx(1 - whole)
    assert len(land.knobs) == land.count
    (pair,) = response.together
    own = {part.axis.name for part in response.parts}
    assert ({pair.first.axis.name, pair.second.axis.name} <= own) is land.among
    assert planning.total_runs(land.trials) <= land.runs < planning.total_runs(land.trials + 2)


def test_without_noise_everything_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Landscape, "noise", property(lambda _: Noise(1e-4)))
    found = landscapes.find(Task(Landscape(12, 120, True), 1))
    assert found.share > 0.95
    assert found.study.runs <= 120
    fresh = found.study.fresh
    assert fresh is not None
    assert fresh.low < fresh.told < fresh.high
    assert fresh.true == pytest.approx(found.study.true)
    assert fresh.told == pytest.approx(fresh.true, abs=1e-3)


def test_what_misses_its_target_is_said() -> None:
    right, wrong = Fresh(0.05, 0.05, 0.04, 0.06), Fresh(0.05, 0.08, 0.06, 0.1)
    assert right.covers
    assert not wrong.covers
    studies = [study(0.05, right)] * 19
    assert landscapes._confirmed("all", studies, judged=True).met is True
    assert landscapes._confirmed("all", [*studies, *[study(0.05, wrong)] * 2], judged=True).met is (
        False
    )
    enough, little = (landscapes.Found(study(0.1, right), share) for share in (0.8, 0.79))
    assert landscapes._picked(SMALL, "tune", [enough] * 4 + [little]).met is True
    assert landscapes._picked(SMALL, "tune", [enough] * 3 + [little] * 2).met is False
    over = landscapes.Found(study(0.1, right, runs=301), 1.0)
    assert landscapes._picked(SMALL, "tune", [over]).met is False
