"""What is wrong on the command line: told in one go, exit code kept, nothing written."""

from __future__ import annotations

import pytest

from .program import kilter
from .roots import Root

USAGE = 2
RUN = 125
"""``run`` keeps low codes for the command, as env(1) and timeout(1) do."""


def refused(root: Root, *args: str, code: int, says: tuple[str, ...], hint: str = "") -> None:
    """The command fails with this code and these words, and the machine is untouched."""
    before = root.settings()
    done = root(*args)
    assert done.returncode == code, done
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    for word in says:
        assert word in done.stderr, f"{word!r} is not in {done.stderr!r}"
    if hint:
        assert f"\nhint: {hint}" in done.stderr
    assert root.settings() == before
    assert root.layers() == []


SETTINGS = {
    "typo": ("vm.swapiness=10", ("vm.swapiness", "did you mean vm.swappiness?"), "kilter knobs"),
    "typo in the last part": ("swappines=1", ("did you mean vm.swappiness?",), "kilter knobs"),
    "nothing like it": ("xyzzy=1", ("there is no knob `xyzzy`",), "kilter knobs list --all"),
    "above": ("vm.swappiness=201", ("vm.swappiness", "201", "0 to 200"), "kilter knobs show"),
    "below": ("vm.min_free_kbytes=0", ("1024 to 1048576",), "kilter knobs show"),
    "huge": ("vm.swappiness=99999999999999999999", ("0 to 200",), "kilter knobs show"),
    "word for a number": ("vm.swappiness=high", ("`high`", "0 to 200"), "kilter knobs show"),
    "fraction": ("vm.swappiness=1.5", ("`1.5`", "0 to 200"), "kilter knobs show"),
    "number for a switch": ("sched.features.NEXT_BUDDY=2", ("it is 0 or 1",), "kilter knobs show"),
    "no such choice": ("thp.enabled=often", ("always, madvise, never",), "kilter knobs show"),
    "empty value": ("vm.swappiness=", ("vm.swappiness", "0 to 200"), "kilter knobs show"),
    "no equals sign": ("vm.swappiness", ("`vm.swappiness` is not KNOB=VALUE",), ""),
    "no knob": ("=10", ("`=10` is not KNOB=VALUE",), ""),
    "nothing": ("", ("is not KNOB=VALUE",), ""),
    "absent here": ("mglru.enabled=7", ("mglru.enabled", "does not have it"), "kilter knobs show"),
    "no such device": ("block.sdz.iostats=0", ("block.sdz.iostats",), "kilter knobs show"),
    "above its limit": (
        "vm.dirty_background_ratio=30",
        ("vm.dirty_background_ratio=30", "vm.dirty_ratio=20"),
        "kilter knobs show vm.dirty_background_ratio",
    ),
    "below what it limits": (
        "vm.dirty_ratio=5",
        ("vm.dirty_background_ratio=10", "vm.dirty_ratio=5"),
        "kilter knobs show",
    ),
    "risky": ("vm.overcommit_memory=1", ("vm.overcommit_memory (hang)",), "add --skip-risky"),
    "a glob over a risky knob": ("vm.overcommit_*=1", ("vm.overcommit_memory (hang)",), ""),
    "a glob that nothing has": ("vm.swpp*=1", ("there is no knob `vm.swpp*`",), ""),
}


@pytest.mark.parametrize("case", SETTINGS.values(), ids=SETTINGS.keys())
def test_a_wrong_setting_is_refused_before_anything_is_written(
    root: Root, case: tuple[str, tuple[str, ...], str]
) -> None:
    setting, says, hint = case
    # The good one first: it must not be written either.
    args = ("run", "--set", "vm.page-cluster=0", "--set", setting, "--", "true")
    refused(root, *args, code=RUN, says=says, hint=hint)


def test_a_knob_given_twice_is_refused(root: Root) -> None:
    args = ("run", "-s", "vm.swappiness=1", "-s", "vm.swappiness=2", "--", "true")
    refused(root, *args, code=RUN, says=("vm.swappiness is given twice",))


def test_a_pair_that_excludes_each_other_is_refused(root: Root) -> None:
    args = ("run", "-s", "vm.dirty_ratio=30", "-s", "vm.dirty_bytes=1000000", "--", "true")
    refused(root, *args, code=RUN, says=("vm.dirty_bytes", "vm.dirty_ratio", "exclude each other"))


