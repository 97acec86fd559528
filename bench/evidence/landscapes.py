"""Whether tune finds what is planted among many knobs, and whether what it confirms is true.

Beside each landscape stands the method of tuning scripts (one run per setting, the best one wins)
with as many runs, in fewer studies: its sampler takes longer than all of tune.
"""

from __future__ import annotations

import math
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from planted import Planted, plant, plant_together
from simulation import Study, request, run_study, seed_script, silent
from synthetic import Machine, Noise, knob, knobs, more_knobs

from kilter_lab import planning
from kilter_lab.ledger import open_storage, unhurried
from kilter_lab.messages import BatchReply, Knob, RunRequest, Values
from kilter_lab.opening import open_study
from kilter_lab.selftest import proportion
from kilter_lab.space import build
from kilter_lab.tune import conclude, open_session
from tables import Effort, Row, Table, each

GAINS = (0.03, 0.04, 0.05)
TOGETHER = 0.02
"""Gains of single knobs, and what two gain together beyond that; shares of the run time."""

CV = 0.05

ENOUGH = 0.8
"""Share of the planted log gain that a study should find, and of the studies that should."""

COVERED = 0.94
BIAS = 0.3
"""Points that confirmed gains may be off on average."""

PAUSE_S = 0.020

STUDIES = 10
"""One study in so many replays."""

EXACT = 1e-9


@dataclass(frozen=True)
class Landscape:
    """What is planted, and what may be spent to find it."""

    count: int
    runs: int
    among: bool
    """The interaction is between knobs that gain by themselves, not between two others."""
    heavy: bool = False
    """Noise with a long tail, in which neighbouring runs resemble each other."""
    beside: int = 100
    """One study by the script's method in so many replays; 0: none."""

    @property
    def name(self) -> str:
        """What a line of a table calls it."""
        between = "planted knobs" if self.among else "other knobs"
        noise = ", heavy tails" if self.heavy else ""
        return f"{self.count} knobs, {self.runs} runs, interaction of {between}{noise}"

    @property
    def knobs(self) -> list[Knob]:
        """Those that are searched."""
        return knobs() if self.count == 12 else thirty()

    @property
    def trials(self) -> int:
        """As many as the runs allow, everything that follows the search included."""
        return max(t for t in range(1, self.runs) if planning.total_runs(t) <= self.runs)

    @property
    def noise(self) -> Noise:
        """Fresh, because noise remembers the run before."""
        return Noise(CV, "heavy", 0.3) if self.heavy else Noise(CV)

    def response(self, seed: int) -> Planted:
        """Effects of random knobs."""
        rng = random.Random(f"landscape {self.count} {self.among} {seed}")
        planted = plant(self.knobs, list(GAINS), rng)
        taken = {part.axis.name for part in planted.parts}
        others = [k for k in self.knobs if k.name not in taken]
        return plant_together(planted, [] if self.among else others, TOGETHER, rng)


LANDSCAPES = (
    Landscape(12, 300, True),
    Landscape(12, 300, False, beside=0),
    Landscape(12, 300, True, heavy=True, beside=0),
    Landscape(30, 600, True, beside=400),
    Landscape(30, 600, False, beside=0),
)


def thirty() -> list[Knob]:
    """As many as a virtual machine's kernel offers."""
    return [
        *more_knobs(),
        knob("other.mode1", "a", Values(["a", "b", "c"])),
        knob("other.mode2", "x", Values(["x", "y", "z", "w"])),
    ]


@dataclass(frozen=True)
class Task:
    """One study of a landscape."""

    landscape: Landscape
    seed: int
    script: bool = False


@dataclass(frozen=True)
class Found:
    """A study, and the share of the planted log gain that its pick truly has."""

    study: Study
    share: float


def find(task: Task) -> Found:
    """One study, by tune or by the script's method."""
    land, seed = task.landscape, task.seed
    response = land.response(seed)
    if task.script:
        study = seed_script(response, seed, land.noise, land.runs, knobs=land.knobs)
    else:
        study = run_study(response, seed, land.noise, land.trials, knobs=land.knobs)
    return Found(study, -math.log1p(-study.true) / response.gain)


def landscapes(effort: Effort) -> Iterator[Table]:
    """Planted gains of 3, 4 and 5 % and an interaction of 2 %, in 5 % noise."""
    picks = Table(
        "Gains of 3, 4 and 5 % and an interaction of 2 %, in 5 % noise",
        f"a true gain of at least {ENOUGH * 100:.0f} % of the planted one in "
        f"{ENOUGH * 100:.0f} % of studies, within the runs",
        [
            "planted among",
            "method",
            "studies",
            "runs",
            "most",
            "found enough",
            "mean share",
            "says better",
            "says − truth",
        ],
    )
    fresh = Table(
        "What tune confirmed of these, after its selection: x − truth in points",
        f"over all studies the interval covers the truth in at least {COVERED * 100:.0f} %, and "
        f"the mean of confirmed − truth is within ± {BIAS:g}",
        ["planted among", "confirmations", "covered", "confirmed − truth", "promised − truth"],
    )
    everything: list[Study] = []
    for land in LANDSCAPES:
        found = each(effort, find, _tasks(effort, land, STUDIES, script=False))
        picks.rows.append(_picked(land, "tune", found))
        if land.beside:
            script = each(effort, find, _tasks(effort, land, land.beside, script=True))
            picks.rows.append(_picked(land, "script", script))
        studies = [f.study for f in found]
        fresh.rows.append(_confirmed(land.name, studies, judged=False))
        everything += studies
    fresh.rows.append(_confirmed("all", everything, judged=True))
    yield picks
    yield fresh


