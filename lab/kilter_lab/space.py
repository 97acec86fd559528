"""The search space: knobs as axes, trials as settings.

Three rules. A value equal to the knob's current one is not written at all, so the point where
every knob keeps its value *is* the baseline. A current value off the step grid counts as its
nearest grid point; one outside the search range can only be kept by the baseline itself. A point
that breaks an ``at_most`` pair is repaired, not rejected: what runs is the nearest allowed point,
so that no trial is wasted, and the sampler learns what its point leads to.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from kilter_lab.errors import RequestError
from kilter_lab.messages import Knob, Linear, Log, Present, Settings, TuneRequest, Values

Point = dict[str, int | str]
"""Knob → parameter: a number, or one of the choices."""


class Axis(ABC):
    """One searched knob."""

    name: str
    current: str

    @abstractmethod
    def domain(self) -> BaseDistribution:
        """What Optuna's sampler chooses from."""

    @abstractmethod
    def coordinate(self, parameter: int | str) -> float | str:
        """A parameter in that domain."""

    @abstractmethod
    def parameter(self, coordinate: float | str) -> int | str:
        """The parameter nearest to what the sampler chose."""

    @abstractmethod
    def kept(self) -> int | str:
        """The parameter that stands for the current value, or comes nearest to it."""

    @abstractmethod
    def text(self, parameter: int | str) -> str | None:
        """The value to write; None where the knob keeps its value."""

    @abstractmethod
    def levels(self) -> list[int | str]:
        """The parameters of a screening design: few, and as far apart as the range allows."""

    @abstractmethod
    def highest_within(self, limit: int) -> int | str | None:
        """The greatest parameter whose number is at most ``limit``."""

    @abstractmethod
    def lowest_from(self, limit: int) -> int | str | None:
        """The smallest parameter whose number is at least ``limit``."""

    @abstractmethod
    def words(self) -> str:
        """The range for people."""


