"""What a report says, as words and rows, whatever it is printed as.

The rule of this file: a gain is only what fresh blocks confirmed. Everything else is called an
estimate, and shown in neutral words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kilter_lab import stats
from kilter_lab.messages import Metric, VerdictRecord
from kilter_lab.report_numbers import claims, deciding, detectable
from kilter_lab.report_text import (
    MISSING,
    count,
    interval,
    listed,
    magnitude,
    percent,
    percent_of,
    quantity,
    rescaled,
    usable,
    wanted,
)
from kilter_lab.study import Dropped, StudyData, StudyKnob
from kilter_lab.wording import metric_label, unit

PRUNING_ROWS = 200


@dataclass(frozen=True)
class Word:
    """A verdict in a word, with a mark and a tone, so that it never rests on colour alone."""

    text: str
    mark: str
    tone: str


WORDS = {
    "better": Word("better", "✓", "good"),
    "worse": Word("worse", "✗", "bad"),
    "no-difference": Word("no difference", "=", "plain"),
    "inconclusive": Word("inconclusive", "?", "plain"),
}
NOT_CONFIRMED = Word("not confirmed", MISSING, "plain")
NOT_MEASURED = Word("not measured", MISSING, "plain")
STATEMENTS = {
    "better": Word("Better", "✓", "good"),
    "nothing-helps": Word("Nothing helps", "=", "plain"),
    "blind": Word("No answer", "?", "warn"),
    "unconfirmed": Word("Unconfirmed", "?", "warn"),
    "interrupted": Word("Interrupted", "■", "warn"),
    "running": Word("Still running", "…", "warn"),
}


@dataclass(frozen=True)
class MetricRow:
    """A metric in the verdict table."""

    metric: str
    wanted: str
    change: str
    interval: str
    base: str
    arm: str
    blocks: str
    word: Word


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
    change: str
    interval: str
    blocks: int
    reason: str


@dataclass(frozen=True)
class Estimate:
    """Promised or confirmed, in words."""

    label: str
    change: str
    interval: str
    blocks: int
    word: str


_UNFINISHED = {
    "interrupted": "The study stopped before it came to a verdict; started again under its name, "
    "it goes on from there.",
    "running": "The study has not come to a verdict yet.",
}


def statement(data: StudyData) -> Word:
    """The ending in a word; *better* only where fresh blocks say so."""
    if data.ending == "better" and not claims(data):
        return STATEMENTS["unconfirmed"]
    if data.ending == "nothing-helps" and blind(data):
        return STATEMENTS["blind"]
    return STATEMENTS[data.ending]


def blind(data: StudyData) -> bool:
    """Whether nothing that was tried gave a measurement, so that nothing is known of it."""
    return not data.confirmed and not any(usable(trial.ratio) for trial in data.trials)


def statement_note(data: StudyData) -> str:
    """What the word means, in one or two sentences."""
    if claims(data):
        first = data.confirmed[0]
        return (
            f"Measured on {count(first.blocks, 'fresh block')} that had no part in the search, "
            f"at {first.confidence * 100:.4g}\u00a0% confidence."
        )
    if data.ending == "nothing-helps" and blind(data):
        return (
            "No trial gave a measurement: this study cannot say whether any of its settings helps."
        )
    if data.ending == "nothing-helps":
        return (
            "Nothing that was tried proved better than the values that this machine has now. There "
            "is nothing to apply and nothing to undo."
        )
    if data.ending in ("interrupted", "running"):
        return f"{_UNFINISHED[data.ending]} What follows are estimates of the search, not gains."
    if data.confirmed:
        return (
            "A candidate looked good while searching; the fresh blocks do not settle that it is. "
            "Its effect is an estimate, not a gain."
        )
    return (
        "A candidate looked good while searching, but it was not measured again on fresh blocks. "
        "Its effect is an estimate, not a gain."
    )


def sentence(data: StudyData) -> str:
    """The verdict in one sentence."""
    return data.sentence.strip() or f"{statement(data).text}. {statement_note(data)}"


def metric_rows(data: StudyData) -> list[MetricRow]:
    """The verdict table: every metric, measured or not."""
    verdicts = {verdict.metric: verdict for verdict in reversed(data.confirmed)}
    metrics = list(data.metrics) or [deciding(data)]
    named = {metric.name for metric in metrics}
    rows = [_metric_row(data, metric, verdicts.get(metric.name)) for metric in metrics]
    for name, verdict in verdicts.items():
        if name not in named:
            metric = Metric(name, metrics[0].source, direction=verdict.direction)
            rows.append(_metric_row(data, metric, verdict))
    return rows


def _metric_row(data: StudyData, metric: Metric, verdict: VerdictRecord | None) -> MetricRow:
    way = wanted(metric.direction)
    if verdict is None:
        dash = MISSING
        return MetricRow(metric_label(metric), way, dash, dash, dash, dash, dash, NOT_MEASURED)
    return MetricRow(
        metric=metric_label(metric),
        wanted=way,
        change=percent(verdict.ratio),
        interval=interval(verdict.low, verdict.high),
        base=quantity(verdict.base_median, unit(metric)),
        arm=quantity(verdict.arm_median, unit(metric)),
        blocks=f"{verdict.blocks:,}",
        word=_word(data, verdict),
    )


def _word(data: StudyData, verdict: VerdictRecord) -> Word:
    if verdict.verdict != "better":
        return WORDS[verdict.verdict]
    decides = verdict is data.confirmed[0] or verdict.metric == deciding(data).name
    settled = claims(data) or (data.ending == "nothing-helps" and not decides)
    return WORDS["better"] if settled and usable(verdict.ratio) else NOT_CONFIRMED


def side_effects(data: StudyData) -> str:
    """The metrics that got worse, in a sentence, or nothing."""
    lines = [
        f"{row.metric} is worse: {row.change} ({row.interval})"
        for row in metric_rows(data)
        if row.word.tone == "bad"
    ]
    return f"{listed(lines)}." if lines else ""


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
    lower = deciding(data).direction == "min"
    return [_prune_row(step, lower_is_better=lower) for step in data.pruning[:PRUNING_ROWS]]


def _prune_row(step: Dropped, *, lower_is_better: bool) -> PruneRow:
    return PruneRow(
        knobs=step.knobs,
        decision="dropped" if step.dropped else "kept",
        change=percent(step.ratio),
        interval=interval(step.low, step.high),
        blocks=step.blocks,
        reason=_prune_reason(step, lower_is_better),
    )


def _prune_reason(step: Dropped, lower_is_better: bool) -> str:
    low, high = usable(step.low), usable(step.high)
    if low is None or high is None:
        return "no usable measurement"
    worse = low > 1.0 if lower_is_better else high < 1.0
    better = high < 1.0 if lower_is_better else low > 1.0
    them = "it" if len(step.knobs) == 1 else "them"
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
        found.append(_estimate("measured on fresh blocks", first, _word(data, first).text))
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
        word = _word(data, data.confirmed[0]).text
        return f"{measured}, which is {word}. The promise does not count."
    share = math.log(confirmed) / math.log(promised) if promised != 1.0 else 0.0
    if share <= 0.0:
        return f"{measured}."
    if share >= 1.0:
        return f"{measured}: all of it held."
    return f"{measured}: {share * 100:.0f}\u00a0% of the promise held, the rest was luck."


def attempts(data: StudyData) -> str:
    """How often this question was asked, and what that does to the error rate."""
    confidence = data.confirmed[0].confidence if data.confirmed else 0.95
    alpha = 1.0 - confidence if 0.5 <= confidence < 1.0 else 0.05
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
