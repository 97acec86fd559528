"""What a reader should know before believing the numbers: each doubt a sentence with a next step.

Outliers are named and never dropped: tails are part of what a setting does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kilter_lab import causes, shapes, stats
from kilter_lab.measure import Observation
from kilter_lab.messages import Ran
from kilter_lab.wording import count, median_of, percent, quantity

STEAL_SHARE = 0.02
"""Stolen share of the CPU time from which it is worth a warning."""

DRIFT_P = 0.005
"""Trends less likely than this by chance are told."""

DRIFT_LEAST = 0.03
"""Trends smaller than this log change are not told."""

ALIKE_LEAST = 0.3
"""Autocorrelations of neighbouring runs below this are not told."""

ALIKE_P = 0.005
"""Autocorrelations less likely than this by chance are told."""


@dataclass(frozen=True)
class Point:
    """One good run: which arm, when, how much; ``wall_s`` and ``steal_s`` in seconds."""

    arm: str
    value: float
    wall_s: float
    steal_s: float
    figures: Mapping[str, float] = field(default_factory=dict)
    """What its record says of causes, see :func:`kilter_lab.causes.figures`."""


def point(arm: str, observation: Observation, metric: str) -> Point:
    """The point of a good run. KeyError where it has no such metric."""
    o = observation
    return Point(arm, o.values[metric], o.wall_s, o.steal_s, figures(o))


def figures(observation: Observation) -> dict[str, float]:
    """What the run's record says of causes, in four digits; nothing where nothing ran."""
    reply = observation.reply
    if not isinstance(reply, Ran):
        return {}
    return {name: float(f"{v:.4g}") for name, v in causes.figures(reply.record).items()}


def about_all(points: Sequence[Point], metric: str, unit: str = "") -> list[str]:
    """What the values of some arms' runs, in the order in which they were made, give to doubt."""
    return [
        *outliers(points, metric),
        *two_groups(points, metric, unit),
        *drift(points, metric),
        *alike(points, metric),
    ]


def outliers(points: Sequence[Point], metric: str) -> list[str]:
    """One sentence where single runs lie far from their arm's median, with their likely causes."""
    odd: list[Point] = []
    found: list[str | None] = []
    for arm in _arms(points):
        indices = set(stats.outliers([p.value for p in arm]))
        others = [p for i, p in enumerate(arm) if i not in indices]
        odd += [arm[i] for i in sorted(indices)]
        found += [_cause(arm[i], others) for i in sorted(indices)]
    if not odd:
        return []
    return [
        f"{count(len(odd), 'outlier')} in {metric} among {len(points)} runs "
        f"({_names(odd)}), kept in all numbers; {causes.told(found)}"
    ]


def two_groups(points: Sequence[Point], metric: str, unit: str = "") -> list[str]:
    """One sentence for each arm whose runs fall into two groups, with what splits them alike."""
    return [
        sentence
        for arm in _arms(points)
        if (sentence := _groups_text(arm, metric, unit)) is not None
    ]


def alike(points: Sequence[Point], metric: str) -> list[str]:
    """One sentence where neighbouring runs resemble each other, beyond a trend."""
    centred = _centred(points)
    found = shapes.resemblance(centred)
    if found is None or found.p > ALIKE_P or found.correlation < ALIKE_LEAST:
        return []
    return [
        f"neighbouring runs are alike in {metric} (autocorrelation {found.correlation:.2f}): what "
        "goes on in the machine outlasts a run. Interleaved blocks allow for it; do not compare "
        "these numbers with runs made at another time"
    ]


def drift(points: Sequence[Point], metric: str) -> list[str]:
    """One sentence where all arms together got slower or faster over the runs."""
    centred = _centred(points)
    found = stats.drift(range(len(centred)), centred)
    if found is None or abs(found.change) < DRIFT_LEAST:
        return []
    if shapes.sobered(found.p, centred) > DRIFT_P:
        return []
    change = math.expm1(found.change) * 100
    word = "rose" if change > 0 else "fell"
    return [
        f"{metric} {word} by {percent(abs(change))} % from the first runs to the last, in all arms "
        "alike: blocks cancel most of it, a quieter machine all of it"
    ]


def steal(points: Sequence[Point], cpus: int) -> list[str]:
    """One sentence where the hypervisor kept a good part of the CPUs away."""
    available = sum(p.wall_s for p in points) * max(1, cpus)
    share = sum(p.steal_s for p in points) / available if available else 0.0
    if share < STEAL_SHARE:
        return []
    return [
        f"steal time: the hypervisor kept {percent(share * 100)} % of the CPU time from this "
        "machine during the runs; expect wide intervals"
    ]


def misread(readings: Mapping[tuple[str, str], str]) -> list[str]:
    """One sentence for each value that the kernel took differently from what was asked."""
    return [
        f"{knob} was set to {asked} and reads back {got}: what was measured is {got}"
        for (knob, asked), got in sorted(readings.items())
    ]


def _arms(points: Sequence[Point]) -> list[list[Point]]:
    arms: dict[str, list[Point]] = {}
    for p in points:
        arms.setdefault(p.arm, []).append(p)
    return list(arms.values())


def _cause(odd: Point, others: Sequence[Point]) -> str | None:
    if not others:
        return None
    slower = odd.wall_s >= median_of([p.wall_s for p in others])
    return causes.likely(odd.figures, [p.figures for p in others], slower)


def _groups_text(arm: Sequence[Point], metric: str, unit: str) -> str | None:
    positive = [p for p in arm if p.value > 0]
    split = shapes.two_groups([math.log(p.value) for p in positive])
    if split is None:
        return None
    low = [p for i, p in enumerate(positive) if i not in split]
    high = [p for i, p in enumerate(positive) if i in split]
    parts = " and ".join(
        f"{len(group) / len(positive) * 100:.0f} % near "
        f"{quantity(median_of([p.value for p in group]), unit)}"
        for group in (low, high)
    )
    return (
        f"runs of {arm[0].arm} fall into two groups in {metric}: {parts}; {_reason(low, high, arm)}"
    )


def _reason(low: Sequence[Point], high: Sequence[Point], arm: Sequence[Point]) -> str:
    """What splits the runs as their values do: a figure, or the time when they were made."""
    slow, fast = high, low
    if median_of([p.wall_s for p in low]) > median_of([p.wall_s for p in high]):
        slow, fast = low, high
    cause = causes.splitting([p.figures for p in slow], [p.figures for p in fast])
    if cause is not None:
        return f"likely cause: {causes.CAUSES[cause].what}, {causes.CAUSES[cause].remedy}"
    order = {id(p): float(i) for i, p in enumerate(arm)}
    chance = causes.above(
        np.array([order[id(p)] for p in high]), np.array([order[id(p)] for p in low])
    )
    if max(chance, 1 - chance) >= causes.APART:
        return "one group follows the other: the machine changed on the way"
    return f"{causes.UNKNOWN}, so look at both groups and not at the mean alone"


def _names(odd: Sequence[Point]) -> str:
    tally: dict[str, int] = {}
    for p in odd:
        tally[p.arm] = tally.get(p.arm, 0) + 1
    return ", ".join(f"{arm}: {n}" for arm, n in tally.items())


def _centred(points: Sequence[Point]) -> list[float]:
    means = {
        arm[0].arm: stats.mean_log([p.value for p in arm], "value")
        for arm in _arms([p for p in points if p.value > 0])
    }
    return [math.log(p.value) - means[p.arm] for p in points if p.value > 0]
