"""The end of a study in which several metrics decide: a front is raced, pruned and confirmed.

All members of the front are measured side by side in the same fresh blocks, whose number is fixed
before, and the error is shared over all members and objectives. What is *better* is listed before
what is a *trade-off*, and the first of them stands for the study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from kilter_lab import planning, stats
from kilter_lab.confirm import Confirmed, arm_name, blocks_needed, confirm_all
from kilter_lab.ending import judge, nothing_found, promised_record, visible_effect
from kilter_lab.front import Member, SharedPruning, Side, front, race_front, sides_of
from kilter_lab.ledger import Outcome, Plan
from kilter_lab.messages import Metric, Settings, VerdictRecord
from kilter_lab.objectives import (
    Objective,
    all_findings,
    candidates,
    deciding,
    objectives,
    weights_of,
)
from kilter_lab.outcome import Conclusion, shared_alpha
from kilter_lab.prune import FEWEST
from kilter_lab.race import NORMAL_95
from kilter_lab.search import importance
from kilter_lab.session import Session
from kilter_lab.study import Dropped, FrontMember
from kilter_lab.wording import count, metric_label, percent

ORDER: tuple[Conclusion, ...] = ("better", "trade-off", "inconclusive", "no-difference", "worse")
"""Which member stands for the study, if there are several."""

LEAST_PRUNING = 4 * FEWEST
"""Runs below which nothing can be pruned."""


@dataclass
class Pruned:
    """A member that is about to be confirmed."""

    member: Member
    settings: Settings
    sides: list[Side]
    decisions: list[Dropped] = field(default_factory=list)
    tried: bool = True
    """Whether there were runs to prune it with."""


def finish_several(session: Session, plan: Plan, trials: int) -> Outcome:
    """Race, prune, confirm, with all objectives."""
    outcome, parts = Outcome(), all_findings(session)
    if any(all(found.failed) for found in parts):
        nothing_found(outcome, "no trial gave a usable value of every deciding metric")
        return outcome
    entered = candidates(session, plan, parts)
    found = objectives(session, plan, parts)
    shares = {o.metric.name: importance(o.effects, p) for o, p in zip(found, parts, strict=True)}
    shares.pop(session.metric)
    session.ledger.write("importances", shares)
    known = [replace(o, effects=o.effects.sparse()) for o in found]
    size = planning.race_runs(session.runs_left("baseline", "search"))
    raced = race_front(session, known, entered, size) if entered else []
    if not raced:
        nothing_found(outcome, "no candidate came through the race without failing")
        return outcome
    region = stats.region_log(session.head.region_percent)
    members = front(raced, weights_of(parts, [1.0] * len(parts)), region)
    if not members:
        outcome.promised = _promises(session, min(raced, key=lambda m: m.costs[0].mean))[0]
        nothing_found(outcome, _unpromising(session, plan, len(raced), trials))
        return outcome
    needed = _needed(session, members)
    chosen = prune_all(session, known, members, needed)
    runs = session.runs_left("baseline", "search", "race", "prune")
    confirmed = confirm_all(session, [p.settings for p in chosen], needed, runs)
    judge_all(session, outcome, chosen, confirmed)
    return outcome


def _unpromising(session: Session, plan: Plan, raced: int, trials: int) -> str:
    names = " or ".join(metric_label(m) for m in deciding(session))
    return (
        f"none of {count(raced, 'candidate')} from {count(trials, 'trial')} probably gains in "
        f"{names}; a knob's effect of {percent(visible_effect(plan, trials))} % in "
        f"{metric_label(session.head.metrics[0])} would most probably have shown"
    )


def _needed(session: Session, members: Sequence[Member]) -> int:
    """Blocks that show half of each member's promised gains and losses."""
    question = session.head.question
    alpha = shared_alpha(question.alpha, question.objectives, len(members))
    sharing = msgspec.structs.replace(question, alpha=alpha)
    return max(
        blocks_needed(abs(cost.mean), noise, sharing)
        for member in members
        for cost, noise in zip(member.costs, member.noises, strict=True)
    )


