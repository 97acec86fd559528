"""A model of the search: what each value of each knob does by itself, and a few pairs together.

Every trial tells of every knob at once, so all trials together tell a single knob's effect far
better than any one trial tells of a whole combination. The cost (logarithm, less is better) is a
sum over knobs: a free number for each choice, a piecewise-linear curve through a few levels for
each number, all zero at the current value, so that a baseline run is one more row of the same
model. Where asked for, there are products of two knobs' columns, and levels between levels, whose
numbers say how far the curve departs from the straight line; both are held to be smaller.

Runs are compared inside their block: each block has a level of its own, so drift falls out, and
how much the blocks' levels tell is taken from the data (recovery of inter-block information:
Yates, Annals of Eugenics 10, 1940). Effects have a normal prior whose width, and the part of the
noise that no sum explains, are those under which the data are most likely (empirical Bayes).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np
import numpy.typing as npt

from kilter_lab.space import Axis, ChoiceAxis, NumberAxis, Point, Space

Vector = npt.NDArray[np.float64]

PRIOR_WIDTHS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.6)
"""Candidate standard deviations of an effect, log units."""

MISFITS = (0.5, 0.7, 0.85, 1.0, 1.2, 1.4, 2.0, 3.0, 5.0, 10.0)
"""Candidate factors by which a run scatters more (or less) than the noise as estimated."""

MOODS = (0.2, 1.0, 100.0)
"""Candidate standard deviations of the blocks' own levels, in those of a run."""

SMALLER = 0.5
"""Width of the prior of interactions and of departures from a straight line, in a knob's own."""

ACTIVE = 0.3
"""Share of knobs that do something, to begin with."""

SWEEPS = 3
"""Rounds of choosing one knob after the other, where knobs interact."""


@dataclass(frozen=True)
class Columns:
    """The part of the model that belongs to one axis: one column a level, less the current's."""

    axis: Axis
    first: int
    levels: tuple[int | str, ...]
    """The level of each column."""
    between: tuple[int, ...] = ()
    """Levels between levels, with further columns."""

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.levels) + len(self.between)

    @property
    def tried(self) -> list[int | str]:
        """Everything that may be chosen besides the current value."""
        return [*self.levels, *self.between]

    def fragment(self, parameter: int | str) -> Vector:
        """The axis's part of a row."""
        row = np.zeros(self.width)
        if isinstance(self.axis, NumberAxis):
            nodes = sorted(int(n) for n in self.axis.levels())
            for level, weight in _hats(self.axis, nodes, int(parameter)).items():
                if level in self.levels:
                    row[self.levels.index(level)] = weight
            for i, level in enumerate(self.between):
                near = sorted([*nodes, level])
                weight = _hats(self.axis, near, int(parameter)).get(level, 0.0)
                row[len(self.levels) + i] = SMALLER * weight
        elif parameter in self.levels:
            row[self.levels.index(parameter)] = 1.0
        return row


def _hats(axis: NumberAxis, nodes: Sequence[int], value: int) -> dict[int | str, float]:
    """Weights of the two levels around a value, by linear interpolation."""
    places = [axis.place(n) for n in nodes]
    at = axis.place(value)
    if at <= places[0]:
        return {nodes[0]: 1.0}
    if at >= places[-1]:
        return {nodes[-1]: 1.0}
    i = next(i for i in range(1, len(nodes)) if at <= places[i])
    share = (at - places[i - 1]) / (places[i] - places[i - 1])
    return {nodes[i - 1]: 1 - share, nodes[i]: share}


