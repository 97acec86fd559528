"""Doubts: each pattern told where it is, on simulated and recorded runs, and seldom elsewhere."""

from __future__ import annotations

import csv
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import MACHINE

import noise
from kilter_lab import causes, doubts, shapes, stats
from kilter_lab.doubts import Point
from kilter_lab.measure import Observation
from kilter_lab.messages import (
    Counter as PerfCounter,
)
from kilter_lab.messages import (
    Exited,
    MachineDelta,
    NotRun,
    Pressure,
    Ran,
    RunRecord,
)
from kilter_lab.study import Run

REPLAYS = 400
BY_NAME = {k.name: k for k in noise.kinds()}
ONE_GROUP = [k for k in noise.simulated() if not k.name.startswith("two modes")]
UNLIKE = [k for k in noise.simulated() if "rho" not in k.name and "last" not in k.name]

QUIET = RunRecord(
    command=["work"],
    settings={},
    started="2025-01-01T00:00:00Z",
    started_boottime_s=1.0,
    outcome=Exited(0),
    wall_s=0.4,
    user_s=0.3,
    sys_s=0.05,
    max_rss_kib=1000,
    voluntary_switches=100,
    involuntary_switches=30,
    minor_faults=100,
    major_faults=0,
    machine=MachineDelta(0.0, 0.2, Pressure(0.02, 0.0, 0.0, 0.001, 0.0)),
    counters={
        "cpu-migrations": PerfCounter(20, 1.0),
        "cycles:u": PerfCounter(0.9e9, 1.0),
        "task-clock": PerfCounter(0.3e9, 1.0),
    },
    fingerprint=MACHINE,
)


def observed(record: RunRecord) -> Observation:
    return Observation(0, Ran(0, record), {"wall": record.wall_s}, "ok")


def arm_of(records: Sequence[RunRecord]) -> list[Point]:
    return [doubts.point("current", observed(r), "wall") for r in records]


def ordinary(n: int, seed: int = 1) -> list[RunRecord]:
    rng = random.Random(seed)
    return [
        replace_record(
            QUIET,
            wall_s=0.4 * math.exp(rng.gauss(0, 0.01)),
            user_s=0.3 * math.exp(rng.gauss(0, 0.01)),
            involuntary_switches=30 + rng.randrange(10),
        )
        for _ in range(n)
    ]


def replace_record(record: RunRecord, **changes: object) -> RunRecord:
    fields = {f: getattr(record, f) for f in record.__struct_fields__}
    return RunRecord(**{**fields, **changes})


def machine(steal_s: float = 0.0, load: float = 0.2, **pressure: float) -> MachineDelta:
    quiet = {"cpu_some_s": 0.02, "memory_some_s": 0.0, "memory_full_s": 0.0, "io_some_s": 0.001}
    return MachineDelta(steal_s, load, Pressure(**{**quiet, "io_full_s": 0.0, **pressure}))


def perf(**changed: float) -> dict[str, PerfCounter]:
    names = {"migrations": "cpu-migrations", "cycles": "cycles:u"}
    return {**QUIET.counters, **{names[k]: PerfCounter(v, 1.0) for k, v in changed.items()}}


ODD: dict[str, dict[str, object]] = {
    "the hypervisor kept the CPUs away (steal time)": {"machine": machine(steal_s=0.15)},
    "a lower CPU clock": {"counters": perf(cycles=0.6e9), "user_s": 0.45},
    "migrations between CPUs": {"counters": perf(migrations=400)},
    "pages read from disk (cold page cache)": {
        "major_faults": 300,
        "machine": machine(io_some_s=0.15),
    },
    "waiting for memory": {"machine": machine(memory_some_s=0.1)},
    "waiting for a disk": {"machine": machine(io_some_s=0.2)},
    "preemption by other work": {
        "involuntary_switches": 900,
        "machine": machine(cpu_some_s=0.3, load=4),
    },
    "other work on the CPUs": {"machine": machine(cpu_some_s=0.4)},
    "more CPU time for the same work": {"user_s": 0.5},
    "other work on the machine": {"machine": machine(load=7)},
    "no cause seen in the counters": {},
}


@pytest.mark.parametrize("cause", ODD)
def test_an_outlier_is_told_with_its_cause(cause: str) -> None:
    records = ordinary(20)
    records[7] = replace_record(QUIET, **{"wall_s": 0.6, **ODD[cause]})
    (text,) = doubts.outliers(arm_of(records), "wall")
    assert text.startswith("1 outlier in wall among 20 runs (current: 1), kept in all numbers; ")
    assert ("likely cause: 1 run: " in text) == bool(ODD[cause])
    assert cause in text
    others = [c for c in ODD if c != cause and c not in cause and cause not in c]
    assert not [c for c in others if c in text]


