"""Compare, tune and report through the real command line, with workloads whose response is known."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .program import BINARY, Done, finish, started, wait_until
from .roots import Root
from .workload import METRIC, Workload

pytestmark = pytest.mark.skipif(
    not (BINARY.parent / "python3").exists(),
    reason=f"there is no Python beside {BINARY}: compare and tune are not installed",
)

EFFECT = 0.2
KNOBS = "vm.swappiness,vm.page-cluster,vm.stat_interval,vm.watermark_scale_factor,sched.nr_migrate"
SEED = ("--seed", "20261121")


@pytest.fixture
def strong(root: Root, tmp_path: Path) -> Workload:
    """A command that takes a fifth less with swappiness 0 than with 60."""
    return Workload(root, tmp_path, EFFECT)


@pytest.fixture
def flat(root: Root, tmp_path: Path) -> Workload:
    """A command that no knob helps."""
    return Workload(root, tmp_path, 0.0)


def compare(root: Root, workload: Workload, *args: str, code: int = 0) -> Any:
    """Compare, and return the JSON."""
    words = ("compare", *SEED, *METRIC, "--blocks", "4", *args, "--", *workload.command)
    before = root.settings()
    done = root("--json", *words)
    assert done.returncode == code, done
    assert root.settings() == before
    assert root.layers() == []
    return json.loads(done.stdout)


def tune(workload: Workload, *args: str, trials: int = 12) -> list[str]:
    """The words of a small tune."""
    words = ["tune", *SEED, *METRIC, "--study", "small", "--trials", str(trials), "--knobs", KNOBS]
    return [*words, *args, "--", *workload.command]


def test_an_accepted_risk_is_accepted_in_the_runs_too(root: Root, flat: Workload) -> None:
    risky = ("--with", "kernel.sched_rt_runtime_us=900000")
    refused = root("compare", *METRIC, "--blocks", "2", *risky, "--", *flat.command)
    assert refused.returncode == 2
    assert "refused for their risk" in refused.stderr
    result = compare(root, flat, *risky, "--allow", "hang")
    assert result["arms"][0]["settings"] == {"kernel.sched_rt_runtime_us": "900000"}
    root.profile("open", {"kernel.sched_rt_runtime_us": "900000"})
    words = ("audit", "open", "--allow", "hang", *METRIC, "--max-runs", "16")
    done = root("--json", *words, "--", *flat.command)
    assert done.returncode in (0, 1), done
    assert [line["line"]["knob"] for line in json.loads(done.stdout)["lines"]] == [
        "kernel.sched_rt_runtime_us"
    ]


def test_a_strong_effect_is_better(root: Root, strong: Workload) -> None:
    result = compare(root, strong, "--with", "vm.swappiness=0", "--require", "better")
    (arm,) = result["arms"]
    (verdict,) = arm["verdicts"]
    assert (verdict["verdict"], verdict["metric"], verdict["blocks"]) == ("better", "time", 4)
    assert verdict["low"] < 1 - EFFECT < verdict["high"]
    assert arm["settings"] == {"vm.swappiness": "0"}
    # The check run, and four blocks of two arms that run twice.
    assert strong.runs() == 1 + 4 * 4


def test_the_mirrored_effect_is_worse_and_exits_1(root: Root, strong: Workload) -> None:
    args = ("--base", "vm.swappiness=0", "--with", "vm.swappiness=60")
    result = compare(root, strong, *args, code=1)
    (verdict,) = result["arms"][0]["verdicts"]
    assert verdict["verdict"] == "worse"
    assert verdict["low"] < 1 / (1 - EFFECT) < verdict["high"]


def test_a_metric_of_which_more_is_better_turns_the_verdict(root: Root, strong: Workload) -> None:
    words = ("--metric", "time=/Time: ([0-9.]+)/:max", "--with", "vm.swappiness=0")
    done = root("--json", "compare", *SEED, *words, "--blocks", "4", "--", *strong.command)
    assert done.returncode == 1, done
    assert json.loads(done.stdout)["arms"][0]["verdicts"][0]["verdict"] == "worse"


def test_equal_arms_are_not_better(root: Root, flat: Workload) -> None:
    result = compare(root, flat, "--with", "vm.swappiness=0")
    assert result["arms"][0]["verdicts"][0]["verdict"] in ("no-difference", "inconclusive")
    compare(root, flat, "--with", "vm.swappiness=0", "--require", "better", code=1)


def test_several_arms_profiles_and_an_export(root: Root, strong: Workload, tmp_path: Path) -> None:
    root.profile("calm", {"vm.swappiness": "0"})
    export = tmp_path / "runs.csv"
    args = ("--with", "calm", "--with", "vm.page-cluster=0", "--export", str(export))
    result = compare(root, strong, *args)
    assert [arm["label"] for arm in result["arms"]] == ["calm", "vm.page-cluster=0"]
    assert result["arms"][0]["verdicts"][0]["verdict"] == "better"
    with export.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 6
    assert {row["arm"] for row in rows} == {"current", "calm", "vm.page-cluster=0"}


def test_what_was_proven_is_kept_as_evidence(root: Root, strong: Workload) -> None:
    compare(root, strong, "--with", "vm.swappiness=0")
    (line,) = root.json("evidence", "vm.swappiness")
    assert line["arm"] == {"vm.swappiness": "0"}
    assert line["verdict"]["verdict"] == "better"
    assert " better " in root("knobs", "show", "vm.swappiness").stdout
    assert root.json("evidence", "vm.page-cluster") == []


def test_commands_are_compared_with_each_other(root: Root) -> None:
    commands = ("sh -c 'echo Time: 1.0$$'", "sh -c 'echo Time: 3.0$$'")
    done = root("compare", *SEED, *METRIC, "--blocks", "3", *commands)
    assert done.returncode == 1, done
    assert "higher in time" in done.stdout
    done = root("compare", *SEED, *METRIC, "--blocks", "3", *reversed(commands))
    assert done.returncode == 0, done
    assert "lower in time" in done.stdout


FAILING = {
    "exit code": ("echo working; echo out of paper >&2; exit 3", ("exit 3", "out of paper")),
    "signal": ("echo half done; kill -9 $$", ("signal 9", "half done")),
    "no metric": ("echo nothing to read here", ("metric time", "nothing to read here")),
    "no number": ("echo Time: .", ("metric time", "Time: .")),
    "zero": ("echo Time: 0", ("metric time", "positive")),
}


@pytest.mark.parametrize("case", FAILING.values(), ids=FAILING.keys())
def test_a_base_that_fails_stops_a_comparison_at_once(
    root: Root, tmp_path: Path, case: tuple[str, tuple[str, ...]]
) -> None:
    stops_at_once(root, tmp_path, ["compare", "--with", "vm.swappiness=0"], case)


@pytest.mark.parametrize("name", ["exit code", "no metric"])
def test_a_baseline_that_fails_stops_a_tune_at_once(root: Root, tmp_path: Path, name: str) -> None:
    command = ["tune", "--knobs", "vm.swappiness", "--trials", "5"]
    stops_at_once(root, tmp_path, command, FAILING[name])


def stops_at_once(
    root: Root, tmp_path: Path, command: list[str], case: tuple[str, tuple[str, ...]]
) -> None:
    """It runs once, shows the end of its output, and no setting is left."""
    script, says = case
    before = root.settings()
    words = ["sh", "-c", f"echo >> {tmp_path}/runs; {script}"]
    done = root(*command, *METRIC, "--", *words)
    assert done.returncode == 2, done
    assert "error: " in done.stderr
    for word in says:
        assert word in done.stderr
    assert (tmp_path / "runs").read_text() == "\n"
    assert root.settings() == before


def test_a_command_that_is_not_there(root: Root) -> None:
    done = root("compare", "--with", "vm.swappiness=0", "--", "no-such-command")
    assert done.returncode == 2
    assert "command not found" in done.stderr
    assert "no-such-command" in done.stderr


def test_tune_finds_the_planted_effect_and_keeps_it(root: Root, strong: Workload) -> None:
    before = root.settings()
    done = root(*tune(strong, "--require", "better"))
    assert done.returncode == 0, done
    assert "fresh blocks" in done.stdout
    assert "kilter apply small" in done.stdout
    assert root.settings() == before
    assert root.layers() == []

    profile = root.json("profile", "show", "small")
    assert set(profile["set"]) == {"vm.swappiness"}, "knobs that do not matter are dropped"
    assert int(profile["set"]["vm.swappiness"]["value"]) < 30
    assert profile["evidence"]["verdict"]["verdict"] == "better"
    shown = root("profile", "show", "small").stdout
    assert "\nEvidence:\n" in shown

    assert root("apply", "small").returncode == 0
    assert int(root.get("vm.swappiness")) < 30
    assert root("revert", "small").returncode == 0
    assert root.settings() == before

    page = root.path / "var/lib/kilter/studies/small.html"
    assert page.stat().st_size <= 2 << 20
    assert "swappiness" in page.read_text()
    study = reports(root, page)
    assert study["ending"] == "better"
    assert set(study["winner"]) == {"vm.swappiness"}
    confirmed = study["confirmed"][0]
    # The winner's own value decides its effect; the interval must hold it.
    value = int(study["winner"]["vm.swappiness"])
    assert confirmed["low"] < 1 - EFFECT * (60 - value) / 60 < confirmed["high"]
    again = root(*tune(strong))
    assert again.returncode == 0
    assert "study small has ended" in again.stderr


def reports(root: Root, page: Path) -> Any:
    """All forms of the report; the study's data."""
    text = root("report", "small", "--format", "md")
    assert text.returncode == 0
    assert text.stdout.startswith("# ")
    other = page.with_name("other.html")
    assert root("report", "small", "--output", str(other)).returncode == 0
    assert other.read_text().startswith("<!")
    return root.json("report", "small", "--format", "json")


