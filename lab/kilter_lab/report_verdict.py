"""The verdict of a report: its word, its sentence, and a row for every metric.

The rule of this file: a gain is only what fresh blocks confirmed, and only where every deciding
metric and every guard agrees. Metrics that were not asked about are shown without a verdict.
"""

from __future__ import annotations

from dataclasses import dataclass

from kilter_lab.messages import Metric, Record, VerdictRecord
from kilter_lab.narrowing import block_logs
from kilter_lab.outcome import GuardRecord, Shown
from kilter_lab.report_numbers import (
    blind,
    claims,
    conclusion,
    deciding_verdicts,
    objectives,
    shown_metrics,
    spread,
    told_arms,
)
from kilter_lab.report_text import (
    MISSING,
    count,
    interval,
    listed,
    percent,
    quantity,
    usable,
    wanted,
)
from kilter_lab.study import StudyData
from kilter_lab.wording import guard_text, metric_label, unit


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
GUARD_WORDS = {
    "held": Word("held", "✓", "plain"),
    "broken": Word("broken", "✗", "bad"),
    "open": Word("open", "?", "plain"),
}
NOT_CONFIRMED = Word("not confirmed", MISSING, "plain")
NOT_MEASURED = Word("not measured", MISSING, "plain")
NOT_JUDGED = Word("not judged", MISSING, "soft")
STATEMENTS = {
    "better": Word("Better", "✓", "good"),
    "trade-off": Word("A trade-off", "⇄", "warn"),
    "nothing-helps": Word("Nothing helps", "=", "plain"),
    "blind": Word("No answer", "?", "warn"),
    "unconfirmed": Word("Unconfirmed", "?", "warn"),
    "interrupted": Word("Interrupted", "■", "warn"),
    "running": Word("Still running", "…", "warn"),
}
_UNFINISHED = {
    "interrupted": "The study stopped before it came to a verdict; started again under its name, "
    "it goes on from there.",
    "running": "The study has not come to a verdict yet.",
}


@dataclass(frozen=True)
class MetricRow:
    """A metric in the verdict table."""

    metric: str
    wanted: str
    role: str
    """``decides``, ``guard: <= +5 %`` or ``shown``."""
    change: str
    interval: str
    base: str
    arm: str
    blocks: str
    word: Word


def statement(data: StudyData) -> Word:
    """The ending in a word; *better* only where fresh blocks say so."""
    if data.ending in ("interrupted", "running"):
        return STATEMENTS[data.ending]
    if conclusion(data) == "trade-off":
        return STATEMENTS["trade-off"]
    if data.ending == "better" and not claims(data):
        return STATEMENTS["unconfirmed"]
    if data.ending == "nothing-helps" and blind(data):
        return STATEMENTS["blind"]
    return STATEMENTS[data.ending]


