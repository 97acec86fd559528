"""What a report says beside its verdict, as words and rows, whatever it is printed as.

What no fresh block has confirmed is called an estimate, and shown in neutral words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kilter_lab import stats
from kilter_lab.comparison import Look
from kilter_lab.messages import Metric, VerdictRecord
from kilter_lab.report_numbers import (
    blind,
    claims,
    deciding_verdicts,
    detectable,
    objectives,
    usable_looks,
)
from kilter_lab.report_text import (
    MISSING,
    count,
    interval,
    magnitude,
    percent,
    percent_of,
    rescaled,
    usable,
)
from kilter_lab.report_verdict import WORDS, label_of, verdict_word
from kilter_lab.study import Dropped, Loss, StudyData, StudyKnob

PRUNING_ROWS = 200


@dataclass(frozen=True)
class ValueRow:
    """A value of the winner."""

    knob: str
    before: str
    after: str
    unit: str
    before_read: str
    """The same in a unit that reads easily, or empty."""
    after_read: str
    risk: str
    summary: str
    why: str


@dataclass(frozen=True)
class PruneRow:
    """A decision of the pruning."""

    knobs: list[str]
    decision: str
    changes: list[PruneChange]
    """One a deciding metric."""
    blocks: int
    reason: str


@dataclass(frozen=True)
class PruneChange:
    """What one metric did without the knobs."""

    change: str
    interval: str


@dataclass(frozen=True)
class Estimate:
    """Promised or confirmed, in words."""

    label: str
    change: str
    interval: str
    blocks: int
    word: str


def value_rows(data: StudyData) -> list[ValueRow]:
    """The winner's (or the candidate's) values, in the order of their names."""
    knobs = {knob.name: knob for knob in data.knobs}
    blank = StudyKnob("", MISSING, "", "", "", "", "")
    rows = []
    for name in sorted(data.winner):
        knob = knobs.get(name, blank)
        after = data.winner[name]
        rows.append(
            ValueRow(
                knob=name,
                before=knob.before,
                after=after,
                unit=knob.unit,
                before_read=rescaled(knob.before, knob.unit),
                after_read=rescaled(after, knob.unit),
                risk=knob.risk,
                summary=knob.summary,
                why=knob.why,
            )
        )
    return rows


def comfort(data: StudyData) -> list[str]:
    """What a study that found nothing is good for, in paragraphs."""
    if blind(data):
        return [
            "The trials below say how each of them failed; the knobs may still be worth a study."
        ]
    return [
        "That is a good answer to have, and a common one: you can leave this machine as it is, and "
        f"you know how closely it was looked at. {power(data)}".rstrip(),
        "To look for something smaller, give the study more time, let the command run longer, or "
        "quieten the machine: each of them narrows the intervals.",
    ]


def power(data: StudyData) -> str:
    """What effect could have been seen, in a sentence or two, or nothing."""
    found = detectable(data)
    if found is None:
        return ""
    effect = magnitude(found.percent)
    if not found.measured:
        return (
            f"At the noise of this baseline, {count(found.blocks, 'block')} find an effect of "
            f"{effect} {_often()}; smaller ones may pass unseen."
        )
    return (
        f"With {count(found.blocks, 'block')} at this noise, an effect of {effect} is found "
        f"{_often()}; smaller ones may pass unseen.{_ruled_out(data)}"
    )


def _often() -> str:
    return f"in {stats.POWER * 10:.0f} of 10 cases"


def _ruled_out(data: StudyData) -> str:
    if not data.confirmed or data.ending != "nothing-helps":
        return ""
    first = data.confirmed[0]
    end = usable(first.low if first.direction == "min" else first.high)
    if end is None or (end >= 1.0) == (first.direction == "min"):
        return " For the candidate that was tested, the interval leaves no room for any gain."
    gain = magnitude(percent_of(end))
    return f" For the candidate that was tested, the interval rules out gains above {gain}."


def prune_rows(data: StudyData) -> list[PruneRow]:
    """The pruning's decisions, in their order."""
    return [_prune_row(step, objectives(data)) for step in data.pruning[:PRUNING_ROWS]]


def _prune_row(step: Dropped, metrics: Sequence[Metric]) -> PruneRow:
    first, *others = metrics
    told = {loss.metric: loss for loss in step.others}
    losses = [Loss(first.name, step.ratio, step.low, step.high)]
    losses += [told.get(m.name, Loss(m.name, math.nan, math.nan, math.nan)) for m in others]
    return PruneRow(
        knobs=step.knobs,
        decision="dropped" if step.dropped else "kept",
        changes=[PruneChange(percent(x.ratio), interval(x.low, x.high)) for x in losses],
        blocks=step.blocks,
        reason=_prune_reason(step, list(zip(metrics, losses, strict=True))),
    )


def _prune_reason(step: Dropped, losses: Sequence[tuple[Metric, Loss]]) -> str:
    if any(usable(x.low) is None or usable(x.high) is None for _, x in losses):
        return "no usable measurement"
    them = "it" if len(step.knobs) == 1 else "them"
    if step.by_model:
        sure = "no gain" if step.dropped else "a gain"
        return f"by the search’s model, not measured: {sure} that it is sure of"
    costs = [(x.low, x.high) if m.direction == "min" else (-x.high, -x.low) for m, x in losses]
    zeros = [1.0 if m.direction == "min" else -1.0 for m, _ in losses]
    worse = any(low > zero for (low, _), zero in zip(costs, zeros, strict=True))
    better = all(high < zero for (_, high), zero in zip(costs, zeros, strict=True))
    if step.dropped:
        if worse:
            return f"a small loss without {them}, within what was allowed"
        return f"better without {them}" if better else f"no loss without {them} in these blocks"
    return f"worse without {them}" if worse else f"a loss without {them} cannot be ruled out"


