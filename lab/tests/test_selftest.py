"""``kilter selftest``: the rate of false verdicts, and that it can fail."""

from __future__ import annotations

import io
import json

import pytest
from scipy.stats import binomtest
from synthetic import Machine, Noise, options

from kilter_lab import messages as m
from kilter_lab import selftest, sequential
from kilter_lab.console import Console
from kilter_lab.errors import LabError, WorkloadError


def request(**changes: object) -> m.SelftestRequest:
    chosen: dict[str, object] = {
        "context": m.LabContext(kilter=["true"], seed=5),
        "options": options(),
        "command": ["work"],
        "question": m.Question(),
        "runs": 120,
        **changes,
    }
    return m.SelftestRequest(**chosen)  # type: ignore[arg-type]


def run(asked: m.SelftestRequest, on: Machine) -> tuple[int, str]:
    out = io.StringIO()
    return selftest.selftest(asked, on, Console(out, io.StringIO())), out.getvalue()


@pytest.mark.parametrize("noise", [Noise(0.05), Noise(0.09, "heavy", 0.4), Noise(0.02, spikes=0.1)])
def test_the_promise_holds_under_any_noise(noise: Noise) -> None:
    status, out = run(request(), Machine(lambda _: 0.0, seed=1, noise=noise))
    assert status == 0
    assert "120 runs of one unchanged command, dealt to two arms 2000 times (seed 5)." in out
    assert out.rstrip().endswith("promised: at most 5 %. The promise holds here.")


def test_a_broken_promise_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals as narrow as those of a single look make too many false calls."""
    narrow = lambda alpha, looks: tuple(1.96 for _ in looks)  # noqa: E731
    monkeypatch.setattr(sequential, "_calibrated", narrow)
    status, out = run(request(), Machine(lambda _: 0.0, seed=1, noise=Noise(0.05)))
    assert status == 1
    assert "does NOT hold" in out


def test_json() -> None:
    asked = request(context=m.LabContext(["true"], 5, json=True), budget_s=30.0)
    _, out = run(asked, Machine(lambda _: 0.0, seed=1))
    found = json.loads(out)
    assert found["false_verdicts"] == round(found["rate"] * found["replays"])
    assert 50 < found["runs"] < 60  # The budget ends it.


def test_too_few_runs_are_an_error() -> None:
    with pytest.raises(WorkloadError, match="a self-test takes at least 40"):
        run(request(runs=30), Machine(lambda _: 0.0, seed=1))


def test_a_budget_that_allows_too_few_runs_is_refused_after_the_first() -> None:
    on = Machine(lambda _: 0.0, seed=1, seconds=9.0, noise=Noise(0.0))
    with pytest.raises(LabError, match=r"a run takes 9\.0 s.* at least 40 runs") as refused:
        run(request(budget_s=300.0), on)
    assert refused.value.hint == "--budget 8m"
    assert on.runs == 1


@pytest.mark.parametrize(("hits", "of"), [(0, 50), (3, 80), (100, 2000), (7, 7)])
def test_the_interval_is_the_exact_one(hits: int, of: int) -> None:
    exact = binomtest(hits, of).proportion_ci(0.95, "exact")
    assert selftest.proportion(hits, of) == pytest.approx((exact.low, exact.high))
