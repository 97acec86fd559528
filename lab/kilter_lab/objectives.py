"""Several objectives at once: a model of effects for each, and for weighted sums of them.

A sum weighs costs that are standardised by how far the trials spread in each metric, so that
neither a unit nor a metric that moves a lot decides by itself. Equal weights ask for what helps
everywhere; weights that lean to one objective ask for what is good for it first and, among
settings that it does not care for, for what helps the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kilter_lab import stats
from kilter_lab.effects import Effects, Sample
from kilter_lab.ledger import Plan
from kilter_lab.messages import Metric, Settings
from kilter_lab.search import CAUTIONS, Findings, findings, model
from kilter_lab.session import Session
from kilter_lab.study import BASE

LEANING = 4.0
"""Weight of the objective that a sum leans to, over that of each other one."""

CANDIDATES = 6
"""Combinations that are proposed for the race."""


@dataclass(frozen=True)
class Objective:
    """A metric that decides, with what the search knows of it."""

    metric: Metric
    noise: float
    """Standard deviation of one run, log units."""
    effects: Effects


def deciding(session: Session) -> list[Metric]:
    """The metrics that decide."""
    return session.head.metrics[: session.head.question.objectives]


def search_models(session: Session, plan: Plan) -> list[Effects]:
    """What trials are drawn from in turn: each objective's model, and that of their equal sum."""
    parts = all_findings(session)
    even = [1.0] * len(parts)
    alone = [_single(session, plan, parts, k) for k in range(len(parts))]
    return [*alone, _summed(session, plan, parts, even)]


def objectives(session: Session, plan: Plan, parts: Sequence[Findings]) -> list[Objective]:
    """All of them, with models in which most knobs do nothing."""
    return [
        Objective(metric, deviation(session, [metric], [1.0]), _single(session, plan, parts, k))
        for k, metric in enumerate(deciding(session))
    ]


def candidates(session: Session, plan: Plan, parts: Sequence[Findings]) -> list[Settings]:
    """Combinations worth racing: the best of each model and of sums with several weights."""
    count = len(parts)
    even = [1.0] * count
    leaning = [[LEANING if i == k else 1.0 for i in range(count)] for k in range(count)]
    models = [_summed(session, plan, parts, weights) for weights in (even, *leaning)]
    models += [_single(session, plan, parts, k) for k in range(count)]
    unique: dict[tuple[tuple[str, str], ...], Settings] = {}
    for caution in sorted(CAUTIONS, key=lambda c: abs(c - 1.0)):
        for effects in models:
            settings = session.space.settings(effects.best(caution))
            if settings:
                unique.setdefault(tuple(sorted(settings.items())), settings)
    return list(unique.values())[:CANDIDATES]


def all_findings(session: Session) -> list[Findings]:
    """The trials by each objective."""
    others = deciding(session)[1:]
    return [findings(session), *(findings(session, metric) for metric in others)]


def weights_of(parts: Sequence[Findings], emphasis: Sequence[float]) -> list[float]:
    """Weights of log costs, with the sum 1, by which costs count in units of their spread."""
    raw = [e / _spread(found) for found, e in zip(parts, emphasis, strict=True)]
    return [w / math.fsum(raw) for w in raw]


def _spread(found: Findings) -> float:
    """How far the trials lie apart; failed ones would drown the rest."""
    good = [c for c, failed in zip(found.costs, found.failed, strict=True) if not failed]
    return max(stats.deviation(good), 1e-4)


def summed(parts: Sequence[Findings], weights: Sequence[float]) -> Findings:
    """The weighted sum of the costs; what failed by one objective has failed."""

    def total(numbers: Sequence[float]) -> float:
        return math.fsum(w * n for w, n in zip(weights, numbers, strict=True))

    samples = [
        Sample(together[0].block, together[0].point, total([s.cost for s in together]))
        for together in zip(*(found.samples for found in parts), strict=True)
    ]
    return Findings(
        points=parts[0].points,
        costs=[total(costs) for costs in zip(*(found.costs for found in parts), strict=True)],
        failed=[any(failed) for failed in zip(*(found.failed for found in parts), strict=True)],
        samples=samples,
    )


def _single(session: Session, plan: Plan, parts: Sequence[Findings], k: int) -> Effects:
    noise = plan.noise if k == 0 else deviation(session, [deciding(session)[k]], [1.0])
    return model(session, plan, parts[k], noise)


def _summed(
    session: Session, plan: Plan, parts: Sequence[Findings], emphasis: Sequence[float]
) -> Effects:
    weights = weights_of(parts, emphasis)
    noise = deviation(session, deciding(session), weights)
    return model(session, plan, summed(parts, weights), noise)


def deviation(session: Session, metrics: Sequence[Metric], weights: Sequence[float]) -> float:
    """Standard deviation of one baseline run's weighted log costs, from the first block."""
    block = session.ledger.blocks()["baseline", 0]
    sums = []
    for run in (r for r in block.runs if r.arm == BASE):
        if all(run.metrics.get(m.name, 0.0) > 0 for m in metrics):
            logs = [stats.toward_cost(math.log(run.metrics[m.name]), m.direction) for m in metrics]
            sums.append(math.fsum(w * log for w, log in zip(weights, logs, strict=True)))
    return stats.deviation(sums)
