"""Planted effects: responses whose true best gain is known, over the knobs of ``synthetic``.

Effects are split into parts; each part belongs to one knob and grows from its current value
towards one end (``ramp``), sets in near the end (``step``), or belongs to one choice. An
interaction is what two knobs gain together beyond what each gains by itself.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from kilter_lab.messages import Knob, Settings
from kilter_lab.space import Axis, NumberAxis, make_axis

Response = Callable[[Settings], float]


@dataclass(frozen=True)
class Part:
    """One knob's share of the effect: ``gain`` in log units at its best value."""

    axis: Axis
    gain: float
    shape: str
    """``ramp``, ``step`` or ``choice``."""
    end: float | str
    """The good end (0 or 1), or the good choice."""

    def cost(self, settings: Settings) -> float:
        """Log change of the run time: 0 at the current value, −gain at the best."""
        return -self.gain * self.reached(settings)

    def reached(self, settings: Settings) -> float:
        """Share of the gain that these settings have: 0 at the current value, 1 at the best."""
        axis = self.axis
        text = settings.get(axis.name)
        if text is None:
            return 0.0
        if not isinstance(axis, NumberAxis):
            return float(text == self.end)
        assert isinstance(self.end, float)
        start, at = axis.place(axis.kept()), axis.place(int(text))
        way = (at - start) / (self.end - start)
        if self.shape == "step":
            return float(way > 0.7)
        return max(0.0, min(1.0, way))


@dataclass(frozen=True)
class Together:
    """An interaction: ``gain`` in log units where both parts are at their best."""

    first: Part
    second: Part
    gain: float

    def cost(self, settings: Settings) -> float:
        """Log change of the run time."""
        return -self.gain * self.first.reached(settings) * self.second.reached(settings)


@dataclass(frozen=True)
class Planted:
    """A response with its parts."""

    parts: tuple[Part, ...]
    together: tuple[Together, ...] = ()

    @property
    def gain(self) -> float:
        """The best log gain that there is."""
        alone = sum(p.gain for p in self.parts)
        return sum((t.gain for t in self.together), start=alone)

    def __call__(self, settings: Settings) -> float:
        alone = sum(p.cost(settings) for p in self.parts)
        return sum((t.cost(settings) for t in self.together), start=alone)


def plant(knobs: list[Knob], gains: list[float], rng: random.Random) -> Planted:
    """Give each gain (a share of the run time, 0.1 for 10 %) to a random knob and shape."""
    axes = [axis for axis in map(make_axis, knobs) if axis is not None]
    parts = [
        _part(axis, -math.log1p(-gain), rng)
        for axis, gain in zip(rng.sample(axes, len(gains)), gains, strict=True)
    ]
    return Planted(tuple(parts))


def plant_together(
    response: Planted, knobs: list[Knob], gain: float, rng: random.Random
) -> Planted:
    """Add an interaction between two knobs at random: of those that gain, or of ``knobs``.

    ``knobs`` are the others; with none given the knobs are two that gain by themselves, at the
    same ends.
    """
    pair = rng.sample(response.parts, 2) if not knobs else plant(knobs, [0.0, 0.0], rng).parts
    return Planted(response.parts, (Together(pair[0], pair[1], -math.log1p(-gain)),))


def _part(axis: Axis, gain: float, rng: random.Random) -> Part:
    if not isinstance(axis, NumberAxis):
        others = [str(v) for v in axis.levels() if v != axis.current]
        return Part(axis, gain, "choice", rng.choice(others))
    here = axis.place(axis.kept())
    ends = [e for e in (0.0, 1.0) if abs(e - here) > 0.2]
    return Part(axis, gain, rng.choice(["ramp", "step"]), rng.choice(ends))