def test_causes_of_several_outliers_are_counted() -> None:
    records = ordinary(40)
    for i in (3, 20):
        records[i] = replace_record(QUIET, wall_s=0.6, machine=machine(steal_s=0.2))
    records[30] = replace_record(QUIET, wall_s=0.6)
    (text,) = doubts.outliers(arm_of(records), "wall")
    assert "3 outliers" in text
    assert "2 runs: the hypervisor kept the CPUs away (steal time), ask for CPUs" in text
    assert text.endswith("1 run: no cause seen in the counters")


def test_a_fast_run_is_not_put_down_to_what_slows() -> None:
    records = ordinary(20)
    records[7] = replace_record(QUIET, wall_s=0.2, machine=machine(steal_s=0.15))
    (text,) = doubts.outliers(arm_of(records), "wall")
    assert "no cause seen" in text


def test_a_figure_that_all_runs_show_explains_none() -> None:
    records = [replace_record(r, machine=machine(steal_s=0.1)) for r in ordinary(20)]
    records[7] = replace_record(QUIET, wall_s=0.6, machine=machine(steal_s=0.15))
    (text,) = doubts.outliers(arm_of(records), "wall")
    assert "no cause seen" in text


def recorded(name: str) -> list[Point]:
    """A recording with its counters as points of one arm."""
    with (noise.RECORDED / f"{name}.csv").open() as file:
        rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
    return [
        Point(
            "current",
            r["wall_s"],
            r["wall_s"],
            r["steal_ticks"] / 100,
            {
                "steal": r["steal_ticks"] / 100 / r["wall_s"],
                "major_faults": r["major_faults"],
                "preempted": r["involuntary_switches"],
                "cpu_s": r["user_s"] + r["sys_s"],
                "load": r["load_1m"],
                "cpu_wait": r["cpu_some_s"] / r["wall_s"],
                "memory_wait": r["memory_some_s"] / r["wall_s"],
                "io_wait": r["io_some_s"] / r["wall_s"],
            },
        )
        for r in rows
    ]


def test_recorded_outliers_have_their_cause_named() -> None:
    (compiling,) = doubts.outliers(recorded("compile-busy")[:40], "wall")
    assert "pages read from disk (cold page cache)" in compiling  # gcc's first run.
    (writing,) = doubts.outliers(recorded("disk-busy")[:40], "wall")
    assert "more CPU time for the same work" in writing


@pytest.mark.parametrize(
    "name", [k.name.removeprefix("recorded: ") for k in noise.recorded() if "busy" in k.name]
)
def test_ordinary_recorded_runs_have_no_cause(name: str) -> None:
    points = recorded(name)
    named: Counter[bool] = Counter()
    for start in range(0, len(points) - 40, 20):
        part = points[start : start + 40]
        odd = set(stats.outliers([p.value for p in part]))
        middle = float(np.median([p.value for p in part]))
        for i, p in enumerate(part):
            if i not in odd:
                others = [q.figures for j, q in enumerate(part) if j not in odd and j != i]
                named[causes.likely(p.figures, others, p.value > middle) is not None] += 1
    assert named[True] <= 0.05 * named.total()


def share(kind: noise.Kind, runs: int, found: Callable[[Sequence[float]], bool]) -> float:
    return sum(found(list(kind.stream(6, r, runs))) for r in range(REPLAYS)) / REPLAYS


def grouped(logs: Sequence[float]) -> bool:
    return shapes.two_groups(logs) is not None


@pytest.mark.parametrize("runs", [20, 39, 40, 100])
@pytest.mark.parametrize("kind", ONE_GROUP, ids=str)
def test_one_group_is_not_told_as_two(kind: noise.Kind, runs: int) -> None:
    assert share(kind, runs, grouped) <= 0.02 + 0.01


@pytest.mark.parametrize(("runs", "least"), [(20, 0.6), (40, 0.95), (100, 0.99)])
def test_two_groups_are_told(runs: int, least: float) -> None:
    assert share(BY_NAME["two modes"], runs, grouped) >= least


def test_two_groups_in_a_recording() -> None:
    startup = [math.log(p.value) for p in recorded("python-startup-busy")]
    assert any(grouped(startup[i : i + 40]) for i in range(0, 210, 10))
    hackbench = list(noise.logs_of(noise.RECORDED / "hackbench.csv"))
    assert not any(grouped(hackbench[i : i + 40]) for i in range(0, 210, 10))


