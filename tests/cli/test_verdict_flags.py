"""What compare, tune, audit and selftest ask the lab for, and what they refuse to ask."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from .roots import Root
from .schemas import SCHEMAS
from .standin import Lab

SWAP = ("--with", "vm.swappiness=10")
TIME = "time=/Time: ([0-9.]+)/"


@pytest.fixture
def lab(root: Root, tmp_path: Path) -> Lab:
    """The binary with a stand-in for the lab."""
    return Lab(tmp_path / "bin", root)


def names(request: Any) -> list[str]:
    """The metrics in order."""
    return [metric["name"] for metric in request["options"]["metrics"]]


def test_the_question_has_the_documented_defaults(lab: Lab) -> None:
    request = lab.asked("compare", *SWAP, "--", "true")
    assert request["question"] == {
        "alpha": 0.05,
        "detect_percent": 2.0,
        "region_percent": 1.0,
        "objectives": 1,
        "guards": [],
        "require_better": False,
    }
    assert names(request) == ["wall_s"]
    assert (request["blocks"], request["max_runs"], request["budget_s"]) == (None, None, None)
    assert request["workload"] == ""


COMMANDS = {
    "compare": ("compare", *SWAP),
    "tune": ("tune", "--knobs", "vm.swappiness", "--study", "s"),
    "audit": ("audit", "desktop"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_the_same_flags_ask_the_same_of_all(lab: Lab, command: tuple[str, ...]) -> None:
    numbers = ("--alpha", "0.01", "--detect", "3%", "--region", "0.5", "--seed", "7")
    metrics = ("--metric", TIME, "--metric", "rate=json:/rate:max", "--also", "user_s")
    guards = ("--guard", "max_rss_kib <= +10%", "--guard", "rate>=-5%", "--require", "better")
    flags = (*numbers, *metrics, *guards)
    request = lab.asked(*command, *flags, "--", "true")
    assert request["context"]["seed"] == 7
    assert request["question"] == {
        "alpha": 0.01,
        "detect_percent": 3.0,
        "region_percent": 0.5,
        "objectives": 2,
        "guards": [
            {"metric": "max_rss_kib", "bound": "at-most", "percent": 10.0},
            {"metric": "rate", "bound": "at-least", "percent": -5.0},
        ],
        "require_better": True,
    }
    assert names(request) == ["time", "rate", "user_s", "max_rss_kib"]
    directions = [metric.get("direction", "min") for metric in request["options"]["metrics"]]
    assert directions == ["min", "max", "min", "min"]


WRONG = {
    "alpha 0": (["--alpha", "0"], ("--alpha 0", "above 0 to 0.5"), ""),
    "alpha above": (["--alpha", "0.6"], ("--alpha 0.6", "above 0 to 0.5"), ""),
    "alpha below": (["--alpha", "-0.05"], ("--alpha -0.05", "above 0 to 0.5"), ""),
    "alpha a word": (["--alpha", "low"], ("--alpha low", "like 0.05"), ""),
    "alpha nan": (["--alpha", "nan"], ("--alpha nan", "above 0 to 0.5"), ""),
    "alpha empty": (["--alpha", ""], ("--alpha", "like 0.05"), ""),
    "detect 0": (["--detect", "0"], ("--detect 0", "above 0 to below 50 percent"), ""),
    "detect 50": (["--detect", "50"], ("--detect 50", "above 0 to below 50 percent"), ""),
    "detect a word": (["--detect", "small"], ("--detect small", "like 1.5"), ""),
    "region -1": (["--region", "-1"], ("--region -1", "above 0 to below 50 percent"), ""),
    "guard nonsense": (
        ["--guard", "faster please"],
        ("--guard 'faster please'", "neither `<=` nor `>=`"),
        "--guard 'p99 <= +5%'",
    ),
    "guard without percent": (["--guard", "wall_s <= 5"], ("`5` has no `%`",), "--guard 'p99"),
    "guard no number": (["--guard", "wall_s <= x%"], ("`x%` is no number",), "--guard 'p99"),
    "guard out of range": (
        ["--guard", "wall_s <= -100%"],
        ("from above -100 % to 1000 %",),
        "--guard 'p99",
    ),
    "guard of nothing": (
        ["--guard", "p99 <= 5%"],
        ("p99 is not measured", "measured are wall_s", "--also"),
        "--guard 'p99",
    ),
    "guard on the wrong side": (
        ["--guard", "wall_s >= -5%"],
        ("less of wall_s is better", "`wall_s <= +5%`"),
        "--guard 'p99",
    ),
    "guard on the other wrong side": (
        ["--also", "iops=json:/iops:max", "--guard", "iops <= 5%"],
        ("more of iops is better", "`iops >= -5%`"),
        "--guard 'p99",
    ),
    "guard twice": (
        ["--guard", "wall_s <= 5%", "--guard", "wall_s <= 6%"],
        ("wall_s has a limit already",),
        "",
    ),
    "guard hostile": (
        ["--guard", "\x1b]0;x\x07 <= 5%"],
        ("is not measured",),
        "--guard 'p99",
    ),
    "metric twice": (["--metric", "user_s", "--metric", "user_s:max"], ("measured already",), ""),
    "also twice": (["--also", "wall_s"], ("--also wall_s", "measured already"), ""),
    "also unknown": (["--also", "speed"], ("--also speed", "wall_s"), "--metric user_s"),
    "also broken": (["--also", "t=x"], ("--also t=x", "NAME=/REGEX/"), "--metric user_s"),
    "require": (["--require", "worse"], ("--require", "better"), ""),
    "seed": (["--seed=-1"], ("--seed",), ""),
    "budget 0": (["--budget", "0"], ("--budget 0", "no time"), ""),
    "budget a word": (["--budget", "long"], ("--budget long", "5m"), ""),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_wrong_flags_are_told_before_anything_happens(
    lab: Lab, command: tuple[str, ...], case: tuple[list[str], tuple[str, ...], str]
) -> None:
    flags, says, hint = case
    done = lab.refused(*command, *flags, "--", "true", says=says, hint=hint)
    assert "\x1b" not in done.stderr


COMPARE = {
    "blocks and runs": (["--blocks", "4", "--max-runs", "40"], ("--blocks", "--max-runs")),
    "blocks and budget": (["--blocks", "4", "--budget", "1m"], ("--blocks", "--budget")),
    "no runs": (["--max-runs", "0"], ("--max-runs",)),
    "too few runs": (
        ["--max-runs", "11", "--with", "vm.page-cluster=0"],
        ("--max-runs 11", "3 arms", "at least 12"),
    ),
}


@pytest.mark.parametrize("case", COMPARE.values(), ids=COMPARE.keys())
def test_ends_of_a_comparison_that_make_no_sense(
    lab: Lab, case: tuple[list[str], tuple[str, ...]]
) -> None:
    flags, says = case
    lab.refused("compare", *SWAP, *flags, "--", "true", says=says)


def test_a_comparison_knows_the_values_now_and_its_ends(lab: Lab, root: Root) -> None:
    root.profile("calm", {"vm.page-cluster": "0"})
    arms = ("--base", "calm", "--with", "vm.swappiness=10,vm.stat_interval=1")
    request = lab.asked("compare", *arms, "--max-runs", "40", "--budget", "90s", "--", "true")
    assert request["old"] == {
        "vm.page-cluster": "3",
        "vm.swappiness": "60",
        "vm.stat_interval": "1",
    }
    assert request["base"]["settings"] == {"vm.page-cluster": "0"}
    assert (request["max_runs"], request["budget_s"], request["blocks"]) == (40, 90.0, None)
    request = lab.asked("compare", *SWAP, "--blocks", "3", "--", "true")
    assert request["blocks"] == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming somebody else needs root")
def test_commands_are_compared_without_root(root: Root) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    with tempfile.TemporaryDirectory() as directory:
        lab = Lab(Path(directory), root)
        lab.directory.chmod(0o777)
        without_root(lab)


def without_root(lab: Lab) -> None:
    """Nobody compares commands and tests kilter, and may not change a setting."""
    setpriv = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    nobody: dict[str, Any] = {
        "prefix": setpriv,
        "at_root": False,
        "env": {"HOME": str(lab.directory)},
    }
    request = lab.asked("compare", "echo a", "echo b", **nobody)
    assert request["base"] == {"label": "echo a", "settings": {}, "command": ["echo", "a"]}
    assert [arm["command"] for arm in request["arms"]] == [["echo", "b"]]
    assert request["old"] == {}
    for command in (["compare", *SWAP], ["audit", "desktop"], ["tune", "--knobs", "vm.swappiness"]):
        done = lab(*command, "--", "true", **nobody)
        assert done.returncode == 2, done
        assert "needs root" in done.stderr
        assert not (lab.directory / "request").exists()
    assert lab.asked("selftest", **nobody)["ask"] == "selftest"


def test_a_workload_brings_its_metrics_and_its_name(lab: Lab) -> None:
    request = lab.asked("compare", *SWAP, "--workload", "messaging")
    assert request["workload"] == "messaging"
    assert names(request) == ["seconds", "messages_per_s"]
    assert request["question"]["objectives"] == 1
    assert request["base"]["command"][1:3] == ["load", "messaging"]

    flags = ("--metric", "messages_per_s", "--also", "wall_s", "--guard", "seconds <= 1%")
    request = lab.asked("compare", *SWAP, "--workload", "messaging", *flags)
    assert names(request) == ["messages_per_s", "wall_s", "seconds"]
    decides = request["options"]["metrics"][0]
    assert decides["direction"] == "max"
    assert decides["source"] == {"from": "json", "pointer": "/messages_per_s"}
    assert request["question"]["objectives"] == 1
    says = ("less of seconds is better",)
    lab.refused("compare", *SWAP, "--workload", "messaging", "--guard", "seconds>=0%", says=says)
    told = ("--metric second", "the workload has seconds, messages_per_s")
    lab.refused("compare", *SWAP, "--workload", "messaging", "--metric", "second", says=told)


def test_a_workload_of_root_runs_as_root_and_one_that_is_missing_is_told(
    lab: Lab, root: Root
) -> None:
    root.put(
        "etc/kilter/workloads/mine.toml",
        """