def estimates(data: StudyData) -> list[Estimate]:
    """Promised and confirmed of the deciding metric, as far as there are any."""
    found = []
    if data.promised is not None:
        found.append(_estimate("promised by the search", data.promised, "estimate"))
    if data.confirmed:
        first = data.confirmed[0]
        found.append(_estimate("measured on fresh blocks", first, verdict_word(data, first).text))
    return found


def _estimate(label: str, verdict: VerdictRecord, word: str) -> Estimate:
    return Estimate(
        label, percent(verdict.ratio), interval(verdict.low, verdict.high), verdict.blocks, word
    )


CURSE = (
    "The search picks what looked best, so luck is picked along with merit, and the runs that "
    "chose a winner flatter it (the winner’s curse). Fresh blocks had no part in the choice."
)


def promise_sentence(data: StudyData) -> str:
    """How the promise held."""
    promised = usable(data.promised.ratio) if data.promised else None
    confirmed = usable(data.confirmed[0].ratio) if data.confirmed else None
    if promised is None and confirmed is None:
        if data.ending in ("interrupted", "running"):
            return "The search has promised nothing so far."
        return "The search found nothing that promised enough to be measured again."
    if confirmed is None:
        return f"The search promises {percent(promised)}. No fresh block has confirmed any of it."
    if promised is None:
        return f"The fresh blocks measured {percent(confirmed)}; the search’s estimate is missing."
    return f"The search promised {percent(promised)}; {_kept(data, promised, confirmed)}"


def _kept(data: StudyData, promised: float, confirmed: float) -> str:
    measured = f"fresh blocks measured {percent(confirmed)}"
    if not claims(data):
        word = verdict_word(data, data.confirmed[0]).text
        if word == WORDS["better"].text:
            return f"{measured}: better in this metric, at a price in another."
        return f"{measured}, which is {word}. The promise does not count."
    share = math.log(confirmed) / math.log(promised) if promised != 1.0 else 0.0
    if share <= 0.0:
        return f"{measured}."
    if share >= 1.0:
        return f"{measured}: all of it held."
    return f"{measured}: {share * 100:.0f}\u00a0% of the promise held, the rest was luck."


@dataclass(frozen=True)
class LookRow:
    """What a look at the fresh blocks saw."""

    metric: str
    blocks: int
    change: str
    interval: str


SEQUENCE_ROWS = 12
"""Looks of a metric that a table lists."""


def look_rows(data: StudyData) -> list[LookRow]:
    """The course of each deciding metric's interval, in at most so many steps each."""
    rows = []
    for verdict in deciding_verdicts(data):
        looks = usable_looks(data, verdict.metric)
        rows += [
            LookRow(
                label_of(data, verdict.metric),
                look.blocks,
                percent(look.ratio),
                interval(look.low, look.high),
            )
            for look in _steps(looks)
        ]
    return rows


def _steps(looks: list[Look]) -> list[Look]:
    last = len(looks) - 1
    if last < SEQUENCE_ROWS:
        return looks
    places = {round(i * last / (SEQUENCE_ROWS - 1)) for i in range(SEQUENCE_ROWS)}
    return [looks[place] for place in sorted(places)]


def sequence_note(data: StudyData) -> str:
    """Which of the intervals count, and why."""
    verdicts = deciding_verdicts(data)
    if not verdicts:
        return ""
    first = verdicts[0]
    if first.looks > 1:
        error = (1.0 - first.confidence) * 100.0
        return (
            "The blocks were looked at as they came, and each of these intervals counts: they are "
            f"widened so that all looks together miss the truth in at most {error:.3g}\u00a0% of "
            "studies. The estimate is corrected for having stopped where it did."
        )
    planned = data.planned_blocks or first.blocks
    text = (
        "Only the last interval counts. The number of blocks was fixed before the first of them "
        "ran, so that no lucky moment could end the confirmation; the intervals before it show how "
        "the estimate settled, and decided nothing."
    )
    if planned > first.blocks:
        text += (
            f" {count(first.blocks, 'block')} of the {planned:,} planned came through: time ran "
            "out, or runs failed."
        )
    return text


def attempts(data: StudyData) -> str:
    """How often this question was asked, and what that does to the error rate."""
    alpha = data.question.alpha if 0.0 < data.question.alpha < 0.5 else 0.05
    once = f"A verdict is wrong by luck in up to {alpha * 100:.2g}\u00a0% of studies"
    if data.attempts <= 1:
        return (
            f"This is the first study of this command on this machine. {once}; repeating a study "
            "until something wins adds that chance up."
        )
    tries = min(data.attempts, 10**6)
    at_least_one = (1.0 - (1.0 - alpha) ** tries) * 100.0
    return (
        f"This is study number {data.attempts:,} of this command on this machine. {once}; over "
        f"{data.attempts:,} studies at least one wrong verdict has a chance of up to "
        f"{at_least_one:.0f}\u00a0%. Trust what repeats, not the luckiest of several."
    )


def method(data: StudyData) -> list[str]:
    """How kilter measures, in five sentences."""
    region = f"±\u00a0{data.region_percent:g}\u00a0%"
    return [
        "Every point of the search runs side by side with the values that the machine has now, in "
        "small blocks whose order is random and then mirrored, so that drift falls on both alike.",
        "A point’s effect is the mean of its blocks’ log ratios, with a t interval over blocks.",
        "The most promising points get more blocks, and knobs that the winner does not need go "
        "back to their old values.",
        "What is left is measured again on fresh blocks, and only these make the verdict.",
        "Better means that the whole interval lies on the good side of no change and reaches out "
        f"of the region of equivalence ({region}); it holds for this command on this machine, and "
        "one boot is one sample of what changes from boot to boot.",
    ]
