"""The doubts of a study: what its runs, trials and knobs give reason to warn of."""

from __future__ import annotations

from collections import Counter

from kilter_lab import doubts, wording
from kilter_lab.session import Session
from kilter_lab.studies import all_runs
from kilter_lab.study import BASE, Run
from kilter_lab.wording import count


def study_doubts(session: Session) -> list[str]:
    """Everything that a reader should know before believing the study."""
    metric = session.metric
    label = wording.metric_label(session.head.metrics[0])
    unit = wording.unit(session.head.metrics[0])
    runs = [r for r in all_runs(session.ledger) if r.metrics.get(metric, 0) > 0]
    confirm = _points([r for r in runs if r.phase == "confirm"], metric)
    base = _points([r for r in runs if r.arm == BASE], metric)
    machine = session.bench.machine
    return [
        *session.bench.run_warnings(),
        *doubts.misread(session.bench.misread),
        *_failed_trials(session),
        *doubts.outliers(confirm, label),
        *doubts.two_groups(confirm, label, unit),
        *doubts.drift(base, label),
        *doubts.alike(base, label),
        *doubts.steal(_points(runs, metric), machine.cpus if machine else 1),
        *_attempts(session),
    ]


def _points(runs: list[Run], metric: str) -> list[doubts.Point]:
    return [doubts.Point(r.arm, r.metrics[metric], r.wall_s, r.steal_s, r.figures) for r in runs]


def _failed_trials(session: Session) -> list[str]:
    failed = [t for t in session.ledger.trials() if t.state == "failed"]
    if not failed:
        return []
    reasons = Counter(t.error for t in failed)
    told = ", ".join(f"{reason}: {n}" for reason, n in reasons.most_common(3))
    return [f"{count(len(failed), 'trial')} failed ({told}); the search kept away from them"]


def _attempts(session: Session) -> list[str]:
    attempts = session.ledger.attempts()
    if attempts < 2:
        return []
    return [
        f"this is study {attempts} of this command on this machine: each has its own chance, "
        "2.5 % at most, of confirming a gain that is none"
    ]