[[workload]]
name = "mine"
summary = "x"
why = "x"
command = ["true"]
prepare = ["sync"]
needs_root = true
metrics = [{ name = "wall_s", source = { from = "record", field = "wall_s" } }]
[[workload]]
name = "missing"
summary = "x"
why = "x"
command = ["no-such-program-here"]
package = "no-such-package"
metrics = [{ name = "wall_s", source = { from = "record", field = "wall_s" } }]
""",
    )
    request = lab.asked("compare", *SWAP, "--workload", "mine")
    assert request["context"]["batch_options"] == ["--as-root"]
    assert request["options"]["prepare"] == ["sync"]
    request = lab.asked("compare", *SWAP, "--workload", "mine", "--prepare", "true x")
    assert request["options"]["prepare"] == ["true", "x"]
    says = ("missing: `no-such-program-here` is not installed",)
    args = ("compare", *SWAP, "--workload", "missing")
    lab.refused(*args, says=says, hint="sudo apt install no-such-package")


def test_an_audit_takes_the_lines_that_change_something(lab: Lab, root: Root) -> None:
    root.profile("base", {"vm.swappiness": "60", "vm.page-cluster": "0"})
    mine = root.profile("mine", {"block.*.iostats": "0"}, head='include = ["base"]')
    mine.write_text(
        'name = "mine"\ninclude = ["base"]\n[set]\n'
        '"vm.page-cluster" = { value = "1", why = "because\\n" }\n'
        '"block.*.iostats" = { value = "0", why = "of no use" }\n'
        '"mglru.enabled" = { value = "7" }\n'
        '"vm.overcommit_memory" = { value = "1" }\n'
    )
    refused = lab.refused("audit", "mine", "--", "true", says=("vm.overcommit_memory (hang)",))
    assert "hint: add --skip-risky to leave them out, or --allow hang" in refused.stderr
    args = ("audit", "mine", "--skip-risky", "--max-runs", "99", "--budget", "2m", "--", "a", "b")
    request = lab.asked(*args)
    assert (request["ask"], request["profile"]) == ("audit", "mine")
    assert request["lines"] == [
        {"knob": "block.vda.iostats", "old": "1", "new": "0", "why": "of no use"},
        {"knob": "vm.page-cluster", "old": "3", "new": "1", "why": "because"},
    ]
    left_out = dict(request["left_out"])
    assert set(left_out) == {"mglru.enabled", "vm.overcommit_memory", "vm.swappiness"}
    assert left_out["vm.swappiness"] == "already 60"
    assert left_out["mglru.enabled"] == "absent"
    assert left_out["vm.overcommit_memory"] == "left out for its risk: hang"
    assert (request["command"], request["workload"]) == (["a", "b"], "")
    assert (request["max_runs"], request["budget_s"]) == (99, 120.0)
    request = lab.asked("audit", "mine", "--allow", "hang", "--workload", "messaging")
    assert [line["knob"] for line in request["lines"]] == [
        "block.vda.iostats", "vm.overcommit_memory", "vm.page-cluster",
    ]  # fmt: skip
    assert request["workload"] == "messaging"


def test_an_audit_of_nothing_says_why(lab: Lab, root: Root) -> None:
    root.profile("same", {"vm.swappiness": "60", "vm.zone_reclaim_mode": "0"})
    says = (
        "same changes nothing here",
        "\n  vm.swappiness: already 60",
        "vm.zone_reclaim_mode: absent",
    )
    lab.refused("audit", "same", "--", "true", says=says, hint="kilter diff same")
    root.profile("empty", {})
    lab.refused("audit", "empty", "--", "true", says=("empty changes nothing here",))
    root.profile("wrong", {"vm.swappiness": "999"})
    lab.refused("audit", "wrong", "--", "true", says=("vm.swappiness", "0 to 200"))


AUDIT = {
    "typo": (["audit", "desktp", "--", "true"], ("did you mean desktop?",)),
    "a path": (["audit", "../x", "--", "true"], ("is no name of a profile",)),
    "no command": (["audit", "desktop"], ("no command is given",)),
    "no profile": (["audit", "--", "true"], ("PROFILE",)),
    "both": (["audit", "desktop", "--workload", "messaging", "--", "true"], ("--workload",)),
    "no such workload": (["audit", "desktop", "--workload", "mesaging"], ("messaging?",)),
    "few runs": (["audit", "desktop", "--max-runs", "7", "--", "true"], ("--max-runs", "8..")),
    "selftest few runs": (["selftest", "--runs", "39"], ("--runs", "40..")),
    "selftest guard": (["selftest", "--guard", "wall_s <= 5%"], ("--guard",)),
    "selftest metrics": (
        ["selftest", "--metric", "wall_s", "--metric", "user_s"],
        ("--metric user_s", "one metric"),
    ),
    "selftest both": (["selftest", "--workload", "messaging", "--", "true"], ("--workload",)),
    "selftest alpha": (["selftest", "--alpha", "1"], ("--alpha 1",)),
    "selftest budget": (["selftest", "--budget", "0s"], ("--budget 0",)),
}


@pytest.mark.parametrize("case", AUDIT.values(), ids=AUDIT.keys())
def test_wrong_audits_and_self_tests(lab: Lab, case: tuple[list[str], tuple[str, ...]]) -> None:
    args, says = case
    lab.refused(*args, says=says)


def test_a_self_test_runs_the_built_in_workload_unless_told(lab: Lab) -> None:
    request = lab.asked("selftest")
    assert (request["ask"], request["runs"], request["budget_s"]) == ("selftest", 200, None)
    assert request["command"][0] == str(lab.binary)
    assert request["command"][1:3] == ["load", "messaging"]
    assert names(request)[0] == "seconds"
    request = lab.asked(
        "selftest", "--runs", "50", "--budget", "5m", "--alpha", "0.1", "--", "true"
    )
    assert (request["command"], request["runs"], request["budget_s"]) == (["true"], 50, 300.0)
    assert (names(request), request["question"]["alpha"]) == (["wall_s"], 0.1)
    request = lab.asked("selftest", "--workload", "wakeup", "--metric", "requests_per_s")
    assert request["options"]["metrics"][0]["direction"] == "max"


def evidence(**changes: Any) -> dict[str, Any]:
    """A verdict, with changes."""
    sample = json.loads((SCHEMAS / "samples/evidence.0.json").read_text())
    return {**sample, **changes}


def test_a_search_is_given_what_is_known_of_its_knobs(lab: Lab, root: Root) -> None:
    def arm(when: int, **settings: str) -> dict[str, Any]:
        values = {f"vm.{knob}": value for knob, value in settings.items()}
        minutes, seconds = divmod(when, 60)
        return evidence(arm=values, when=f"2026-01-02T03:{minutes:02}:{seconds:02}Z")

    # The newest lies first in the file, as an import leaves it.
    known = [arm(n, swappiness=str(n % 200)) for n in reversed(range(600))]
    others = [
        arm(601, stat_interval="7"),
        arm(602, swappiness="1", stat_interval="7"),
        arm(603, swappiness="999"),
        arm(604, swappiness="1", page_cluster="0"),
    ]
    both = evidence(arm={"vm.swappiness": "1", "vm.page-cluster": "0"}, when="2026-01-03T00:00:00Z")
    lines = "".join(json.dumps(line) + "\n" for line in [both, *known, *others])
    assert root("evidence", "record", input=lines).returncode == 0
    args = ("tune", "--knobs", "vm.swappiness,vm.page-cluster", "--workload", "messaging")
    request = lab.asked(*args)
    assert request["workload"] == "messaging"
    given = request["evidence"]
    assert len(given) == 500
    assert given[-1]["arm"] == both["arm"]
    whens = [line["when"] for line in given]
    assert whens == sorted(whens), "the newest last"
    assert whens[0] == "2026-01-02T03:01:41Z", "of 600 minutes and seconds, the last 499"
    assert all(int(line["arm"]["vm.swappiness"]) <= 200 for line in given)
