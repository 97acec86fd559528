"""What reports say, and how they are written."""

from __future__ import annotations

import math
import re
import types

import msgspec
import pytest
from report_makers import WALL, Factory
from report_samples import (
    SAMPLES,
    all_failed,
    better,
    hostile,
    interrupted,
    large,
    nothing_helps,
    nothing_promised,
    one_run,
    traded,
    unconfirmed,
)
from report_words import markdown, words

from kilter_lab import (
    charts,
    report,
    report_numbers,
    report_tables,
    report_text,
    report_verdict,
    report_view,
)
from kilter_lab.messages import VerdictRecord
from kilter_lab.study import StudyData, Trial

# What is said


def test_a_gain_is_told_with_its_interval_medians_and_blocks() -> None:
    data = better()
    first = data.confirmed[0]
    row = report_verdict.metric_rows(data)[0]
    assert row.change == f"−{(1 - first.ratio) * 100:.1f}\u00a0%"
    assert row.interval == f"−{(1 - first.low) * 100:.1f} to −{(1 - first.high) * 100:.1f}\u00a0%"
    assert row.base == f"{first.base_median:.3f}\u00a0s"
    assert row.arm == f"{first.arm_median:.3f}\u00a0s"
    assert (row.blocks, row.word.text, row.word.mark) == ("14", "better", "✓")
    page = words(report.to_html(data))
    for part in (row.change, row.interval, row.base, row.arm, "✓ better", "14 fresh blocks"):
        assert part.replace("\u00a0", " ") in page


def test_a_metric_that_got_worse_is_told_beside_the_gain() -> None:
    for text in (words(report.to_html(better())), markdown(better())):
        assert "Look also at p99_us +4.4 % (+0.5 to +8.5 %, lower is better)." in text
    for text in (words(report.to_html(traded())), markdown(traded())):
        assert "Not everything is better. p99_us is worse" in text


@pytest.mark.parametrize(
    "make", [unconfirmed, interrupted, nothing_promised, nothing_helps, all_failed, one_run]
)
def test_no_gain_is_shown_unless_it_is_confirmed(make: types.FunctionType) -> None:
    data = make()
    page = report.to_html(data)
    assert 'class="word good"' not in page
    assert 'class="statement good"' not in page
    assert "✓" not in page
    assert "kilter apply" not in page
    assert "✓" not in report.to_markdown(data)


@pytest.mark.parametrize("ending", ["interrupted", "running", "unconfirmed", "nothing-helps"])
def test_a_good_interval_does_not_outvote_the_ending(ending: str) -> None:
    data = msgspec.structs.replace(better(), ending=ending, sentence="x")
    assert report_verdict.metric_rows(data)[0].word is report_verdict.NOT_CONFIRMED
    assert report_verdict.statement(data).text != "Better"
    assert "kilter apply" not in report.to_html(data)


def test_a_study_that_calls_itself_better_needs_a_verdict_that_says_so() -> None:
    data = msgspec.structs.replace(better(), confirmed=[])
    assert report_verdict.statement(data).text == "Unconfirmed"
    weak = msgspec.structs.replace(better().confirmed[0], verdict="inconclusive")
    data = msgspec.structs.replace(better(), confirmed=[weak])
    assert report_verdict.statement(data).text == "Unconfirmed"
    assert 'class="word good"' not in report.to_html(data)


def test_what_is_not_confirmed_is_a_candidate_and_no_winner() -> None:
    assert [row.arm for row in report_tables.arm_rows(unconfirmed())] == ["baseline", "candidate"]
    assert [row.arm for row in report_tables.arm_rows(better())[:2]] == ["baseline", "winner"]
    drawn = report.to_html(unconfirmed()).partition('id="arms"')[2]
    assert "candidate  ·  median" in drawn
    assert "winner  ·  median" not in drawn


def test_every_metric_has_a_row_though_nothing_was_confirmed() -> None:
    data = msgspec.structs.replace(better(), ending="interrupted", confirmed=[], shown=[])
    rows = report_verdict.metric_rows(data)
    assert [row.metric for row in rows] == ["wall", "messages_per_s", "p99_us"]
    assert {row.word.text for row in rows} == {"not measured"}


@pytest.mark.parametrize(
    ("promised", "confirmed", "direction", "said"),
    [
        (0.90, 0.95, "min", "49\u00a0% of the promise held"),
        (0.95, 0.94, "min", "all of it held"),
        (1.10, 1.05, "max", "51\u00a0% of the promise held"),
        (1.02, 0.95, "min", "fresh blocks measured −5.0\u00a0%."),
    ],
)
def test_the_promise_is_compared_with_what_was_measured(
    promised: float, confirmed: float, direction: str, said: str
) -> None:
    first = msgspec.structs.replace(better().confirmed[0], ratio=confirmed, direction=direction)
    data = msgspec.structs.replace(
        better(),
        promised=msgspec.structs.replace(first, ratio=promised),
        confirmed=[first],
        metrics=[msgspec.structs.replace(WALL, direction=direction)],
    )
    assert said in report_view.promise_sentence(data)