def _tasks(effort: Effort, land: Landscape, per: int, *, script: bool) -> list[Task]:
    studies = max(1, effort.replays // per)
    return [Task(land, effort.seed * 1_000_003 + i, script) for i in range(studies)]


def _picked(land: Landscape, method: str, found: Sequence[Found]) -> Row:
    enough = sum(f.share >= ENOUGH - EXACT for f in found)
    most = max(f.study.runs for f in found)
    claims = [f.study for f in found if f.study.ending == "better"]
    cells = [
        land.name,
        method,
        str(len(found)),
        f"{statistics.fmean(f.study.runs for f in found):.0f}",
        str(most),
        _rate(enough, len(found)),
        f"{statistics.fmean(f.share for f in found) * 100:.0f} %",
        f"{len(claims) / len(found) * 100:.0f} %",
        _points([s.confirmed - s.true for s in claims]),
    ]
    if method != "tune" or land.heavy:
        return Row(cells)
    return Row(cells, enough >= ENOUGH * len(found) and most <= land.runs)


def _confirmed(name: str, studies: Sequence[Study], *, judged: bool) -> Row:
    pairs = [(s, s.fresh) for s in studies if s.fresh is not None]
    covered = sum(fresh.covers for _, fresh in pairs)
    errors = [fresh.told - fresh.true for _, fresh in pairs]
    cells = [
        name,
        str(len(pairs)),
        _rate(covered, len(pairs)),
        _points(errors),
        _points([s.promised - fresh.true for s, fresh in pairs]),
    ]
    if not judged or not pairs:
        return Row(cells)
    unbiased = abs(statistics.fmean(errors)) * 100 <= BIAS
    return Row(cells, covered >= COVERED * len(pairs) and unbiased)


def pauses(effort: Effort) -> Iterator[Table]:
    """Time between the last reply of a block and the first request of the next, all included."""
    table = Table(
        "Pauses between the blocks of a tune: statistics, model, choice and record",
        f"median and 90 % of those before a block of the search are at most {PAUSE_S * 1e3:.0f} ms",
        ["study", "record", "before", "pauses", "median", "90 %", "longest"],
    )
    for land in (LANDSCAPES[0], LANDSCAPES[3]):
        for on_disk in (True, False):
            table.rows += _pause_rows(land, effort.seed, on_disk=on_disk)
    yield table


def _pause_rows(land: Landscape, seed: int, *, on_disk: bool) -> list[Row]:
    """The search, which thinks before each block, and the other phases, which hardly do."""
    rows = []
    waits = measured_pauses(land, seed, on_disk=on_disk)
    for search in (True, False):
        times = sorted(s for block, s in waits if block.startswith("search") is search)
        median, most = statistics.median(times), times[int(0.9 * len(times))]
        cells = [
            f"{land.count} knobs, {land.runs} runs",
            "SQLite" if on_disk else "in memory",
            "the search's blocks" if search else "other blocks",
            str(len(times)),
            *(f"{s * 1e3:.1f} ms" for s in (median, most, times[-1])),
        ]
        rows.append(Row(cells, max(median, most) <= PAUSE_S if on_disk else None))
    return rows


def measured_pauses(land: Landscape, seed: int, *, on_disk: bool) -> list[tuple[str, float]]:
    """The block that each pause of one study comes before, and its seconds."""
    with tempfile.TemporaryDirectory() as place:
        storage = f"sqlite:///{Path(place) / 'studies.db'}" if on_disk else "memory:"
        asked = request(seed, land.trials, knobs=land.knobs, storage=storage, state_dir=place)
        machine = Watched(land.response(seed), seed, land.noise)
        space, _ = build(asked)
        kept = open_storage(storage)
        ledger = open_study(kept, asked, space)
        with unhurried(kept):
            conclude(open_session(asked, space, ledger, machine, silent()))
        names = [f"{phase} {index}" for phase, index in ledger.blocks()]
    # The first pause follows the check run, which is no block of the record.
    return list(zip(names, machine.pauses, strict=True))


@dataclass
class Watched(Machine):
    """A machine that watches how long it is left idle."""

    pauses: list[float] = field(default_factory=list)
    """Seconds from the last reply of a batch to the next request."""
    idle_since: float | None = None

    def run(self, requests: list[RunRequest]) -> Iterator[BatchReply]:
        """The same runs, with the time since the last of them noted."""
        if self.idle_since is not None:
            self.pauses.append(time.perf_counter() - self.idle_since)
        for reply in super().run(requests):
            self.idle_since = time.perf_counter()
            yield reply


def _rate(n: int, of: int) -> str:
    low, high = proportion(n, of) if of else (0.0, 1.0)
    return f"{n / max(1, of) * 100:.1f} % ({low * 100:.1f}–{high * 100:.1f})"


def _points(gains: Sequence[float]) -> str:
    if len(gains) < 2:
        return "–"
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    return f"{statistics.fmean(gains) * 100:+.2f} ± {196 * error:.2f}"
