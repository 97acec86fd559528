"""What becomes of the tests of a guest that dies, hangs, or tells too little."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import relay, session
from .guest import Ending
from .kernels import Kernel
from .klog import Verdict
from .session import BOOTS, Session

KERNEL = Kernel("cfs", "6.1.0-50-amd64", "6.1.176-1", "bookworm")
Script = Callable[[list[str], Callable[[str], None]], Ending]


def report(**fields: Any) -> str:
    return relay.SEPARATOR + json.dumps(fields)


def passes(test: str, hear: Callable[[str], None]) -> None:
    """What a guest says of a test that passes; pytest's dots come in between."""
    hear("." + report(test=test, state="started"))
    hear(report(test=test, state="passed", text="", seconds=0.5))
    hear("." + report(test=test, state="ended"))


def ending(code: int | None, why: str = "", harm: str = "") -> Ending:
    return Ending(code, why, 10.0, Verdict(harm, 0))


def played(
    monkeypatch: pytest.MonkeyPatch, work: Path, script: Script, tests: list[str]
) -> Session:
    """A session whose guests follow a script."""

    class FakeGuest:
        def __init__(self, kernel: Kernel, work: Path, *more: object) -> None:
            self.work = work

        def run(self, command: str, hear: Callable[[str], None], *limits: float) -> Ending:
            return script((self.work / "tests").read_text().split("\n"), hear)

    monkeypatch.setattr(session, "Guest", FakeGuest)
    made = Session(KERNEL, work, tests)
    made.start()
    made.finish()
    return made


def test_results_are_the_guests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def script(tests: list[str], hear: Callable[[str], None]) -> Ending:
        passes("a", hear)
        hear(report(test="b", state="started"))
        hear(report(test="b", state="skipped", text="no such knob", seconds=0.1))
        hear(report(test="b", state="ended"))
        hear(report(test="c", state="started"))
        hear(report(test="c", state="passed", text="", seconds=0.1))
        hear(report(test="c", state="failed", text="its teardown", seconds=0.1))
        hear(report(test="c", state="ended"))
        return ending(1)

    done = played(monkeypatch, tmp_path, script, ["a", "b", "c"])
    assert [(done.result(t).state, done.result(t).text) for t in "abc"] == [
        ("passed", ""),
        ("skipped", "no such knob"),
        ("failed", "its teardown"),
    ]
    assert done.account.boots == 1


def test_a_panic_fails_the_test_that_ran_and_the_rest_is_run_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def script(tests: list[str], hear: Callable[[str], None]) -> Ending:
        if "b" in tests:
            passes("a", hear)
            hear(report(test="b", state="started"))
            return ending(None, "it ended in the middle: Kernel panic", "Kernel panic")
        for test in tests:
            passes(test, hear)
        return ending(0)

    done = played(monkeypatch, tmp_path, script, ["a", "b", "c"])
    assert [done.result(test).state for test in "abc"] == ["passed", "failed", "passed"]
    assert "Kernel panic" in done.result("b").text
    assert (done.account.boots, done.account.harm) == (2, ["Kernel panic"])


def test_a_kernel_that_never_comes_up_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tests = [f"t{number}" for number in range(BOOTS + 3)]
    done = played(monkeypatch, tmp_path, lambda *_: ending(None, "no root"), tests)
    assert {done.result(test).state for test in tests} == {"failed"}
    assert done.account.boots == BOOTS


def test_a_guest_that_dies_before_its_tests_is_none_of_theirs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    boots = []

    def script(tests: list[str], hear: Callable[[str], None]) -> Ending:
        boots.append(tests)
        if len(boots) == 1:
            return ending(None, "its kernel came to a halt as it booted")
        for test in tests:
            passes(test, hear)
        return ending(0)

    done = played(monkeypatch, tmp_path, script, ["a", "b"])
    assert [done.result(test).state for test in "ab"] == ["passed", "passed"]
    assert boots == [["a", "b"]] * 2


def test_a_result_that_is_missing_is_no_pass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def script(tests: list[str], hear: Callable[[str], None]) -> Ending:
        hear(report(test="a", state="started"))
        hear(report(test="a", state="ended"))
        return ending(0)

    done = played(monkeypatch, tmp_path, script, ["a", "b"])
    assert [done.result(test).state for test in "ab"] == ["failed", "failed"]


def test_an_error_on_this_side_fails_every_test(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def script(tests: list[str], hear: Callable[[str], None]) -> Ending:
        raise OSError("no space left on device")

    done = played(monkeypatch, tmp_path, script, ["a", "b"])
    assert "no space left" in done.result("a").text
    assert done.result("b").state == "failed"