NO_CONSENT = ("--allow", "durability")


def test_consent_to_one_risk_is_none_to_another(root: Root) -> None:
    args = ("run", *NO_CONSENT, "-s", "vm.overcommit_memory=1", "--", "true")
    refused(root, *args, code=RUN, says=("vm.overcommit_memory (hang)",), hint="add --skip-risky")


PROFILES = {
    "typo": ("desktp", ("`desktp`", "did you mean desktop?"), "kilter profile list"),
    "unknown": ("xyzzy", ("there is no profile `xyzzy`",), "kilter profile list"),
    "path upwards": ("../x", ("`../x` is no name of a profile", "never a path"), ""),
    "absolute path": ("/etc/passwd", ("`/etc/passwd` is no name of a profile",), ""),
    "hidden": (".x", ("is no name of a profile",), ""),
    "empty": ("", ("is no name of a profile",), ""),
    "upper case": ("Desktop", ("is no name of a profile",), ""),
    "long": ("x" * 65, ("is no name of a profile", "at most 64"), ""),
}


@pytest.mark.parametrize("case", PROFILES.values(), ids=PROFILES.keys())
@pytest.mark.parametrize("command", ["apply", "diff", "profile show"])
def test_a_wrong_profile_name_is_refused(
    root: Root, command: str, case: tuple[str, tuple[str, ...], str]
) -> None:
    name, says, hint = case
    refused(root, *command.split(), name, code=USAGE, says=says, hint=hint)


def test_a_wrong_profile_name_is_refused_by_run_with_its_own_code(root: Root) -> None:
    args = ("run", "--profile", "desktp", "--", "true")
    refused(root, *args, code=RUN, says=("did you mean desktop?",), hint="kilter profile list")


