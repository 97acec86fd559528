"""The protocol over real pipes: replies, torn lines, deaths, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kilter_lab.errors import BatchError, ToldError
from kilter_lab.messages import LabContext, NotRun, Ran, RunRequest
from kilter_lab.runner import BatchRunner, signals_ignored

FAKE = Path(__file__).with_name("fake_kilter.py")
LAB = FAKE.parent.parent

Plan = Callable[..., Path]


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Plan:
    """Says how the fake behaves; the result is its log."""

    def set_plan(**behaviour: object) -> Path:
        log = tmp_path / "log"
        monkeypatch.setenv("FAKE_KILTER", json.dumps({"log": str(log), **behaviour}))
        return log

    return set_plan


def runner(*options: str) -> BatchRunner:
    return BatchRunner(LabContext([sys.executable, str(FAKE)], 1, list(options)))


def requests(n: int, start: int = 0) -> list[RunRequest]:
    return [RunRequest(id=start + i, settings={}, command=["work"]) for i in range(n)]


def test_replies_come_in_order_over_several_blocks(plan: Plan) -> None:
    log = plan()
    with runner("--as-root") as r:
        first = list(r.run(requests(4)))
        second = list(r.run(requests(4, 4)))
    assert [reply.id for reply in first + second] == list(range(8))
    assert all(isinstance(reply, Ran) for reply in first)
    lines = log.read_text().splitlines()
    assert lines[0] == "start run --batch --as-root"
    assert lines[-1] == "settings are back"
    assert len(lines) == 10  # one child for all blocks


def test_nothing_is_started_for_nothing(plan: Plan) -> None:
    log = plan()
    with runner() as r:
        assert list(r.run([])) == []
    assert "run 0" not in (log.read_text() if log.exists() else "")


def test_blocks_larger_than_any_pipe_do_not_hang(plan: Plan) -> None:
    """Both pipes hold 64 KiB; here 2 MB go each way."""
    plan(pad=4096)
    many = [
        RunRequest(id=i, settings={f"k{j}": "v" * 40 for j in range(80)}, command=["work"])
        for i in range(500)
    ]
    with runner() as r:
        assert sum(1 for _ in r.run(many)) == 500


def test_what_was_not_run_is_a_reply(plan: Plan) -> None:
    plan(refuse=["vm.bad"])
    with runner() as r:
        (reply,) = r.run([RunRequest(0, {"vm.bad": "999"}, ["work"])])
    assert isinstance(reply, NotRun)
    assert reply.hint == "kilter knobs show vm.bad"


@pytest.mark.parametrize("torn", [False, True])
def test_an_early_death_is_told_with_its_status(plan: Plan, torn: bool) -> None:
    plan(die_after=2, status=3, torn=torn)
    with runner() as r, pytest.raises(BatchError, match=r"ended before .*exit status 3"):
        list(r.run(requests(4)))


def test_a_child_that_cannot_start(plan: Plan) -> None:
    with (
        pytest.raises(BatchError, match=r"cannot start /nonexistent/kilter: No such file"),
        BatchRunner(LabContext(["/nonexistent/kilter"], 1)) as r,
    ):
        list(r.run(requests(1)))


def test_an_error_waits_for_the_settings(plan: Plan) -> None:
    log = plan(slow_end=0.5)

    def fail() -> None:
        with runner() as r:
            list(r.run(requests(1)))
            raise ValueError("something else")

    with pytest.raises(ValueError, match="something else"):
        fail()
    assert log.read_text().splitlines()[-1] == "settings are back"


def test_an_idle_child_that_does_not_end_gets_a_signal(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kilter_lab.runner.CLOSE_S", 0.2)
    log = plan(slow_end=1.0)
    with runner() as r:
        list(r.run(requests(1)))
    assert log.read_text().splitlines()[-1] == "settings are back"


def test_ignored_signals_come_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with signals_ignored():
        os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_program_ends_clean_on_a_signal(
    plan: Plan, tmp_path: Path, number: int, status: int
) -> None:
    """Ctrl-C reaches both programs; a second one while settings come back changes nothing."""
    log = plan(run_s=0.1, slow_end=1.0)
    request = {
        "ask": "compare",
        "context": {"kilter": [sys.executable, str(FAKE)], "seed": 1},
        "options": {"metrics": [{"name": "w", "source": {"from": "record", "field": "wall_s"}}]},
        "base": {"label": "current", "command": ["work"]},
        "arms": [{"label": "a", "command": ["work"], "settings": {"k": "1"}}],
        "blocks": 100,
        "question": {},
    }  # fmt: skip
    child = subprocess.Popen(
        [sys.executable, "-m", "kilter_lab"],
        env={**os.environ, "PYTHONPATH": str(LAB)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin is not None
    child.stdin.write(json.dumps(request).encode())
    child.stdin.close()
    child.stdin = None
    wait_for(lambda: log.exists() and log.read_text().count("\n") > 4)
    os.killpg(child.pid, number)
    second = threading.Timer(0.5, os.killpg, (child.pid, number))
    second.start()
    out, err = child.communicate(timeout=20)
    second.join()
    assert child.returncode == status, err
    assert out == b""
    assert b"Traceback" not in err
    assert log.read_text().splitlines()[-1] == "settings are back"


def wait_for(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_a_failure_that_kilter_told_is_not_told_twice(plan: Plan) -> None:
    plan(die_after=0, status=125)
    with runner() as r, pytest.raises(ToldError):
        list(r.run(requests(2)))
