"""What a reader should know before believing the numbers: each doubt a sentence with a next step.

Outliers are named and never dropped: tails are part of what a setting does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kilter_lab import stats
from kilter_lab.wording import count, percent

STEAL_SHARE = 0.02
"""Stolen share of the CPU time from which it is worth a warning."""

DRIFT_P = 0.005
"""Trends less likely than this by chance are told."""

DRIFT_LEAST = 0.03
"""Trends smaller than this log change are not told."""


@dataclass(frozen=True)
class Point:
    """One good run: which arm, when, how much; ``wall_s`` and ``steal_s`` in seconds."""

    arm: str
    value: float
    wall_s: float
    steal_s: float


def outliers(points: Sequence[Point], metric: str) -> list[str]:
    """One sentence where single runs lie far from their arm's median."""
    odd = [p for arm in _arms(points) for p in _odd(arm)]
    if not odd:
        return []
    stolen = sum(p.steal_s > 5 * STEAL_SHARE * p.wall_s for p in odd)
    cause = (
        f"; {stolen} of them while the hypervisor kept the CPUs away (steal time)"
        if stolen
        else "; look for other work on the machine"
    )
    return [
        f"{count(len(odd), 'outlier')} in {metric} among {len(points)} runs "
        f"({_names(odd)}), kept in all numbers{cause}"
    ]


def drift(points: Sequence[Point], metric: str) -> list[str]:
    """One sentence where all arms together got slower or faster over the runs."""
    centred = _centred(points)
    found = stats.drift(range(len(centred)), centred)
    if found is None or found.p > DRIFT_P or abs(found.change) < DRIFT_LEAST:
        return []
    change = math.expm1(found.change) * 100
    word = "rose" if change > 0 else "fell"
    return [
        f"{metric} {word} by {percent(abs(change))} % from the first runs to the last, in all arms "
        "alike: blocks cancel most of it; a warm-up run or a quieter machine narrows the interval"
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


def _odd(arm: Sequence[Point]) -> list[Point]:
    return [arm[i] for i in stats.outliers([p.value for p in arm])]


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