@dataclass(frozen=True)
class Detail:
    """What the model has besides the knobs' own levels."""

    pairs: tuple[tuple[str, str], ...] = ()
    """Knobs that may interact."""
    between: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Further levels of knobs."""


class Coding:
    """Turns points into rows of the model."""

    def __init__(self, space: Space, detail: Detail | None = None) -> None:
        self.space = space
        self.detail = detail or Detail()
        self.parts: list[Columns] = []
        width = 0
        for axis in space.axes:
            levels = tuple(n for n in axis.levels() if not _is_zero(axis, n))
            between = self.detail.between.get(axis.name, ())
            self.parts.append(Columns(axis, width, levels, between))
            width += self.parts[-1].width
        by_name = {part.axis.name: part for part in self.parts}
        self.pairs: list[tuple[Columns, Columns, int]] = []
        for one, other in self.detail.pairs:
            a, b = by_name[one], by_name[other]
            self.pairs.append((a, b, width))
            width += len(a.levels) * len(b.levels)
        self.width = width
        self._fragments: dict[tuple[str, int | str], Vector] = {}

    def row(self, point: Point) -> Vector:
        """The row of an allowed point."""
        row = np.zeros(self.width)
        for part in self.parts:
            row[part.first : part.first + part.width] = self._fragment(part, point)
        for a, b, first in self.pairs:
            row[first : first + len(a.levels) * len(b.levels)] = self._product(a, b, point)
        return row

    def rows(self, points: Sequence[Point | None]) -> Vector:
        """One row a point; zeros for the baseline (None)."""
        zero = np.zeros(self.width)
        rows = [zero if p is None else self.row(p) for p in points]
        return np.array(rows).reshape(len(points), self.width)

    def changes(self, part: Columns, point: Point) -> Vector:
        """One row for each value that may be chosen for a knob, less the row that keeps it."""
        tried = [{**point, part.axis.name: value} for value in part.tried]
        rows = np.zeros((len(tried), self.width))
        for row, changed in zip(rows, tried, strict=True):
            row[part.first : part.first + part.width] = self._fragment(part, changed)
            for a, b, first in self.pairs:
                if part in (a, b):
                    row[first : first + len(a.levels) * len(b.levels)] = self._product(
                        a, b, changed
                    )
        return rows

    def _fragment(self, part: Columns, point: Point) -> Vector:
        key = (part.axis.name, point[part.axis.name])
        found = self._fragments.get(key)
        if found is None:
            found = self._fragments[key] = part.fragment(key[1])
        return found

    def _product(self, a: Columns, b: Columns, point: Point) -> Vector:
        one = self._fragment(a, point)[: len(a.levels)]
        other = self._fragment(b, point)[: len(b.levels)]
        return SMALLER * np.multiply.outer(one, other).ravel()


def _is_zero(axis: Axis, level: int | str) -> bool:
    keeps = isinstance(axis, ChoiceAxis) or (isinstance(axis, NumberAxis) and axis.holds_current)
    return keeps and level == axis.kept()


@dataclass(frozen=True)
class Effects:
    """A fitted model."""

    coding: Coding
    mean: Vector
    covariance: Vector
    width: float
    """Standard deviation of the prior of an effect."""

    def sparse(self) -> Effects:
        """The same, where most knobs are taken to do nothing at all unless the data say so.

        A knob's chance of doing anything follows from the densities at zero before and after
        (Savage and Dickey's ratio), the share of such knobs from these chances.
        """
        spans = [slice(p.first, p.first + p.width) for p in self.coding.parts]
        logs = np.array([self._evidence(s) for s in spans])
        share = ACTIVE
        for _ in range(20):
            odds = np.exp(np.minimum(logs, 50.0)) * share / (1 - share)
            chances = odds / (1 + odds)
            share = min(0.9, max(1 / (1 + len(spans)), float(np.mean(chances))))
        chance = {p.axis.name: c for p, c in zip(self.coding.parts, chances, strict=True)}
        kept = np.ones(self.coding.width)
        for span, c in zip(spans, chances, strict=True):
            kept[span] = c
        for a, b, first in self.coding.pairs:
            size = len(a.levels) * len(b.levels)
            kept[first : first + size] = chance[a.axis.name] * chance[b.axis.name]
        root = np.sqrt(kept)
        covariance = self.covariance * np.outer(root, root)
        for span, c in zip(spans, chances, strict=True):
            covariance[span, span] += c * (1 - c) * np.outer(self.mean[span], self.mean[span])
        return Effects(self.coding, kept * self.mean, covariance, self.width)

    def _evidence(self, span: slice) -> float:
        """Log Bayes factor for a knob doing something."""
        mean, covariance = self.mean[span], self.covariance[span, span]
        if not len(mean):
            return -math.inf
        distance = float(mean @ np.linalg.solve(covariance, mean))
        volume = float(np.linalg.slogdet(covariance)[1]) - 2 * len(mean) * math.log(self.width)
        return (distance + volume) / 2

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
            span = slice(part.first, part.first + part.width)
            spread[part.axis.name] = float(np.var(rows[:, span] @ self.mean[span]))
        total = sum(spread.values())
        return {name: v / total for name, v in spread.items()} if total > 0 else {}

    def _error(self, row: Vector) -> float:
        return math.sqrt(max(0.0, float(row @ self.covariance @ row)))

    def clearest(self, part: Columns) -> tuple[int | str, float]:
        """A knob's best level by itself, and its gain in standard deviations."""
        span = slice(part.first, part.first + len(part.levels))
        own = self.mean[span]
        errors = np.sqrt(np.diag(self.covariance)[span])
        i = int(np.argmin(own))
        return part.levels[i], float(-own[i] / errors[i]) if errors[i] > 0 else 0.0

    def best(self, caution: float) -> Point:
        """Every knob at its best value, where that gains over ``caution`` standard deviations."""
        return self._choose(self.mean, caution)

    def draw(self, rng: random.Random) -> Point:
        """The best point of one draw from what the effects may be (Thompson sampling)."""
        normal = np.array([rng.gauss(0, 1) for _ in range(self.coding.width)])
        return self._choose(self.mean + self._root @ normal, 0.0)

    @cached_property
    def _root(self) -> Vector:
        jitter = 1e-12 * np.eye(self.coding.width)
        return np.asarray(np.linalg.cholesky(self.covariance + jitter))

    def _choose(self, effects: Vector, caution: float) -> Point:
        point = self.coding.space.baseline()
        paired = [part for a, b, _ in self.coding.pairs for part in (a, b)]
        for sweep in range(SWEEPS if paired else 1):
            for part in self.coding.parts if sweep == 0 else paired:
                self._choose_one(part, effects, caution, point)
        return self.coding.space.repair(point)

    def _choose_one(self, part: Columns, effects: Vector, caution: float, point: Point) -> None:
        rows = self.coding.changes(part, point)
        own = rows @ effects
        i = int(np.argmin(own)) if len(own) else -1
        limit = caution * self._error(rows[i]) if caution and i >= 0 else 0.0
        gains = i >= 0 and own[i] < -limit
        point[part.axis.name] = part.tried[i] if gains else part.axis.kept()


@dataclass(frozen=True)
class Sample:
    """What one arm of one block of the search cost."""

    block: int
    point: Point | None
    """None: the baseline."""
    cost: float
    """Logarithm, less is better; its zero is the block's own."""


def fit(coding: Coding, samples: Sequence[Sample], noise: float) -> Effects:
    """The model for arms whose costs scatter by ``noise`` (standard deviation, log units)."""
    noise = max(noise, 1e-4)
    x = coding.rows([s.point for s in samples])
    y = np.array([s.cost for s in samples])
    _, groups = np.unique([s.block for s in samples], return_inverse=True)
    y = y - _means(y[:, None], groups)[:, 0].mean()
    best = min(
        (_likeliest(_Moments.of(x, y, groups, mood), noise) for mood in MOODS),
        key=lambda found: found[0],
    )
    _, width, misfit, moments = best
    variance = (noise * misfit) ** 2
    precision = moments.xx / variance + np.eye(coding.width) / width**2
    covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
    return Effects(coding, covariance @ moments.xy / variance, covariance, width)


def _means(x: Vector, groups: npt.NDArray[np.intp]) -> Vector:
    """Of each block, by column."""
    sizes = np.bincount(groups)
    sums = np.zeros((len(sizes), x.shape[1]))
    np.add.at(sums, groups, x)
    return np.asarray(sums / sizes[:, None])


@dataclass(frozen=True)
class _Moments:
    """What the likelihood needs, at one standard deviation of the blocks' levels."""

    xx: Vector
    xy: Vector
    yy: float
    n: int
    penalty: float
    """Twice the negative log likelihood's part that only the blocks' levels decide."""

    @classmethod
    def of(cls, x: Vector, y: Vector, groups: npt.NDArray[np.intp], mood: float) -> _Moments:
        sizes = np.bincount(groups)
        share = 1 - 1 / np.sqrt(1 + sizes * mood**2)
        ones = np.ones(len(y))
        both = np.column_stack([x, y, ones])
        both = both - (share[:, None] * _means(both, groups))[groups]
        one = both[:, -1]
        weight = float(one @ one)
        both = both[:, :-1] - np.outer(one, one @ both[:, :-1]) / weight  # One level for all.
        square = both.T @ both
        penalty = float(np.sum(np.log1p(sizes * mood**2))) + math.log(weight)
        return cls(square[:-1, :-1], square[:-1, -1], float(square[-1, -1]), len(y) - 1, penalty)


def _likeliest(m: _Moments, noise: float) -> tuple[float, float, float, _Moments]:
    """(twice the negative log likelihood, width, misfit, moments) at the likeliest pair."""
    values, vectors = np.linalg.eigh(m.xx)
    values = np.maximum(values, 0.0)
    turned = (vectors.T @ m.xy) ** 2
    found = []
    for width, misfit in product(PRIOR_WIDTHS, MISFITS):
        variance = (noise * misfit) ** 2
        total = variance + width**2 * values
        rest = (m.yy - width**2 * float(np.sum(turned / total))) / variance
        logs = (m.n - len(values)) * math.log(variance) + float(np.sum(np.log(total)))
        found.append((logs + rest + m.penalty, width, misfit))
    surprise, width, misfit = min(found)
    return surprise, width, misfit, m
