"""``kilter audit`` on machines on which it is known what each line does."""

from __future__ import annotations

import io
import json
import math
import random

import pytest
from rich.text import Text
from synthetic import Machine, Noise, options

from kilter_lab import messages as m
from kilter_lab.audit import audit, turned
from kilter_lab.console import Console
from kilter_lab.errors import LabError
from kilter_lab.halves import Halves, estimate, interactions, split
from kilter_lab.stats import verdict

KNOBS = [f"k.{i}" for i in range(8)]


def request(lines: int = 8, **changes: object) -> m.AuditRequest:
    chosen: dict[str, object] = {
        "context": m.LabContext(kilter=["true"], seed=5),
        "options": options(),
        "profile": "fast",
        "lines": [m.AuditLine(k, "0", "1") for k in KNOBS[:lines]],
        "command": ["work"],
        "question": m.Question(),
        **changes,
    }
    return m.AuditRequest(**chosen)  # type: ignore[arg-type]


def machine(effects: dict[str, float], noise: float = 0.02, seed: int = 1) -> Machine:
    """Log cost of each line; two names joined by + for what they do together."""

    def cost(settings: m.Settings) -> float:
        return sum(e for names, e in effects.items() if set(names.split("+")) <= set(settings))

    return Machine(cost, seed=seed, noise=Noise(noise))


def run(asked: m.AuditRequest, on: Machine) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    status = audit(asked, on, Console(out, err))
    return status, out.getvalue(), err.getvalue()


def roles(asked: m.AuditRequest, on: Machine) -> dict[str, str]:
    asked.context.json = True
    return {x["line"]["knob"]: x["role"] for x in json.loads(run(asked, on)[1])["lines"]}


def test_the_lines_that_carry_are_named() -> None:
    found = roles(request(max_runs=500), machine({"k.2": -0.12, "k.5": 0.09}))
    assert found["k.2"] == "carries"
    assert found["k.5"] == "harms"
    assert set(found.values()) <= {"carries", "harms", "nothing", "open"}
    assert [k for k, role in found.items() if role == "carries"] == ["k.2"]
    assert [k for k, role in found.items() if role == "harms"] == ["k.5"]


def test_idle_lines_are_marked() -> None:
    """A line may be called by chance in one audit of twenty, not in two of five."""
    idle = []
    for seed in range(5):
        context = m.LabContext(["true"], seed)
        asked = request(max_runs=900, context=context, question=m.Question(region_percent=2.0))
        found = roles(asked, machine({"k.2": -0.12}, noise=0.01, seed=seed))
        assert found.pop("k.2") == "carries"
        idle.append(set(found.values()) == {"nothing"})
    assert sum(idle) >= 4


def test_the_profile_is_printed_back() -> None:
    asked = request(left_out=[("sched.x", "absent in this kernel")], max_runs=300)
    status, out, err = run(asked, machine({"k.2": -0.12}))
    assert status == 0
    lines = out.splitlines()
    assert all(any(line.startswith(f"{k}  0 → 1") for line in lines) for k in KNOBS)
    assert any(line.startswith("k.2  0 → 1") and "  carries  " in line for line in lines)
    assert any("not here" in line and "absent in this kernel" in line for line in lines)
    assert any(line.startswith("fast is ") and "faster than current" in line for line in lines)
    assert "pairs of random halves" in err


def test_what_a_narrow_terminal_has_no_room_for_goes_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "44")
    monkeypatch.setenv("TERM", "xterm")
    asked = request(left_out=[("sched.x", "absent")], max_runs=300)
    lines = Text.from_ansi(run(asked, machine({"k.2": -0.12}))[1]).plain.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("k.2  0 → 1"))
    assert lines[at].rstrip() == "k.2  0 → 1  carries"
    assert lines[at + 1].startswith("    ")
    assert lines[at + 1].rstrip().endswith("%), taken out alone")
    assert any(line.startswith("sched.x     not here      absent") for line in lines)


