"""Who gets which words: data on standard output, the rest on standard error, JSON by schema."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
from pathlib import Path

import pytest

from . import schemas
from .program import BINARY, TIMEOUT_S, argv, environment, kilter
from .roots import Root

COMMANDS = {
    "doctor": ["doctor"],
    "knobs list": ["knobs", "list"],
    "knobs list --all": ["knobs", "list", "--all"],
    "knobs show": ["knobs", "show", "vm.swappiness"],
    "profile list": ["profile", "list"],
    "profile show": ["profile", "show", "desktop"],
    "bench --list": ["bench", "--list"],
    "apply --dry-run": ["apply", "desktop", "--dry-run"],
    "apply": ["apply", "desktop"],
    "status": ["status"],
    "verify": ["verify"],
    "diff": ["diff", "latency", "--json"],
    "diff of two": ["diff", "latency", "battery"],
    "evidence": ["evidence"],
    "evidence list": ["evidence", "list"],
    "evidence export": ["evidence", "export"],
    "revert": ["revert"],
    "run": ["run", "--set", "vm.swappiness=10", "--", "true"],
}


def on_terminal(words: list[str], env: dict[str, str] | None = None) -> str:
    """What a command shows on a terminal, both streams together."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        words, stdin=follower, stdout=follower, stderr=follower, env=environment(env)
    ) as child:
        os.close(follower)
        shown = bytearray()
        while select.select([leader], [], [], TIMEOUT_S)[0]:
            try:
                chunk = os.read(leader, 1 << 16)
            except OSError:  # EIO: nobody holds the other end any more.
                break
            if not chunk:
                break
            shown += chunk
        child.wait(TIMEOUT_S)
    os.close(leader)
    return shown.decode(errors="replace")


@pytest.mark.parametrize("args", COMMANDS.values(), ids=COMMANDS.keys())
def test_no_escape_codes_where_no_terminal_is(root: Root, args: list[str]) -> None:
    done = root(*args)
    assert done.returncode in (0, 1), done
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("args", [["knobs", "list"], ["status", "--nonsense"], ["doctor"]])
def test_a_terminal_gets_colours_and_no_color_takes_them_away(root: Root, args: list[str]) -> None:
    words = argv(*args, root=root.path)
    assert "\x1b[" in on_terminal(words, {"TERM": "xterm"})
    assert "\x1b[" not in on_terminal(words, {"TERM": "xterm", "NO_COLOR": "1"})
    assert "\x1b[" not in on_terminal(words, {"TERM": "dumb"})


def test_a_hostile_profile_cannot_take_over_a_terminal(root: Root) -> None:
    hostile = r"\u001b]0;owned\u0007\u001b[2J\u001b[8mhidden\rback"
    root.profile("evil", {"vm.swappiness": "10"}, head=f'summary = "{hostile}"')
    for args in (["profile", "list"], ["profile", "show", "evil"], ["apply", "evil"]):
        shown = on_terminal(argv(*args, root=root.path), {"TERM": "xterm"})
        assert "\x1b]" not in shown
        assert "\x1b[2J" not in shown
        assert "\x07" not in shown


# What each command prints with --json, as a check of the schema.
JSON = {
    "doctor": (["doctor"], "doctor", False),
    "knobs list": (["knobs", "list"], "knob", True),
    "knobs list --all": (["knobs", "list", "--all"], "knob", True),
    "knobs show": (["knobs", "show", "vm.swappiness"], "knob-details", True),
    "profile list": (["profile", "list"], "profile", True),
    "profile show": (["profile", "show", "desktop"], "profile", False),
    "bench --list": (["bench", "--list"], "workload", True),
    "apply --dry-run": (["apply", "desktop", "--dry-run"], "plan", False),
    "apply": (["apply", "desktop"], "plan", False),
    "diff": (["diff", "latency"], "plan", False),
    "status": (["status"], "status", False),
    "verify": (["verify"], "status", False),
    "revert": (["revert"], "reverted", False),
    "run": (["run", "-s", "vm.swappiness=10", "--", "true"], "run-record", False),
    "evidence": (["evidence"], "known-evidence", True),
    "evidence list": (["evidence", "list", "vm.swappiness"], "known-evidence", True),
    "evidence export": (["evidence", "export"], "evidence-document", False),
}