@dataclass(frozen=True)
class NumberAxis(Axis):
    """A whole number on a grid, linear or logarithmic."""

    name: str
    current: str
    low: int
    high: int
    step: int = 1
    log: bool = False

    def domain(self) -> BaseDistribution:
        """Places in the range. Whole numbers take the sampler several times as long."""
        return FloatDistribution(0.0, 1.0)

    def coordinate(self, parameter: int | str) -> float:
        """The place."""
        return min(1.0, max(0.0, self.place(int(parameter))))

    def parameter(self, coordinate: float | str) -> int:
        """The grid point."""
        return self.at(float(coordinate))

    def kept(self) -> int:
        """The grid point nearest to the current value."""
        value = min(max(number(self.current), self.low), self.high)
        return self.low + round((value - self.low) / self.step) * self.step

    @property
    def holds_current(self) -> bool:
        """Whether the current value lies within the search range."""
        return self.low <= number(self.current) <= self.high

    def text(self, parameter: int | str) -> str | None:
        """The number in decimal."""
        if self.holds_current and parameter == self.kept():
            return None
        return None if str(parameter) == self.current else str(parameter)

    def place(self, value: int) -> float:
        """Where a number lies in the range, 0 to 1; beyond them outside the range."""
        if self.log:
            return math.log(max(value, 1) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def at(self, place: float) -> int:
        """The grid point nearest to a place in the range."""
        if self.log:
            value = self.low * math.exp(place * math.log(self.high / self.low))
        else:
            value = self.low + (self.high - self.low) * place
        snapped = self.low + round((value - self.low) / self.step) * self.step
        return min(max(snapped, self.low), self.high)

    def levels(self) -> list[int | str]:
        """Both ends, and the current value between them, or the middle where it is at an end."""
        inner = self.kept()
        if not 0.15 <= self.place(inner) <= 0.85:
            inner = self.at(0.5)
        ends: list[int | str] = [self.low, inner, self.high]
        near = self.kept()
        if self.holds_current and inner != near:
            ends[0 if self.place(near) < 0.5 else 2] = near
        return list(dict.fromkeys(ends))

    def highest_within(self, limit: int) -> int | None:
        """On the grid."""
        if limit < self.low:
            return None
        return self.low + (min(limit, self.high) - self.low) // self.step * self.step

    def lowest_from(self, limit: int) -> int | None:
        """On the grid."""
        if limit <= self.low:
            return self.low
        value = self.low + -(-(limit - self.low) // self.step) * self.step
        return value if value <= self.high else None

    def words(self) -> str:
        """``0 .. 200``, ``0 .. 200 (steps of 20)``, ``1000 .. 1000000 (log)``."""
        note = " (log)" if self.log else f" (steps of {self.step})" if self.step > 1 else ""
        return f"{self.low} .. {self.high}{note}"


@dataclass(frozen=True)
class ChoiceAxis(Axis):
    """One of a list of values; the current one is among them."""

    name: str
    current: str
    values: tuple[str, ...]

    def domain(self) -> BaseDistribution:
        """The values."""
        return CategoricalDistribution(self.values)

    def coordinate(self, parameter: int | str) -> str:
        """The value itself."""
        return str(parameter)

    def parameter(self, coordinate: float | str) -> str:
        """The value itself."""
        return str(coordinate)

    def kept(self) -> str:
        """The current value itself."""
        return self.current

    def text(self, parameter: int | str) -> str | None:
        """The word."""
        return None if parameter == self.current else str(parameter)

    def levels(self) -> list[int | str]:
        """All of them."""
        return list(self.values)

    def highest_within(self, limit: int) -> str | None:
        """Among values that are numbers."""
        return max(self._numbers(lambda n: n <= limit), key=number, default=None)

    def lowest_from(self, limit: int) -> str | None:
        """Among values that are numbers."""
        return min(self._numbers(lambda n: n >= limit), key=number, default=None)

    def _numbers(self, wanted: Callable[[int], bool]) -> list[str]:
        return [v for v in self.values if _is_number(v) and wanted(number(v))]

    def words(self) -> str:
        """The values, comma-separated."""
        return ", ".join(self.values)


@dataclass(frozen=True)
class Space:
    """All axes, with what ties them."""

    axes: tuple[Axis, ...]
    pairs: tuple[tuple[str, str], ...] = ()
    known: Mapping[str, str] = field(default_factory=dict)
    """Values of knobs that are not searched: held ones and the machine's own."""

    def domains(self) -> dict[str, BaseDistribution]:
        """What the sampler chooses from, by knob, in the order of the axes."""
        return {a.name: a.domain() for a in self.axes}

    def coordinates(self, point: Point) -> dict[str, float | str]:
        """A point as the sampler holds it."""
        return {a.name: a.coordinate(point[a.name]) for a in self.axes}

    def chosen(self, coordinates: Mapping[str, float | str]) -> Point:
        """The allowed point nearest to what the sampler chose."""
        return self.repair({a.name: a.parameter(coordinates[a.name]) for a in self.axes})

    def baseline(self) -> Point:
        """The point that stands for the machine as it is."""
        return {a.name: a.kept() for a in self.axes}

    def axis(self, name: str) -> Axis | None:
        """The axis of a knob, if it is searched."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, Axis]:
        return {a.name: a for a in self.axes}

    def settings(self, point: Point) -> Settings:
        """What to write for a point: repaired, and without knobs that keep their value."""
        repaired = self.repair(point)
        texts = ((a.name, a.text(repaired[a.name])) for a in self.axes)
        return {name: text for name, text in texts if text is not None}

    def point(self, settings: Settings) -> Point:
        """The point that leads to these settings."""
        point = self.baseline()
        for axis in self.axes:
            text = settings.get(axis.name)
            if text is not None:
                point[axis.name] = number(text) if isinstance(axis, NumberAxis) else text
        return point

    def repair(self, point: Point) -> Point:
        """The point with every ``at_most`` pair kept: the lower knob gives way if it can."""
        fixed = dict(point)
        for _ in range(len(self.pairs) + 1):
            broken = [p for p in self.pairs if self._breaks(fixed, *p)]
            if not broken:
                return fixed
            for lower, upper in broken:
                self._repair_pair(fixed, lower, upper)
        for lower, upper in self.pairs:  # Chains that do not settle: back to what the machine has.
            if self._breaks(fixed, lower, upper):
                for name in (lower, upper):
                    axis = self.axis(name)
                    if axis is not None:
                        fixed[name] = axis.kept()
        return fixed

    def _value(self, point: Point, name: str) -> int | None:
        axis = self.axis(name)
        if axis is None:
            text: str | None = self.known.get(name)
        else:
            text = axis.text(point[name]) or axis.current
        return number(text) if text is not None and _is_number(text) else None

    def _breaks(self, point: Point, lower: str, upper: str) -> bool:
        if not any(
            axis is not None and axis.text(point[axis.name]) is not None
            for axis in (self.axis(lower), self.axis(upper))
        ):
            return False  # Both as the machine has them: not ours to judge.
        low, high = self._value(point, lower), self._value(point, upper)
        return low is not None and high is not None and low > high

    def _repair_pair(self, point: Point, lower: str, upper: str) -> None:
        low, high = self._value(point, lower), self._value(point, upper)
        if low is None or high is None:
            return
        below, above = self.axis(lower), self.axis(upper)
        down = below.highest_within(high) if below is not None else None
        up = above.lowest_from(low) if above is not None else None
        if down is not None:
            point[lower] = down
        elif up is not None:
            point[upper] = up
        else:
            for axis in (below, above):
                if axis is not None:
                    point[axis.name] = axis.kept()


def build(request: TuneRequest) -> tuple[Space, list[str]]:
    """The space of a request, and the names of knobs that leave nothing to choose."""
    axes, left_out = [], []
    for knob in request.knobs:
        axis = make_axis(knob)
        if axis is None:
            left_out.append(knob.name)
        else:
            axes.append(axis)
    if not axes:
        raise RequestError("no knob is left to search", "kilter knobs list")
    return Space(tuple(axes), tuple(request.at_most), {**request.known, **request.fixed}), left_out


def make_axis(knob: Knob) -> Axis | None:
    """The axis of a knob; None where only its current value could be chosen."""
    if not isinstance(knob.state, Present):
        raise RequestError(f"{knob.name} cannot be searched: {knob.state.detail}")
    search, current = knob.spec.search, knob.state.value
    match search:
        case Values(values):
            usable = [v for v in values if not knob.offered or v in knob.offered]
            choices = tuple(dict.fromkeys([*usable, current]))
            return ChoiceAxis(knob.name, current, choices) if len(choices) > 1 else None
        case Linear(low, high, step):
            return _number_axis(knob.name, current, low, high, step, False)
        case Log(low, high):
            return _number_axis(knob.name, current, low, high, 1, True)
    raise RequestError(f"{knob.name} has no search range", f"kilter knobs show {knob.name}")


def _number_axis(
    name: str, current: str, low: int, high: int, step: int, log: bool
) -> NumberAxis | None:
    if not _is_number(current):
        raise RequestError(f"{name} has the value {current!r} now, which is no number")
    high = low + (high - low) // step * step
    if low >= high:
        return None
    return NumberAxis(name, current, low, high, step, log)


def number(text: str) -> int:
    """The number that a value spells."""
    return int(text)


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
