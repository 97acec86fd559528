"""What a report says of its evidence: every metric, guards, multiplicity, the interval's course."""

from __future__ import annotations

import math
import random
import re

import msgspec
import pytest
from report_makers import LATENCY, RATE, WALL, Factory
from report_samples import SAMPLES, better, guarded, nothing_helps, traded, unconfirmed
from report_words import markdown, plain, words

from kilter_lab import (
    charts_sequence,
    report,
    report_numbers,
    report_verdict,
    report_view,
    sequential,
    stats,
)
from kilter_lab.messages import Metric, Question, VerdictRecord
from kilter_lab.narrowing import block_logs, narrowing
from kilter_lab.study import Run, StudyData


def table(data: StudyData) -> list[tuple[str, str, str]]:
    """Metric, role and word of each row of the verdict table."""
    rows = report_verdict.metric_rows(data)
    return [(row.metric, row.role, row.word.text) for row in rows]


# Every metric


def test_only_deciding_metrics_have_a_verdict() -> None:
    assert table(better()) == [
        ("wall", "decides", "better"),
        ("messages_per_s", "shown", "not judged"),
        ("p99_us", "shown", "not judged"),
    ]
    assert table(guarded()) == [
        ("wall", "decides", "better"),
        ("messages_per_s", "decides", "better"),
        ("p99_us", "guard: <= +15 %", "held"),
        ("wall", "guard: <= +0 %", "held"),
    ]


def test_every_metric_has_its_numbers_on_every_form() -> None:
    for make in (better, guarded, traded):
        data = make()
        page = words(report.to_html(data))
        text = markdown(data)
        for row in report_verdict.metric_rows(data):
            for part in (row.metric, row.change, row.interval, row.base, row.arm):
                assert plain(part) in page
                assert plain(part) in text
        decoded = msgspec.json.decode(report.to_json(data))
        named = {v["metric"] for v in decoded["confirmed"] + decoded["shown"]}
        named |= {guard["guard"]["metric"] for guard in decoded["guards"]}
        assert named == {metric.name for metric in data.metrics}
        assert set(decoded["sequence"]) == {v.metric for v in data.confirmed}


def test_a_guards_row_has_the_medians_of_its_runs() -> None:
    make = Factory(30, noise=0.0)
    for block in range(4):
        make.block("confirm", block, "winner", 0.5)
    runs = [run for run in make.runs if run.phase == "confirm"]
    data = msgspec.structs.replace(guarded(), runs=runs)
    row = report_verdict.metric_rows(data)[3]
    values = {
        arm: [r.metrics["wall_s"] for r in runs if r.arm == arm] for arm in ("base", "winner")
    }
    assert row.role.startswith("guard")
    assert min(values["base"]) <= float(row.base.split()[0]) <= max(values["base"])
    assert min(values["winner"]) <= float(row.arm.split()[0]) <= max(values["winner"])
    assert row.blocks == "4"


def test_a_verdict_on_a_metric_that_does_not_decide_is_shown_without_its_word() -> None:
    data = better()
    shown = data.shown.pop(0)
    data.confirmed.append(
        VerdictRecord(
            "better", shown.metric, shown.direction, shown.ratio, shown.low, shown.high,
            shown.confidence, 1.0, 14, shown.base_median, shown.arm_median,
        )
    )  # fmt: skip
    assert ("messages_per_s", "shown", "not judged") in table(data)


# What it all comes to


def test_a_win_beside_a_loss_is_a_trade_off_and_no_gain() -> None:
    data = traded()
    for ending in ("better", "unconfirmed", "nothing-helps"):
        data.ending = ending
        assert report_verdict.statement(data).text == "A trade-off"
        assert not report_numbers.claims(data)
        assert "kilter apply" not in report.to_html(data)
    data.ending = "unconfirmed"
    page = words(report.to_html(data))
    assert "The candidate’s values, a trade-off" in page
    assert "better in this metric, at a price in another" in page
    assert table(data) == [
        ("wall", "decides", "better"),
        ("p99_us", "decides", "worse"),
        ("p99_us", "guard: <= +2 %", "broken"),
        ("messages_per_s", "shown", "not judged"),
    ]


