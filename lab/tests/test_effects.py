"""The screening design is balanced, and the model recovers what is there."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from simulation import request
from synthetic import knobs

from kilter_lab.coding import Coding
from kilter_lab.effects import Sample, fit
from kilter_lab.screen import design
from kilter_lab.space import NumberAxis, Point, Space, build

SPACE = build(request(1, at_most=[]))[0]
PAIRED = build(request(1))[0]


def test_every_level_occurs_equally_often() -> None:
    points = design(SPACE, 24, random.Random(1))
    for axis in SPACE.axes:
        tally = Counter(p[axis.name] for p in points)
        assert set(tally) == set(axis.levels())
        assert max(tally.values()) - min(tally.values()) <= 1


def test_designs_keep_the_pairs_and_are_seeded() -> None:
    points = design(PAIRED, 40, random.Random(2))
    assert all(PAIRED.repair(p) == p for p in points)
    assert points == design(PAIRED, 40, random.Random(2))
    assert design(PAIRED, 0, random.Random(2)) == []


def test_the_baseline_costs_nothing_by_definition() -> None:
    coding = Coding(SPACE)
    assert not coding.row(SPACE.baseline()).any()


def truth(point: Point) -> float:
    """A gain in a number's upper half, one in a choice, and a loss elsewhere."""
    swappiness = NumberAxis("vm.swappiness", "60", 0, 200).place(int(point["vm.swappiness"]))
    gain = 0.1 * max(0.0, (swappiness - 0.3) / 0.7)
    loss = 0.3 if point["vm.transparent_hugepage"] == "never" else 0.0
    return loss - gain - (0.05 if point["block.vda.scheduler"] == "kyber" else 0.0)


def samples(points: list[Point], costs: list[float]) -> list[Sample]:
    """Blocks of seven points and their baseline, each block with a level of its own."""
    rng, found = random.Random(8), []
    for block, i in enumerate(range(0, len(points), 7)):
        level = rng.gauss(3, 0.5)
        found.append(Sample(block, None, level))
        found += [
            Sample(block, p, level + c)
            for p, c in zip(points[i : i + 7], costs[i : i + 7], strict=True)
        ]
    return found


@pytest.mark.parametrize("noise", [1e-9, 0.03])
def test_the_model_finds_the_best_of_every_knob(noise: float) -> None:
    rng = random.Random(3)
    points = design(SPACE, 60, rng)
    costs = [truth(p) + rng.gauss(0, noise) for p in points]
    model = fit(Coding(SPACE), samples(points, costs), noise)
    best = model.best(2.0)
    assert best["vm.swappiness"] == 200
    assert best["block.vda.scheduler"] == "kyber"
    assert best["vm.transparent_hugepage"] != "never"
    predicted, error = model.predict(best)
    assert abs(predicted - truth(best)) < 4 * error + 0.01
    loss, _ = model.difference(best, {**best, "vm.swappiness": 60})
    assert loss == pytest.approx(0.1, abs=4 * noise / 60**0.5 * 2.5 + 0.002)


def test_without_an_effect_nothing_is_clear() -> None:
    """Caution of three standard deviations over some twenty effects: rarely a false one."""
    seed = 4
    print(f"seed {seed}")
    rng = random.Random(seed)
    clear = 0
    for _ in range(60):
        points = design(SPACE, 40, rng)
        costs = [rng.gauss(0, 0.04) for _ in points]
        model = fit(Coding(SPACE), samples(points, costs), 0.04)
        clear += model.best(3.0) != SPACE.baseline()
    assert clear <= 14  # At 5 % a study: exceeded with probability 2e-6.


def test_numbers_are_interpolated_between_levels() -> None:
    axis = NumberAxis("k", "50", 0, 100)
    coding = Coding(Space((axis,)))
    assert list(coding.row({"k": 0})) == [1.0, 0.0]
    assert list(coding.row({"k": 25})) == [0.5, 0.0]
    assert list(coding.row({"k": 50})) == [0.0, 0.0]
    assert list(coding.row({"k": 75})) == [0.0, 0.5]


def test_the_twelve_knobs_are_what_the_bench_says() -> None:
    assert len(knobs()) == len(SPACE.axes) == 12
