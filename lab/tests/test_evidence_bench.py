"""The bench of verdicts: that it runs what ``compare`` runs, and sees an engine that is broken."""

from __future__ import annotations

import math
import pickle

import pytest

import noise
import replay
import verdicts
from kilter_lab import sequential, stats
from kilter_lab.judging import Judge
from kilter_lab.sequential import Design
from tables import Effort, Row, Table, rendered

NORMAL = next(k for k in noise.kinds() if k.name == "normal, 5 %")
FEW = 300


def false_rate(judge: Judge) -> float:
    ends = [replay.replay(judge, NORMAL, 3, r, 0.0) for r in range(FEW)]
    return sum(e.verdict in ("better", "worse") for e in ends) / FEW


def test_base_against_base_is_seldom_told_apart() -> None:
    assert false_rate(replay.judge(24)) <= 0.08


def test_peeking_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    naive = {n: stats.t_quantile(0.975, n - 1) for n in range(2, 25)}
    monkeypatch.setattr(Design, "widths", naive)
    monkeypatch.setattr(replay, "CHECKED", FEW)
    assert false_rate(replay.judge(24)) > 0.12


def test_every_kind_is_a_stream_of_the_asked_length() -> None:
    for kind in (*noise.kinds(), *noise.at_five_percent()):
        stream = kind.stream(1, 2, 37)
        assert len(stream) == 37
        assert (stream == kind.stream(1, 2, 37)).all()
        assert (stream != kind.stream(1, 3, 37)).any()


def test_kinds_go_to_other_processes() -> None:
    for kind in (*noise.kinds(), *noise.at_five_percent()):
        sent = pickle.loads(pickle.dumps(kind))
        assert (sent.stream(1, 2, 37) == kind.stream(1, 2, 37)).all()


def test_recordings_are_scaled_for_power() -> None:
    for kind in noise.at_five_percent():
        if kind.recorded:
            whole = kind.stream(0, 0, len(noise.logs_of(kind.draw.path)))  # type: ignore[attr-defined]
            assert whole.std() == pytest.approx(noise.CV)


def test_an_effect_is_called_the_right_way() -> None:
    judge = replay.judge(24)
    for r in range(40):
        ended = replay.replay(judge, NORMAL, 3, r, math.log1p(0.2))
        assert ended.verdict == "worse"
        assert ended.blocks < 24


def test_the_judge_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replay.stats.judge", lambda *_: "better")
    real = stats.record
    monkeypatch.setattr(
        "kilter_lab.judging.stats.record",
        lambda *a, **k: replaced(real(*a, **k)),
    )
    with pytest.raises(replay.DifferError):
        replay.replay(replay.judge(8), NORMAL, 3, 0, 0.0)


def replaced(record: object) -> object:
    record.verdict = "inconclusive"  # type: ignore[attr-defined]
    return record


def test_a_single_look_needs_what_theory_says() -> None:
    blocks = verdicts.fixed_blocks(Effort(500, 5, 1), NORMAL, 0.9)
    theory = stats.blocks_to_detect(verdicts.EFFECT, noise.CV, 100)
    assert abs(blocks - theory) <= 1


def test_plans_are_those_of_compare() -> None:
    assert sequential.FEWEST < verdicts.SHORT < verdicts.DEFAULT <= 50 < verdicts.LONG


def test_tables_say_what_is_missed() -> None:
    table = Table("Title", "little", ["noise", "share"])
    table.rows += [Row(["a", "1 %"], True), Row(["b", "9 %"], False), Row(["c", "3 %"])]
    assert table.missed == 1
    lines = rendered(table).splitlines()
    assert lines[0] == "Title (target: little)"
    assert lines[3].endswith("met")
    assert lines[4].endswith("MISSED")
    assert lines[5].endswith("3 %")
