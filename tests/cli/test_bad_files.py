"""Catalog files that cannot be used: the error names the file and the line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from .roots import Root

HERE = "etc/kilter/profiles"


def a_directory(path: Path) -> None:
    path.mkdir()


def a_large_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(100 << 20)


def not_utf8(path: Path) -> None:
    path.write_bytes(b'name = "bad"\n\nsummary = "caf\xe9"\n')


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


FILES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    # what is at the place, the line that is named, and what is said
    "directory": (a_directory, "", "not a file"),
    "100 MB": (a_large_file, "", "larger than 1 MiB"),
    "not UTF-8": (not_utf8, ":3", "not UTF-8"),
    "empty": (text(""), ":1", "missing field `name`"),
    "syntax": (text('name = "bad"\n[set]\n"vm.swappiness" =\n'), ":3", "expected"),
    "unclosed": (text('name = "bad"\nsummary = "x\n'), ":2", ""),
    "unknown field": (text('name = "bad"\n\n\ncolour = 1\n'), ":4", "unknown field `colour`"),
    "unknown field of a value": (
        text('name = "bad"\n[set."vm.swappiness"]\nvalue = "1"\nwhen = "now"\n'),
        ":4",
        "unknown field `when`",
    ),
    "wrong type": (
        text('name = "bad"\n[set]\n"vm.swappiness" = { value = 10 }\n'),
        ":3",
        "expected a string",
    ),
    "twice": (
        text('name = "bad"\n[set]\n"vm.a" = { value = "1" }\n"vm.a" = { value = "1" }\n'),
        ":4",
        "duplicate key",
    ),
    "another name": (text('name = "good"\n'), "", "`good`"),
    "not TOML at all": (text("\x00\x01\x02" * 100), ":1", ""),
    "link to itself": (lambda path: path.symlink_to(path), "", "symbolic links"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "", "not a file"),
    "pipe": (os.mkfifo, "", "not a file"),
}


@pytest.mark.parametrize("case", FILES.values(), ids=FILES.keys())
@pytest.mark.parametrize("command", ["apply bad", "diff bad", "run --profile bad -- true"])
def test_a_bad_profile_is_named_with_its_line(
    root: Root, command: str, case: tuple[Callable[[Path], object], str, str]
) -> None:
    make, line, says = case
    path = root.path / HERE / "bad.toml"
    path.parent.mkdir(parents=True)
    make(path)
    before = root.settings()
    done = root(*command.split())
    assert done.returncode == (125 if command.startswith("run") else 2)
    assert f"error: {path}{line}: " in done.stderr
    assert says in done.stderr
    assert root.settings() == before
    assert root.layers() == []


INCLUDES = {
    "itself": ({"bad": ["bad"]}, "includes itself"),
    "a loop": ({"bad": ["b"], "b": ["c"], "c": ["bad"]}, "includes itself"),
    "too deep": ({"bad": ["n1"]} | {f"n{i}": [f"n{i + 1}"] for i in range(1, 20)}, "deeper than 8"),
    "nothing": ({"bad": ["xyzzy"]}, "there is no profile `xyzzy`"),
    "a typo": ({"bad": ["desktp"]}, "did you mean desktop?"),
    "a path": ({"bad": ["../../../etc/passwd"]}, "is no name of a profile"),
}


@pytest.mark.parametrize("case", INCLUDES.values(), ids=INCLUDES.keys())
def test_includes_that_lead_nowhere(root: Root, case: tuple[dict[str, list[str]], str]) -> None:
    includes, says = case
    for name, included in includes.items():
        root.profile(name, {"vm.swappiness": "1"}, head=f"include = {included!r}")
    before = root.settings()
    done = root("apply", "bad")
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert root.settings() == before
    assert root.layers() == []


VALUES = {
    "typo": ({"vm.swapiness": "10"}, ("vm.swapiness", "did you mean vm.swappiness?")),
    "range": ({"vm.page-cluster": "0", "vm.swappiness": "999"}, ("999", "0 to 200")),
    "path": ({"../../../etc/passwd": "1"}, ("there is no knob",)),
    "device path": ({"block.../../x.iostats": "1"}, ("there is no knob",)),
}


@pytest.mark.parametrize("case", VALUES.values(), ids=VALUES.keys())
def test_wrong_values_refuse_the_whole_profile(
    root: Root, case: tuple[dict[str, str], tuple[str, ...]]
) -> None:
    values, says = case
    root.profile("bad", values)
    before = root.settings()
    done = root("apply", "bad")
    assert (done.returncode, done.stdout) == (2, "")
    assert all(word in done.stderr for word in says), done.stderr
    assert root.settings() == before
    assert root.layers() == []


def test_a_bad_knob_file_is_named_with_its_line(root: Root) -> None:
    path = root.put("etc/kilter/knobs/mine.toml", '[[knob]]\nname = "vm.mine"\nspeed = 9')
    done = root("apply", "desktop")
    assert done.returncode == 2
    assert f"error: {path}:3: unknown field `speed`" in done.stderr


KNOB = """
[[knob]]
name = "vm.mine"
summary = "x"
why = "x"
default = "0"
risk = "low"
value = { type = "int", min = 0, max = 9 }
paths = [{ file = "FILE", era = "all" }]
sources = ["x"]
"""


@pytest.mark.parametrize("file", ["/etc/passwd", "/proc/sys/../sysrq-trigger", "/proc/1/mem", "x"])
def test_a_catalog_cannot_send_kilter_outside_of_the_settings(root: Root, file: str) -> None:
    victim = root.put("etc/passwd", "7")
    path = root.put("etc/kilter/knobs/mine.toml", KNOB.replace("FILE", file))
    done = root("run", "--set", "vm.mine=1", "--", "true")
    assert done.returncode == 125
    assert f"error: {path}: vm.mine: a path is not a kernel setting's" in done.stderr
    assert victim.read_text() == "7\n"


def test_a_catalog_may_add_a_knob(root: Root) -> None:
    root.put("proc/sys/vm/mine", "7")
    root.put("etc/kilter/knobs/mine.toml", KNOB.replace("FILE", "/proc/sys/vm/mine"))
    done = root("run", "--set", "vm.mine=1", "--", "cat", str(root.path / "proc/sys/vm/mine"))
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert root.get("vm.mine") == "7"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "standard input is not a profile"),
        ("{", "standard input is not a profile"),
        ('{"name": "x"', "standard input is not a profile"),
        ('{"name": "../x", "set": {}}', "is no name of a profile"),
        ('{"name": "x", "set": {"vm.swapiness": {"value": "1"}}}', "did you mean vm.swappiness?"),
        ('{"name": "x", "set": {"vm.swappiness": {"value": "999"}}}', "0 to 200"),
        ('{"name": "x", "colour": 1}', "unknown field `colour`"),
    ],
)
def test_a_bad_profile_is_not_saved(root: Root, given: str, says: str) -> None:
    done = root("profile", "save", input=given)
    assert done.returncode == 2
    assert says in done.stderr
    assert not (root.path / "etc").exists()


def test_bad_evidence_is_not_recorded(root: Root) -> None:
    done = root("evidence", "record", input='{"when": 1}\n')
    assert done.returncode == 2
    assert "standard input, line 1: not evidence" in done.stderr
    assert not (root.path / "var").exists()
