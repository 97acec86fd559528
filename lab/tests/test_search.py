"""What a trial came to follows from its block; the sampler's choice follows from the trials."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulation import request, silent
from synthetic import WALL, Machine, Noise, more_knobs, options

from kilter_lab import messages as m
from kilter_lab.coding import Coding, Detail
from kilter_lab.ledger import open_storage
from kilter_lab.opening import open_study
from kilter_lab.screen import design
from kilter_lab.session import Session
from kilter_lab.space import build
from kilter_lab.study import Block, Run
from kilter_lab.tpe import Tpe
from kilter_lab.trials import Tried, trials_of
from kilter_lab.tune import conclude, open_session, tune

LATENCY = m.Metric("latency", m.Regex("x"), "max", "1/s")
SWAPPINESS = "vm.swappiness"


def block(trial: list[Run], base: dict[str, float] | None = None) -> Block:
    own = {"wall": 2.0, "latency": 4.0} if base is None else base
    runs = [Run("search", 0, "base", 0.0, 1.0, 0.0, own, "ok" if own else "exit 1"), *trial]
    arms: dict[str, m.Settings] = {"base": {}, "trial 7": {SWAPPINESS: "1"}}
    return Block(arms, runs, points=[{SWAPPINESS: 1}, {SWAPPINESS: 60}])


def run(metrics: dict[str, float], outcome: str = "ok") -> Run:
    return Run("search", 0, "trial 7", 0.0, 1.0, 0.0, metrics, outcome)


def trials(of: Block) -> list[Tried]:
    return trials_of(3, of, 7, [WALL, LATENCY])


def test_a_trial_costs_what_its_runs_cost_over_the_baseline() -> None:
    ran, same = trials(block([run({"wall": 1.0, "latency": 8.0})]))
    assert (ran.number, ran.block, ran.state) == (7, 3, "ran")
    assert ran.costs == pytest.approx({"wall": -0.693147, "latency": -0.693147})
    assert same.settings == {}
    assert same.costs == {"wall": 0.0, "latency": 0.0}


@pytest.mark.parametrize(
    ("of", "state", "error"),
    [
        (block([run({}, "exit 1")]), "failed", "exit 1"),
        (block([run({"wall": -1.0})]), "failed", "metric wall: a ratio needs positive numbers"),
        (block([run({"wall": 1.0})], {}), "void", "the baseline's run failed"),
        (block([run({}, "timed out")], {}), "failed", "timed out"),
        (block([run({"wall": 1.0})], {"wall": 0.0}), "void", "the baseline's run failed"),
    ],
)
def test_what_did_not_run_says_why(of: Block, state: str, error: str) -> None:
    tried = trials(of)[0]
    assert tried.state == state
    assert tried.error.startswith(error)
    assert tried.costs == {}


def test_a_metric_without_a_logarithm_costs_nothing_else() -> None:
    tried = trials(block([run({"wall": 1.0, "latency": 0.0})]))[0]
    assert tried.state == "ran"
    assert set(tried.costs) == {"wall"}


def studied(objectives: int, noise: float = 0.02) -> Session:
    rng = random.Random(1)

    def extra(settings: m.Settings, _: float) -> dict[str, float]:
        return {
            "latency": 5.0 * (1 + 0.5 * (settings.get(SWAPPINESS) == "200")) + rng.gauss(0, 0.1)
        }

    asked = request(
        1,
        40,
        options=options(metrics=[WALL, LATENCY][:objectives]),
        question=m.Question(objectives=objectives),
    )
    space, _ = build(asked)
    ledger = open_study(open_storage(asked.storage), asked, space)
    machine = Machine(lambda _: 0.0, 1, Noise(noise), extra=extra)
    session = open_session(asked, space, ledger, machine, silent())
    conclude(session)
    return session


@pytest.mark.parametrize("objectives", [1, 2])
def test_suggestions_follow_from_the_record_alone(objectives: int) -> None:
    session = studied(objectives)
    sampler = Tpe(session)
    first = [sampler.suggestion(n) for n in range(50, 56)]
    assert first == [Tpe(session).suggestion(n) for n in range(50, 56)]
    assert len({str(p) for p in first}) == len(first)
    for point in first:
        assert session.space.repair(point) == point
        assert session.space.point(session.space.settings(point)) == point


def test_the_sampler_minds_every_deciding_metric() -> None:
    """Swappiness of 200 is good for the second metric alone and means nothing to the first."""

    def near(session: Session) -> int:
        points = [Tpe(session).suggestion(n) for n in range(100, 160)]
        return sum(int(p[SWAPPINESS]) > 150 for p in points)

    assert near(studied(2)) > near(studied(1)) + 10


def test_rows_are_the_same_however_they_are_asked_for() -> None:
    space, _ = build(request(1, knobs=more_knobs()))
    points = design(space, 30, random.Random(1))
    bare = Coding(space)
    between = {SWAPPINESS: (30, 130)}
    detail = Detail(((SWAPPINESS, "vm.dirty_ratio"), ("vm.dirty_ratio", "other.share1")), between)
    for coding in (bare, bare.detailed(detail), Coding(space, detail)):
        asked = [None, *points[:9], None, *points[9:]]
        for many in (5, 20, len(asked), 12):
            rows = coding.rows(asked[:many])
            assert rows.shape == (many, coding.width)
            for row, point in zip(rows, asked, strict=False):
                assert list(row) == (
                    [0.0] * coding.width if point is None else list(coding.row(point))
                )
    assert (bare.detailed(detail).rows(points) == Coding(space, detail).rows(points)).all()


class Peeking(Machine):
    """Looks at the storage's file while runs are made."""

    path: Path
    seen: set[str]

    def run(self, requests: list[m.RunRequest]) -> Iterator[m.BatchReply]:
        with sqlite3.connect(self.path) as file:
            self.seen.add(file.execute("PRAGMA journal_mode").fetchone()[0])
        file.close()
        yield from super().run(requests)


@pytest.mark.parametrize("stop_after", [None, 30])
def test_commits_do_not_wait_and_the_file_is_plain_afterwards(
    tmp_path: Path, stop_after: int | None
) -> None:
    asked = request(1, 16, storage=f"sqlite:///{tmp_path}/s.db", state_dir=str(tmp_path))
    machine = Peeking(lambda _: 0.0, 1, stop_after=stop_after)
    machine.path, machine.seen = tmp_path / "s.db", set()
    if stop_after is None:
        tune(asked, machine, silent())
    else:
        with pytest.raises(KeyboardInterrupt):
            tune(asked, machine, silent())
    assert machine.seen == {"wal"}
    assert not list(tmp_path.glob("s.db-*"))
    with sqlite3.connect(tmp_path / "s.db") as file:
        assert file.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        blocks = file.execute(
            "SELECT count(*) FROM study_user_attributes WHERE key LIKE 'block/%'"
        ).fetchone()[0]
    file.close()
    assert blocks > 3
