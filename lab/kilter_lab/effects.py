"""A model of the search: what each value of each knob does by itself, and a few pairs together.

Every trial tells of every knob at once, so all trials together tell a single knob's effect far
better than any one trial tells of a whole combination. The cost (logarithm, less is better) is a
sum over knobs (``coding``): a free number for each choice, a piecewise-linear curve through a few
levels for each number, all zero at the current value, so that a baseline run is one more row of
the same model.

Runs are compared inside their block: each block has a level of its own, so drift falls out, and
how much the blocks' levels tell is taken from the data (recovery of inter-block information:
Yates, Annals of Eugenics 10, 1940). Effects have a normal prior whose width, and the part of the
noise that no sum explains, are those under which the data are most likely (empirical Bayes).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import numpy.typing as npt

from kilter_lab.coding import Coding, Columns, Vector
from kilter_lab.space import Point

PRIOR_WIDTHS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.6)
"""Candidate standard deviations of an effect, log units."""

MISFITS = (0.5, 0.7, 0.85, 1.0, 1.2, 1.4, 2.0, 3.0, 5.0, 10.0)
"""Candidate factors by which a run scatters more (or less) than the noise as estimated."""

MOODS = (0.2, 1.0, 100.0)
"""Candidate standard deviations of the blocks' own levels, in those of a run."""

ACTIVE = 0.3
"""Share of knobs that do something, to begin with."""

SWEEPS = 3
"""Rounds of choosing one knob after the other, where knobs interact."""


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
        spans = [part.span for part in self.coding.parts]
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

    def costs(self, points: Sequence[Point]) -> list[float]:
        """The costs of points."""
        found: list[float] = (self.coding.rows(points) @ self.mean).tolist()
        return found

    def difference(self, start: Point, end: Point) -> tuple[float, float]:
        """The cost of ``end`` over that of ``start``, with its standard deviation."""
        row = self.coding.row(end) - self.coding.row(start)
        return float(row @ self.mean), self._error(row)

    def shares(self, points: Sequence[Point]) -> dict[str, float]:
        """Each knob's part of the spread that the model sees over these points; sums to 1."""
        rows = self.coding.rows(points)
        spread = {}
        for part in self.coding.parts:
            own = rows[:, part.span] @ self.mean[part.span]
            spread[part.axis.name] = float(np.var(own))
        total = sum(spread.values())
        return {name: v / total for name, v in spread.items()} if total > 0 else {}

    def _error(self, row: Vector) -> float:
        return math.sqrt(max(0.0, float(row @ self.covariance @ row)))

    def clearest(self, part: Columns) -> tuple[int | str, float]:
        """A knob's best level by itself, and its gain in standard deviations."""
        own = self.mean[part.level_span]
        errors = np.sqrt(np.diag(self.covariance)[part.level_span])
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
        if not caution and not part.between and not self.coding.is_paired(part):
            own = effects[part.span]  # Each row holds a single one.
            i = int(np.argmin(own)) if len(own) else -1
            point[part.axis.name] = part.levels[i] if i >= 0 and own[i] < 0 else part.axis.kept()
            return
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
    rows = _Rows.of(x, y, groups)
    best = min(
        (_likeliest(_Moments.of(rows, mood), noise) for mood in MOODS),
        key=lambda found: found[0],
    )
    _, width, misfit, moments = best
    variance = (noise * misfit) ** 2
    precision = moments.xx / variance + np.eye(coding.width) / width**2
    covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
    return Effects(coding, covariance @ moments.xy / variance, covariance, width)


@dataclass(frozen=True)
class _Rows:
    """All arms' rows, with their costs and a column of ones."""

    both: Vector
    groups: npt.NDArray[np.intp]
    """The block of each row."""
    sizes: npt.NDArray[np.intp]
    means: Vector
    """Of each block, by column."""

    @classmethod
    def of(cls, x: Vector, y: Vector, groups: npt.NDArray[np.intp]) -> _Rows:
        sizes = np.bincount(groups)
        both = np.column_stack([x, y, np.ones(len(y))])
        order = np.argsort(groups, kind="stable")
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        means = np.add.reduceat(both[order], starts, axis=0) / sizes[:, None]
        middle = means[:, -2].mean()
        both[:, -2] -= middle
        means[:, -2] -= middle
        return cls(both, groups, sizes, means)


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
    def of(cls, rows: _Rows, mood: float) -> _Moments:
        sizes = rows.sizes
        share = 1 - 1 / np.sqrt(1 + sizes * mood**2)
        both = rows.both - (share[:, None] * rows.means)[rows.groups]
        one = both[:, -1]
        weight = float(one @ one)
        both = both[:, :-1] - np.outer(one, one @ both[:, :-1]) / weight  # One level for all.
        square = both.T @ both
        penalty = float(np.sum(np.log1p(sizes * mood**2))) + math.log(weight)
        n = len(both) - 1
        return cls(square[:-1, :-1], square[:-1, -1], float(square[-1, -1]), n, penalty)


def _likeliest(m: _Moments, noise: float) -> tuple[float, float, float, _Moments]:
    """(twice the negative log likelihood, width, misfit, moments) at the likeliest pair."""
    values, vectors = np.linalg.eigh(m.xx)
    values = np.maximum(values, 0.0)
    turned = (vectors.T @ m.xy) ** 2
    pairs = list(product(PRIOR_WIDTHS, MISFITS))
    widths = np.array([width**2 for width, _ in pairs])
    variances = np.array([(noise * misfit) ** 2 for _, misfit in pairs])
    total = variances[:, None] + widths[:, None] * values
    rest = (m.yy - widths * np.sum(turned / total, axis=1)) / variances
    logs = (m.n - len(values)) * np.log(variances) + np.sum(np.log(total), axis=1)
    surprise = logs + rest + m.penalty
    i = int(np.argmin(surprise))
    return float(surprise[i]), *pairs[i], m