@pytest.mark.parametrize(("outcome", "said"), [("open", "Unconfirmed"), ("broken", "A trade-off")])
def test_a_gain_that_a_guard_does_not_bear_is_not_called_better(outcome: str, said: str) -> None:
    data = guarded()
    assert report_verdict.statement(data).text == "Better"
    data.guards[0].outcome = outcome  # type: ignore[assignment]
    assert report_verdict.statement(data).text == said
    assert not report_numbers.claims(data)
    assert 'class="statement good"' not in report.to_html(data)


def test_an_open_guard_is_named_as_the_reason() -> None:
    data = msgspec.structs.replace(guarded(), ending="unconfirmed")
    data.guards[0].outcome = "open"
    assert "not that the guard on p99_us is kept" in report_verdict.statement_note(data)


def test_the_headline_is_a_metric_that_won() -> None:
    data = guarded()
    data.confirmed[0] = msgspec.structs.replace(data.confirmed[0], verdict="no-difference")
    assert report_verdict.headline(data) is data.confirmed[1]
    assert report_verdict.headline(unconfirmed()) is None


def test_multiplicity_is_accounted_for_in_one_sentence() -> None:
    one = report_verdict.multiplicity(nothing_helps())
    assert one == "One metric decides, and its interval has all of the error of 5\u00a0%."
    two = report_verdict.multiplicity(guarded())
    assert "2 metrics decide and share the error of 5\u00a0% (Bonferroni)" in two
    assert "each interval is one of 97.5\u00a0%" in two
    assert "guards need no share" in two
    assert {verdict.confidence for verdict in guarded().confirmed} == {0.975}
    assert "stands for itself alone" in report_verdict.multiplicity(better())
    for make in SAMPLES.values():
        text = report_verdict.multiplicity(make())
        assert text.count(". ") == 0
        assert plain(text) in words(report.to_html(make()))


def test_repeated_attempts_stand_beside_the_gain() -> None:
    data = better()
    assert "Attempt 3 at this question. This is study number 3" in words(report.to_html(data))
    assert "**Attempt 3 at this question.**" in report.to_markdown(data)
    data.attempts = 1
    assert "Attempt 1" not in report.to_html(data)
    assert "Attempt 1" not in report.to_markdown(data)


def test_the_error_of_repeated_attempts_is_that_of_the_question() -> None:
    data = msgspec.structs.replace(better(), question=Question(alpha=0.01))
    assert "up to 1\u00a0% of studies" in report_view.attempts(data)
    assert "up to 3\u00a0%." in report_view.attempts(data)


# The interval closing in


def test_intervals_of_a_fixed_number_of_blocks_are_t_intervals_of_their_blocks() -> None:
    data = better()
    (verdict,) = data.confirmed
    looks = data.sequence["wall_s"]
    assert [look.blocks for look in looks] == list(range(2, 15))
    runs = [run for run in data.runs if run.phase == "confirm"]
    logs = block_logs(runs, "wall_s")
    for look in looks:
        wanted = stats.t_interval(logs[: look.blocks])
        assert look.low == pytest.approx(math.exp(wanted.low))
        assert look.high == pytest.approx(math.exp(wanted.high))
    assert (looks[-1].ratio, looks[-1].low, looks[-1].high) == pytest.approx(
        (verdict.ratio, verdict.low, verdict.high)
    )


def test_intervals_of_blocks_that_were_looked_at_are_repeated_ones() -> None:
    data = guarded()
    looks = data.sequence["messages_per_s"]
    design = sequential.design(0.025, 40)
    assert [look.blocks for look in looks] == [n for n in design.looks if n <= 16]
    logs = block_logs([run for run in data.runs if run.phase == "confirm"], "messages_per_s")
    alone = stats.t_interval(logs, 0.975)
    assert math.log(looks[-1].high) == pytest.approx(design.interval(logs).high)
    assert math.log(looks[-1].high) > alone.high
    verdict = data.confirmed[1]
    assert (looks[-1].low, looks[-1].high) == pytest.approx((verdict.low, verdict.high))


