"""The trials of a search, as its blocks tell them.

A block of the search names the points that it tried and holds their runs; what each trial came to
follows from that, so it is written nowhere else and a trial can be neither lost nor half there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from kilter_lab import stats
from kilter_lab.measure import OK
from kilter_lab.messages import Metric, Settings
from kilter_lab.space import Point
from kilter_lab.study import BASE, Block


@dataclass(frozen=True)
class Tried:
    """One trial. The first is the baseline itself, which has no point."""

    number: int
    block: int
    """Number of its block of the search; -1 for the baseline."""
    point: Point
    settings: Settings
    costs: dict[str, float]
    """Log cost over the block's baseline by deciding metric, less is better; of the first always
    where the trial ran, of others where they have a logarithm."""
    state: Literal["ran", "failed", "void"]
    """*failed* by itself, which is a result; *void* where only the baseline failed."""
    error: str = ""


BASELINE = Tried(0, -1, {}, {}, {}, "ran")


def told(trials: Iterable[Tried]) -> list[Tried]:
    """Those that say something."""
    return [t for t in trials if t.state != "void"]


def arm_name(number: int) -> str:
    """What the runs call a trial."""
    return f"trial {number}"


def trials_of(index: int, block: Block, first: int, deciding: Sequence[Metric]) -> list[Tried]:
    """The trials of a block of the search, numbered from ``first``."""
    return [
        _tried(index, block, first + i, point, deciding) for i, point in enumerate(block.points)
    ]


def _tried(
    index: int, block: Block, number: int, point: Point, deciding: Sequence[Metric]
) -> Tried:
    arm = arm_name(number)
    settings = block.arms.get(arm)
    if settings is None:  # Every knob keeps its value.
        return Tried(number, index, point, {}, {m.name: 0.0 for m in deciding}, "ran")
    error = next((r.outcome for r in block.runs if r.arm == arm and r.outcome != OK), "")
    if error:
        return Tried(number, index, point, settings, {}, "failed", error)
    if base_log(block, deciding[0]) is None:
        return Tried(number, index, point, settings, {}, "void", "the baseline's run failed")
    costs: dict[str, float] = {}
    for metric in deciding:
        try:
            costs.update(_cost(block, arm, metric))
        except stats.NotPositiveError as problem:
            if metric is deciding[0]:
                return Tried(number, index, point, settings, {}, "failed", str(problem))
    return Tried(number, index, point, settings, costs, "ran")


def _cost(block: Block, arm: str, metric: Metric) -> dict[str, float]:
    base, own = base_log(block, metric), values(block, arm, metric.name)
    if base is None or not own:
        return {}
    ratio = stats.mean_log(own, metric.name) - base
    return {metric.name: stats.toward_cost(ratio, metric.direction)}


def base_log(block: Block, metric: Metric) -> float | None:
    """Mean logarithm of the baseline's values; None where it has none."""
    base = values(block, BASE, metric.name)
    try:
        return stats.mean_log(base, metric.name) if base else None
    except stats.NotPositiveError:
        return None


def values(block: Block, arm: str, metric: str) -> list[float]:
    """The metric's values of an arm's runs."""
    return [r.metrics[metric] for r in block.runs if r.arm == arm and metric in r.metrics]
