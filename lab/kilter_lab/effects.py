"""A main-effects model of the search: what each value of each knob does by itself.

Every trial tells of every knob at once, so all trials together tell a single knob's effect far
better than any one trial tells of a whole combination. The cost (log ratio to the baseline, less
is better) is a sum over knobs: a free number for each choice, a piecewise-linear curve through
the screening levels for each number, both zero at the current value, so that the baseline is
exactly zero. Effects have a normal prior whose width, and the part of the noise that no sum
explains, are those under which the data are most likely (empirical Bayes).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kilter_lab.space import Axis, ChoiceAxis, NumberAxis, Point, Space

Vector = npt.NDArray[np.float64]

PRIOR_WIDTHS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.6)
"""Candidate standard deviations of an effect, log units."""

MISFITS = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0)
"""Candidate factors by which a trial scatters more (or less) than the noise as estimated."""


@dataclass(frozen=True)
class Columns:
    """The part of the model that belongs to one axis: one column a level, less the current's."""

    axis: Axis
    first: int
    levels: tuple[int | str, ...]
    """The level of each column."""

    def fill(self, row: Vector, parameter: int | str) -> None:
        """Write the axis's part of a row."""
        if isinstance(self.axis, NumberAxis):
            for level, weight in _hats(self.axis, int(parameter)).items():
                if level in self.levels:
                    row[self.first + self.levels.index(level)] = weight
        elif parameter in self.levels:
            row[self.first + self.levels.index(parameter)] = 1.0


def _hats(axis: NumberAxis, value: int) -> dict[int | str, float]:
    """Weights of the two levels around a value, by linear interpolation."""
    nodes = sorted(int(n) for n in axis.levels())
    places = [axis.place(n) for n in nodes]
    at = axis.place(value)
    if at <= places[0]:
        return {nodes[0]: 1.0}
    if at >= places[-1]:
        return {nodes[-1]: 1.0}
    i = next(i for i in range(1, len(nodes)) if at <= places[i])
    share = (at - places[i - 1]) / (places[i] - places[i - 1])
    return {nodes[i - 1]: 1 - share, nodes[i]: share}


class Coding:
    """Turns points into rows of the model."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.parts: list[Columns] = []
        width = 0
        for axis in space.axes:
            levels = tuple(n for n in axis.levels() if not _is_zero(axis, n))
            self.parts.append(Columns(axis, width, levels))
            width += len(levels)
        self.width = width

    def row(self, point: Point) -> Vector:
        """The row of an allowed point."""
        row = np.zeros(self.width)
        for part in self.parts:
            part.fill(row, point[part.axis.name])
        return row

    def rows(self, points: Sequence[Point]) -> Vector:
        """One row a point."""
        return np.array([self.row(p) for p in points]).reshape(len(points), self.width)


def _is_zero(axis: Axis, level: int | str) -> bool:
    keeps = isinstance(axis, ChoiceAxis) or (isinstance(axis, NumberAxis) and axis.holds_current)
    return keeps and level == axis.kept()


@dataclass(frozen=True)
class Effects:
    """A fitted model."""

    coding: Coding
    mean: Vector
    covariance: Vector

    def predict(self, point: Point) -> tuple[float, float]:
        """The cost of a point and its standard deviation, noise of runs not included."""
        row = self.coding.row(point)
        return float(row @ self.mean), self._error(row)

    def difference(self, start: Point, end: Point) -> tuple[float, float]:
        """The cost of ``end`` over that of ``start``, with its standard deviation."""
        row = self.coding.row(end) - self.coding.row(start)
        return float(row @ self.mean), self._error(row)

    def shares(self, points: Sequence[Point]) -> dict[str, float]:
        """Each knob's part of the spread that the model sees over these points; sums to 1."""
        rows = self.coding.rows(points)
        spread = {}
        for part in self.coding.parts:
            span = slice(part.first, part.first + len(part.levels))
            spread[part.axis.name] = float(np.var(rows[:, span] @ self.mean[span]))
        total = sum(spread.values())
        return {name: v / total for name, v in spread.items()} if total > 0 else {}

    def _error(self, row: Vector) -> float:
        return math.sqrt(max(0.0, float(row @ self.covariance @ row)))

    def best(self, caution: float) -> Point:
        """Every knob at its best level, where that gains over ``caution`` standard deviations."""
        return self._choose(self.mean, caution * np.sqrt(np.diag(self.covariance)))

    def draw(self, rng: random.Random) -> Point:
        """The best point of one draw from what the effects may be (Thompson sampling)."""
        normal = np.array([rng.gauss(0, 1) for _ in range(self.coding.width)])
        return self._choose(self.mean + self._root @ normal, np.zeros(self.coding.width))

    @cached_property
    def _root(self) -> Vector:
        jitter = 1e-12 * np.eye(self.coding.width)
        return np.asarray(np.linalg.cholesky(self.covariance + jitter))

    def _choose(self, effects: Vector, doubt: Vector) -> Point:
        point = self.coding.space.baseline()
        for part in self.coding.parts:
            span = slice(part.first, part.first + len(part.levels))
            own, limit = effects[span], doubt[span]
            i = int(np.argmin(own)) if len(own) else -1
            if i >= 0 and own[i] < -limit[i]:
                point[part.axis.name] = part.levels[i]
        return self.coding.space.repair(point)


def fit(coding: Coding, points: Sequence[Point], costs: Sequence[float], noise: float) -> Effects:
    """The model for trials whose costs scatter by ``noise`` (standard deviation, log units)."""
    x, y = coding.rows(points), np.asarray(costs, dtype=float)
    noise = max(noise, 1e-4)
    # With the eigenvectors of XXᵀ the likelihood of every candidate pair costs one pass.
    values, vectors = np.linalg.eigh(x @ x.T)
    turned = (vectors.T @ y) ** 2
    values = np.maximum(values, 0.0)

    def surprise(width: float, misfit: float) -> float:
        variance = width**2 * values + (noise * misfit) ** 2
        return float(np.sum(np.log(variance) + turned / variance))

    _, width, misfit = min((surprise(w, m), w, m) for w in PRIOR_WIDTHS for m in MISFITS)
    precision = x.T @ x / (noise * misfit) ** 2 + np.eye(coding.width) / width**2
    covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
    return Effects(coding, covariance @ (x.T @ y) / (noise * misfit) ** 2, covariance)
