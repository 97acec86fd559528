"""A screening design: trials in which every level of every knob occurs equally often.

Columns are shuffled independently; of several such designs the one is taken whose effects are
least entangled (greatest determinant of the information matrix).
"""

from __future__ import annotations

import random

import numpy as np

from kilter_lab.coding import Coding
from kilter_lab.space import Axis, Point, Space

TRIES = 12


def design(space: Space, trials: int, rng: random.Random) -> list[Point]:
    """``trials`` allowed points, balanced over the levels of every axis."""
    if trials < 1:
        return []
    coding = Coding(space)
    candidates = [_shuffled(space, trials, rng) for _ in range(TRIES)]
    return max(candidates, key=lambda points: _information(coding, points))


def _shuffled(space: Space, trials: int, rng: random.Random) -> list[Point]:
    columns = {axis.name: _column(axis, trials, rng) for axis in space.axes}
    points = [{name: column[i] for name, column in columns.items()} for i in range(trials)]
    return [space.repair(p) for p in points]


def _column(axis: Axis, trials: int, rng: random.Random) -> list[int | str]:
    levels = axis.levels()
    rng.shuffle(levels)  # Who gets the odd trial out.
    column = [levels[i % len(levels)] for i in range(trials)]
    rng.shuffle(column)
    return column


def _information(coding: Coding, points: list[Point]) -> float:
    x = coding.rows(points)
    return float(np.linalg.slogdet(x.T @ x + 0.1 * np.eye(coding.width))[1])
