"""Studies in which several metrics decide: the front, its members' verdicts, and resumption."""

from __future__ import annotations

import io
import math
import random
from pathlib import Path

import pytest
from simulation import request
from synthetic import WALL, Machine, Noise, options

from kilter_lab import binary, report
from kilter_lab import messages as m
from kilter_lab.confirm import Design
from kilter_lab.console import Console
from kilter_lab.front import Member, front
from kilter_lab.ledger import find, open_storage
from kilter_lab.stats import Interval
from kilter_lab.studies import load_study
from kilter_lab.study import StudyData
from kilter_lab.tune import tune

SPEEDS = "kernel.sched_autogroup_enabled"
"""At 0: the wall time less, the latency more."""
BOTH = "sched.features.NEXT_BUDDY"
"""At 1: both less."""
CALMS = "sched.features.WAKEUP_PREEMPTION"
"""At 0: the latency less."""
LATENCY = m.Metric("latency", m.Regex("x"), "min", "ms")


def wall(settings: m.Settings) -> float:
    cost = math.log(0.8) if settings.get(SPEEDS) == "0" else 0.0
    return cost + (math.log(0.92) if settings.get(BOTH) == "1" else 0.0)


def latency(settings: m.Settings) -> float:
    cost = math.log(1.6) if settings.get(SPEEDS) == "0" else 0.0
    cost += math.log(0.92) if settings.get(BOTH) == "1" else 0.0
    return cost + (math.log(0.85) if settings.get(CALMS) == "0" else 0.0)


def machine(seed: int, **changes: object) -> Machine:
    rng = random.Random(f"latency {seed}")

    def extra(settings: m.Settings, _: float) -> dict[str, float]:
        return {"latency": 5 * math.exp(latency(settings) + rng.gauss(0, 0.02))}

    return Machine(wall, seed, Noise(0.02), extra=extra, **changes)  # type: ignore[arg-type]


@pytest.fixture
def asked(tmp_path: Path) -> m.TuneRequest:
    return several_asked(tmp_path)


def several_asked(folder: Path) -> m.TuneRequest:
    return request(
        1,
        48,
        storage=f"sqlite:///{folder}/s.db",
        state_dir=str(folder),
        options=options(metrics=[WALL, LATENCY]),
        question=m.Question(objectives=2),
    )


def go(asked: m.TuneRequest, on: Machine) -> tuple[str, StudyData]:
    out = io.StringIO()
    tune(asked, on, Console(out, io.StringIO()))
    return out.getvalue(), load_study(asked.storage, asked.study)


def test_the_front_has_what_is_better_and_what_is_a_trade_off(asked: m.TuneRequest) -> None:
    text, data = go(asked, machine(1))
    assert data.ending == "better"
    better = [x for x in data.front if x.conclusion == "better"]
    traded = [x for x in data.front if x.conclusion == "trade-off"]
    assert better
    assert traded
    first = data.front[0]
    assert first.conclusion == "better"
    assert data.winner == first.settings
    assert data.confirmed == first.verdicts
    assert {k: first.settings.get(k) for k in (SPEEDS, BOTH, CALMS)} == {
        SPEEDS: None,
        BOTH: "1",
        CALMS: "0",
    }
    assert all(x.settings.get(SPEEDS) == "0" for x in traded)
    assert [v.verdict for v in traded[0].verdicts] == ["better", "worse"]
    assert "Pareto set" in text
    assert "trade off" in text
    alpha = 0.05 / (2 * len(data.front))
    assert all(v.confidence == pytest.approx(1 - alpha) for x in data.front for v in x.verdicts)
    confirm = [r for r in data.runs if r.phase == "confirm"]
    assert {r.arm for r in confirm} == {"base", *(x.arm for x in data.front)}
    assert len(data.sequence["latency"]) == data.confirmed[1].blocks - 1


def test_profiles_and_evidence_are_of_every_member(
    asked: m.TuneRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[m.Profile] = []
    kept: list[m.Evidence] = []
    monkeypatch.setattr(binary, "save_profile", lambda _, profile: saved.append(profile))
    monkeypatch.setattr(binary, "record_evidence", lambda _, found: kept.extend(found))
    _, data = go(asked, machine(1))
    told = [x for x in data.front if x.belongs]
    assert [p.name for p in saved] == ["s", *(f"s-{i}" for i in range(2, len(told) + 1))]
    assert [x.profile for x in told] == [p.name for p in saved]
    assert data.profile == "s"
    for profile, found in zip(saved, told, strict=True):
        assert {k: v.value for k, v in profile.set.items()} == found.settings
        assert profile.evidence is not None
        assert profile.evidence.verdict.verdict == "better"
        traded = found.conclusion == "trade-off"
        assert profile.summary.startswith("a trade-off" if traded else "found by kilter tune")
    assert any("higher in latency" in p.summary for p in saved)
    assert len(kept) == 2 * len(data.front)
    assert [e.arm for e in kept[::2]] == [x.settings for x in data.front]


def test_the_report_tells_every_member(asked: m.TuneRequest) -> None:
    _, data = go(asked, machine(1))
    page, notes = report.to_html(data), report.to_markdown(data)
    assert 'id="front-title"' in page
    for text in (page, notes):
        assert "Pareto set" in text
        assert "⇄" in text
        assert f"{len(data.front)} candidates" in text
    assert notes.count(f"{BOTH}=1") >= len(data.front)
    assert b'"front"' in report.to_json(data)


@pytest.mark.parametrize("cut", [70, 100, -9])
def test_an_interrupted_study_goes_on(asked: m.TuneRequest, cut: int) -> None:
    import msgspec

    whole = machine(1)
    go(msgspec.structs.replace(asked, study="whole"), whole)
    with pytest.raises(KeyboardInterrupt):
        go(asked, machine(1, stop_after=cut if cut > 0 else whole.runs + cut))
    before = load_study(asked.storage, "s")
    assert before.front == []
    rest = machine(2, start=5000.0)
    _, data = go(asked, rest)
    assert data.ending == "better"
    assert data.front[0].conclusion == "better"
    assert [r for r in before.runs if r.phase == "search"] == [
        r for r in data.runs if r.phase == "search" and r in before.runs
    ]
    if cut < 0:
        ledger = find(open_storage(asked.storage), "s")
        assert ledger is not None
        design = ledger.read("confirm", Design)
        assert design is not None
        made = [r for r in before.runs if r.phase == "confirm"]
        arms = 2 + len(design.others)
        assert rest.runs == 1 + 2 * arms * design.blocks - len(made)


def test_nothing_helps_on_any_objective(asked: m.TuneRequest) -> None:
    def extra(settings: m.Settings, _: float) -> dict[str, float]:
        return {"latency": 5 * math.exp(0.05 * len(settings))}

    _, data = go(asked, Machine(lambda s: 0.05 * len(s), 1, extra=extra))
    assert data.ending == "nothing-helps"
    assert data.winner == {}


def member(name: str, *costs: float) -> Member:
    intervals = [Interval(c, c - 0.01, c + 0.01, 4) for c in costs]
    return Member({name: "1"}, [], name, intervals, [0.02] * len(costs))


def test_a_front_leaves_out_what_another_beats_and_what_gains_nowhere() -> None:
    good, even = member("good", -0.1, -0.1), member("even", 0.03, 0.02)
    beaten, odd = member("beaten", -0.05, -0.1), member("odd", -0.2, 0.1)
    alike = member("alike", -0.105, -0.09)
    found = front([even, beaten, odd, alike, good], [0.5, 0.5], 0.01)
    assert [x.arm for x in found] == ["good", "odd"]
