"""``kilter compare`` on machines whose answer is known."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import pytest
from synthetic import WALL, Machine, Noise, options

from kilter_lab import messages as m
from kilter_lab.compare import compare
from kilter_lab.console import Console
from kilter_lab.errors import LabError, RefusedError, WorkloadError
from kilter_lab.stats import NotPositiveError

FAULTS = m.Metric("major_faults", m.Record("major_faults"))
RATE = m.Metric("requests", m.Regex("x"), "max", "1/s")


def request(**changes: object) -> m.CompareRequest:
    chosen: dict[str, object] = {
        "context": m.LabContext(kilter=["true"], seed=5),
        "options": options(),
        "base": m.Arm("current", ["work", "hard"]),
        "arms": [m.Arm("vm.swappiness=10", ["work", "hard"], {"vm.swappiness": "10"})],
        "blocks": 10,
        "question": m.Question(),
        **changes,
    }
    return m.CompareRequest(**chosen)  # type: ignore[arg-type]


def machine(gain: float = 0.1, **changes: object) -> Machine:
    """The run time falls by ``gain`` with any setting."""
    return Machine(
        lambda s: math.log1p(-gain) if s else 0.0,
        seed=3,
        **changes,  # type: ignore[arg-type]
    )


def run(asked: m.CompareRequest, on: Machine) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    status = compare(asked, on, Console(out, err))
    return status, out.getvalue(), err.getvalue()


def test_a_gain_is_told_in_one_sentence() -> None:
    status, out, err = run(request(), machine(0.1))
    assert status == 0
    last = out.rstrip().splitlines()[-1]
    assert last.startswith("vm.swappiness=10 is ")
    assert " % faster than current (95 % interval " in last
    assert last.endswith(" %, 10 blocks).")
    gain = float(last.split()[2])
    assert gain == pytest.approx(10, abs=3)
    assert "10 blocks of 4 interleaved runs, about 20 s (seed 5)" in err


def test_the_text_without_noise() -> None:
    """Every number is exact where the machine is."""
    asked = request(options=options(metrics=[WALL, FAULTS, RATE]))
    quiet = machine(0.5, noise=Noise(0.0), extra=lambda _, wall: {"requests": 100 / wall})
    status, out, _ = run(asked, quiet)
    assert status == 0
    assert out.splitlines() == [
        "Base: current  (work hard)",
        "  wall (median ± σ):            500.0 ms ±     0.0 ms    [user: 300.0 ms, sys: 150.0 ms]",
        "  range (min … max):            500.0 ms …   500.0 ms    20 runs",
        "  major faults (median ± σ):           0 ±          0",
        "  requests (median ± σ):       200.0 1/s ±    0.0 1/s",
        "",
        "Arm 1: vm.swappiness=10",
        "  wall (median ± σ):            250.0 ms ±     0.0 ms    [user: 150.0 ms, sys: 75.0 ms]",
        "  range (min … max):            250.0 ms …   250.0 ms    20 runs",
        "  major faults (median ± σ):           0 ±          0",
        "  requests (median ± σ):       400.0 1/s ±    0.0 1/s",
        "",
        "ratio to current             95 % interval",
        "  wall              0.500    0.500 … 0.500    better",
        "  requests          2.000    2.000 … 2.000",
        "",
        "vm.swappiness=10 is 50.0 % faster than current (95 % interval 50.0 … 50.0 %, 10 blocks).",
    ]


@pytest.mark.parametrize(
    ("gain", "required", "status"),
    [(-0.1, False, 1), (0.0, False, 0), (0.0, True, 1), (0.1, True, 0)],
)
def test_exit_status(gain: float, required: bool, status: int) -> None:
    assert run(request(question=m.Question(require_better=required)), machine(gain))[0] == status


def test_one_worse_arm_among_many_is_a_no() -> None:
    arms = [m.Arm(v, ["work"], {"k": v}) for v in ("good", "bad")]
    base = m.Arm("current", ["work"])
    on = Machine(lambda s: {"good": -0.3, "bad": 0.3}.get(s.get("k", ""), 0.0), seed=1)
    on.keep_log = True
    status, out, _ = run(request(base=base, arms=arms), on)
    assert status == 1
    assert out.rstrip().splitlines()[-2].startswith("good is ")
    assert " slower than current" in out.rstrip().splitlines()[-1]
    block = [r.settings.get("k", "current") for r in on.log[1:7]]
    assert block == block[::-1]
    assert sorted(block[:3]) == ["bad", "current", "good"]


def test_equal_arms_are_called_equal_when_the_interval_is_narrow() -> None:
    status, out, _ = run(request(blocks=20), machine(0.0, noise=Noise(0.005)))
    assert status == 0
    assert "No difference found within ± 1 % between vm.swappiness=10 and current (95 %" in out


def test_the_inconclusive_says_how_much_more() -> None:
    _, out, _ = run(request(blocks=4), machine(0.02, noise=Noise(0.05)))
    last = out.rstrip().splitlines()[-1]
    assert last.startswith("Inconclusive: vm.swappiness=10 came out ")
    assert "more blocks would tell." in last


def test_one_block_is_not_enough() -> None:
    _, out, _ = run(request(blocks=1), machine(0.3))
    assert out.rstrip().endswith("(1 block: no interval); 1 block is not enough to tell.")


def test_orders_are_random_and_seeded() -> None:
    orders = []
    for seed in (1, 1, 2):
        on = machine()
        on.keep_log = True
        run(request(context=m.LabContext(kilter=["true"], seed=seed)), on)
        orders.append([bool(r.settings) for r in on.log])
    assert orders[0] == orders[1] != orders[2]


def test_json_is_data_only() -> None:
    status, out, _ = run(request(context=m.LabContext(["true"], 5, json=True)), machine(0.1))
    found = json.loads(out)
    assert status == 0
    assert found["arms"][0]["verdicts"][0]["verdict"] == "better"
    assert found["machine"]["id"] == "synthetic"
    assert found["base"] == {
        "label": "current", "command": ["work", "hard"], "settings": {}, "runs": 20, "failed": 0,
        "conclusion": "inconclusive", "verdicts": [], "guards": [], "shown": [], "sequence": [],
        "sentence": "",
    }  # fmt: skip


def test_a_command_that_fails_stops_at_once() -> None:
    on = machine(fails=lambda s: m.Exited(3))
    with pytest.raises(WorkloadError, match=r"fails with the base's settings \(exit 3\)"):
        run(request(), on)
    assert on.runs == 1


def test_a_metric_that_does_not_match_stops_at_once() -> None:
    on = machine()
    with pytest.raises(WorkloadError, match="metric requests was not found"):
        run(request(options=options(metrics=[RATE])), on)
    assert on.runs == 1


def test_a_refused_value_stops_after_one_block() -> None:
    on = machine(refuses=lambda s: "vm.swappiness = 999 is out of range" if s else None)
    with pytest.raises(RefusedError, match=r"vm.swappiness=10 was not run: vm.swappiness = 999"):
        run(request(), on)
    assert on.runs == 5


def test_an_arm_under_which_the_command_fails_stops_after_one_block() -> None:
    on = machine(fails=lambda s: m.Signalled(9) if s else None)
    with pytest.raises(WorkloadError, match=r"fails under vm.swappiness=10 \(signal 9\)"):
        run(request(), on)


def test_an_arm_that_fails_at_times_is_a_no() -> None:
    on = machine(0.2)
    # The first two runs of a block are of different arms: one of these two is the arm's.
    on.fails = lambda s: m.Exited(1) if s and on.runs in (18, 19) else None
    status, out, err = run(request(), on)
    assert "warning: vm.swappiness=10 failed in 1 of 20 runs (exit 1)" in err
    assert "9 blocks" in out
    assert status == 1


def test_zero_has_no_ratio() -> None:
    on = machine(extra=lambda s, _: {"requests": 0.0 if s else 1.0})
    with pytest.raises(NotPositiveError, match="metric requests: a ratio needs positive numbers"):
        run(request(options=options(metrics=[RATE])), on)


def test_a_value_that_reads_back_differently_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    on = machine()
    real = on._one

    def rounded(asked: m.RunRequest) -> m.BatchReply:
        reply = real(asked)
        if asked.settings and isinstance(reply, m.Ran):
            reply.record.settings = {"vm.swappiness": "8"}
        return reply

    monkeypatch.setattr(on, "_one", rounded)
    _, _, err = run(request(), on)
    assert "warning: vm.swappiness was set to 10 and reads back 8: what was measured is 8" in err


def test_outliers_and_steal_are_told_and_kept() -> None:
    _, out, err = run(request(blocks=20), machine(0.1, noise=Noise(0.01, spikes=0.2)))
    assert "outliers in wall among 80 runs" in err
    assert "the hypervisor kept the CPUs away (steal time), ask for CPUs of its own" in err
    assert "steal time: the hypervisor kept " in err
    assert "40 runs" in out


def test_drift_is_told() -> None:
    on = machine(0.1, noise=Noise(0.01))
    on.effect = lambda s: (math.log(0.9) if s else 0.0) + 0.003 * on.runs
    _, out, err = run(request(), on)
    assert "in all arms alike" in err
    gain = float(out.rstrip().splitlines()[-1].split()[2])
    assert gain == pytest.approx(10, abs=0.7)  # 13 % of drift over the runs is gone


def test_csv_has_every_run(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    run(request(export=str(path), options=options(metrics=[WALL, FAULTS])), machine())
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == 40
    assert {r["arm"] for r in rows} == {"current", "vm.swappiness=10"}
    assert [r["position"] for r in rows[:5]] == ["0", "1", "2", "3", "0"]
    assert all(r["outcome"] == "ok" and float(r["wall"]) > 0 for r in rows)
    assert not list(tmp_path.glob(".*"))


def test_json_export_has_runs_and_verdicts(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    run(request(export=str(path)), machine())
    found = json.loads(path.read_text())
    assert len(found["runs"]) == 40
    assert found["runs"][0]["record"]["wall_s"] > 0
    assert found["comparison"]["arms"][0]["verdicts"][0]["blocks"] == 10


@pytest.mark.parametrize("name", ["runs.txt", "there/is/none.csv", ""])
def test_a_bad_export_is_refused_before_any_run(tmp_path: Path, name: str) -> None:
    on = machine()
    (tmp_path / "dir.csv").mkdir()
    path = tmp_path / name if name else tmp_path / "dir.csv"
    with pytest.raises(LabError, match="--export"):
        run(request(export=str(path)), on)
    assert on.runs == 0


def until_known(**changes: object) -> m.CompareRequest:
    """A request without a number of blocks."""
    return request(**{"blocks": None, **changes})


def test_a_large_effect_ends_early() -> None:
    on = machine(0.2, noise=Noise(0.03))
    status, out, _ = run(until_known(), on)
    assert status == 0
    assert on.runs < 13 + 4 * 8
    assert " % faster than current (95 % interval " in out


def test_the_noise_and_what_will_show_are_told_before() -> None:
    _, _, err = run(until_known(), machine(0.1, noise=Noise(0.05)))
    assert "varies by " in err
    assert "will show" in err


@pytest.mark.parametrize(("limit", "most"), [({"max_runs": 24}, 24), ({"budget_s": 12.0}, 26)])
def test_limits_hold(limit: dict[str, object], most: int) -> None:
    on = machine(0.0, noise=Noise(0.05))
    _, out, _ = run(until_known(**limit), on)
    assert 9 < on.runs <= 9 + most
    assert "Inconclusive: " in out


def test_an_arm_that_is_settled_leaves_the_blocks() -> None:
    arms = [m.Arm(v, ["work"], {"k": v}) for v in ("much", "little")]
    on = Machine(
        lambda s: {"much": -0.4, "little": -0.01}.get(s.get("k", ""), 0.0), seed=2,
        noise=Noise(0.02), keep_log=True,
    )  # fmt: skip
    _, out, _ = run(until_known(arms=arms, base=m.Arm("current", ["work"])), on)
    asked = [r.settings.get("k") for r in on.log[13:]]
    assert asked.count("much") < asked.count("little") == asked.count(None)
    assert "97.5 % interval" in out  # Two arms share the error.


P99 = m.Metric("p99", m.Regex("x"))


def both(gain: float, worse: float, noise: float = 0.01) -> Machine:
    """Faster by ``gain``, with a p99 that is higher by ``worse``."""
    on = machine(gain, noise=Noise(noise))
    on.extra = lambda s, wall: {
        "p99": (1 + worse if s else 1.0) * (1 + 1e-3 * math.sin(1e6 * wall))
    }
    return on


@pytest.mark.parametrize(
    ("worse", "limit", "conclusion", "status"),
    [(0.02, 5, "better", 0), (0.2, 5, "trade-off", 1), (-0.1, -5, "better", 0)],
)
def test_a_guard_stands_between_faster_and_better(
    worse: float, limit: float, conclusion: str, status: int
) -> None:
    question = m.Question(guards=[m.Guard("p99", "at-most", limit)])
    asked = until_known(
        question=question, options=options(metrics=[WALL, P99]),
        context=m.LabContext(["true"], 5, json=True),
    )  # fmt: skip
    ended, out, _ = run(asked, both(0.1, worse))
    arm = json.loads(out)["arms"][0]
    assert arm["conclusion"] == conclusion
    assert arm["verdicts"][0]["verdict"] == "better"
    assert ended == status


def test_a_guard_is_told_in_the_sentence() -> None:
    question = m.Question(guards=[m.Guard("p99", "at-most", 5.0)])
    asked = until_known(question=question, options=options(metrics=[WALL, P99]))
    _, out, _ = run(asked, both(0.1, 0.2))
    last = out.rstrip().splitlines()[-1]
    assert last.startswith("vm.swappiness=10 against current: a trade-off; ")
    assert "guard p99 <= +5 % broken (" in last
    assert any(line.startswith("  p99 ") and "broken" in line for line in out.splitlines())


def test_every_deciding_metric_has_a_verdict_and_a_share_of_the_error() -> None:
    asked = until_known(question=m.Question(objectives=2), options=options(metrics=[WALL, P99]))
    status, out, _ = run(asked, both(0.1, 0.2))
    assert status == 1
    assert "97.5 % interval" in out
    assert "a trade-off; " in out


def test_what_was_measured_before_ctrl_c_is_judged() -> None:
    on = machine(0.01, noise=Noise(0.03))
    on.stop_after = 13 + 4 * 8 + 2
    status, out, err = run(until_known(), on)
    assert status == 130
    assert "interrupted" in err
    assert "8 blocks" in out


def test_ctrl_c_before_any_look_is_an_interrupt() -> None:
    on = machine(0.01)
    on.stop_after = 13 + 4 * 2
    with pytest.raises(KeyboardInterrupt):
        run(until_known(), on)


def test_commands_are_compared_as_settings_are() -> None:
    on = Machine(lambda _: 0.0, seed=2, noise=Noise(0.01), keep_log=True)
    real = on._one

    def slower(request: m.RunRequest) -> m.BatchReply:
        reply = real(request)
        if request.command == ["b"] and isinstance(reply, m.Ran):
            reply.record.wall_s *= 1.5
        return reply

    on._one = slower  # type: ignore[method-assign]
    asked = until_known(base=m.Arm("a", ["a"]), arms=[m.Arm("b", ["b"])])
    status, out, _ = run(asked, on)
    assert status == 1
    assert "b is " in out
    assert " slower than a (" in out
