"""The search: a balanced screening design, then TPE; every trial beside its own baseline runs.

Half of the trials are a design in which every level of every knob occurs equally often; the
main-effects model then proposes its best combination, and TPE goes on from what all of these
taught it. At equal runs this finds planted effects far more often than TPE alone
(``bench/studies.py``).

A trial that fails or runs out of time is a result: it is told as *pruned*, with a violated
constraint, because TPE shuns such points, whereas it never looks at trials told as *failed*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import optuna
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState

from kilter_lab import stats
from kilter_lab.blocks import dice, pair
from kilter_lab.console import Bar
from kilter_lab.effects import Coding, Effects, fit
from kilter_lab.ledger import Plan
from kilter_lab.measure import OK
from kilter_lab.messages import Settings
from kilter_lab.planning import DEFAULT_TRIALS, MOST_TRIALS, SEARCH
from kilter_lab.screen import design
from kilter_lab.session import BASE, Session
from kilter_lab.space import Point
from kilter_lab.study import Run
from kilter_lab.wording import change, duration, interval_text, percent

FAILED = 0.5
"""Least log cost that the model takes a failed trial for (65 % slower)."""

TRUST = 0.3
"""Share of a trial's distance from the model that is taken for real rather than noise."""

IMPORTANCE_TRIALS = 20
"""Fewest trials from which importances mean anything."""

CAUTIONS = (1.0, 0.0, 2.0)
"""Standard deviations that a knob must gain to be in a candidate."""

CANDIDATES = 4
"""Combinations that are proposed for the race."""


@dataclass
class Findings:
    """The search so far, as the model and the choice of candidates need it."""

    points: list[Point]
    costs: list[float]
    """Log cost of each point; failed ones cost as much as the worst."""
    failed: list[bool]


def search(session: Session, plan: Plan) -> None:
    """Make trials until the budget's share is used."""
    study = session.ledger.sampled
    # A resumed study must not draw the same numbers again.
    made = len(session.ledger.trials())
    study.sampler = TPESampler(
        seed=dice(session.head.seed, "tpe", made).getrandbits(31),
        multivariate=True,
        constant_liar=False,
    )
    screening = design(session.space, plan.screen, dice(session.head.seed, "screen"))
    told = len(session.ledger.finished())
    limit = trial_limit(session)
    with session.console.progress("search", _expected(session, plan, limit), "trials") as bar:
        while told <= limit and (told == 0 or _in_time(session, plan)):
            bar.at(max(0, told - 1), _status(session, plan))
            _one_trial(session, plan, bar, _proposal(session, plan, screening, told))
            told = len(session.ledger.finished())


def trial_limit(session: Session) -> int:
    """Trials besides the baseline's own."""
    if session.request.trials is not None:
        return session.request.trials
    return DEFAULT_TRIALS if session.budget.end is None else MOST_TRIALS


def _expected(session: Session, plan: Plan, limit: int) -> int:
    return limit if session.budget.end is None else min(limit, plan.trials)


def _in_time(session: Session, plan: Plan) -> bool:
    reserve = (1 - SEARCH) * (session.request.budget_s or 0.0)
    return session.fits(2 * plan.pairs, reserve)


def _proposal(session: Session, plan: Plan, screening: Sequence[Point], told: int) -> Point | None:
    """The point that the next trial must take; None where TPE chooses."""
    if told == 0:
        return session.space.baseline()
    if told <= plan.screen:
        return screening[told - 1]
    if told == plan.screen + 1:
        return model(session, plan, findings(session)).best(0.0)
    return None


def _one_trial(session: Session, plan: Plan, bar: Bar, proposal: Point | None) -> None:
    study = session.ledger.sampled
    if proposal is not None:
        study.enqueue_trial(proposal)
    trial = study.ask(session.space.distributions())
    settings = session.space.settings(trial.params)
    trial.set_user_attr("settings", settings)
    if not settings:  # The baseline itself: its cost is 0, no run needed.
        study.tell(trial, 0.0)
        session.ledger.keep_trial()
        return
    arm = f"trial {trial.number}"
    order = pair(dice(session.head.seed, "search", trial.number), plan.pairs)
    session.bench.on_run = lambda _: bar.tick(max(0, trial.number - 1))
    runs = session.runs("search", trial.number, {BASE: {}, arm: settings}, order)
    trial.set_user_attr("runs", [_compact(r) for r in runs])
    trial.set_user_attr("spent_s", session.spent_s())
    _tell(session, trial, arm, runs)
    session.ledger.keep_trial()


