"""The search: a balanced screening design, then draws from the model of what it taught.

Trials run in blocks that share one baseline. What earlier evidence suggests comes first, then a
design in which every level of every knob occurs equally often. From then on one trial of a block
is TPE's choice, and all others are the best combination under one draw each from what the effects
may be (Thompson sampling): knobs that are settled stay at their best, and runs go to those that
are still open. At equal runs this finds planted effects far more often than one candidate after
the other (``bench/evidence/landscapes.py``).

A trial that fails or runs out of time is a result: it is told as *pruned*, and to the model it
costs more than any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from optuna.trial import FrozenTrial, TrialState

from kilter_lab import prior, stats, tpe
from kilter_lab.blocks import dice, passes
from kilter_lab.console import Bar
from kilter_lab.effects import Coding, Detail, Effects, Sample, fit
from kilter_lab.ledger import Block, Plan
from kilter_lab.measure import OK
from kilter_lab.messages import Metric, Settings
from kilter_lab.planning import DEFAULT_TRIALS, MOST_TRIALS, SEARCH, search_runs
from kilter_lab.screen import design
from kilter_lab.session import BASE, Session
from kilter_lab.space import NumberAxis, Point
from kilter_lab.wording import change, duration, interval_text, percent

FAILED = 0.5
"""Least log cost that the model takes a failed trial for (65 % slower)."""

TRUST = 0.15
"""Share of a trial's distance from the model that is taken for real rather than noise."""

IMPORTANCE_TRIALS = 20
"""Fewest trials from which importances mean anything."""

CAUTIONS = (0.0, 1.0, 2.0)
"""Standard deviations that a knob must gain to be in a candidate."""

CANDIDATES = 4
"""Combinations that are proposed for the race."""

MATTERS = 2.5
"""Standard deviations that a knob must gain before its interactions and inner levels count."""

PAIRED = 4
"""Knobs whose interactions are modelled, at most."""


@dataclass
class Findings:
    """The search so far, as the model and the choice of candidates need it."""

    points: list[Point] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    """Log cost of each point over its block's baseline; failed ones cost as much as the worst."""
    failed: list[bool] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    """Every arm of every block, baselines included."""


def search(session: Session, plan: Plan) -> None:
    """Make trials until the budget's share is used."""
    screening = design(session.space, plan.screen, dice(session.head.seed, "screen"))
    screening = [*prior.points(session), *screening]
    limit = trial_limit(session)
    expected = limit if session.budget.end is None else min(limit, plan.trials)
    with session.console.progress("search", expected, "trials") as bar:
        _baseline_trial(session)
        while (made := len(session.ledger.trials()) - 1) < limit and _in_time(session, plan, made):
            bar.at(made, _status(session, plan))
            session.bench.on_run = partial(_tick, bar, made)
            _one_block(session, plan, screening, min(plan.width, limit - made))


def _tick(bar: Bar, made: int, _: object) -> None:
    bar.tick(made)


def trial_limit(session: Session) -> int:
    """Trials besides the baseline's own."""
    if session.request.trials is not None:
        return session.request.trials
    return DEFAULT_TRIALS if session.budget.end is None else MOST_TRIALS


def _in_time(session: Session, plan: Plan, made: int) -> bool:
    reserve = (1 - SEARCH) * (session.request.budget_s or 0.0)
    return made == 0 or session.fits(plan.repeats * (plan.width + 1), reserve)


def _baseline_trial(session: Session) -> None:
    """Trial 0: the baseline itself, whose cost is 0 by definition."""
    if not session.ledger.trials():
        _tell(session, session.space.baseline(), None, 0.0)