def two_modes(n: int, slow: Callable[[int], bool], figures: bool) -> list[Point]:
    rng = random.Random(4)
    return [
        doubts.point(
            "current",
            observed(
                replace_record(
                    QUIET,
                    wall_s=(0.52 if slow(i) else 0.41) * math.exp(rng.gauss(0, 0.01)),
                    machine=machine(memory_some_s=0.1 if figures and slow(i) else 0.0),
                )
            ),
            "wall",
        )
        for i in range(n)
    ]


def test_two_groups_are_told_with_what_splits_them() -> None:
    dice = random.Random(3)
    drawn = [dice.random() < 0.42 for _ in range(60)]
    (text,) = doubts.two_groups(two_modes(60, drawn.__getitem__, True), "wall", "s")
    fast = 100 - round(sum(drawn) / 0.6)
    assert f"runs of current fall into two groups in wall: {fast} % near 4" in text
    assert "likely cause: waiting for memory, free memory first" in text
    (text,) = doubts.two_groups(two_modes(60, drawn.__getitem__, False), "wall", "s")
    assert text.endswith("so look at both groups and not at the mean alone")
    (text,) = doubts.two_groups(two_modes(60, lambda i: i > 30, False), "wall", "s")
    assert text.endswith("one group follows the other: the machine changed on the way")


def told_alike(logs: Sequence[float]) -> bool:
    return bool(doubts.alike([Point("a", math.exp(x), 1.0, 0.0) for x in logs], "wall"))


@pytest.mark.parametrize("kind", UNLIKE, ids=str)
def test_neighbours_that_are_not_alike(kind: noise.Kind) -> None:
    runs = 16 if "16 runs" in kind.name else 40  # A trend that ends is no line.
    assert share(kind, runs, told_alike) <= 0.02


def test_neighbours_that_are_alike() -> None:
    assert share(BY_NAME["AR(1), rho 0.4"], 200, told_alike) >= 0.85
    assert share(BY_NAME["two modes that last"], 80, told_alike) >= 0.85
    assert told_alike(list(noise.logs_of(noise.RECORDED / "hackbench-busy.csv")))
    assert not told_alike(list(noise.logs_of(noise.RECORDED / "stress-matrix.csv")))


def test_arms_apart_are_no_pattern() -> None:
    rng = random.Random(5)
    points = [
        Point(arm, scale * math.exp(rng.gauss(0, 0.02)), 1.0, 0.0)
        for _ in range(20)
        for arm, scale in (("a", 1.0), ("b", 1.5), ("b", 1.5), ("a", 1.0))
    ]
    assert doubts.about_all(points, "wall") == []


def test_drift_is_found_and_noise_has_none() -> None:
    def told(logs: Sequence[float]) -> bool:
        return bool(doubts.drift([Point("a", math.exp(x), 1.0, 0.0) for x in logs], "wall"))

    assert share(BY_NAME["drift 20 %, whole plan"], 40, told) >= 0.95
    assert share(BY_NAME["normal, 5 %"], 40, told) <= 0.02
    assert share(BY_NAME["log-normal tails"], 40, told) <= 0.02


def test_a_run_that_was_not_made_has_no_figures() -> None:
    assert doubts.figures(Observation(0, NotRun(0, "no"), {}, "refused: no")) == {}


def test_older_studies_have_runs_without_figures() -> None:
    run = Run("search", 0, "base", 0.0, 1.0, 0.0, {"wall": 1.0}, "ok")
    assert run.figures == {}


@given(
    st.lists(
        st.builds(
            Point,
            st.sampled_from(["a", "b"]),
            st.floats(1e-6, 1e6),
            st.floats(1e-6, 1e6),
            st.floats(0, 1e3),
            st.dictionaries(st.sampled_from(sorted(causes.CAUSES)), st.floats(0, 1e6)),
        ),
        max_size=60,
    )
)
def test_any_runs_are_told_of(points: list[Point]) -> None:
    told = doubts.about_all(points, "wall", "s")
    assert len(told) <= 5
    assert all("\n" not in text for text in told)


@given(st.lists(st.floats(-5, 5), max_size=60))
def test_groups_are_a_cut_of_the_ordered_runs(logs: list[float]) -> None:
    high = shapes.two_groups(logs)
    if high is not None:
        low = [x for i, x in enumerate(logs) if i not in high]
        assert max(low) <= min(logs[i] for i in high)
        assert min(len(low), len(high)) >= shapes.SMALLEST * len(logs)