def _tell(session: Session, trial: optuna.Trial, arm: str, runs: list[Run]) -> None:
    study, metric = session.ledger.sampled, session.metric
    error = next((r.outcome for r in runs if r.arm == arm and r.outcome != OK), "")
    values = [r.metrics[metric] for r in runs if r.arm == arm and metric in r.metrics]
    base = [r.metrics[metric] for r in runs if r.arm == BASE and metric in r.metrics]
    if not error and base:
        try:
            study.tell(trial, session.cost(base, values))
            return
        except stats.NotPositiveError as problem:
            stats.mean_log(base, metric)  # The baseline's own values must be positive.
            error = str(problem)
    if error:
        trial.set_user_attr("error", error)
        trial.set_constraint("runs", 1.0)
        study.tell(trial, state=TrialState.PRUNED)
    else:  # Only the baseline failed: nothing is learnt of the candidate.
        trial.set_user_attr("error", "the baseline's run failed")
        study.tell(trial, state=TrialState.FAIL)


def _compact(run: Run) -> dict[str, object]:
    return {field: getattr(run, field) for field in run.__struct_fields__}


def findings(session: Session) -> Findings:
    """All trials that ran."""
    trials = [t for t in session.ledger.finished() if t.user_attrs.get("settings")]
    costs = [t.value for t in trials if t.state == TrialState.COMPLETE and t.value is not None]
    worst = max([FAILED, *costs])
    return Findings(
        [session.space.repair(t.params) for t in trials],
        [_known(t, worst) for t in trials],
        [t.state != TrialState.COMPLETE for t in trials],
    )


def _known(trial: FrozenTrial, worst: float) -> float:
    return worst if trial.state != TrialState.COMPLETE or trial.value is None else trial.value


def model(session: Session, plan: Plan, found: Findings) -> Effects:
    """Main effects of all trials so far."""
    noise = plan.noise * math.sqrt(2 / plan.pairs)
    return fit(Coding(session.space), found.points, found.costs, noise)


def importance(effects: Effects, found: Findings) -> dict[str, float]:
    """Share of each knob in the spread of the trials; empty where there are too few.

    By main effects: PED-ANOVA, which asks what sets the best tenth apart, names a wrong knob in
    most studies of this size, because a few noisy trials are that tenth.
    """
    if len(found.points) < IMPORTANCE_TRIALS:
        return {}
    return effects.shares(found.points)


def candidates(session: Session, effects: Effects, found: Findings) -> list[Settings]:
    """Combinations worth racing: the model's best, bold and cautious, and the best trials.

    A trial's own number is mostly noise, so it counts for a part beside what the model says.
    """

    def smoothed(i: int) -> float:
        predicted, _ = effects.predict(found.points[i])
        return predicted + TRUST * (found.costs[i] - predicted)

    ran = [i for i in range(len(found.points)) if not found.failed[i]]
    points = [effects.best(caution) for caution in CAUTIONS]
    points += [found.points[i] for i in sorted(ran, key=smoothed)]
    unique: dict[tuple[tuple[str, str], ...], Settings] = {}
    for point in points:
        settings = session.space.settings(point)
        if settings:
            unique.setdefault(tuple(sorted(settings.items())), settings)
        if len(unique) == CANDIDATES:
            break
    return list(unique.values())


def _status(session: Session, plan: Plan) -> str:
    """Best so far with its interval, and the time left."""
    told = session.ledger.trials(TrialState.COMPLETE)
    parts = []
    if len(told) > 2:
        best = min((t for t in told if t.value is not None), key=lambda t: t.value or 0.0)
        parts.append(_best_text(session, plan, best))
    left = session.left_s()
    if not math.isfinite(left):
        total = trial_limit(session) * 2 * plan.pairs * session.run_s() / SEARCH
        left = max(0.0, total - session.spent_s())
    parts.append(f"about {duration(left)} left")
    return ", ".join(parts)


def _best_text(session: Session, plan: Plan, best: FrozenTrial) -> str:
    cost, half = best.value or 0.0, 1.96 * plan.noise * math.sqrt(2 / plan.pairs)
    metric = session.head.metrics[0]
    interval = stats.Interval(cost, cost - half, cost + half, 2)
    if metric.direction == "max":
        interval = stats.Interval(-cost, -cost - half, -cost + half, 2)
    v = stats.record(metric.name, metric.direction, interval, 0.0, 1.0, 1.0)
    gain, low, high = change(v, True)
    return f"best so far {percent(gain)} % ({interval_text(low, high)})"