def _one_block(session: Session, plan: Plan, screening: Sequence[Point], width: int) -> None:
    trials = session.ledger.trials()
    index = 1 + max(int(t.user_attrs.get("block", -1)) for t in trials)
    points = _proposals(session, plan, screening, len(trials), width)
    settings = {f"trial {len(trials) + i}": session.space.settings(p) for i, p in enumerate(points)}
    arms = {BASE: {}, **{arm: values for arm, values in settings.items() if values}}
    block = None
    if len(arms) > 1:
        order = passes(len(arms), dice(session.head.seed, "search", index), plan.repeats)
        block = session.block("search", index, arms, order)
    for arm, point in zip(settings, points, strict=True):
        cost, error = _cost(session, block, arm) if block and arm in arms else (0.0, "")
        _tell(session, point, index, cost, error)


def _proposals(
    session: Session, plan: Plan, screening: Sequence[Point], first: int, width: int
) -> list[Point]:
    """The points of the next trials: the design's as long as there are any, then draws."""
    numbers = range(first, first + width)
    points = [screening[n - 1] for n in numbers if n <= len(screening)]
    if len(points) < width:
        models = drawn_from(session, plan)
        suggested, *drawn = numbers[len(points) :]
        points.append(tpe.suggestion(session, suggested))
        points += [models[n % len(models)].draw(dice(session.head.seed, "draw", n)) for n in drawn]
    return points


def drawn_from(session: Session, plan: Plan) -> list[Effects]:
    """The models that trials are drawn from in turn: a single one where one metric decides."""
    if session.head.question.objectives < 2:
        return [model(session, plan, findings(session))]
    from kilter_lab import objectives  # It is made of what is here.

    return objectives.search_models(session, plan)


def _cost(session: Session, block: Block, arm: str) -> tuple[float | None, str]:
    """Log cost of an arm over its block's baseline; None with the reason where there is none."""
    error = next((r.outcome for r in block.runs if r.arm == arm and r.outcome != OK), "")
    if error:
        return None, error
    base, own = (_values(block, a, session.metric) for a in (BASE, arm))
    if not base:
        return None, ""
    stats.mean_log(base, session.metric)  # The baseline's own values must be positive.
    try:
        return session.cost(base, own), ""
    except stats.NotPositiveError as problem:
        return None, str(problem)


def _values(block: Block, arm: str, metric: str) -> list[float]:
    return [r.metrics[metric] for r in block.runs if r.arm == arm and metric in r.metrics]


def _tell(
    session: Session, point: Point, block: int | None, cost: float | None, error: str = ""
) -> None:
    study = session.ledger.sampled
    study.enqueue_trial(point)
    trial = study.ask(session.space.distributions())
    # The baseline is no settings at all, also where its point stands for a value out of range.
    settings = {} if block is None else session.space.settings(point)
    trial.set_user_attr("settings", settings)
    if block is not None:
        trial.set_user_attr("block", block)
    if cost is not None:
        study.tell(trial, cost)
    elif error:
        trial.set_user_attr("error", error)
        trial.set_constraint("runs", 1.0)
        study.tell(trial, state=TrialState.PRUNED)
    else:  # Only the baseline failed: nothing is learnt of the candidate.
        trial.set_user_attr("error", "the baseline's run failed")
        study.tell(trial, state=TrialState.FAIL)
    session.ledger.keep_trial()


def findings(session: Session, metric: Metric | None = None) -> Findings:
    """All trials that ran, by the first deciding metric or by another one."""
    found = Findings()
    blocks = session.ledger.blocks()
    trials = [t for t in session.ledger.finished() if t.user_attrs.get("settings")]
    costs = [_trial_cost(blocks, t, metric) for t in trials]
    worst = max([FAILED, *(c for c in costs if c is not None)])
    levels: dict[int, float] = {}
    for trial, known in zip(trials, costs, strict=True):
        index = int(trial.user_attrs["block"])
        if index not in levels:
            levels[index] = _level(session, blocks["search", index], metric)
            found.samples.append(Sample(index, None, levels[index]))
        failed = trial.state != TrialState.COMPLETE or known is None
        cost = worst if failed or known is None else known
        point = session.space.repair(trial.params)
        found.points.append(point)
        found.costs.append(cost)
        found.failed.append(failed)
        found.samples.append(Sample(index, point, levels[index] + cost))
    return found