def test_tune_says_so_when_nothing_helps(root: Root, flat: Workload) -> None:
    before = root.settings()
    done = root(*tune(flat))
    assert done.returncode == 0, done
    assert "No setting " in done.stdout
    assert root.settings() == before
    assert not (root.path / "etc/kilter/profiles/small.toml").exists()
    assert root("report", "small", "--format", "md").returncode == 0
    assert root(*tune(flat, "--require", "better")).returncode == 1


def test_failing_trials_are_results(root: Root, strong: Workload) -> None:
    (strong.directory / "strict").touch()
    before = root.settings()
    done = root(*tune(strong))
    assert done.returncode == 0, done
    study = root.json("report", "small", "--format", "json")
    assert any(trial["error"] for trial in study["trials"]), "some trial had a long interval"
    assert study["ending"] == "better"
    assert root.settings() == before


def interrupted(root: Root, workload: Workload, number: signal.Signals) -> Done:
    """A tune that gets a signal once it is in its search."""
    (workload.directory / "slow").touch()
    runs = workload.runs()
    with started(*tune(workload), root=root.path) as child:
        wait_until(lambda: workload.runs() > runs + 14, "the search is under way", 60)
        # As a terminal does: to everybody in its foreground.
        os.killpg(child.pid, number)
        done = finish(child)
    (workload.directory / "slow").unlink()
    return done


