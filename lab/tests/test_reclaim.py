"""Experiments on reclaim: what is worked out, on known numbers; apps and peers for real."""

from __future__ import annotations

import io
import json
import math
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import MACHINE

from kilter_lab import messages as m
from kilter_lab.console import Console
from kilter_lab.errors import LabError
from kilter_lab.reclaim import apps, peers, place, startup, switching, vmstat
from kilter_lab.reclaim.appswitch import appswitch, as_comparison
from kilter_lab.reclaim.arms import ARMS, Reclaimer
from kilter_lab.reclaim.counts import fieller, ratio
from kilter_lab.reclaim.switching import quantile, sequence

VMSTAT = (
    "pgscan_direct 30\npgscan_kswapd 12\nworkingset_refault_anon 5\nworkingset_refault_file 7\n"
)


@pytest.mark.parametrize("count", [10, 12])
def test_half_of_the_apps_are_dear_to_rebuild(count: int) -> None:
    kinds = apps.mix(count)
    assert len(kinds) == count
    assert sum(kind in apps.DEAR for kind in kinds) == count // 2
    assert set(kinds) == set(apps.KINDS)


@given(st.integers(2, 20), st.integers(0, 60), st.integers(0, 1 << 32))
def test_a_sequence_depends_on_its_seed_alone_and_never_repeats(
    count: int, switches: int, seed: int
) -> None:
    order = sequence(count, switches, seed)
    assert order == sequence(count, switches, seed)
    assert len(order) == switches
    assert set(order) <= set(range(count))
    assert all(a != b for a, b in pairwise(order))


def test_the_first_app_is_used_most() -> None:
    order = sequence(10, 5000, 1)
    assert order.count(0) > 1.5 * order.count(3) > 1.5 * order.count(9)


def test_quantiles_are_values_that_occurred() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([float(i) for i in range(1, 31)], 0.9) == 27.0
    assert quantile([4.0], 0.9) == 4.0


@pytest.mark.parametrize("kind", apps.KINDS)
def test_an_app_has_its_memory_answers_and_dies(kind: str) -> None:
    app = apps.App(kind, 24, None)
    try:
        status = Path(f"/proc/{app.pid}/status").read_text()
        resident = int(status.split("VmRSS:")[1].split()[0]) / 1024
        assert 24 * 0.8 < resident < 24 * 1.3 + 20
        assert app.started.seconds > 0
        assert app.started.cpu_s > 0
        launch = app.front()
        assert 0 <= launch.cpu_s < app.started.cpu_s
        app.rank(900)
        assert Path(f"/proc/{app.pid}/oom_score_adj").read_text() == "900\n"
        os.kill(app.pid, signal.SIGKILL)
        with pytest.raises(apps.EndedError):
            app.front()
        assert app.killed
    finally:
        app.end()
    assert not app.alive


def test_an_app_ends_with_whoever_started_it() -> None:
    app = apps.App("canvas", 4, None)
    assert app._child.stdin is not None
    app._child.stdin.close()
    assert app._child.wait(10) == 0
    app.end()


def test_rows_of_the_table_are_todays_counters() -> None:
    rows = vmstat.rows(vmstat.parse(VMSTAT))
    assert rows == {
        "pgscan_direct": 30, "pgscan_kswapd": 12, "pgscan_total": 42, "workingset_refault": 12,
    }  # fmt: skip
    assert vmstat.grown({"pgscan_total": 40}, rows)["pgscan_total"] == 2
    [(name, a, b, delta, percent)] = vmstat.table({"x": 200.0}, {"x": 50.0}, ["x"])
    assert (name, a, b, delta, percent) == ("x", 200.0, 50.0, -150.0, -75.0)


def test_this_kernel_has_most_rows_of_the_table() -> None:
    found = vmstat.rows(vmstat.read())
    assert len(vmstat.ROWS) == 54
    assert {"pswpin", "pswpout", "pgscan_total", "allocstall_total"} <= set(found)
    assert len(found) >= 50