def test_nothing_helps_says_what_could_have_been_seen() -> None:
    data = nothing_helps()
    found = report_numbers.detectable(data)
    assert found is not None
    first = data.confirmed[0]
    half = (first.high / first.low) ** 0.5 - 1
    assert 100 * half < found.percent < 200 * half
    page = words(report.to_html(data))
    gain = report_text.magnitude((1 - first.low) * 100).replace("\u00a0", " ")
    assert f"rules out gains above {gain}" in page
    assert "in 9 of 10 cases" in page


def test_what_could_be_seen_is_projected_from_the_baseline_where_nothing_was_confirmed() -> None:
    data = nothing_promised()
    found = report_numbers.detectable(data)
    assert found is not None
    assert not found.measured
    # 4 % of noise over ten blocks: (2.26 + 1.38) * 0.04 / sqrt(10) = 4.6 %
    assert 3.0 < found.percent < 7.0


def test_an_interval_of_one_block_is_no_interval() -> None:
    assert report_text.interval(0.95, 0.95) == report_text.MISSING
    assert report_text.interval(0.95, 0.97) == "−5.0 to −3.0\u00a0%"


def test_trials_are_listed_best_first_with_what_they_changed() -> None:
    data = better()
    table = report_tables.trial_table(data, 1000)
    ratios = [trial.ratio for trial in report_tables.by_estimate(data) if trial.ratio]
    assert ratios == sorted(ratios)
    assert table.failed == 4
    assert [row.error != "" for row in table.rows] == [False] * 60 + [True] * 4
    by_number = {trial.number: trial for trial in data.trials}
    before = {knob.name: knob.before for knob in data.knobs}
    for row in table.rows:
        settings = by_number[row.number].settings
        shown = {knob: cell for knob, cell in zip(table.knobs, row.cells, strict=True) if cell}
        assert shown == {knob: v for knob, v in settings.items() if v != before[knob]}


def test_where_more_is_better_the_highest_trial_comes_first() -> None:
    data = msgspec.structs.replace(
        better(), metrics=[msgspec.structs.replace(WALL, direction="max")]
    )
    ratios = [trial.ratio for trial in report_tables.by_estimate(data) if trial.ratio]
    assert ratios == sorted(ratios, reverse=True)


def test_pruning_reasons_follow_the_interval() -> None:
    rows = report_view.prune_rows(better())
    assert [(row.decision, row.reason) for row in rows] == [
        ("dropped", "no loss without them in these blocks"),
        ("dropped", "no loss without them in these blocks"),
        ("kept", "worse without it"),
        ("kept", "a loss without it cannot be ruled out"),
    ]


def test_repeated_studies_raise_the_chance_of_a_wrong_verdict() -> None:
    assert "first study" in report_view.attempts(nothing_helps())
    assert "over 3 studies" in report_view.attempts(better())
    assert "14\u00a0%" in report_view.attempts(better())


def test_a_trial_of_no_block_is_the_baseline_and_makes_no_other_trial_longer() -> None:
    own = Trial(0, {}, 1.0, 1.0, 1.0, 0)
    others = [Trial(n, {"vm.swappiness": "1"}, 0.98, 0.9, 1.1, 1) for n in (1, 2)]
    data = msgspec.structs.replace(interrupted(), trials=[own, *others])
    drawn = charts.trials(data)
    assert drawn is not None
    assert "trial that was given more blocks" not in [key.label for key in drawn.keys]
    data.trials.append(Trial(3, {}, 0.98, 0.9, 1.1, 4))
    drawn = charts.trials(data)
    assert drawn is not None
    assert "trial that was given more blocks" in [key.label for key in drawn.keys]


def test_a_machine_that_is_not_known_yet_leaves_no_blanks() -> None:
    page = words(report.to_html(SAMPLES["empty"]()))
    assert "Machine –" in page
    assert "not known before the first run" in page


def test_the_method_takes_five_sentences() -> None:
    page = words(report.to_html(better()))
    text = page[page.index("The method") : page.index("Attempts")]
    assert len(re.findall(r"[a-z)]\.(?=\s)", text)) == 5


def test_drift_of_the_baseline_is_told() -> None:
    make = Factory(3, noise=0.0001)
    for number in range(30):
        make.run("baseline", number, "base", 1.0 + number / 100)
    data = msgspec.structs.replace(one_run(), runs=make.runs)
    found = report_numbers.trend(data)
    assert found is not None
    assert 1.12 < found < 1.28
    assert f"moved by {report_text.percent(found)}" in report.to_html(data)


def test_a_run_is_marked_for_steal_by_its_share_of_all_processors() -> None:
    run = one_run().runs[0]
    run.wall_s, run.steal_s = 10.0, 0.5
    assert report_numbers.steal_share(run, 2) == pytest.approx(0.025)
    assert report_numbers.steal_share(run, 0) == pytest.approx(0.05)


