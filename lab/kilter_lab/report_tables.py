"""The long tables of a report: trials, importance, arms, phases, the machine.

A table that could grow without bound takes a limit and says how much it leaves out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kilter_lab.report_numbers import (
    BASE,
    PHASES,
    STEAL_MARK,
    claims,
    confirm_arms,
    deciding,
    objectives,
    plottable,
    spread,
    steal_share,
    values,
    variation,
)
from kilter_lab.report_text import MISSING, interval, magnitude, percent, quantity, usable
from kilter_lab.study import StudyData, Trial
from kilter_lab.wording import metric_label, unit

IMPORTANT_KNOBS = 40
CONFIRM_METRICS = 4
"""Metrics whose distributions are drawn."""


@dataclass(frozen=True)
class TrialRow:
    """A trial: its estimate and the values that differ from the baseline's."""

    number: int
    change: str
    interval: str
    blocks: int
    cells: list[str | None]
    """``None`` where the value is the baseline's."""
    changed: list[str]
    """The same as ``KNOB=VALUE``."""
    error: str


@dataclass(frozen=True)
class TrialTable:
    """Trials, best estimate first, failures last; a column a knob."""

    knobs: list[str]
    before: list[str]
    rows: list[TrialRow]
    left_out: int
    failed: int


def trial_table(data: StudyData, limit: int) -> TrialTable:
    """At most ``limit`` trials."""
    before = {knob.name: knob.before for knob in data.knobs}
    knobs = _varied(data, before)
    ordered = by_estimate(data)
    rows = [_trial_row(trial, knobs, before) for trial in ordered[:limit]]
    return TrialTable(
        knobs=knobs,
        before=[before.get(knob, MISSING) for knob in knobs],
        rows=rows,
        left_out=len(ordered) - len(rows),
        failed=sum(usable(trial.ratio) is None for trial in data.trials),
    )


def by_estimate(data: StudyData) -> list[Trial]:
    """Trials from the best estimate to the worst, then those that failed."""
    sign = 1.0 if deciding(data).direction == "min" else -1.0

    def key(trial: Trial) -> tuple[bool, float, int]:
        ratio = usable(trial.ratio)
        return (ratio is None, sign * (ratio or 0.0), trial.number)

    return sorted(data.trials, key=key)


def _varied(data: StudyData, before: dict[str, str]) -> list[str]:
    found: dict[str, None] = {}
    for trial in data.trials:
        for knob, value in trial.settings.items():
            if value != before.get(knob):
                found[knob] = None
    order = {name: place for place, name in enumerate(before)}
    return sorted(found, key=lambda knob: (order.get(knob, len(order)), knob))


def _trial_row(trial: Trial, knobs: list[str], before: dict[str, str]) -> TrialRow:
    changed = {knob: value for knob, value in trial.settings.items() if value != before.get(knob)}
    return TrialRow(
        number=trial.number,
        change=percent(trial.ratio),
        interval=interval(trial.low, trial.high),
        blocks=trial.blocks,
        cells=[changed.get(knob) for knob in knobs],
        changed=[f"{knob}={value}" for knob, value in sorted(changed.items())],
        error=trial.error,
    )


@dataclass(frozen=True)
class ImportanceRow:
    """A knob's importance: its share by each metric, and its bar's width (0 to 100)."""

    knob: str
    shares: list[str]
    width: float


@dataclass(frozen=True)
class ImportanceTable:
    """Knobs from the most important on, by the mean over the deciding metrics."""

    rows: list[ImportanceRow]
    left_out: int
    metrics: list[str]
    """What the shares are of."""


def importance_table(data: StudyData) -> ImportanceTable:
    """Shares of the sum; the longest bar is 100 wide."""
    first, *others = objectives(data)
    found = [(first, data.importance)]
    found += [(m, data.importances[m.name]) for m in others if m.name in data.importances]
    parts = [(metric_label(m), shares) for m, known in found if (shares := _shares(known))]
    mean = {
        knob: math.fsum(shares.get(knob, 0.0) for _, shares in parts) / len(parts)
        for knob in dict.fromkeys(knob for _, shares in parts for knob in shares)
    }
    ordered = sorted(mean.items(), key=lambda item: (-item[1], item[0]))
    most = ordered[0][1] if ordered else 1.0
    rows = [
        ImportanceRow(
            knob,
            [_share(shares[knob]) if knob in shares else MISSING for _, shares in parts],
            round(weight / most * 100.0, 1),
        )
        for knob, weight in ordered[:IMPORTANT_KNOBS]
    ]
    return ImportanceTable(rows, len(ordered) - len(rows), [label for label, _ in parts])