def test_fiellers_interval_holds_the_true_ratio_as_often_as_it_says() -> None:
    dice, held, rounds = random.Random(4), 0, 2000
    for _ in range(rounds):
        mood = [dice.gauss(0, 1) for _ in range(6)]
        base = [20 + x + dice.gauss(0, 2) for x in mood]
        arm = [6 + 0.3 * x + dice.gauss(0, 1) for x in mood]
        ends = fieller(base, arm, 0.05)
        assert ends is not None
        held += ends[0] <= 0.3 <= ends[1]
    assert 0.935 <= held / rounds <= 0.965


def test_counts_that_repeat_exactly_have_a_point_for_an_interval() -> None:
    found = ratio([10, 10, 10], [4, 4, 4], 0.05, 1.0)
    assert (found.ratio, found.low, found.high, found.verdict) == (0.4, 0.4, 0.4, "better")
    same = ratio([10, 10], [10, 10], 0.05, 1.0)
    assert same.verdict == "no-difference"
    assert ratio([3, 3, 3], [9, 9, 9], 0.05, 1.0).verdict == "worse"


def test_counts_without_a_ratio_say_so() -> None:
    nothing = ratio([0, 0], [0, 0], 0.05, 1.0)
    assert (nothing.ratio, nothing.verdict) == (None, "no-difference")
    new = ratio([0, 0], [1, 2], 0.05, 1.0)
    assert (new.ratio, new.high, new.verdict) == (None, None, "inconclusive")
    unknown = ratio([0, 9], [4, 5], 0.05, 1.0)
    assert (unknown.high, unknown.verdict) == (None, "inconclusive")
    assert fieller([5], [5], 0.05) is None


def test_senpai_presses_without_pressure_and_backs_off_with_it() -> None:
    assert peers.adjustment(0) == pytest.approx(-0.01)
    assert peers.adjustment(peers.TARGET) == pytest.approx(-0.0001)
    assert peers.adjustment(2 * peers.TARGET) == pytest.approx(0.01)
    assert peers.adjustment(1) == 1.0


def test_senpai_squeezes_each_kind_of_cgroup(tmp_path: Path) -> None:
    def group(version: int, **files: str) -> Path:
        made = tmp_path / f"v{version}"
        made.mkdir()
        for name, text in files.items():
            (made / f"memory.{name}").write_text(text)
        return made

    v1 = group(1, limit_in_bytes="900", usage_in_bytes="500", swappiness="0")
    peers.Limit(v1).adjust(-0.01)
    assert (v1 / "memory.limit_in_bytes").read_text() == "900"
    assert (v1 / "memory.swappiness").read_text() == "0"
    v2 = group(2, high="max", current="500")
    peers.Limit(v2).adjust(-0.01)
    assert (v2 / "memory.high").read_text() == "495"


def test_only_private_writable_memory_is_paged_out() -> None:
    maps = (
        "1000-3000 rw-p 00000000 00:00 0 [heap]\n"
        "4000-5000 r--p 00000000 fe:00 7 /lib/a b.so\n"
        "6000-7000 rw-s 00000000 00:01 8 /dev/zero\n"
    )
    assert list(peers.writable(maps)) == [(0x1000, 0x2000)]


@pytest.mark.parametrize(
    ("lines", "version"),
    [
        ("30 1 0:26 / /cg/memory rw - cgroup cgroup rw,memory\n", 1),
        ("30 1 0:26 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n", None),
        ("31 1 0:27 / {v2} rw - cgroup2 cgroup2 rw\n", 2),
        ("30 1 0:2 / /cg rw - cgroup c rw,memory\n31 1 0:27 / {v2} rw - cgroup2 c rw\n", 2),
    ],
)  # fmt: skip
def test_the_memory_controller_is_found(tmp_path: Path, lines: str, version: int | None) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu io memory\n")
    text = lines.format(v2=tmp_path)
    if version is None:
        with pytest.raises(LabError, match="no memory cgroup"):
            place.hierarchy(text)
    else:
        assert place.hierarchy(text).version == version


