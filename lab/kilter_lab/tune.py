"""``kilter tune``: search, race, prune, confirm; then say what was proven, and keep it.

Every phase compares side by side with the baseline, and each later phase measures anew what the
earlier one chose, so that luck in one cannot be sold as a gain by the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from kilter_lab import metrics, planning, stats
from kilter_lab.confirm import blocks_needed, confirm
from kilter_lab.console import Console
from kilter_lab.doubting import study_doubts
from kilter_lab.effects import Effects
from kilter_lab.ending import judge, nothing_found, promise, race_text
from kilter_lab.errors import RequestError
from kilter_lab.ledger import Ledger, Outcome, Plan, open_storage, storage_errors, unhurried
from kilter_lab.measure import Bench
from kilter_lab.messages import Arm, TuneRequest
from kilter_lab.objectives import deciding, deviation
from kilter_lab.opening import locked, open_study
from kilter_lab.prune import LOSS_SHARE, Pruning
from kilter_lab.publish import publish
from kilter_lab.race import Raced, race
from kilter_lab.runner import Runner
from kilter_lab.search import candidates, findings, importance, model, search
from kilter_lab.session import Budget, Session
from kilter_lab.several import finish_several
from kilter_lab.space import Space, build
from kilter_lab.studies import study_data
from kilter_lab.study import BASE
from kilter_lab.trials import told
from kilter_lab.tune_text import show
from kilter_lab.wording import metric_label


def tune(request: TuneRequest, runner: Runner, console: Console) -> int:
    """Begin or go on with a study, to its end. Returns the exit status."""
    space, left_out = build(request)
    for name in left_out:
        console.warn(f"{name} is not searched: this kernel offers no other value")
    with locked(request), storage_errors(request.storage):
        storage = open_storage(request.storage)
        ledger = open_study(storage, request, space)
        if ended(ledger, request):
            console.note(f"study {request.study} has ended: this is its result")
            console.hint(
                "more --trials or --budget go on with it; another --study NAME starts anew"
            )
        else:
            with unhurried(storage):
                sit(request, space, ledger, runner, console)
        data = study_data(ledger)
    show(request, data, console)
    better = data.ending == "better"
    return 1 if request.question.require_better and not better else 0


def ended(ledger: Ledger, request: TuneRequest) -> bool:
    """Whether the study came to its end with at least the budget of this request."""
    outcome = ledger.outcome
    if outcome.ending in ("running", "interrupted"):
        return False
    asked = asked_budget(request)
    return all(outcome.budget.get(kind, 0.0) >= amount for kind, amount in asked.items())


def asked_budget(request: TuneRequest) -> dict[str, float]:
    """The budget in a form that can be compared with an earlier one."""
    asked: dict[str, float] = {}
    if request.trials is not None:
        asked["trials"] = request.trials
    if request.budget_s is not None:
        asked["budget_s"] = request.budget_s
    return asked or {"trials": planning.DEFAULT_TRIALS}


def sit(
    request: TuneRequest, space: Space, ledger: Ledger, runner: Runner, console: Console
) -> None:
    """One sitting: from the check run to the ending."""
    session = open_session(request, space, ledger, runner, console)
    with recorded_ending(session):
        outcome = conclude(session)
        outcome.warnings = study_doubts(session)
        outcome.budget = asked_budget(request)
        ledger.write("outcome", outcome)
        ledger.write("seconds", session.spent_s())
        publish(session, outcome)
        ledger.write("seconds", session.spent_s())


def conclude(session: Session) -> Outcome:
    """All phases, to the verdict."""
    check(session)
    plan = make_plan(session)
    search(session, plan)
    return finish(session, plan)


def open_session(
    request: TuneRequest, space: Space, ledger: Ledger, runner: Runner, console: Console
) -> Session:
    """The session of this sitting; time that earlier ones took counts."""
    earlier = ledger.seconds()
    now, end = runner.now(), None
    if request.budget_s is not None:
        kept = min(planning.REPORT_S, request.budget_s / 20)
        end = now + max(0.0, request.budget_s - kept - earlier)
    return Session(
        request=request,
        space=space,
        bench=Bench(runner, request.options),
        ledger=ledger,
        console=console,
        head=ledger.head,
        budget=Budget(now, end),
        earlier_s=earlier,
    )


@contextmanager
def recorded_ending(session: Session) -> Iterator[None]:
    """Leave the record whole and truthful, however the sitting ends."""
    session.ledger.write("outcome", Outcome())
    try:
        yield
    except BaseException:
        trials = max(0, len(told(session.ledger.trials())) - 1)
        session.ledger.write(
            "outcome",
            Outcome(
                ending="interrupted",
                sentence=f"Interrupted after {trials} trials: nothing is proven yet.",
            ),
        )
        session.ledger.write("seconds", session.spent_s())
        if session.ledger.begun():
            session.console.hint(
                f"the same command goes on with study {session.ledger.name} where it stopped"
            )
        raise


def check(session: Session) -> None:
    """One run of the baseline: stops at once if it fails, or if this is another machine."""
    bench, request = session.bench, session.request
    arm = Arm(BASE, request.command, request.fixed)
    with session.console.progress("check run", 1):
        (first,) = bench.block([arm], [0])
    metrics.check_baseline(first.reply, request.options.metrics)
    if bench.machine is None:
        return
    known = session.ledger.machine
    if known is not None and known.id != bench.machine.id:
        raise RequestError(
            f"study {request.study} was begun on another machine or kernel ({known.kernel}, "
            f"{known.cpu})",
            "choose another name: kilter tune --study NAME …",
        )
    session.ledger.write("machine", bench.machine)


def make_plan(session: Session) -> Plan:
    """Measure the noise of the baseline and decide what the budget allows; once a study."""
    plan = session.ledger.read("plan", Plan)
    if plan is None:
        bench, request = session.bench, session.request
        runs = planning.noise_runs(bench.seconds_a_run(), request.budget_s)
        with session.console.progress("noise of the baseline", 1):
            block = session.block("baseline", 0, {BASE: {}}, [0] * runs)
        values = [r.metrics[session.metric] for r in block.runs if session.metric in r.metrics]
        for value in values:
            stats.mean_log([value], session.metric)
        for metric in session.head.metrics[1 : session.head.question.objectives]:
            others = [r.metrics[metric.name] for r in block.runs if metric.name in r.metrics]
            stats.mean_log(others or [math.nan], metric.name)
        plan = planning.make(
            noise=stats.deviation([math.log(v) for v in values]),
            run_s=bench.seconds_a_run(),
            slowest_s=max(r.wall_s for r in block.runs),
            trials=request.trials,
            left_s=session.left_s(),
            timeout_s=request.options.timeout_s,
        )
        session.ledger.write("plan", plan)
    session.plan = plan
    session.bench.options = msgspec.structs.replace(session.bench.options, timeout_s=plan.timeout_s)
    for line in planning.told(
        plan,
        session.left_s(),
        len(session.space.axes),
        session.head.seed,
        noises(session, plan),
        session.head.question.alpha,
    ):
        session.console.note(line)
    return plan


def noises(session: Session, plan: Plan) -> dict[str, float]:
    """Standard deviation of one run by deciding metric, log units, for people."""
    first, *others = deciding(session)
    found = {metric_label(m): deviation(session, [m], [1.0]) for m in others}
    return {metric_label(first): plan.noise, **found}


def finish(session: Session, plan: Plan) -> Outcome:
    """Race, prune, confirm: everything after the search."""
    outcome, found = Outcome(), findings(session)
    trials = len(found.points)
    if not found.points or all(found.failed):
        nothing_found(outcome, f"the command failed in all {trials} trials")
        return outcome
    effects = model(session, plan, found)
    session.ledger.write("importance", importance(effects, found))
    if session.head.question.objectives > 1:
        return finish_several(session, plan, trials)
    size = planning.race_runs(session.runs_left("baseline", "search"))
    entered = candidates(session, effects, found)
    effects = effects.sparse()
    raced = race(session, effects, plan.noise, entered, size)
    if raced is None:
        nothing_found(outcome, "no candidate came through the race without failing")
        return outcome
    promised = promise(session, raced, 0.0, 0.0)
    if not raced.promising:
        outcome.promised = promised
        text = race_text(promised, session.head.metrics[0], plan, trials)
        nothing_found(outcome, text)
        return outcome
    needed = blocks_needed(-raced.cost.mean, raced.noise, session.head.question)
    pruning = prune(session, raced, effects, needed)
    outcome.pruning = pruning.decisions
    outcome.winner = pruning.settings
    outcome.promised = promise(session, raced, pruning.given, pruning.variance)
    runs = session.runs_left("baseline", "search", "race", "prune")
    judge(session, outcome, confirm(session, pruning.settings, needed, runs))
    return outcome


def prune(session: Session, raced: Raced, effects: Effects, needed: int) -> Pruning:
    """Drop the knobs that do not matter, with what the confirmation leaves."""
    region = stats.region_log(session.head.region_percent)
    pruning = Pruning(
        session,
        effects,
        raced.settings,
        raced.noise,
        allowance=max(region, LOSS_SHARE * -raced.cost.mean),
        runs=planning.prune_runs(session.runs_left("baseline", "search", "race"), needed),
    )
    pruning.run()
    return pruning