@pytest.mark.parametrize("case", JSON.values(), ids=JSON.keys())
def test_json_is_what_the_schema_says(root: Root, case: tuple[list[str], str, bool]) -> None:
    args, schema, many = case
    evidence = schemas.SCHEMAS / "samples/evidence.0.json"
    line = json.dumps(json.loads(evidence.read_text()))
    assert root("evidence", "record", input=line + "\n").returncode == 0
    if args[0] in ("status", "verify", "revert"):
        # Something of every kind to tell: covered, drifted, gone, in force.
        root.profile("low", {"vm.swappiness": "10", "vm.page-cluster": "0", "vm.dirty_ratio": "30"})
        root.profile("high", {"vm.swappiness": "20", "vm.stat_interval": "2"})
        assert root("apply", "low").returncode == 0
        assert root("apply", "high").returncode == 0
        root.set("vm.dirty_ratio", "40")
        (root.path / "proc/sys/vm/page-cluster").unlink()
    done = root("--json", *args)
    assert done.returncode in (0, 1), done
    printed = json.loads(done.stdout)
    if many:
        assert printed
        schemas.check_each(schema, printed)
    else:
        schemas.check(schema, printed)


def test_the_schema_checker_can_fail() -> None:
    sample = json.loads((schemas.SCHEMAS / "samples/plan.0.json").read_text())
    schemas.check("plan", sample)
    for damage in ({"changes": None}, {"changes": [{"knob": 1}]}, {"name": ["x"]}):
        with pytest.raises(schemas.SchemaError):
            schemas.check("plan", sample | damage)


def test_every_sample_fits_its_schema() -> None:
    samples = sorted((schemas.SCHEMAS / "samples").glob("*.json"))
    assert len(samples) >= 20
    for path in samples:
        schemas.check(path.name.split(".")[0], json.loads(path.read_text()))


def test_json_goes_to_standard_output_and_the_workload_does_not(root: Root) -> None:
    done = root("--json", "run", "--", "sh", "-c", "echo data; echo news >&2")
    assert json.loads(done.stdout)["outcome"] == {"outcome": "exited", "code": 0}
    assert done.stderr == "data\nnews\n"


def test_run_leaves_standard_output_to_the_command(root: Root) -> None:
    done = root("run", "--set", "vm.swappiness=10", "--", "sh", "-c", "echo data; echo news >&2")
    assert done.stdout == "data\n"
    assert done.stderr.startswith("news\n")
    assert "with    vm.swappiness=10" in done.stderr
    assert "s wall" in done.stderr


@pytest.mark.parametrize(
    "args", [["knobs", "list", "--all"], ["doctor"], ["knobs", "list", "--json"]]
)
def test_a_reader_that_stops_early_is_no_crash(root: Root, args: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        argv(*args, root=root.path),
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        timeout=TIMEOUT_S,
        check=False,
    )
    os.close(writer)
    assert "panicked" not in done.stderr
    assert done.returncode in (0, 141)


def test_version_and_help_are_no_errors() -> None:
    done = kilter("--version")
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (0, "kilter", "")
    for words in ([], ["run"], ["tune"], ["audit"], ["selftest"], ["knobs", "list"], ["evidence"]):
        done = kilter(*words, "--help")
        assert (done.returncode, done.stderr) == (0, ""), words
        assert "Usage: kilter" in done.stdout


def test_nothing_at_all_shows_the_help() -> None:
    done = kilter()
    assert done.returncode == 2
    assert "Usage: kilter" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_are_valid(shell: str, tmp_path: Path) -> None:
    done = kilter("completions", shell)
    assert done.returncode == 0
    assert "apply" in done.stdout
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its completions were made and not read")
    file = tmp_path / "completions"
    file.write_text(done.stdout)
    subprocess.run([shell, "-n", file], check=True, timeout=TIMEOUT_S)


def test_man_pages_are_written_and_groff_accepts_them(tmp_path: Path) -> None:
    done = kilter("man", tmp_path / "pages")
    assert done.returncode == 0
    pages = sorted((tmp_path / "pages").iterdir())
    names = {page.name for page in pages}
    assert {"kilter.1", "kilter-run.1", "kilter-tune.1", "kilter-apply.1"} <= names
    assert all(".TH" in page.read_text() for page in pages)
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed: the man pages were made and not read")
    for page in pages:
        read = subprocess.run(
            ["groff", "-Kutf8", "-man", "-Tutf8", "-ww", "-rLL=120n", page],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert (read.returncode, read.stderr) == (0, ""), page.name
        assert f"{page.stem}(1)" in read.stdout


def test_the_binary_alone_says_where_the_lab_is_missing(root: Root, tmp_path: Path) -> None:
    alone = tmp_path / "kilter"
    shutil.copy2(BINARY, alone)
    for words in (["compare", "true", "true"], ["report", "x"]):
        done = subprocess.run(
            [alone, "--root", root.path, *words],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 2
        assert f"error: there is no Python beside {alone}" in done.stderr
        assert "hint: python3 -m venv" in done.stderr
