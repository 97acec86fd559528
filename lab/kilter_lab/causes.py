"""Why a run came out odd, as far as the kernel's counters tell; pure.

Each run's record holds what the machine went through meanwhile. A figure that stands out in an
odd run, against the other runs of its arm, is its likely cause: likely, because counters show
what happened together and not what caused what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilter_lab.messages import RunRecord
from kilter_lab.wording import count

Array = npt.NDArray[np.float64]
Figures = Mapping[str, float]

FAR = 6.0
"""Robust deviations from the other runs' median beyond which a figure stands out."""

FEWEST = 4
"""Other runs that a figure must be known from."""

APART = 0.9
"""Chance that a run of one group has a higher figure than one of the other, to tell them by it."""


UNKNOWN = "no cause seen in the counters"


@dataclass(frozen=True)
class Cause:
    """What a figure stands for."""

    what: str
    remedy: str
    least: float
    """Smallest difference that counts, in the figure's unit."""
    share: float = 0.0
    """Smallest difference that counts, as a share of the other runs' median."""
    slows: int = 1
    """1 where more of it makes runs slower, -1 where less of it does."""
    behind: tuple[str, ...] = ()
    """Figures that say more of the same: where one of them stands out, this one does not count."""


CAUSES: dict[str, Cause] = {
    "steal": Cause(
        "the hypervisor kept the CPUs away (steal time)", "ask for CPUs of its own", 0.02
    ),
    "clock_ghz": Cause("a lower CPU clock", "fix the frequency", 0.02, 0.02, -1),
    "migrations": Cause("migrations between CPUs", "pin with --cpus", 10, 0.5),
    "major_faults": Cause(
        "pages read from disk (cold page cache)", "read the files in with --prepare", 5, 0.5
    ),
    "memory_wait": Cause("waiting for memory", "free memory first", 0.02),
    "io_wait": Cause(
        "waiting for a disk", "keep other disk traffic off", 0.05, behind=("major_faults",)
    ),
    "preempted": Cause("preemption by other work", "stop what else is running", 20, 0.5),
    "cpu_wait": Cause(
        "other work on the CPUs", "stop what else is running", 0.1, behind=("steal", "preempted")
    ),
    "cpu_s": Cause(
        "more CPU time for the same work (clock, caches, neighbours)",
        "fix the frequency and keep the machine idle",
        0.0,
        0.1,
        behind=("clock_ghz", "migrations", "preempted", "major_faults"),
    ),
    "load": Cause(
        "other work on the machine",
        "stop what else is running",
        1.0,
        0.5,
        behind=("steal", "preempted", "cpu_wait", "cpu_s"),
    ),
}
"""By figure: shares of the run's time, counts, GHz, CPU seconds, the load average at the start."""


def figures(record: RunRecord) -> dict[str, float]:
    """What a run's record says of possible causes; without what was not counted."""
    wall = record.wall_s
    found = {
        "major_faults": float(record.major_faults),
        "preempted": float(record.involuntary_switches),
        "cpu_s": record.user_s + record.sys_s,
        "load": record.machine.load_1m,
    }
    if wall > 0:
        found["steal"] = record.machine.steal_s / wall
        pressure = record.machine.pressure
        if pressure is not None:
            found["cpu_wait"] = pressure.cpu_some_s / wall
            found["memory_wait"] = pressure.memory_some_s / wall
            found["io_wait"] = pressure.io_some_s / wall
    return {**found, **_counted(record)}


def _counted(record: RunRecord) -> dict[str, float]:
    """What perf counted, where it was asked to."""
    counted = {name.partition(":")[0]: c.value for name, c in record.counters.items()}
    found = {}
    if "cpu-migrations" in counted:
        found["migrations"] = counted["cpu-migrations"]
    if counted.get("cycles") and counted.get("task-clock"):
        found["clock_ghz"] = counted["cycles"] / counted["task-clock"]  # Both of one unit: ns.
    return found


def likely(odd: Figures, others: Sequence[Figures], slower: bool = True) -> str | None:
    """The cause that stands out most in a run among the others of its arm; None where none does.

    ``slower``: whether the run took longer than the others, or less time.
    """
    away = {}
    for name, cause in CAUSES.items():
        known = [o[name] for o in others if name in o]
        if name in odd and len(known) >= FEWEST:
            distance = _distance(odd[name], np.asarray(known), cause)
            away[name] = distance if slower else -distance
    return _foremost({name: d for name, d in away.items() if d > FAR})


def _foremost(away: Mapping[str, float]) -> str | None:
    """The figure that stands out most, of those with none behind them."""
    first = {n: d for n, d in away.items() if not set(CAUSES[n].behind) & set(away)}
    return max(first, key=first.__getitem__, default=None)


def _distance(value: float, others: Array, cause: Cause) -> float:
    """Signed, in robust deviations; positive where the figure makes a run slower."""
    middle = float(np.median(others))
    scatter = 1.4826 * float(np.median(np.abs(others - middle)))
    scale = max(scatter, cause.least / FAR, cause.share * abs(middle) / FAR)
    return cause.slows * (value - middle) / scale


def splitting(slow: Sequence[Figures], fast: Sequence[Figures]) -> str | None:
    """The figure that splits runs into the same two groups; None where none does."""
    chances = {}
    for name, cause in CAUSES.items():
        high = np.array([f[name] for f in slow if name in f])
        low = np.array([f[name] for f in fast if name in f])
        if min(len(high), len(low)) < FEWEST:
            continue
        apart = cause.slows * (float(np.median(high)) - float(np.median(low)))
        if apart >= max(cause.least, cause.share * abs(float(np.median(low)))):
            chances[name] = above(cause.slows * high, cause.slows * low)
    return _foremost({name: c for name, c in chances.items() if c >= APART})


def above(high: Array, low: Array) -> float:
    """Chance that one of ``high`` exceeds one of ``low``; ties count half."""
    differences = np.subtract.outer(high, low)
    return float((differences > 0).mean() + (differences == 0).mean() / 2)


def told(found: Sequence[str | None]) -> str:
    """The causes of several odd runs in words, most frequent first, each with what to do."""
    tally = Counter(f for f in found if f is not None)
    known = [
        f"{count(n, 'run')}: {CAUSES[name].what}, {CAUSES[name].remedy}"
        for name, n in tally.most_common()
    ]
    if not known:
        return UNKNOWN
    rest = len(found) - tally.total()
    if rest:
        known.append(f"{count(rest, 'run')}: {UNKNOWN}")
    return f"likely cause: {'; '.join(known)}"
