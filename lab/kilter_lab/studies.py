"""A study as the reports see it, from what its storage holds: ended, cut short or running."""

from __future__ import annotations

import math
from typing import Any

import optuna

from kilter_lab import stats
from kilter_lab.comparison import Look
from kilter_lab.errors import RequestError
from kilter_lab.ledger import Ledger, Plan, find, open_storage, storage_errors
from kilter_lab.messages import Fingerprint
from kilter_lab.narrowing import block_logs, narrowing
from kilter_lab.study import Block, Run, StudyData, Trial
from kilter_lab.trials import Tried, told

UNKNOWN_MACHINE = Fingerprint(
    id="", kernel="", arch="", os="", cpu="", cpus=0, memory_kib=0, cgroup="", virtualisation="",
    cpufreq="", sched_ext="", boot_id="",
)  # fmt: skip


def load_study(storage: str, name: str) -> StudyData:
    """The study of this name. RequestError where there is none."""
    opened = open_storage(storage)
    with storage_errors(storage):
        ledger = find(opened, name)
        if ledger is None:
            raise RequestError(f"there is no study {name} in {storage}", _known(opened))
        return study_data(ledger)


def _known(storage: optuna.storages.BaseStorage) -> str | None:
    names = [s.study_name for s in storage.get_all_studies()]
    return f"the studies there are: {', '.join(sorted(names)[:12])}" if names else None


def study_data(ledger: Ledger) -> StudyData:
    """Everything that the record holds."""
    head, outcome, noise = ledger.head, ledger.outcome, trial_deviation(ledger)
    return StudyData(
        name=ledger.name,
        command=head.command,
        metrics=head.metrics,
        knobs=head.knobs,
        fixed=head.fixed,
        region_percent=head.region_percent,
        seed=head.seed,
        created=head.created,
        machine=ledger.machine or UNKNOWN_MACHINE,
        ending=outcome.ending,
        sentence=outcome.sentence,
        attempts=ledger.attempts(),
        runs=all_runs(ledger),
        trials=[trial_data(ledger, t, noise) for t in told(ledger.trials())],
        importance=ledger.read("importance", dict[str, float]) or {},
        importances=ledger.read("importances", dict[str, dict[str, float]]) or {},
        pruning=outcome.pruning,
        winner=outcome.winner,
        promised=outcome.promised,
        confirmed=outcome.confirmed,
        question=head.question,
        guards=outcome.guards,
        shown=outcome.shown,
        profile=outcome.profile,
        front=outcome.front,
        seconds=ledger.seconds(),
        warnings=outcome.warnings,
        planned_blocks=planned_blocks(ledger),
        sequence=sequences(ledger),
    )


def all_runs(ledger: Ledger) -> list[Run]:
    """Every run of every phase, in the order of time."""
    blocks = [block for (phase, _), block in ledger.blocks().items() if phase != "confirm"]
    runs = [run for block in [*blocks, *confirmation(ledger)] for run in block.runs]
    return sorted(runs, key=lambda r: r.at_s)


def confirmation(ledger: Ledger) -> list[Block]:
    """The blocks that the verdict is from: all of the same arms as the first, in order.

    A study that was taken up again may have confirmed another winner before.
    """
    made = {index: b for (phase, index), b in ledger.blocks().items() if phase == "confirm"}
    return [made[i] for i in sorted(made) if made[i].arms == made[min(made)].arms]


def planned_blocks(ledger: Ledger) -> int:
    """What was planned when the confirmation began."""
    plan: dict[str, Any] = ledger.read("confirm", dict[str, Any]) or {}
    return int(plan.get("blocks", 0))


def sequences(ledger: Ledger) -> dict[str, list[Look]]:
    """How the intervals of the verdicts closed in, by metric."""
    front = ledger.outcome.front
    told = ("base", front[0].arm if front else "winner")
    runs = [run for block in confirmation(ledger) for run in block.runs if run.arm in told]
    planned = planned_blocks(ledger)
    return {
        verdict.metric: narrowing(block_logs(runs, verdict.metric), verdict, planned)
        for verdict in ledger.outcome.confirmed
    }


def trial_deviation(ledger: Ledger) -> float | None:
    """Standard deviation of a trial's log ratio, from the noise of single runs."""
    plan = ledger.read("plan", Plan)
    return None if plan is None else plan.noise * math.sqrt(2 / plan.repeats)


def trial_data(ledger: Ledger, trial: Tried, noise: float | None) -> Trial:
    """One trial. Its interval takes the noise from the baseline: a run has none of its own."""
    settings, metric = trial.settings, ledger.head.metrics[0]
    if trial.state != "ran":
        return Trial(trial.number, settings, None, None, None, 0, trial.error)
    if not settings:  # The baseline itself: its ratio is 1 by definition.
        return Trial(trial.number, settings, 1.0, 1.0, 1.0, 0)
    log = stats.toward_cost(trial.costs[metric.name], metric.direction)
    half = 1.96 * (noise or 0.0)
    return Trial(
        trial.number, settings, math.exp(log), math.exp(log - half), math.exp(log + half), 1
    )
