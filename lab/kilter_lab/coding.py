"""Points as rows of the model of effects: which columns a knob has, and what a value puts there.

A choice has a column for each value but the current one; a number has one for each of a few
levels, between which it is interpolated. All columns are zero at the current value, so that the
baseline is a row of zeros. Where asked for, there are products of two knobs' columns, and levels
between levels, whose numbers say how far the curve departs from the straight line; both are held
to be smaller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
import numpy.typing as npt

from kilter_lab.space import Axis, ChoiceAxis, NumberAxis, Point, Space

Vector = npt.NDArray[np.float64]

SMALLER = 0.5
"""Width of the prior of interactions and of departures from a straight line, in a knob's own."""


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
    def span(self) -> slice:
        """All of its columns."""
        return slice(self.first, self.first + self.width)

    @property
    def level_span(self) -> slice:
        """The columns of its levels."""
        return slice(self.first, self.first + len(self.levels))

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

    def __init__(
        self, space: Space, detail: Detail | None = None, like: Coding | None = None
    ) -> None:
        """``like``: the same space without detail, whose rows and fragments are taken over."""
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
        self._like = like
        known: dict[str, dict[int | str, Vector]] = like._fragments if like else {}
        self._fragments: dict[str, dict[int | str, Vector]] = {
            name: found for name, found in known.items() if name not in self.detail.between
        }
        """By knob and value."""
        self._asked: list[Point | None] = []
        self._rows: Vector = np.zeros((0, width))
        """The rows of the points that were asked for last."""

    def detailed(self, detail: Detail) -> Coding:
        """The same with more detail."""
        return Coding(self.space, detail, self)

    def row(self, point: Point) -> Vector:
        """The row of an allowed point."""
        return np.asarray(self._made([point])[0])

    def rows(self, points: Sequence[Point | None]) -> Vector:
        """One row a point; zeros for the baseline (None). Not to be written to.

        Points that the last question began with are not worked out again: the trials of a search
        only become more.
        """
        pairs = takewhile(lambda pair: pair[0] is pair[1], zip(points, self._asked, strict=False))
        same = sum(1 for _ in pairs)
        if same < len(points):
            made = self._made(points[same:]) if self._like is None else self._taken_over(points)
            self._rows = np.vstack([self._rows[: len(points) - len(made)], made])
            self._asked = list(points)
        return self._rows[: len(points)]

    def _taken_over(self, points: Sequence[Point | None]) -> Vector:
        assert self._like is not None
        bare = self._like.rows(points)
        rows = np.zeros((len(points), self.width))
        fresh = []
        for part, old in zip(self.parts, self._like.parts, strict=True):
            if part.between:
                fresh.append(part)
            else:
                rows[:, part.span] = bare[:, old.span]
        self._fill(rows, points, fresh)
        return rows

    def _made(self, points: Sequence[Point | None]) -> Vector:
        rows = np.zeros((len(points), self.width))
        self._fill(rows, points, self.parts)
        return rows

    def _fill(self, rows: Vector, points: Sequence[Point | None], parts: Sequence[Columns]) -> None:
        """Write the columns of these parts, and of all pairs."""
        there = [i for i, p in enumerate(points) if p is not None]
        for part in parts if there else ():
            values = [p[part.axis.name] for p in points if p is not None]
            places = {value: i for i, value in enumerate(dict.fromkeys(values))}
            fragments = np.array([self._fragment(part, value) for value in places])
            rows[there, part.span] = fragments[[places[value] for value in values]]
        for a, b, first in self.pairs:
            one, other = rows[:, a.level_span], rows[:, b.level_span]
            both = SMALLER * one[:, :, None] * other[:, None, :]
            rows[:, first : first + both[0].size] = both.reshape(len(points), -1)

    def is_paired(self, part: Columns) -> bool:
        """Whether there are products of its columns with another knob's."""
        return any(part is a or part is b for a, b, _ in self.pairs)

    def changes(self, part: Columns, point: Point) -> Vector:
        """One row for each value that may be chosen for a knob, less the row that keeps it."""
        rows = np.zeros((len(part.tried), self.width))
        pairs = [pair for pair in self.pairs if part in pair[:2]]
        for row, value in zip(rows, part.tried, strict=True):
            row[part.span] = self._fragment(part, value)
            for a, b, first in pairs:
                changed = {**point, part.axis.name: value}
                row[first : first + len(a.levels) * len(b.levels)] = self._product(a, b, changed)
        return rows

    def _fragment(self, part: Columns, value: int | str) -> Vector:
        known = self._fragments.setdefault(part.axis.name, {})
        found = known.get(value)
        if found is None:
            found = known[value] = part.fragment(value)
        return found

    def _product(self, a: Columns, b: Columns, point: Point) -> Vector:
        one = self._fragment(a, point[a.axis.name])[: len(a.levels)]
        other = self._fragment(b, point[b.axis.name])[: len(b.levels)]
        return SMALLER * np.multiply.outer(one, other).ravel()


def _is_zero(axis: Axis, level: int | str) -> bool:
    keeps = isinstance(axis, ChoiceAxis) or (isinstance(axis, NumberAxis) and axis.holds_current)
    return keeps and level == axis.kept()