def statement_note(data: StudyData) -> str:
    """What the word means, in one or two sentences."""
    if claims(data):
        first = data.confirmed[0]
        return (
            f"Measured on {count(first.blocks, 'fresh block')} that had no part in the search, "
            f"at {first.confidence * 100:.4g}\u00a0% confidence."
        )
    if data.ending in ("interrupted", "running"):
        return f"{_UNFINISHED[data.ending]} What follows are estimates of the search, not gains."
    if conclusion(data) == "trade-off":
        return (
            "On fresh blocks the candidate wins on one count and loses on another. Which of them "
            "is worth more is for you to say; kilter calls it no gain."
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
    return _unconfirmed(data)


def _unconfirmed(data: StudyData) -> str:
    if not data.confirmed:
        return (
            "A candidate looked good while searching, but it was not measured again on fresh "
            "blocks. Its effect is an estimate, not a gain."
        )
    verdicts = [verdict.verdict for verdict in deciding_verdicts(data)]
    unproven = [guard for guard in data.guards if guard.outcome == "open"]
    if unproven and "better" in verdicts and "inconclusive" not in verdicts:
        names = listed([f"{label_of(data, guard.guard.metric)}" for guard in unproven])
        return (
            f"The fresh blocks show a gain, but not that the guard on {names} is kept. A candidate "
            "that may break a guard is not called better."
        )
    return (
        "A candidate looked good while searching; the fresh blocks do not settle that it is. "
        "Its effect is an estimate, not a gain."
    )


def sentence(data: StudyData) -> str:
    """The verdict in one sentence."""
    return data.sentence.strip() or f"{statement(data).text}. {statement_note(data)}"


def headline(data: StudyData) -> VerdictRecord | None:
    """The verdict whose number stands beside *Better*."""
    if not claims(data):
        return None
    won = [verdict for verdict in deciding_verdicts(data) if verdict.verdict == "better"]
    return won[0] if won else data.confirmed[0]


def known_metric(data: StudyData, name: str) -> Metric:
    """The metric of this name, made up where the study does not list it."""
    for metric in data.metrics:
        if metric.name == name:
            return metric
    return Metric(name, Record(field=""))


def label_of(data: StudyData, name: str) -> str:
    """A metric's name for people."""
    return metric_label(known_metric(data, name))


def metric_rows(data: StudyData) -> list[MetricRow]:
    """Every metric, measured or not: those that decide, then guards, then all others."""
    verdicts = deciding_verdicts(data)
    rows = [_decided_row(data, verdict) for verdict in verdicts]
    named = {verdict.metric for verdict in verdicts}
    rows += [_absent(m, "decides", NOT_MEASURED) for m in objectives(data) if m.name not in named]
    rows += [_guard_row(data, guard) for guard in data.guards]
    shown = shown_metrics(data)
    rows += [_shown_row(data, metric) for metric in shown]
    named |= {metric.metric for metric in shown} | {g.guard.metric for g in data.guards}
    named |= {metric.name for metric in objectives(data)}
    rows += [_absent(m, "shown", NOT_MEASURED) for m in data.metrics if m.name not in named]
    return rows


def _absent(metric: Metric, role: str, word: Word) -> MetricRow:
    dash, way = MISSING, wanted(metric.direction)
    return MetricRow(metric_label(metric), way, role, dash, dash, dash, dash, dash, word)


def _measured_row(
    data: StudyData, told: VerdictRecord | Shown, role: str, blocks: str, word: Word
) -> MetricRow:
    metric = known_metric(data, told.metric)
    return MetricRow(
        metric=metric_label(metric),
        wanted=wanted(told.direction),
        role=role,
        change=percent(told.ratio),
        interval=interval(told.low, told.high),
        base=quantity(told.base_median, unit(metric)),
        arm=quantity(told.arm_median, unit(metric)),
        blocks=blocks,
        word=word,
    )


def _decided_row(data: StudyData, verdict: VerdictRecord) -> MetricRow:
    word = verdict_word(data, verdict)
    return _measured_row(data, verdict, "decides", f"{verdict.blocks:,}", word)


def _shown_row(data: StudyData, shown: Shown) -> MetricRow:
    return _measured_row(data, shown, "shown", _blocks(data, shown.metric), NOT_JUDGED)


def _guard_row(data: StudyData, guard: GuardRecord) -> MetricRow:
    metric = known_metric(data, guard.guard.metric)
    medians = {
        arm: quantity(found.median, unit(metric))
        for arm, runs in told_arms(data)
        if (found := spread(runs, metric.name)) is not None
    }
    return MetricRow(
        metric=metric_label(metric),
        wanted=wanted(metric.direction),
        role=f"guard: {guard_text(guard.guard)}",
        change=percent(guard.ratio),
        interval=interval(guard.low, guard.high),
        base=medians.get("base", MISSING),
        arm=next((text for arm, text in medians.items() if arm != "base"), MISSING),
        blocks=_blocks(data, metric.name),
        word=GUARD_WORDS[guard.outcome],
    )


def _blocks(data: StudyData, metric: str) -> str:
    runs = [run for _, arm in told_arms(data) for run in arm]
    return f"{len(block_logs(runs, metric)):,}"


def verdict_word(data: StudyData, verdict: VerdictRecord) -> Word:
    """The word for a verdict; a *better* that the study as a whole does not bear is none."""
    if verdict.verdict != "better":
        return WORDS[verdict.verdict]
    ended = data.ending in ("better", "unconfirmed", "nothing-helps")
    settled = claims(data) or (ended and conclusion(data) == "trade-off")
    return WORDS["better"] if settled and usable(verdict.ratio) else NOT_CONFIRMED


def side_effects(data: StudyData) -> str:
    """What a gain costs: deciding metrics that got worse and guards that broke, or nothing."""
    lines = [
        f"{row.metric} is {row.word.text}: {row.change} ({row.interval})"
        if row.role == "decides"
        else f"the guard on {row.metric} ({row.role.removeprefix('guard: ')}) is broken: "
        f"{row.change} ({row.interval})"
        for row in metric_rows(data)
        if row.word.tone == "bad"
    ]
    return f"{listed(lines)}." if lines else ""


def beside(data: StudyData) -> str:
    """Metrics without a verdict whose intervals lie wholly on the bad side, or nothing."""
    lines = [
        f"{label_of(data, shown.metric)} {percent(shown.ratio)} "
        f"({interval(shown.low, shown.high)}, {wanted(shown.direction)})"
        for shown in shown_metrics(data)
        if _is_bad(shown)
    ]
    if not lines:
        return ""
    return f"{listed(lines)}. A --guard makes such a metric count."


def _is_bad(shown: Shown) -> bool:
    low, high = usable(shown.low), usable(shown.high)
    if low is None or high is None or low == high:
        return False
    return low > 1.0 if shown.direction == "min" else high < 1.0


def multiplicity(data: StudyData) -> str:
    """How it was accounted for that several metrics were looked at, in one sentence."""
    deciding = max(1, data.question.objectives)
    error = f"{data.question.alpha * 100:.3g}\u00a0%"
    if deciding == 1:
        text = f"One metric decides, and its interval has all of the error of {error}"
    else:
        members = max(1, len(data.front))
        each = 100.0 - data.question.alpha * 100.0 / (deciding * members)
        among = f" of {members} candidates" if members > 1 else ""
        text = (
            f"{deciding} metrics{among} decide and share the error of {error} (Bonferroni), so "
            f"that each interval is one of {each:.4g}\u00a0% and all of them hold together"
        )
    if data.guards:
        text += "; guards need no share of it, as all of them have to hold at once"
    if shown_metrics(data):
        text += "; the other metrics are shown, each with an interval that stands for itself alone"
    return text + "."