OPTIONS = {
    "no command": (["run"], RUN, ("COMMAND",)),
    "no command after --": (["run", "--"], RUN, ("COMMAND",)),
    "empty command": (["run", "--", ""], RUN, ("the command is empty",)),
    "unknown option": (["run", "--nice", "--", "true"], RUN, ("--nice",)),
    "command before --": (["run", "true"], RUN, ("true",)),
    "timeout in words": (
        ["run", "--timeout", "soon", "--", "true"],
        RUN,
        ("--timeout soon", "90s"),
    ),
    "timeout below 0": (["run", "--timeout=-1", "--", "true"], RUN, ("--timeout", "-1")),
    "timeout 0": (["run", "--timeout", "0", "--", "true"], RUN, ("timeout of 0 s",)),
    "timeout of years": (["run", "--timeout", "9999999999", "--", "true"], RUN, ("a year",)),
    "cpus in words": (["run", "--cpus", "all", "--", "true"], RUN, ("--cpus all", "0,2-3")),
    "cpus backwards": (["run", "--cpus", "3-1", "--", "true"], RUN, ("--cpus 3-1",)),
    "cpus absent": (["run", "--cpus", "1000", "--", "true"], RUN, ("the CPUs 1000",)),
    "metric unknown": (["run", "--metric", "speed", "--", "true"], RUN, ("speed", "wall_s")),
    "metric broken": (["run", "--metric", "t=/(/", "--", "true"], RUN, ("t=/(/", "group")),
    "metric without group": (["run", "--metric", "t=/x/", "--", "true"], RUN, ("no group",)),
    "metric without slashes": (["run", "--metric", "t=x", "--", "true"], RUN, ("NAME=/REGEX/",)),
    "prepare unclosed": (["run", "--prepare", "a 'b", "--", "true"], RUN, ("quotation mark",)),
    "shell of two": (["run", "--shell", "--", "a", "b"], RUN, ("--shell", "one string")),
    "region 0": (["compare", "--region", "0", "a", "b"], USAGE, ("--region 0", "50 percent")),
    "region 50": (["compare", "--region", "50", "a", "b"], USAGE, ("--region 50", "50 percent")),
    "region a word": (["compare", "--region", "x", "a", "b"], USAGE, ("--region",)),
    "one block": (["compare", "--blocks", "1", "a", "b"], USAGE, ("--blocks", "2..=100000")),
    "blocks a word": (["compare", "--blocks", "many", "a", "b"], USAGE, ("--blocks",)),
    "one arm": (["compare", "--", "true"], USAGE, ("nothing to compare with", "--with")),
    "one command": (["compare", "true"], USAGE, ("one command is not a comparison",)),
    "export": (["compare", "--export", "x.txt", "a", "b"], USAGE, ("x.txt", ".csv or .json")),
    "unequal risk": (["apply", "x", "--allow", "fire"], USAGE, ("--allow", "durability")),
    "tune nothing": (["tune"], USAGE, ("no command is given",)),
    "tune typo": (["tune", "--knobs", "vm.swapp", "--", "a"], USAGE, ("vm.swappiness?",)),
    "tune risky": (
        ["tune", "--knobs", "vm.overcommit_memory", "--", "a"],
        USAGE,
        ("vm.overcommit_memory", "risk hang is never searched"),
    ),
    "tune absent": (["tune", "--knobs", "mglru.enabled", "--", "a"], USAGE, ("mglru.enabled",)),
    "range backwards": (
        ["tune", "--range", "vm.swappiness=9..3", "--", "a"],
        USAGE,
        ("vm.swappiness=9..3", "empty"),
    ),
    "range outside": (
        ["tune", "--range", "vm.swappiness=9..999", "--", "a"],
        USAGE,
        ("vm.swappiness", "0 to 200"),
    ),
    "range half": (
        ["tune", "--range", "vm.swappiness=9", "--", "a"],
        USAGE,
        ("vm.swappiness=9", "LOW..HIGH"),
    ),
    "range of a choice": (
        ["tune", "--range", "thp.enabled=never..always", "--", "a"],
        USAGE,
        ("thp.enabled", "whole numbers"),
    ),
    "fix out of range": (
        ["tune", "--fix", "vm.swappiness=1000", "--", "a"],
        USAGE,
        ("vm.swappiness", "0 to 200"),
    ),
    "budget": (["tune", "--budget", "long", "--", "a"], USAGE, ("--budget long", "5m")),
    "trials": (["tune", "--trials", "0", "--", "a"], USAGE, ("--trials",)),
    "study a path": (["tune", "--study", "../x", "--", "a"], USAGE, ("--study ../x",)),
    "storage": (["tune", "--storage", "db", "--", "a"], USAGE, ("--storage db", "sqlite:")),
    "report of a path": (["report", "../x"], USAGE, ("`../x`",)),
    "unknown workload": (["bench", "mesaging"], USAGE, ("mesaging", "messaging?")),
    "unknown command": (["aply", "x"], USAGE, ("aply", "apply")),
    "glob to show": (["knobs", "show", "vm.*"], USAGE, ("`vm.*` is a glob",)),
    "glob of nothing": (["knobs", "list", "xyzzy.*"], USAGE, ("`xyzzy.*`",)),
    "confirm 0": (["apply", "desktop", "--confirm", "0"], USAGE, ("--confirm",)),
}


@pytest.mark.parametrize("case", OPTIONS.values(), ids=OPTIONS.keys())
def test_wrong_options_are_told(root: Root, case: tuple[list[str], int, tuple[str, ...]]) -> None:
    args, code, says = case
    refused(root, *args, code=code, says=says)
    assert not (root.path / "run/kilter").exists(), "a usage error leaves no trace"


def test_a_layer_that_is_not_in_force_cannot_be_reverted(root: Root) -> None:
    refused(root, "revert", "xyzzy", code=USAGE, says=("no layer `xyzzy`",), hint="kilter status")


def test_a_command_that_is_not_there(root: Root) -> None:
    refused(root, "run", "--", "no-such-command", code=127, says=("no-such-command", "not found"))


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_command_that_cannot_be_executed(root: Root, what: str) -> None:
    path = root.put("plain", "text") if what == "file" else root.path
    refused(root, "run", "--", str(path), code=126, says=(str(path), "Permission denied"))


def test_a_command_that_is_not_there_leaves_the_settings(root: Root) -> None:
    args = ("run", "-s", "vm.swappiness=10", "--", "no-such-command")
    refused(root, *args, code=127, says=("no-such-command",))


@pytest.mark.parametrize("bad", ["relative", "/no/such/directory", "/etc/passwd"])
def test_a_root_that_is_no_directory(bad: str) -> None:
    done = kilter("--root", bad, "status")
    assert done.returncode == USAGE
    assert f"error: --root {bad}: not an absolute path of a directory" in done.stderr
    assert kilter("--root", bad, "run", "--", "true").returncode == RUN
