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

from kilter_lab import prior, stats
from kilter_lab.blocks import dice, passes
from kilter_lab.coding import Detail
from kilter_lab.console import Bar
from kilter_lab.effects import Effects, Sample, fit
from kilter_lab.ledger import Plan
from kilter_lab.messages import Metric, Settings
from kilter_lab.planning import DEFAULT_TRIALS, MOST_TRIALS, SEARCH, search_runs
from kilter_lab.screen import design
from kilter_lab.session import Session
from kilter_lab.space import NumberAxis, Point
from kilter_lab.study import BASE, Block
from kilter_lab.tpe import Tpe
from kilter_lab.trials import Tried, arm_name, base_log, told, values
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
    limit, sampler = trial_limit(session), Tpe(session)
    expected = limit if session.budget.end is None else min(limit, plan.trials)
    with session.console.progress("search", expected, "trials") as bar:
        while (made := _made(session)) < limit and _in_time(session, plan, made):
            bar.at(made, _status(session, plan))
            session.bench.on_run = partial(_tick, bar, made)
            points = _proposals(session, plan, screening, sampler, min(plan.width, limit - made))
            _one_block(session, plan, points)


def _tick(bar: Bar, made: int, _: object) -> None:
    bar.tick(made)


def _made(session: Session) -> int:
    """Trials besides the baseline's own."""
    return max(0, len(session.ledger.trials()) - 1)


def trial_limit(session: Session) -> int:
    """Trials besides the baseline's own."""
    if session.request.trials is not None:
        return session.request.trials
    return DEFAULT_TRIALS if session.budget.end is None else MOST_TRIALS


def _in_time(session: Session, plan: Plan, made: int) -> bool:
    reserve = (1 - SEARCH) * (session.request.budget_s or 0.0)
    return made == 0 or session.fits(plan.repeats * (plan.width + 1), reserve)


def _one_block(session: Session, plan: Plan, points: Sequence[Point]) -> None:
    first = 1 + _made(session)
    index = 1 + max((t.block for t in session.ledger.trials()), default=-1)
    settings = {arm_name(first + i): session.space.settings(p) for i, p in enumerate(points)}
    arms = {BASE: {}, **{arm: chosen for arm, chosen in settings.items() if chosen}}
    if len(arms) < 2:  # All of them are the baseline: nothing to run.
        session.ledger.add_block("search", index, Block(arms, [], session.spent_s(), list(points)))
        return
    order = passes(len(arms), dice(session.head.seed, "search", index), plan.repeats)
    block = session.block("search", index, arms, order, points)
    base = values(block, BASE, session.metric)
    if base:
        stats.mean_log(base, session.metric)  # The baseline's own values must be positive.


def _proposals(
    session: Session, plan: Plan, screening: Sequence[Point], sampler: Tpe, width: int
) -> list[Point]:
    """The points of the next trials: the design's as long as there are any, then draws."""
    first = 1 + _made(session)
    numbers = range(first, first + width)
    points = [screening[n - 1] for n in numbers if n <= len(screening)]
    if len(points) < width:
        models = drawn_from(session, plan)
        suggested, *drawn = numbers[len(points) :]
        points.append(sampler.suggestion(suggested))
        points += [models[n % len(models)].draw(dice(session.head.seed, "draw", n)) for n in drawn]
    return points


def drawn_from(session: Session, plan: Plan) -> list[Effects]:
    """The models that trials are drawn from in turn: a single one where one metric decides."""
    if session.head.question.objectives < 2:
        return [model(session, plan, findings(session))]
    from kilter_lab import objectives  # It is made of what is here.

    return objectives.search_models(session, plan)


def findings(session: Session, metric: Metric | None = None) -> Findings:
    """All trials that ran, by the first deciding metric or by another one."""
    chosen = metric or session.head.metrics[0]
    found, blocks = Findings(), session.ledger.blocks()
    trials = [t for t in told(session.ledger.trials()) if t.settings]
    worst = max([FAILED, *(t.costs[chosen.name] for t in trials if chosen.name in t.costs)])
    levels: dict[int, float] = {}
    for trial in trials:
        if trial.block not in levels:
            log = base_log(blocks["search", trial.block], chosen) or 0.0
            levels[trial.block] = stats.toward_cost(log, chosen.direction)
            found.samples.append(Sample(trial.block, None, levels[trial.block]))
        cost = trial.costs.get(chosen.name, worst)
        found.points.append(trial.point)
        found.costs.append(cost)
        found.failed.append(chosen.name not in trial.costs)
        found.samples.append(Sample(trial.block, trial.point, levels[trial.block] + cost))
    return found


def model(session: Session, plan: Plan, found: Findings, run_noise: float | None = None) -> Effects:
    """The effects by all trials so far.

    ``run_noise``: standard deviation of one run, log units; the first metric's by default.
    """
    noise = (plan.noise if run_noise is None else run_noise) / math.sqrt(plan.repeats)
    effects = fit(session.coding, found.samples, noise)
    detail = _detail(effects)
    return fit(session.coding.detailed(detail), found.samples, noise) if detail else effects


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
    predicted = effects.costs(found.points)

    def smoothed(i: int) -> float:
        return predicted[i] + TRUST * (found.costs[i] - predicted[i])

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
    ran = [t for t in session.ledger.trials() if t.settings and t.state == "ran"]
    parts = []
    if len(ran) > 1:
        parts.append(_best_text(session, plan, ran))
    left = session.left_s()
    if not math.isfinite(left):
        total = search_runs(trial_limit(session), plan.repeats) * session.run_s() / SEARCH
        left = max(0.0, total - session.spent_s())
    parts.append(f"about {duration(left)} left")
    return ", ".join(parts)


def _best_text(session: Session, plan: Plan, ran: Sequence[Tried]) -> str:
    metric = session.head.metrics[0]
    cost = min(t.costs[metric.name] for t in ran)
    half = 1.96 * plan.noise * math.sqrt(2 / plan.repeats)
    interval = stats.Interval(cost, cost - half, cost + half, 2)
    if metric.direction == "max":
        interval = stats.Interval(-cost, -cost - half, -cost + half, 2)
    v = stats.record(metric.name, metric.direction, interval, 0.0, 1.0, 1.0)
    gain, low, high = change(v, True)
    return f"best so far {percent(gain)} % ({interval_text(low, high)})"
