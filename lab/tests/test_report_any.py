"""Any study that the model allows can be reported on."""

from __future__ import annotations

import re
import typing
from html.parser import HTMLParser

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kilter_lab import report, report_numbers
from kilter_lab.comparison import Look
from kilter_lab.messages import (
    Fingerprint,
    Guard,
    Metric,
    Question,
    Record,
    VerdictName,
    VerdictRecord,
)
from kilter_lab.outcome import GuardOutcome, GuardRecord, Shown
from kilter_lab.study import Dropped, Ending, Phase, Run, StudyData, StudyKnob, Trial

texts = st.text(max_size=12) | st.sampled_from(
    ["wall_s", "base", "winner", "trial 1", "<b>", "a|b", "$\\frac", "`", "\x00", "\u202e", "🐧"]
)
numbers = st.floats() | st.floats(0.5, 2.0)
ratios = st.floats(0.5, 2.0) | st.floats()
counts = st.integers(0, 2**32 - 1) | st.integers(0, 12)
points = st.dictionaries(texts, texts, max_size=4)
directions = st.sampled_from(["min", "max"])


def literal(kind: object) -> st.SearchStrategy[typing.Any]:
    return st.sampled_from(typing.get_args(kind))


metrics = st.builds(Metric, texts, st.builds(Record, texts), directions, texts)
verdicts = st.builds(
    VerdictRecord, literal(VerdictName), texts, directions, ratios, ratios, ratios,
    st.floats(0.0, 1.0), st.floats(0.0, 100.0), counts, numbers, numbers, st.integers(0, 3),
)  # fmt: skip
guards = st.builds(Guard, texts, st.sampled_from(["at-most", "at-least"]), st.floats(-99.0, 1e3))
runs = st.builds(
    Run, literal(Phase), counts, texts, numbers, numbers, numbers,
    st.dictionaries(texts, numbers, max_size=3), st.sampled_from(["ok", "exit 1"]),
)  # fmt: skip
studies = st.builds(
    StudyData,
    name=texts,
    command=st.lists(texts, max_size=3),
    metrics=st.lists(metrics, max_size=3),
    knobs=st.lists(st.builds(StudyKnob, *[texts] * 7), max_size=4),
    fixed=points,
    region_percent=st.floats(0.0, 100.0),
    seed=st.integers(0, 2**64 - 1),
    created=texts,
    machine=st.builds(
        Fingerprint, *[texts] * 5, counts, st.integers(0, 2**64 - 1), *[texts] * 5
    ),
    ending=literal(Ending),
    sentence=texts,
    attempts=counts,
    runs=st.lists(runs, max_size=12),
    trials=st.lists(
        st.builds(
            Trial, counts, points, st.none() | ratios, st.none() | ratios, st.none() | ratios,
            counts, texts,
        ),
        max_size=8,
    ),
    importance=st.dictionaries(texts, numbers, max_size=4),
    pruning=st.lists(
        st.builds(
            Dropped, st.lists(texts, max_size=3), st.booleans(), ratios, ratios, ratios, counts
        ),
        max_size=3,
    ),
    winner=points,
    promised=st.none() | verdicts,
    confirmed=st.lists(verdicts, max_size=3),
    profile=texts,
    seconds=numbers,
    warnings=st.lists(texts, max_size=3),
    question=st.builds(
        Question, st.floats(0.0, 0.5), objectives=st.integers(0, 4),
        guards=st.lists(guards, max_size=2),
    ),
    guards=st.lists(
        st.builds(GuardRecord, guards, literal(GuardOutcome), ratios, ratios, ratios), max_size=2
    ),
    shown=st.lists(
        st.builds(
            Shown, texts, directions, ratios, ratios, ratios, numbers, numbers, numbers
        ),
        max_size=2,
    ),
    planned_blocks=counts,
    sequence=st.dictionaries(
        texts, st.lists(st.builds(Look, counts, ratios, ratios, ratios), max_size=20), max_size=2
    ),
)  # fmt: skip
often = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


class Balance(HTMLParser):
    """Checks that every element that has to be closed is closed, in order."""

    # Elements without an end, and those whose end may be left out.
    LOOSE: typing.ClassVar = {"meta", "wbr", "use", "path", "rect", "br", "tr", "td", "th"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in self.LOOSE:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.LOOSE:
            assert self.open.pop() == tag


@often
@given(studies)
def test_any_study_becomes_a_page(data: StudyData) -> None:
    page = report.to_html(data)
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    assert len(page.encode()) <= report.LARGEST_PAGE
    assert "<b>" not in page
    if not report_numbers.claims(data):
        assert 'class="statement good"' not in page


@often
@given(studies)
def test_any_study_becomes_markdown_whose_tables_keep_their_shape(data: StudyData) -> None:
    text = report.to_markdown(data)
    assert text.startswith("# ")
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        if re.match(r"\|[^\n]*\n\| :?-", block):
            columns = [len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()]
            assert len(set(columns)) == 1, block


@often
@given(studies)
def test_any_study_becomes_json(data: StudyData) -> None:
    decoded = msgspec.json.decode(report.to_json(data))
    assert decoded["name"] == data.name
    assert len(decoded["runs"]) == len(data.runs)