def test_thinning_keeps_the_extremes() -> None:
    points = [(float(x), math.sin(x)) for x in range(10_000)]
    points[4321] = (4321.0, 9.0)
    kept = report_numbers.thinned(points, 600)
    assert len(kept) <= 600
    assert (4321.0, 9.0) in kept
    assert kept == sorted(kept)


# Numbers and foreign text


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (0.958, "−4.2\u00a0%"),
        (1.0004, "+0.04\u00a0%"),
        (1.0, "0\u00a0%"),
        (2.5, "+150\u00a0%"),
        (12.3, "×\u00a012"),
        (math.nan, "–"),
        (0.0, "–"),
        (-1.0, "–"),
        (math.inf, "–"),
        (None, "–"),
    ],
)
def test_ratios_read_as_changes(ratio: float | None, shown: str) -> None:
    assert report_text.percent(ratio) == shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (2.41, "s", "2.410\u00a0s"),
        (45120.4, "µs", "45,120\u00a0µs"),
        (0.000123, "", "0.0001230"),
        (-3.5, "s", "−3.500\u00a0s"),
        (0.0, "s", "0\u00a0s"),
        (math.nan, "s", "–"),
        (1e300, "", "1.000e+300"),
    ],
)
def test_measured_values_have_four_digits(value: float, unit: str, shown: str) -> None:
    assert report_text.quantity(value, unit) == shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        ("21400000", "ns", "21.4\u00a0ms"),
        ("999", "ns", ""),
        ("65536", "KiB", "64\u00a0MiB"),
        ("-1", "ns", ""),
        ("always", "ns", ""),
        ("60", "", ""),
    ],
)
def test_settings_are_also_told_in_units_that_read_easily(
    value: str, unit: str, shown: str
) -> None:
    assert report_text.rescaled(value, unit) == shown


def test_unseen_characters_are_spelled_out() -> None:
    assert report_text.visible("a\x1b[1m\u202eb\ud800\x00é🐧\n") == (
        "a\\x1b[1m\\u202eb\\ud800\\x00é🐧\n"
    )
    assert report_text.visible("x" * 5000).endswith("… (1000 more characters)")


# The three forms


@pytest.mark.parametrize("name", SAMPLES)
def test_pages_are_self_contained_and_well_formed(name: str) -> None:
    page = report.to_html(SAMPLES[name]())
    assert not re.search(r'\b(?:src|href)="(?!#)', page)
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert "<script" not in page
    assert not re.search(r"\bnan\b|\binf\b", words(page), re.IGNORECASE)
    for table in re.findall(r"<table.*?</table>", page, re.DOTALL):
        assert "<caption>" in table
        assert len(re.findall(r"<th\b", table)) == len(re.findall(r"<th scope=", table))


def test_reports_are_reproducible() -> None:
    assert report.to_html(better()) == report.to_html(better())
    assert report.to_markdown(better()) == report.to_markdown(better())


def test_a_large_study_fits_and_a_huge_one_says_what_it_leaves_out() -> None:
    page = report.to_html(large())
    assert len(page.encode()) <= report.LARGEST_PAGE
    assert page.count('<tr><th scope="row">') > 900
    data = large(trials=10, knobs=10)
    crowd = [
        Trial(n, {k.name: "v" * 39 for k in data.knobs}, 0.9, 0.8, 1.0, 2) for n in range(9000)
    ]
    page = report.to_html(msgspec.structs.replace(data, trials=crowd))
    assert len(page.encode()) <= report.LARGEST_PAGE
    assert re.search(r"[78],\d00\u00a0trials are left out", page)


def test_markdown_tables_keep_their_shape() -> None:
    for name in SAMPLES:
        text = report.to_markdown(SAMPLES[name]())
        blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
        assert blocks
        for block in blocks:
            columns = [len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()]
            assert len(set(columns)) == 1, (name, block)


def test_markdown_shows_hostile_texts_as_text() -> None:
    text = report.to_markdown(hostile())
    outside = re.sub(r"(`+).*?\1", "", text, flags=re.DOTALL)
    assert "<script" not in outside
    assert "&lt;script&gt;" in outside
    assert "**heading**" not in outside
    assert "\n## no" not in re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "\u202e" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize("name", SAMPLES)
def test_json_is_the_study(name: str) -> None:
    data = SAMPLES[name]()
    assert msgspec.json.decode(report.to_json(data), type=StudyData) == data


def test_a_verdict_without_numbers_is_told_without_them() -> None:
    hollow = VerdictRecord(
        "inconclusive", "wall_s", "min", math.nan, math.nan, math.nan, 0.95, 1.0, 0, math.nan, 0.0
    )
    data = msgspec.structs.replace(unconfirmed(), confirmed=[hollow], promised=hollow)
    row = report_verdict.metric_rows(data)[0]
    assert (row.change, row.interval, row.base) == ("–", "–", "–")
    assert "nan" not in words(report.to_html(data)).lower()
