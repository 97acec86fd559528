"""The package as a program: ``python -m kilter_lab < REQUEST`` with a stand-in for the binary."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from synthetic import knobs

FAKE = Path(__file__).with_name("fake_kilter.py")
LAB = FAKE.parent.parent
WALL = {"name": "wall_s", "source": {"from": "record", "field": "wall_s"}, "unit": "s"}


def lab(request: object, plan: dict[str, object]) -> subprocess.CompletedProcess[str]:
    text = request if isinstance(request, str) else json.dumps(request)
    return subprocess.run(
        [sys.executable, "-m", "kilter_lab"],
        env={**os.environ, "PYTHONPATH": str(LAB), "FAKE_KILTER": json.dumps(plan)},
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def context(**changes: object) -> dict[str, object]:
    return {"kilter": [sys.executable, str(FAKE)], "seed": 1, **changes}


def compare(**changes: Any) -> dict[str, Any]:
    return {
        "ask": "compare",
        "context": context(),
        "options": {"metrics": [WALL]},
        "base": {"label": "current", "command": ["work"]},
        "arms": [{"label": "k=1", "command": ["work"], "settings": {"k": "1"}}],
        "blocks": 5,
        "question": {},
        **changes,
    }


def tune(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    return {
        "ask": "tune",
        "context": context(),
        "options": {"metrics": [WALL]},
        "study": "s1",
        "storage": f"sqlite:///{tmp_path}/studies.db",
        "state_dir": str(tmp_path),
        "command": ["work", "hard"],
        "knobs": msgspec.to_builtins(knobs()),
        "question": {},
        "trials": 24,
        **changes,
    }


FASTER = {"effect": {"kernel.sched_autogroup_enabled": {"0": 0.8}}, "noise": 0.02}


def test_compare_end_to_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = lab(compare(), {"effect": {"k": {"1": 0.5}}, "log": str(log)})
    assert done.returncode == 0, done.stderr
    assert "k=1 is 5" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr  # no colours, no bars: no terminal
    evidence = [x for x in log.read_text().splitlines() if x.startswith("evidence record: ")]
    line = json.loads(evidence[0].removeprefix("evidence record: "))
    assert line["arm"] == {"k": "1"}
    assert line["verdict"]["verdict"] == "better"
    assert line["machine"] == "fake"


def test_commands_that_differ_are_no_evidence(tmp_path: Path) -> None:
    log = tmp_path / "log"
    arm = {"label": "other", "command": ["other"], "settings": {"k": "1"}}
    done = lab(compare(arms=[arm]), {"log": str(log)})
    assert done.returncode == 0, done.stderr
    assert "evidence" not in log.read_text()


def test_evidence_that_cannot_be_kept_is_a_warning(tmp_path: Path) -> None:
    done = lab(compare(), {"effect": {"k": {"1": 0.5}}, "keep_fails": True})
    assert done.returncode == 0
    assert "warning: the evidence was not recorded: the disk is full" in done.stderr


def test_worse_is_exit_1() -> None:
    assert lab(compare(), {"effect": {"k": {"1": 2.0}}}).returncode == 1


def test_a_failing_command_shows_its_stderr() -> None:
    done = lab(compare(), {"fail": {"always": 7}})
    assert done.returncode == 2
    assert done.stdout == ""
    assert "error: the command fails with the base's settings (exit 7): work" in done.stderr
    assert "    it broke" in done.stderr
    assert "hint: run it by itself first: work" in done.stderr


def test_a_refusal_carries_its_hint() -> None:
    done = lab(compare(), {"refuse": ["k"]})
    assert done.returncode == 2
    assert done.stderr.splitlines()[-2:] == [
        "error: k=1 was not run: k = 999 is out of range",
        "hint: kilter knobs show k",
    ]


def test_a_death_of_the_binary_is_told() -> None:
    done = lab(compare(), {"die_after": 3, "status": 4})
    assert done.returncode == 2
    assert "ended before all runs were made (exit status 4)" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["", "{", '{"ask": "dance"}', '{"ask": "compare"}'])
def test_what_is_no_request(text: str) -> None:
    done = lab(text, {})
    assert done.returncode == 2
    assert done.stderr.startswith("error: the request cannot be read: ")
    assert "Traceback" not in done.stderr


def test_a_request_longer_than_any_argument(tmp_path: Path) -> None:
    long = tune(tmp_path, trials=8)
    for knob in long["knobs"]:
        knob["spec"]["why"] = "because " * 2500
    assert len(json.dumps(long)) > 128 * 1024
    done = lab(long, FASTER)
    assert done.returncode == 0, done.stderr


def test_optuna_is_not_imported_for_compare() -> None:
    code = (
        "import sys, kilter_lab.compare, kilter_lab.entry; "
        "print([m for m in ('optuna', 'matplotlib', 'scipy.stats') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(LAB)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_tune_end_to_end(tmp_path: Path) -> None:
    """Found, confirmed, saved, recorded, reported; asked again, only shown."""
    log = tmp_path / "log"
    done = lab(tune(tmp_path), {**FASTER, "log": str(log)})
    assert done.returncode == 0, done.stderr
    assert "kernel.sched_autogroup_enabled  1 → 0" in done.stdout
    assert "With these settings, work is " in done.stdout
    assert "% faster than without (95 % interval " in done.stdout
    assert "fresh blocks)." in done.stdout
    assert "The search had promised " in done.stdout
    assert "kilter apply s1" in done.stdout
    assert "kilter report s1" in done.stdout
    assert (tmp_path / "s1.html").read_text().startswith("<!DOCTYPE html>")
    kept = log.read_text().splitlines()
    profile = json.loads(next(x for x in kept if x.startswith("profile save: "))[14:])
    assert profile["name"] == "s1"
    assert profile["set"]["kernel.sched_autogroup_enabled"]["value"] == "0"
    assert profile["evidence"]["verdict"]["verdict"] == "better"
    evidence = json.loads(next(x for x in kept if x.startswith("evidence record: "))[17:])
    assert evidence["study"] == "s1"
    assert evidence["command"] == ["work", "hard"]

    log.unlink()
    again = lab(tune(tmp_path), {**FASTER, "log": str(log)})
    assert again.returncode == 0
    assert again.stdout == done.stdout
    assert "study s1 has ended" in again.stderr
    assert not log.exists()  # no run was made

    other = lab(tune(tmp_path, command=["other"]), FASTER)
    assert other.returncode == 2
    assert "error: study s1 exists and is about another command: work hard" in other.stderr
    assert "hint: choose another name: kilter tune --study NAME …" in other.stderr


def test_tune_without_any_effect(tmp_path: Path) -> None:
    """An ending like any other; 1 where *better* is required."""
    done = lab(tune(tmp_path, question={"require_better": True}), {"noise": 0.02})
    assert done.returncode == 1, done.stderr
    assert "No setting " in done.stdout
    assert "kilter apply" not in done.stdout


def test_tune_as_json(tmp_path: Path) -> None:
    done = lab(tune(tmp_path, context=context(json=True)), FASTER)
    found = json.loads(done.stdout)
    assert found["ending"] == "better"
    assert found["winner"] == {"kernel.sched_autogroup_enabled": "0"}
    assert len(found["trials"]) == 25


def test_a_study_is_tuned_by_one_at_a_time(tmp_path: Path) -> None:
    import fcntl

    with (tmp_path / "s1.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = lab(tune(tmp_path), FASTER)
    assert done.returncode == 2
    assert "error: study s1 is being worked on by another kilter tune" in done.stderr


def test_a_command_that_fails_leaves_no_study_in_the_way(tmp_path: Path) -> None:
    assert lab(tune(tmp_path, command=["typo"]), {"fail": {"always": 127}}).returncode == 2
    assert lab(tune(tmp_path), FASTER).returncode == 0


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("nonsense", "--storage nonsense: "),
        ("sqlite:////nonexistent/x.db", "unable to open database file"),
        ("postgresql://localhost/x", "--storage postgresql://localhost/x: "),
    ],
)
def test_bad_storage(tmp_path: Path, storage: str, message: str) -> None:
    done = lab(tune(tmp_path, storage=storage), FASTER)
    assert done.returncode == 2
    assert "error: " in done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