def _shares(importance: dict[str, float]) -> dict[str, float]:
    """Parts of the sum; empty where nothing is important."""
    known = {knob: w for knob, w in importance.items() if plottable(w) and w >= 0.0}
    total = math.fsum(known.values())
    return {knob: w / total for knob, w in known.items()} if total > 0.0 else {}


def _share(part: float) -> str:
    return f"{part * 100.0:.0f}\u00a0%" if part >= 0.01 or part == 0.0 else "<\u00a01\u00a0%"


@dataclass(frozen=True)
class ArmRow:
    """An arm of the confirmation and how a metric spreads over its runs."""

    metric: str
    arm: str
    runs: int
    failed: int
    median: str
    quartiles: str
    extremes: str


def arm_rows(data: StudyData) -> list[ArmRow]:
    """One row a metric and arm."""
    rows = []
    for metric in data.metrics[:CONFIRM_METRICS]:
        for arm, runs in confirm_arms(data):
            found = spread(runs, metric.name)
            if found is None:
                continue
            rows.append(
                ArmRow(
                    metric=metric_label(metric),
                    arm=arm_name(data, arm),
                    runs=found.runs,
                    failed=found.failed,
                    median=quantity(found.median, unit(metric)),
                    quartiles=_range(found.lower, found.upper, unit(metric)),
                    extremes=_range(found.least, found.most, unit(metric)),
                )
            )
    return rows


def _range(low: float, high: float, of_unit: str) -> str:
    return f"{quantity(low)} to {quantity(high, of_unit)}"


def arm_name(data: StudyData, arm: str) -> str:
    """An arm as readers know it; a winner is one only when fresh blocks say so."""
    if arm == BASE:
        return "baseline"
    if len(data.front) > 1:
        places = {m.arm: place for place, m in enumerate(data.front, 1)}
        return f"candidate {places[arm]}" if arm in places else arm
    return "candidate" if arm == "winner" and not claims(data) else arm


@dataclass(frozen=True)
class PhaseRow:
    """The runs of a phase, and how its baseline behaved."""

    phase: str
    runs: int
    failed: int
    base_runs: int
    base_median: str
    variation: str
    steal: str


def phase_rows(data: StudyData) -> list[PhaseRow]:
    """One row for each phase that ran."""
    metric = deciding(data)
    rows = []
    for phase in PHASES:
        runs = [run for run in data.runs if run.phase == phase]
        if not runs:
            continue
        base = [run for run in runs if run.arm == BASE]
        found = spread(base, metric.name)
        noise = variation(values(base, metric.name))
        marked = sum(steal_share(run, data.machine.cpus) > STEAL_MARK for run in runs)
        rows.append(
            PhaseRow(
                phase=phase,
                runs=len(runs),
                failed=sum(run.outcome != "ok" for run in runs),
                base_runs=len(base),
                base_median=quantity(found.median, unit(metric)) if found else MISSING,
                variation=magnitude(noise * 100.0) if noise is not None else MISSING,
                steal=f"{marked:,}",
            )
        )
    return rows


def machine_rows(data: StudyData) -> list[tuple[str, str]]:
    """The fingerprint, for people."""
    machine = data.machine
    if not machine.id:
        return [("Machine", "not known before the first run")]
    memory = f"{machine.memory_kib / 2**20:,.1f}\u00a0GiB"
    rows = [
        ("Processor", f"{machine.cpu} ({machine.arch}), {machine.cpus} online"),
        ("Memory", memory),
        ("Kernel", machine.kernel),
        ("System", machine.os),
        ("Virtualisation", machine.virtualisation),
        ("Frequency governor", machine.cpufreq),
        ("Control groups", machine.cgroup),
        ("sched_ext", machine.sched_ext),
        ("Fingerprint", machine.id),
        ("Boot", machine.boot_id),
    ]
    return [(label, text.strip() or MISSING) for label, text in rows]