def test_what_a_killed_experiment_left_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "NOTE", tmp_path / "note.json")
    group = tmp_path / "group"
    group.mkdir()
    gone = place.Note(boot=place._boot(), caretaker=1 << 22, started="1", group=str(group))
    place._write_note(gone)
    assert place.recover()
    assert not group.exists()
    assert not place.NOTE.exists()


def test_one_experiment_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "NOTE", tmp_path / "note.json")
    mine = place.Note(place._boot(), os.getpid(), place._started(os.getpid()))
    place._write_note(mine)
    with pytest.raises(LabError, match="another experiment on reclaim is running"):
        place.recover()
    assert place.NOTE.exists()


def test_after_a_reboot_nothing_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "NOTE", tmp_path / "note.json")
    (tmp_path / "group").mkdir()
    place._write_note(place.Note("another boot", 1 << 22, "1", group=str(tmp_path / "group")))
    assert place.recover()
    assert (tmp_path / "group").exists()


class Played:
    """A runner that has played all runs: the metrics of each arm are known."""

    def __init__(self, **by_arm: dict[str, float]) -> None:
        self.by_arm, self.clock = by_arm, 0.0
        self.fails: set[int] = set()
        """Numbers of runs."""
        self.dice = random.Random(1)

    def now(self) -> float:
        return self.clock

    def run(self, requests: list[m.RunRequest]) -> Iterator[m.BatchReply]:
        for request in requests:
            self.clock += 30
            scene = json.loads(request.command[-1])
            known = self.by_arm[scene.get("arm") or scene["state"]]
            found = {metric.name: known.get(metric.name, 0.0) for metric in request.metrics}
            found = {
                name: value * math.exp(self.dice.gauss(0, 0.02)) if name.endswith("_s") else value
                for name, value in found.items()
            }
            outcome = m.Exited(2 if request.id in self.fails else 0)
            record = m.RunRecord(
                request.command, {}, "2025-01-01T00:00:00Z", self.clock, outcome, 30, 1, 1, 1,
                0, 0, 0, 0, m.MachineDelta(0, 0), metrics=found, fingerprint=MACHINE,
                stderr_tail="switch 3\nerror: the daemon has ended\n",
            )  # fmt: skip
            yield m.Ran(request.id, record)


def launches(p90: float, kills: float, cold: float, hot: float, reclaim: float) -> dict[str, float]:
    return {
        "launch_p90_s": p90, "launch_mean_s": p90 / 2, "launch_p50_s": p90 / 3, "kills": kills,
        "cold_starts": kills / 2, "hot_starts": 30 - kills / 2, "cold_cpu_s": cold,
        "hot_cpu_s": hot, "reclaim_cpu_s": reclaim, "vm.pswpout": 100 * reclaim,
    }  # fmt: skip