def test_a_block_with_a_failed_run_gives_no_number() -> None:
    def run(block: int, arm: str, value: float | None) -> Run:
        metrics = {} if value is None else {"wall_s": value}
        return Run("confirm", block, arm, 0.0, 1.0, 0.0, metrics, "ok")

    whole = [run(0, arm, 1.0 if arm == "winner" else 2.0) for arm in ("base", "winner", "winner")]
    failed = [run(1, "base", 2.0), run(1, "winner", None), run(1, "winner", 1.0)]
    absurd = [run(2, "base", 0.0), run(2, "winner", 1.0)]
    half = [run(3, "base", 1.0)]
    found = block_logs([*half, *absurd, *failed, *whole], "wall_s")
    assert found == pytest.approx([math.log(0.5)])


def test_the_last_interval_covers_as_often_as_it_says_and_all_of_them_do_not() -> None:
    """Why a report marks all but the last interval of a fixed number of blocks."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    once = VerdictRecord("inconclusive", "x", "min", 1, 1, 1, 0.95, 1.0, 20, 1, 1, looks=1)
    often = msgspec.structs.replace(once, looks=17)
    last = peeked = repeated = 0
    for _ in range(600):
        logs = [chance.gauss(0.0, 0.05) for _ in range(20)]
        missed = [not look.low <= 1.0 <= look.high for look in narrowing(logs, once, 20)]
        last += missed[-1]
        peeked += any(missed)
        repeated += any(not look.low <= 1.0 <= look.high for look in narrowing(logs, often, 20))
    # Four standard errors of 600 draws at 5 % are 3.6 points; peeking misses a quarter.
    assert last <= 0.086 * 600
    assert repeated <= 0.086 * 600
    assert peeked >= 0.15 * 600


def test_which_intervals_count_is_told() -> None:
    fixed = report_view.sequence_note(better())
    assert fixed.startswith("Only the last interval counts.")
    assert "planned came through" not in fixed
    assert "12\u00a0blocks of the 14 planned came through" in report_view.sequence_note(traded())
    assert "each of these intervals counts" in report_view.sequence_note(guarded())
    for make in (better, guarded, traded):
        said = plain(report_view.sequence_note(make()))
        assert said in words(report.to_html(make()))
        assert said in plain(report.to_markdown(make()))


def test_the_course_is_drawn_for_each_deciding_metric() -> None:
    drawn = charts_sequence.sequences(guarded())
    assert [chart.name for chart in drawn] == ["sequence-0", "sequence-1"]
    assert "Change of wall after each fresh block" in drawn[0].title
    assert "after 16\u00a0blocks" in drawn[0].text
    assert any("holds for all looks" in key.label for key in drawn[0].keys)
    (fixed,) = charts_sequence.sequences(better())
    assert any("decides nothing" in key.label for key in fixed.keys)
    assert charts_sequence.sequences(SAMPLES["nothing-promised"]()) == []


def test_a_long_course_is_listed_in_a_few_steps() -> None:
    make = Factory(21)
    for block in range(60):
        make.block("confirm", block, "winner", 0.97)
    data = msgspec.structs.replace(better(), runs=make.runs)
    data.confirmed = [make.verdict("confirm", "winner", WALL)]
    data.sequence = {"wall_s": narrowing(block_logs(make.runs, "wall_s"), data.confirmed[0], 60)}
    rows = report_view.look_rows(data)
    assert len(rows) == report_view.SEQUENCE_ROWS
    assert (rows[0].blocks, rows[-1].blocks) == (2, 60)
    assert [row.blocks for row in rows] == sorted({row.blocks for row in rows})


def test_a_look_without_numbers_is_not_told() -> None:
    data = better()
    data.sequence["wall_s"][3].low = math.nan
    data.sequence["wall_s"][4].high = math.inf
    assert len(report_numbers.usable_looks(data, "wall_s")) == 11
    assert not re.search(r"\bnan\b|\binf\b", words(report.to_html(data)))


@pytest.mark.parametrize("metric", [WALL, RATE, LATENCY], ids=lambda metric: metric.name)
def test_block_numbers_are_those_of_the_verdict(metric: Metric) -> None:
    data = better()
    logs = block_logs([run for run in data.runs if run.phase == "confirm"], metric.name)
    known = {v.metric: v.ratio for v in data.confirmed} | {s.metric: s.ratio for s in data.shown}
    assert math.exp(sum(logs) / len(logs)) == pytest.approx(known[metric.name])