def test_a_harmful_profile_is_a_no() -> None:
    assert run(request(max_runs=300), machine({"k.1": 0.2}))[0] == 1


def test_required_better() -> None:
    asked = request(max_runs=200, question=m.Question(require_better=True))
    assert run(asked, machine({}))[0] == 1


def test_one_line_is_the_whole() -> None:
    on = machine({"k.0": -0.1})
    assert roles(request(1), on) == {"k.0": "carries"}


def test_two_lines_need_no_halves() -> None:
    asked = request(2)
    _, _, err = run(asked, machine({"k.0": -0.1}))
    assert "halves" not in err


def test_limits_hold() -> None:
    on = machine({"k.2": -0.05}, noise=0.05)
    run(request(max_runs=200), on)
    assert on.runs <= 240
    on = machine({"k.2": -0.05}, noise=0.05)
    run(request(budget_s=100.0), on)
    assert on.clock - on.start < 130


def test_lines_that_need_each_other_are_an_error() -> None:
    on = machine({})
    on.refuses = lambda s: "k.1 needs k.2" if ("k.1" in s) != ("k.2" in s) else None
    with pytest.raises(LabError, match="need each other"):
        run(request(max_runs=200), on)


def test_a_line_that_another_needs_stays_and_says_so() -> None:
    on = machine({"k.0": -0.1, "k.1": -0.1})
    on.refuses = lambda s: "k.1 needs k.0" if "k.1" in s and "k.0" not in s else None
    asked = request(2)
    found = roles(asked, on)
    assert found["k.0"] == "open"
    assert found["k.1"] == "carries"
    asked.context.json = False
    _, out, _ = run(asked, on)
    assert "cannot be taken out: refused: k.1 needs k.0" in out


def test_no_line_is_called_when_none_does_anything() -> None:
    """Four of forty audits of idle profiles may call a line by chance; most call none."""
    wrong = 0
    for seed in range(20):
        asked = request(context=m.LabContext(["true"], seed), max_runs=240)
        found = roles(asked, machine({}, noise=0.05, seed=seed))
        wrong += bool({"carries", "harms"} & set(found.values()))
    assert wrong <= 4


def test_halves_estimate_every_line_and_what_two_do_together() -> None:
    rng, metric = random.Random(3), options().metrics[0]
    on = machine({"k.2": -0.05, "k.5": 0.03, "k.2+k.5": -0.04})
    splits = []
    for _ in range(300):
        chosen = split(8, rng)
        one, other = (
            [KNOBS[i] for i in range(8) if chosen.first[i] is side] for side in (True, False)
        )
        values = [math.exp(on.effect(dict.fromkeys(half, "1")) + rng.gauss(0, 0.02))
                  for half in (one, other)]  # fmt: skip
        splits.append(chosen.measured(values[0], values[1], metric))
    found = Halves(KNOBS, estimate(splits, 8), [])
    # Half of what two do together falls on each of them.
    truth = {"k.2": -0.07, "k.5": 0.01}
    for known in found.estimates_by_knob():
        assert known.log_change == pytest.approx(truth.get(known.knob, 0.0), abs=4 * known.error)
        assert known.error == pytest.approx(0.02 * math.sqrt(2 / 300), rel=0.2)
    (pair,) = interactions(splits, found, 0.05)
    assert set(pair.knobs) == {"k.2", "k.5"}
    assert pair.low < -0.04 < pair.high


def test_turned_verdicts_say_what_the_line_does() -> None:
    v = verdict("wall", "min", [([1.0, 1.0], [1.1, 1.2]), ([1.0, 1.1], [1.2, 1.2])] * 4, 1.0)
    assert v.verdict == "worse"
    t = turned(v)
    assert t.verdict == "better"
    assert t.ratio == pytest.approx(1 / v.ratio)
    assert t.low < t.ratio < t.high
    assert (t.base_median, t.arm_median) == (v.arm_median, v.base_median)