def switches(**changes: object) -> m.AppswitchRequest:
    chosen: dict[str, object] = {
        "context": m.LabContext(["kilter"], seed=5),
        "question": m.Question(),
        "arms": ["none", "kilter"],
        "apps": 10, "switches": 30, "app_mib": 80, "limit_mib": 480, "swap_mib": 800,
        "think_s": 0.3, "blocks": 4,
        **changes,
    }  # fmt: skip
    return m.AppswitchRequest(**chosen)  # type: ignore[arg-type]


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine has does not matter where nothing is run."""
    for module in ("appswitch", "startup"):
        monkeypatch.setattr(f"kilter_lab.reclaim.{module}.check", lambda: None)


@pytest.mark.usefixtures("anywhere")
def test_the_table_tells_kills_launches_and_cpu() -> None:
    played = Played(none=launches(0.8, 20, 4.0, 0.5, 0), kilter=launches(0.4, 5, 1.0, 1.5, 1.0))
    out, err = io.StringIO(), io.StringIO()
    assert appswitch(switches(), played, Console(out, err)) == 0
    text = out.getvalue()
    assert "10 apps of 80 MiB, half of them dear to rebuild, 30 switches; limit 480 MiB" in text
    line = next(line for line in text.splitlines() if line.startswith("kilter "))
    assert line.split()[:3] == ["kilter", "5.0", "2.5"]
    assert float(line.split()[-1]) == pytest.approx(1.0, abs=0.2)  # 4.5 - 3.5
    kills = next(line for line in text.splitlines() if line.strip().startswith("kills "))
    assert kills.split() == ["kills", "0.250", "0.250", "…", "0.250", "better"]
    swapped = next(line for line in text.splitlines() if line.startswith("pswpout "))
    assert swapped.split() == ["pswpout", "0", "100", "100", "–"]
    assert "not in pgscan_* and pgsteal_*" in text
    assert "kilter against none: better" in text


@pytest.mark.usefixtures("anywhere")
def test_a_failed_run_costs_its_block_and_says_why() -> None:
    played = Played(none=launches(0.8, 20, 4.0, 0.5, 0), kilter=launches(0.4, 5, 1.0, 1.5, 1.0))
    played.fails = {6}
    out, err = io.StringIO(), io.StringIO()
    appswitch(switches(), played, Console(out, err))
    assert "3 blocks" in out.getvalue().splitlines()[-1]
    assert " better" in out.getvalue()
    assert "warning: " in err.getvalue()
    assert ": the daemon has ended" in err.getvalue()


@pytest.mark.usefixtures("anywhere")
def test_json_has_all_arms_and_counters() -> None:
    arms = {name: launches(0.5, 10, 1, 1, 0) for name in ARMS}
    request = switches(arms=list(ARMS), context=m.LabContext(["kilter"], seed=5, json=True))
    out = io.StringIO()
    appswitch(request, Played(**arms), Console(out, io.StringIO()))
    told = json.loads(out.getvalue())
    assert [arm["arm"] for arm in told["arms"]] == list(ARMS)
    assert told["arms"][1]["counts"]["kills"]["verdict"] == "no-difference"
    assert set(told["arms"][0]["vmstat"]) == set(vmstat.rows(vmstat.read()))
    assert len(told["comparison"]["arms"]) == len(ARMS) - 1


def test_every_arm_plays_the_same_scene() -> None:
    asked = as_comparison(switches(arms=list(ARMS)))
    scenes = [json.loads(arm.command[-1]) for arm in [asked.base, *asked.arms]]
    assert [scene.pop("arm") for scene in scenes] == list(ARMS)
    assert all(scene == scenes[0] for scene in scenes)
    assert asked.context.batch_options == ["--as-root"]


def test_where_the_machine_is_small_who_waits_makes_room() -> None:
    small = (None, os.getpid())
    for killer, room in (("group", (480, None)), ("earlyoom", small), ("kernel", small)):
        asked = as_comparison(switches(killer=killer))
        for arm in [asked.base, *asked.arms]:
            scene = msgspec.json.decode(arm.command[-1], type=switching.Scene)
            assert (scene.limit_mib, scene.waits) == room
    with pytest.raises(LabError, match="false reclaim once 7: 1"):
        switching.page_out(["false"], 7)


@pytest.mark.parametrize("arms", [["none"], ["none", "none"], ["none", "magic"]])
def test_arms_have_to_be_known_and_different(arms: list[str]) -> None:
    with pytest.raises(LabError, match="arms: two or more different ones"):
        as_comparison(switches(arms=arms))


@pytest.mark.usefixtures("anywhere")
def test_startup_tells_each_way() -> None:
    times = {"cold": 1.0, "hot": 0.4, "resident": 0.05, "pageout": 0.5, "kill": 0.02}
    ways = {way: {"seconds": s, "cpu_s": s, "swapped_mib": 9.0} for way, s in times.items()}
    request = m.StartupRequest(
        m.LabContext(["kilter"], seed=2), m.Question(), ["index"], 100, 200, blocks=2
    )
    out = io.StringIO()
    assert startup.startup(request, Played(**ways), Console(out, io.StringIO())) == 0
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("index: ")
    assert float(lines[0].split()[1]) == pytest.approx(10, abs=0.5)
    words = [line.split() for line in lines]
    assert [row[0] for row in words[1:6]] == list(times)
    assert next(row for row in words if row[:2] == ["seconds", "0.050"])


def test_a_note_survives_its_file() -> None:
    note = place.Note("b", 7, "8", "zram3", True, "/g", "/c")
    assert msgspec.json.decode(msgspec.json.encode(note), type=place.Note) == note


class Pretended:
    """An app that does nothing, and dies when told."""

    def __init__(self, kind: str, mib: int, tasks: Path | None) -> None:
        self.kind, self.pid, self.alive, self.adj = kind, id(self), True, 0
        self.started = apps.Launch(1.0, 0.5, 0)
        self.dies_in_front = False

    @property
    def killed(self) -> bool:
        return not self.alive

    def front(self) -> apps.Launch:
        if self.dies_in_front:
            self.alive = False
        if not self.alive:
            raise apps.EndedError("killed")
        return apps.Launch(0.1, 0.1, 3)

    def rank(self, adj: int) -> None:
        self.adj = adj

    def end(self) -> float:
        self.alive = False
        return 0.0


class Listening:
    """A reclaimer that only listens."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def cached(self, pid: int) -> None:
        self.told.append(pid)


