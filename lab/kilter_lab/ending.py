"""How a study ends, in one of three ways, and the sentence that says so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import PurePath

from kilter_lab import stats, wording
from kilter_lab.confirm import Confirmed
from kilter_lab.judging import Judged
from kilter_lab.ledger import Outcome, Plan
from kilter_lab.messages import Metric, VerdictRecord
from kilter_lab.race import NORMAL_95, Raced
from kilter_lab.session import Session, pair_values
from kilter_lab.study import BASE, Block
from kilter_lab.wording import count, percent

SHOWN = 3.24
"""Standard errors at which an effect is told from none 9 times in 10 (two-sided 5 %)."""


def visible_effect(plan: Plan, trials: int) -> float:
    """Effect of one knob, in percent, that so many trials most probably show.

    A knob has about three levels, so a level's effect has the error of a difference between two
    thirds of the trials.
    """
    if trials < 1:
        return math.inf
    error = plan.noise * math.sqrt(6 / (plan.repeats * trials))
    return math.expm1(SHOWN * error) * 100


def nothing_found(outcome: Outcome, why: str) -> None:
    """The end of a search without a candidate worth confirming."""
    outcome.ending = "nothing-helps"
    outcome.sentence = f"No setting helps: {why}."
    outcome.winner = {}


def race_text(v: VerdictRecord, metric: Metric, plan: Plan, trials: int) -> str:
    """Why the race's winner is not worth a confirmation."""
    gain = wording.change(v, True)[0] >= 0
    _, low, high = wording.change(v, gain)
    return (
        f"the best of {count(trials, 'trial')} came out "
        f"{wording.comparative(v, metric, gain)} in the race "
        f"{wording.proof(v, low, high)}; a knob's effect of "
        f"{percent(visible_effect(plan, trials))} % would most probably have shown"
    )


def judge(session: Session, outcome: Outcome, confirmed: Confirmed) -> None:
    """The ending from the confirmation's blocks, and from nothing else."""
    judged = confirmed.judged
    outcome.confirmed, outcome.guards = judged.verdicts, judged.guards
    outcome.shown = judged.shown
    if confirmed.failed or not judged.verdicts:
        runs = 2 * len(confirmed.blocks)
        nothing_found(
            outcome, f"the command failed in {confirmed.failed} of {runs} runs under the candidate"
        )
        return
    told = _told(session, judged)
    if judged.conclusion == "better":
        outcome.ending, outcome.sentence = "better", told
    elif judged.conclusion in ("worse", "no-difference"):
        nothing_found(outcome, told)
    else:
        outcome.ending = "unconfirmed"
        outcome.sentence = f"No setting is confirmed. {told[0].upper()}{told[1:]}."


def _told(session: Session, judged: Judged) -> str:
    """The conclusion in words; a whole sentence where it is *better*."""
    if len(judged.verdicts) > 1 or judged.guards:
        names = ("the best candidate", "the baseline")
        text = wording.conclusion_text(
            judged.conclusion, judged.verdicts, judged.guards, session.head.metrics, names
        )
        return f"T{text[1:]}" if judged.conclusion == "better" else text.rstrip(".")
    v, metric = judged.verdicts[0], session.head.metrics[0]
    gain = wording.change(v, True)[0] >= 0
    _, low, high = wording.change(v, gain)
    proof = wording.proof(v, low, high).replace(" blocks)", " fresh blocks)")
    told = wording.comparative(v, metric, gain)
    if v.verdict == "better":
        what = PurePath(session.head.command[0]).name
        return f"With these settings, {what} is {told} than without {proof}."
    if v.verdict == "inconclusive":
        more = wording.more_text(v)
        return f"the best candidate came out {told} than the baseline {proof}; {more}"
    if v.verdict == "worse":
        return f"the best candidate is {told} than the baseline {proof}"
    return (
        f"no difference within ± {v.region_percent:g} % between the best candidate and the "
        f"baseline {proof}"
    )


def promise(session: Session, raced: Raced, given: float, variance: float) -> VerdictRecord:
    """The winner's effect by the runs that searched and raced, less what pruning gave away."""
    cost = raced.cost.shifted(given, NORMAL_95 * math.sqrt(variance))
    return promised_record(session, session.head.metrics[0], cost, raced.blocks, raced.arm)


def promised_record(
    session: Session, metric: Metric, cost: stats.Interval, blocks: Sequence[Block], arm: str
) -> VerdictRecord:
    """A log cost as a record of its metric, with the medians of an arm's blocks."""
    if metric.direction == "max":
        cost = stats.Interval(-cost.mean, -cost.high, -cost.low, cost.n)
    values = [pair_values(b.runs, BASE, arm, metric.name) for b in blocks]
    good = [v for v in values if v is not None]
    return stats.record(
        metric.name,
        metric.direction,
        cost,
        session.head.region_percent,
        wording.median_of([x for base, _ in good for x in base]),
        wording.median_of([x for _, arm in good for x in arm]),
    )
