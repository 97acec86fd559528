"""The Pareto set of a report: what each candidate of the confirmation came to."""

from __future__ import annotations

from dataclasses import dataclass

from kilter_lab.report_numbers import objectives
from kilter_lab.report_tables import arm_name
from kilter_lab.report_text import MISSING, interval, percent, wanted
from kilter_lab.report_verdict import NOT_CONFIRMED, STATEMENTS, WORDS, Word
from kilter_lab.study import FrontMember, StudyData
from kilter_lab.wording import metric_label


@dataclass(frozen=True)
class Change:
    """A candidate's change of one metric."""

    metric: str
    wanted: str
    change: str
    interval: str


@dataclass(frozen=True)
class MemberRow:
    """A candidate of the confirmation."""

    name: str
    word: Word
    changes: list[Change]
    """One a deciding metric."""
    settings: list[str]
    """``KNOB=VALUE``."""
    profile: str
    pruned: bool


def rows(data: StudyData) -> list[MemberRow]:
    """All candidates where there are several; the one that stands for the study first."""
    if len(data.front) < 2:
        return []
    return [
        MemberRow(
            arm_name(data, member.arm),
            member_word(member),
            _changes(data, member),
            [f"{knob}={value}" for knob, value in sorted(member.settings.items())],
            member.profile,
            member.pruned,
        )
        for member in data.front
    ]


def member_word(member: FrontMember) -> Word:
    """Its conclusion, as a word."""
    if member.failed:
        return Word("its runs failed", "✗", "bad")
    if member.conclusion == "trade-off":
        return STATEMENTS["trade-off"]
    return WORDS.get(member.conclusion, NOT_CONFIRMED)


def _changes(data: StudyData, member: FrontMember) -> list[Change]:
    found = {v.metric: v for v in member.verdicts}
    told = []
    for metric in objectives(data):
        label, way = metric_label(metric), wanted(metric.direction)
        v = found.get(metric.name)
        if v is None:
            told.append(Change(label, way, MISSING, MISSING))
        else:
            told.append(Change(label, way, percent(v.ratio), interval(v.low, v.high)))
    return told