@pytest.mark.parametrize("lines", [3, 20_000])
def test_an_arm_that_dies_tells_why_and_a_talkative_one_goes_on(tmp_path: Path, lines: int) -> None:
    """20,000 lines are more than a pipe holds."""
    told = tmp_path / "told"
    script = f"for i in range({lines}): print('line', i, file=sys.stderr)"
    ending = f"pathlib.Path({str(told)!r}).touch()\nif {lines} == 3: sys.exit(4)\nsignal.pause()"
    code = f"import pathlib, signal, sys\n{script}\n{ending}"
    arm = Reclaimer("kilter", [sys.executable, "-c", code], None)
    try:
        until = time.monotonic() + 60
        while not told.exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert told.exists()
        if lines > 3:
            arm.check()
            return
        while arm.alive:
            time.sleep(0.01)
        with pytest.raises(LabError, match=r"(?s)ended with 4: line 0.*line 2"):
            arm.check()
    finally:
        arm.end()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> switching.Stage:
    monkeypatch.setattr(switching, "App", Pretended)
    scene = switching.Scene("none", ["kilter"], 1, apps=4)
    return switching.Stage(scene, None, Listening())  # type: ignore[arg-type]


def pretended(stage: switching.Stage) -> dict[int, Pretended]:
    return stage.running  # type: ignore[return-value]


def test_the_longest_unused_app_is_the_first_to_go(stage: switching.Stage) -> None:
    for wanted in (0, 1, 2, 0):
        stage.switch(wanted)
    adj = {i: app.adj for i, app in pretended(stage).items()}
    assert adj == {0: 0, 2: 900, 1: 908}
    assert (len(stage.cold), len(stage.hot), stage.kills) == (3, 1, 0)
    told = stage.reclaimer.told  # type: ignore[attr-defined]
    assert told == [pretended(stage)[i].pid for i in (0, 1, 2)]


def test_a_killed_app_starts_from_scratch(stage: switching.Stage) -> None:
    for wanted in (0, 1, 2):
        stage.switch(wanted)
    pretended(stage)[0].alive = False
    stage.switch(0)
    assert (len(stage.cold), len(stage.hot), stage.kills) == (4, 0, 1)


def test_an_app_killed_by_its_own_launch_is_started_again(stage: switching.Stage) -> None:
    for wanted in (0, 1):
        stage.switch(wanted)
    pretended(stage)[0].dies_in_front = True
    stage.switch(0)
    assert (len(stage.cold), stage.kills) == (3, 1)
    stage.switch(1)
    assert pretended(stage)[0].adj == 900
    assert stage.reclaimer.told[-1] == pretended(stage)[0].pid  # type: ignore[attr-defined]


def test_what_never_fits_is_told(stage: switching.Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise apps.EndedError("killed")

    monkeypatch.setattr(switching, "App", never)
    with pytest.raises(LabError, match="one app of 80 MiB alone does not fit"):
        stage.switch(0)
    assert stage.kills == switching.TRIES