def _trial_cost(
    blocks: dict[tuple[str, int], Block], trial: FrozenTrial, metric: Metric | None
) -> float | None:
    """What was told of a trial, or its log cost by another metric; None where there is none."""
    if metric is None or trial.value is None:
        return trial.value
    block, arm = blocks["search", int(trial.user_attrs["block"])], f"trial {trial.number}"
    base, own = (_values(block, a, metric.name) for a in (BASE, arm))
    if not base or not own:
        return None
    try:
        return stats.toward_cost(stats.log_ratio(base, own, metric.name), metric.direction)
    except stats.NotPositiveError:
        return None


def _level(session: Session, block: Block, metric: Metric | None) -> float:
    """The block's baseline on the scale of costs; 0 where it failed."""
    chosen = metric or session.head.metrics[0]
    base = _values(block, BASE, chosen.name)
    if not base:
        return 0.0
    try:
        return stats.toward_cost(stats.mean_log(base, chosen.name), chosen.direction)
    except stats.NotPositiveError:
        if metric is None:
            raise
        return 0.0


def model(session: Session, plan: Plan, found: Findings, run_noise: float | None = None) -> Effects:
    """The effects by all trials so far.

    ``run_noise``: standard deviation of one run, log units; the first metric's by default.
    """
    noise = (plan.noise if run_noise is None else run_noise) / math.sqrt(plan.repeats)
    coding = Coding(session.space)
    effects = fit(coding, found.samples, noise)
    detail = _detail(effects)
    return fit(Coding(session.space, detail), found.samples, noise) if detail else effects


def _detail(effects: Effects) -> Detail | None:
    """Interactions and inner levels of the knobs that matter; None where none does."""
    clear = {part.axis.name: effects.clearest(part) for part in effects.coding.parts if part.levels}
    matter = [name for name, (_, z) in clear.items() if z >= MATTERS]
    if not matter:
        return None
    matter.sort(key=lambda name: -clear[name][1])
    between = {}
    for part in effects.coding.parts:
        if part.axis.name in matter and isinstance(part.axis, NumberAxis):
            between[part.axis.name] = _neighbours(part.axis, int(clear[part.axis.name][0]))
    paired = matter[:PAIRED]
    pairs = tuple((a, b) for i, a in enumerate(paired) for b in paired[i + 1 :])
    return Detail(pairs, between)


def _neighbours(axis: NumberAxis, best: int) -> tuple[int, ...]:
    """Levels half-way from the best one to those beside it."""
    nodes = sorted(int(n) for n in axis.levels())
    i = nodes.index(best)
    beside = [nodes[j] for j in (i - 1, i + 1) if 0 <= j < len(nodes)]
    halves = {axis.at((axis.place(best) + axis.place(n)) / 2) for n in beside}
    return tuple(sorted(halves - set(nodes)))


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
        total = search_runs(trial_limit(session), plan.repeats) * session.run_s() / SEARCH
        left = max(0.0, total - session.spent_s())
    parts.append(f"about {duration(left)} left")
    return ", ".join(parts)


def _best_text(session: Session, plan: Plan, best: FrozenTrial) -> str:
    cost, half = best.value or 0.0, 1.96 * plan.noise * math.sqrt(2 / plan.repeats)
    metric = session.head.metrics[0]
    interval = stats.Interval(cost, cost - half, cost + half, 2)
    if metric.direction == "max":
        interval = stats.Interval(-cost, -cost - half, -cost + half, 2)
    v = stats.record(metric.name, metric.direction, interval, 0.0, 1.0, 1.0)
    gain, low, high = change(v, True)
    return f"best so far {percent(gain)} % ({interval_text(low, high)})"