def test_ctrl_c_restores_and_the_same_study_goes_on(root: Root, strong: Workload) -> None:
    before = root.settings()
    done = interrupted(root, strong, signal.SIGINT)
    assert done.returncode == 130, done
    assert "small" in done.stderr
    assert root.settings() == before
    assert root.layers() == []
    study = root.json("report", "small", "--format", "json")
    assert study["ending"] == "interrupted"
    made = len(study["runs"])
    assert made > 0

    done = root(*tune(strong))
    assert done.returncode == 0, done
    study = root.json("report", "small", "--format", "json")
    assert study["ending"] == "better"
    assert len(study["runs"]) > made
    assert root.settings() == before


def test_a_killed_lab_leaves_no_setting_behind(root: Root, strong: Workload) -> None:
    before = root.settings()
    (strong.directory / "slow").touch()
    with started(*tune(strong), root=root.path) as child:
        wait_until(lambda: strong.runs() > 14, "the search is under way", 60)
        child.kill()
        child.wait()
        wait_until(lambda: root.settings() == before and root.layers() == [], "restored", 30)
        wait_until(lambda: "experiment" not in root.json("status"), "the batch has ended", 30)
    (strong.directory / "slow").unlink()
    assert root(*tune(strong)).returncode == 0, "and the study goes on"


def test_a_second_tune_of_the_same_study_is_refused(root: Root, strong: Workload) -> None:
    (strong.directory / "slow").touch()
    with started(*tune(strong), root=root.path) as child:
        wait_until(lambda: strong.runs() > 4, "the first is under way", 60)
        runs = strong.runs()
        during = root("--json", "status").stdout
        done = root(*tune(strong))
        assert done.returncode == 2, done
        assert "error: " in done.stderr
        assert "another" in done.stderr
        assert json.loads(during)["experiment"] > 0
        wait_until(lambda: strong.runs() > runs, "the first goes on", 30)
        child.send_signal(signal.SIGINT)
        assert finish(child).returncode == 130


def test_a_study_of_another_command_is_not_mixed_in(root: Root, flat: Workload) -> None:
    assert root(*tune(flat, trials=1)).returncode == 0
    runs = flat.runs()
    done = root(*tune(flat), "other")
    assert done.returncode == 2, done
    assert "study small exists and is about another command" in done.stderr
    assert "--study NAME" in done.stderr
    assert flat.runs() == runs


STORAGES = {
    "no such directory": ("sqlite:////no/such/directory/x.db", "unable to open"),
    "no database": ("sqlite:////etc/hostname", ""),
    "no such driver": ("nonsense://localhost/x", "nonsense"),
}


@pytest.mark.parametrize("case", STORAGES.values(), ids=STORAGES.keys())
def test_a_storage_that_does_not_work_is_named(
    root: Root, flat: Workload, case: tuple[str, str]
) -> None:
    url, says = case
    before = root.settings()
    done = root(*tune(flat, "--storage", url))
    assert done.returncode == 2, done
    assert url in done.stderr
    assert says in done.stderr
    assert flat.runs() == 0
    assert root.settings() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_full_disk_loses_no_setting(root: Root, strong: Workload) -> None:
    before = root.settings()
    state = root.path / "var/lib/kilter"
    state.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "kilter-test", state], check=True)
    try:
        done = root(*tune(strong))
    finally:
        subprocess.run(["umount", state], check=True)
    assert done.returncode == 2, done
    assert "error: " in done.stderr
    assert "full" in done.stderr or "space" in done.stderr
    assert root.settings() == before
    assert root.layers() == []


def test_a_report_of_nothing_names_what_there_is(root: Root, flat: Workload) -> None:
    done = root("report", "nothing")
    assert done.returncode == 2
    assert "there is no study nothing" in done.stderr or "unable to open" in done.stderr
    assert "Traceback" not in done.stderr