def prune_all(
    session: Session, known: Sequence[Objective], members: Sequence[Member], needed: int
) -> list[Pruned]:
    """Drop the knobs that no objective needs; of the first member only where runs are few.

    Members that come out alike are one.
    """
    left = session.runs_left("baseline", "search", "race")
    runs = planning.prune_runs(left, needed, 1 + len(members))
    each = runs // len(members)
    shares = [each] * len(members)
    if each < LEAST_PRUNING:
        shares = [runs, *[0] * (len(members) - 1)]
        session.console.note("runs suffice to prune the first candidate only")
    pruned: list[Pruned] = []
    made = 0
    for number, (member, share) in enumerate(zip(members, shares, strict=True)):
        found = _prune(session, known, member, arm_name(number), share, made)
        made += len(found.blocks)
        if all(p.settings != found.settings for p in pruned):
            tried = share >= LEAST_PRUNING or len(member.settings) < 2
            pruned.append(Pruned(member, found.settings, found.sides, found.decisions, tried))
    return pruned


def _prune(
    session: Session, known: Sequence[Objective], member: Member, arm: str, runs: int, first: int
) -> SharedPruning:
    pruning = SharedPruning(
        session,
        known[0].effects,
        member.settings,
        member.noises[0],
        allowance=0.0,  # Each side has its own.
        runs=runs,
        arm=arm,
        first=first,
        sides=sides_of(session, member, known),
    )
    pruning.run()
    return pruning


def judge_all(
    session: Session, outcome: Outcome, chosen: Sequence[Pruned], found: Sequence[Confirmed]
) -> None:
    """The members' conclusions and the study's ending, from the confirmation's blocks alone."""
    told = [
        (_told(session, pruned, confirmed, arm_name(number)), confirmed)
        for number, (pruned, confirmed) in enumerate(zip(chosen, found, strict=True))
    ]
    told.sort(key=lambda pair: ORDER.index(pair[0].conclusion))
    outcome.front = [member for member, _ in told]
    first, confirmed = told[0]
    outcome.winner = first.settings
    outcome.pruning = first.pruning
    outcome.promised = first.promised[0]
    judge(session, outcome, confirmed)
    outcome.sentence += front_text(outcome.front)


def _told(session: Session, pruned: Pruned, confirmed: Confirmed, arm: str) -> FrontMember:
    judged = confirmed.judged
    return FrontMember(
        arm=arm,
        settings=pruned.settings,
        conclusion=_conclusion(confirmed),
        promised=_promises(session, pruned.member, pruned.sides),
        verdicts=judged.verdicts,
        guards=judged.guards,
        shown=judged.shown,
        pruning=pruned.decisions,
        pruned=pruned.tried,
        failed=confirmed.failed,
    )


def _conclusion(confirmed: Confirmed) -> Conclusion:
    if confirmed.failed:
        return "worse"
    return confirmed.judged.conclusion if confirmed.judged.verdicts else "inconclusive"


def _promises(
    session: Session, member: Member, sides: Sequence[Side] | None = None
) -> list[VerdictRecord]:
    """What search and race say of a member, less what its pruning gave away."""
    metrics: list[Metric] = deciding(session)
    costs = list(member.costs)
    if sides is not None:
        costs = [
            cost.shifted(side.given, NORMAL_95 * side.variance**0.5)
            for cost, side in zip(costs, sides, strict=True)
        ]
    return [
        promised_record(session, metric, cost, member.blocks, member.arm)
        for metric, cost in zip(metrics, costs, strict=True)
    ]


def front_text(members: Sequence[FrontMember]) -> str:
    """What there is besides the first member, as a further sentence; empty where there is one."""
    if len(members) < 2:
        return ""
    kinds = [(word, sum(m.conclusion == word for m in members)) for word in ORDER]
    words = {"trade-off": "a trade-off", "no-difference": "without a difference"}
    told = ", ".join(f"{n} {words.get(word, word)}" for word, n in kinds if n)
    return f" Of {len(members)} candidates that were confirmed side by side: {told}."
