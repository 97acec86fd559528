"""``kilter run --batch``: a plan of runs as JSON lines, under one lock and one guardian."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import schemas
from .program import Done, finish, is_alive, started, wait_until
from .roots import Root


def line(number: int, command: list[str], **more: Any) -> str:
    """One request."""
    return json.dumps({"id": number, "command": command} | more) + "\n"


def replies(done: Done) -> list[dict[str, Any]]:
    """All replies, each as the schema has it."""
    found = [json.loads(text) for text in done.stdout.splitlines()]
    schemas.check_each("batch-reply", found)
    return found


def show(root: Root, knob: str = "swappiness") -> list[str]:
    """A workload that prints a knob's value as its metric."""
    return ["cat", str(root.path / "proc/sys/vm" / knob)]


VALUE = {"name": "value", "source": {"from": "regex", "pattern": "([0-9]+)"}}


class Batch:
    """A batch that is spoken to line by line."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self.child = child

    def say(self, text: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(text)
        self.child.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.child.stdout is not None
        reply: dict[str, Any] = json.loads(self.child.stdout.readline())
        schemas.check("batch-reply", reply)
        return reply


@pytest.fixture
def batch(root: Root) -> Iterator[Batch]:
    """A batch on a fake root."""
    with started("run", "--batch", root=root.path, stdin=subprocess.PIPE) as child:
        yield Batch(child)


def test_each_line_is_answered_under_its_own_settings(root: Root) -> None:
    before = root.settings()
    values = ["10", "10", None, "20", "10"]
    lines = [
        line(
            number,
            show(root),
            settings={} if value is None else {"vm.swappiness": value},
            metrics=[VALUE],
        )
        for number, value in enumerate(values)
    ]
    done = root("run", "--batch", input="".join(lines))
    assert (done.returncode, done.stderr) == (0, "")
    found = replies(done)
    assert [reply["id"] for reply in found] == list(range(5))
    assert [reply["record"]["metrics"]["value"] for reply in found] == [10, 10, 60, 20, 10]
    assert ["fingerprint" in reply["record"] for reply in found] == [True] + [False] * 4
    assert root.settings() == before
    assert root.layers() == []


def test_values_stay_in_force_between_equal_runs(root: Root, batch: Batch) -> None:
    for number in range(2):
        batch.say(line(number, ["true"], settings={"vm.swappiness": "10"}))
        assert batch.hear()["id"] == number
        assert root.get("vm.swappiness") == "10"
    # A write would show: equal values are not written again, so a stranger's value stays.
    root.set("vm.swappiness", "33")
    batch.say(line(2, ["true"], settings={"vm.swappiness": "10"}))
    batch.hear()
    assert root.get("vm.swappiness") == "33"


def test_empty_lines_and_a_missing_last_newline(root: Root) -> None:
    text = "\n" + line(1, ["true"]) + "\n  \n" + line(2, ["true"])
    done = root("run", "--batch", input=text)
    assert [reply["id"] for reply in replies(done)] == [1, 2]


def test_nothing_to_do_is_done(root: Root) -> None:
    before = root.settings()
    done = root("run", "--batch", input="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert root.settings() == before


REFUSED = {
    "range": ({"vm.swappiness": "999"}, "0 to 200"),
    "typo": ({"vm.swapiness": "9"}, "did you mean vm.swappiness?"),
    "absent": ({"mglru.enabled": "7"}, "does not have it"),
    "risk": ({"vm.overcommit_memory": "1"}, "refused for their risk"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_a_refused_setting_is_not_run_and_the_batch_goes_on(
    root: Root, tmp_path: Path, case: tuple[dict[str, str], str]
) -> None:
    settings, says = case
    before = root.settings()
    ran = tmp_path / "ran"
    lines = [
        line(1, ["true"], settings={"vm.swappiness": "10"}),
        line(2, ["touch", str(ran)], settings={"vm.page-cluster": "0"} | settings),
        line(3, show(root), settings={"vm.swappiness": "10"}, metrics=[VALUE]),
    ]
    done = root("run", "--batch", input="".join(lines))
    assert done.returncode == 0
    first, second, third = replies(done)
    assert (first["result"], second["result"], third["result"]) == ("ran", "not-run", "ran")
    assert says in second["error"]
    assert third["record"]["metrics"] == {"value": 10}
    assert not ran.exists()
    assert root.settings() == before


def test_commands_that_fail_are_results(root: Root) -> None:
    commands = {
        1: ["sh", "-c", "echo out; echo err >&2; exit 3"],
        2: ["sh", "-c", "kill -9 $$"],
        3: ["no-such-command"],
        4: ["true"],
    }
    done = root("run", "--batch", input="".join(line(n, c) for n, c in commands.items()))
    failed, killed, absent, good = replies(done)
    assert failed["record"]["outcome"] == {"outcome": "exited", "code": 3}
    assert failed["record"]["stdout_tail"] == "out\n"
    assert failed["record"]["stderr_tail"] == "err\n"
    assert killed["record"]["outcome"] == {"outcome": "signalled", "signal": 9}
    assert absent["result"] == "not-run"
    assert "no-such-command" in absent["error"]
    assert good["record"]["outcome"] == {"outcome": "exited", "code": 0}


def test_a_run_out_of_time_is_a_result(root: Root) -> None:
    lines = line(1, ["sleep", "60"], timeout_s=0.2) + line(2, ["true"])
    done = root("run", "--batch", input=lines)
    slow, good = replies(done)
    assert slow["record"]["outcome"] == {"outcome": "timed-out"}
    assert good["result"] == "ran"


def test_a_failing_preparation_is_not_run(root: Root, tmp_path: Path) -> None:
    lines = line(1, ["touch", str(tmp_path / "ran")], prepare=["sh", "-c", "echo why; exit 1"])
    done = root("run", "--batch", input=lines + line(2, ["true"]))
    first, second = replies(done)
    assert first["result"] == "not-run"
    assert "preparation" in first["error"]
    assert "why" in first["error"]
    assert second["result"] == "ran"
    assert not (tmp_path / "ran").exists()


def test_a_missing_metric_is_a_warning(root: Root) -> None:
    done = root("run", "--batch", input=line(1, ["echo", "nothing"], metrics=[VALUE]))
    (reply,) = replies(done)
    assert "metrics" not in reply["record"]
    assert any("value" in warning for warning in reply["record"]["warnings"])


BAD = {
    "no JSON": ("nonsense\n", "not a run request"),
    "torn": ('{"id": 1, "comm\n', "not a run request"),
    "unknown field": ('{"id": 1, "command": ["true"], "colour": 1}\n', "unknown field `colour`"),
    "wrong type": ('{"id": 1, "command": "true"}\n', "expected"),
    "no command": ('{"id": 1}\n', "the command is empty"),
    "an empty command": ('{"id": 1, "command": [""]}\n', "the command is empty"),
    "too long": ('{"id": 1, "command": ["' + "x" * (2 << 20) + '"]}\n', "longer than 1 MiB"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_a_bad_line_ends_the_batch_and_names_its_number(root: Root, case: tuple[str, str]) -> None:
    bad, says = case
    before = root.settings()
    text = line(1, ["true"], settings={"vm.swappiness": "10"}) + "\n" + bad + line(4, ["true"])
    done = root("run", "--batch", input=text)
    assert done.returncode == 125
    assert [reply["id"] for reply in replies(done)] == [1]
    assert done.stderr.startswith("error: standard input, line 3: ")
    assert says in done.stderr
    assert root.settings() == before
    assert root.layers() == []


def test_a_line_that_is_not_utf8_is_named(root: Root) -> None:
    with started("run", "--batch", root=root.path, stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        os.write(child.stdin.fileno(), b'{"id": 1, "command": ["\xe9"]}\n')
        child.stdin.close()
        child.stdin = None
        done = finish(child)
    assert done.returncode == 125
    assert "standard input, line 1: not UTF-8" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=str)
def test_a_signal_between_runs_restores(root: Root, number: signal.Signals) -> None:
    before = root.settings()
    with started("run", "--batch", root=root.path, stdin=subprocess.PIPE) as child:
        batch = Batch(child)
        batch.say(line(1, ["true"], settings={"vm.swappiness": "10"}))
        batch.hear()
        assert root.get("vm.swappiness") == "10"
        child.send_signal(number)
        child.wait(30)
    assert child.returncode == 128 + number
    assert root.settings() == before
    assert root.layers() == []


def test_a_signal_within_a_run_ends_it_and_is_told(root: Root, tmp_path: Path) -> None:
    before = root.settings()
    with started("run", "--batch", root=root.path, stdin=subprocess.PIPE) as child:
        batch = Batch(child)
        script = f"echo $$ > {tmp_path}/pid; exec sleep 60"
        batch.say(line(1, ["sh", "-c", script], settings={"vm.swappiness": "10"}))
        batch.say(line(2, ["touch", str(tmp_path / "second")]))
        wait_until(lambda: (tmp_path / "pid").exists(), "the workload runs")
        wait_until(lambda: (tmp_path / "pid").read_text().endswith("\n"), "its number is told")
        child.send_signal(signal.SIGTERM)
        assert batch.hear()["record"]["outcome"] == {"outcome": "interrupted"}
        child.wait(30)
    assert child.returncode == 128 + signal.SIGTERM
    assert not is_alive(int((tmp_path / "pid").read_text()))
    assert not (tmp_path / "second").exists()
    assert root.settings() == before


def test_a_reader_that_goes_away_ends_the_batch(root: Root) -> None:
    before = root.settings()
    with started("run", "--batch", root=root.path, stdin=subprocess.PIPE) as child:
        batch = Batch(child)
        batch.say(line(1, ["true"], settings={"vm.swappiness": "10"}))
        batch.hear()
        assert child.stdout is not None
        child.stdout.close()
        batch.say(line(2, ["true"], settings={"vm.swappiness": "10"}))
        child.wait(30)
        assert child.returncode != 0
        assert child.stderr is not None
        assert "panicked" not in child.stderr.read()
        wait_until(lambda: root.settings() == before, "the settings are back")
    assert root.layers() == []


def test_an_input_that_closes_during_a_run_lets_it_finish(root: Root, tmp_path: Path) -> None:
    before = root.settings()
    go = tmp_path / "go"
    with started("run", "--batch", root=root.path, stdin=subprocess.PIPE) as child:
        batch = Batch(child)
        script = f"touch {tmp_path}/begun; until [ -e {go} ]; do sleep 0.01; done"
        batch.say(line(1, ["sh", "-c", script], settings={"vm.swappiness": "10"}))
        wait_until(lambda: (tmp_path / "begun").exists(), "the workload runs")
        assert child.stdin is not None
        child.stdin.close()
        child.stdin = None
        go.touch()
        done = finish(child)
    assert done.returncode == 0
    assert [reply["id"] for reply in replies(done)] == [1]
    assert root.settings() == before


@pytest.mark.parametrize("option", ["--set=vm.swappiness=1", "--timeout=1", "--cpus=0", "--shell"])
def test_a_batch_takes_no_options_of_a_single_run(root: Root, option: str) -> None:
    done = root("run", "--batch", option)
    assert done.returncode == 125
    assert option.split("=")[0] in done.stderr


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run as another user")
WHO = ["sh", "-c", 'echo "$(id -u) $(id -g) $(id -G) $HOME $USER"']
SUDO = {"SUDO_UID": "65534", "SUDO_GID": "65534", "SUDO_USER": "nobody"}


def identity(root: Root, *options: str, env: dict[str, str]) -> str:
    """What a workload of a batch says of itself."""
    done = root("run", "--batch", *options, input=line(1, WHO), env=env)
    (reply,) = replies(done)
    return str(reply["record"]["stdout_tail"]).strip()


@as_root
def test_under_sudo_the_workload_is_the_callers(root: Root) -> None:
    assert identity(root, env=SUDO).startswith("65534 65534 65534 /nonexistent nobody")
    done = root("run", "--", *WHO, env=SUDO)
    assert done.stdout.startswith("65534 65534 65534 /nonexistent nobody")


@as_root
def test_as_root_keeps_root(root: Root) -> None:
    assert identity(root, "--as-root", env=SUDO).startswith("0 0 ")
    assert identity(root, env={}).startswith("0 0 ")
    assert identity(root, env={"SUDO_UID": "0", "SUDO_GID": "0"}).startswith("0 0 ")


@as_root
@pytest.mark.parametrize("bad", ["", "x", "-1", "99999999999", "0x10"])
def test_a_sudo_user_that_is_no_number_is_an_error(root: Root, bad: str) -> None:
    done = root("run", "--", "true", env={"SUDO_UID": bad, "SUDO_GID": "65534"})
    assert done.returncode == 125
    assert "SUDO_UID" in done.stderr
    assert "--as-root" in done.stderr


@as_root
def test_settings_are_roots_though_the_workload_is_not(root: Root) -> None:
    root.path.chmod(0o755)
    done = root("run", "--set", "vm.swappiness=10", "--", "sh", "-c", "id -u", env=SUDO)
    assert (done.returncode, done.stdout) == (0, "65534\n")
    assert root.get("vm.swappiness") == "60"
