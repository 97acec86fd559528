"""``kilter run``: the command's own exit code, and the settings back, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from .program import argv, environment, finish, is_alive, started, wait_until
from .roots import Root

SET = ("--set", "vm.swappiness=10", "--set", "vm.page-cluster=0")

# Writes its own process number, and that of a grandchild that ignores what can be ignored.
STUBBORN = """
echo $$ > "$1/parent"
sh -c 'trap "" TERM INT HUP QUIT; echo $$ > "$1/child"; while :; do sleep 0.1; done' sh "$1" &
wait
"""


def stubborn(directory: Path) -> list[str]:
    """A workload whose grandchild ignores SIGTERM."""
    return ["sh", "-c", STUBBORN, "sh", str(directory)]


def pids(directory: Path) -> list[int]:
    """The processes of a stubborn workload, once both run."""
    files = [directory / "parent", directory / "child"]

    def written() -> bool:
        return all(file.exists() and file.read_text().endswith("\n") for file in files)

    wait_until(written, "the workload runs")
    return [int(file.read_text()) for file in files]


@pytest.mark.parametrize("settings", [(), SET], ids=["plain", "with settings"])
@pytest.mark.parametrize("code", [0, 1, 2, 3, 77, 124, 125, 126, 127, 255])
def test_the_commands_own_code_is_the_exit_code(
    root: Root, code: int, settings: tuple[str, ...]
) -> None:
    before = root.settings()
    done = root("run", *settings, "--", "sh", "-c", f"exit {code}")
    assert done.returncode == code
    assert root.settings() == before
    assert root.layers() == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGUSR1])
def test_a_signal_is_128_and_its_number(root: Root, number: signal.Signals) -> None:
    before = root.settings()
    done = root("run", *SET, "--", "sh", "-c", f"ulimit -c 0; kill -{number.value} $$")
    assert done.returncode == 128 + number
    assert root.settings() == before


def test_the_settings_are_in_force_while_the_command_runs(root: Root) -> None:
    files = [str(root.path / "proc/sys/vm" / name) for name in ("swappiness", "page-cluster")]
    done = root("run", *SET, "--", "cat", *files)
    assert (done.returncode, done.stdout) == (0, "10\n0\n")
    assert (root.get("vm.swappiness"), root.get("vm.page-cluster")) == ("60", "3")


def test_a_profile_is_in_force_and_set_wins_over_it(root: Root) -> None:
    root.profile("calm", {"vm.swappiness": "10", "vm.page-cluster": "0"})
    files = [str(root.path / "proc/sys/vm" / name) for name in ("swappiness", "page-cluster")]
    done = root("run", "-p", "calm", "-s", "vm.swappiness=5", "--", "cat", *files)
    assert done.stdout == "5\n0\n"


def test_a_run_on_top_of_a_profile_gives_the_profile_back(root: Root) -> None:
    root.profile("calm", {"vm.swappiness": "10"})
    before = root.settings()
    assert root("apply", "calm").returncode == 0
    assert root("run", "--set", "vm.swappiness=99", "--", "true").returncode == 0
    assert root.get("vm.swappiness") == "10"
    assert root("verify").returncode == 0
    assert root("revert").returncode == 0
    assert root.settings() == before


def test_standard_input_passes_through(root: Root) -> None:
    text = "x" * 200_000 + "\n"
    done = root("run", *SET, "--", "cat", input=text)
    assert done.stdout == text


def test_words_are_words_and_no_shell_sees_them(root: Root) -> None:
    words = ["a b", "$HOME", "*", "'", '"', ";", "", "ü"]
    done = root("run", "--", "printf", "%s\\n", *words)
    assert done.stdout.splitlines() == words
    done = root("run", "--shell", "--", "echo a | tr a b")
    assert done.stdout == "b\n"


def test_preparation_and_clean_up_stand_around_the_run(root: Root, tmp_path: Path) -> None:
    log = tmp_path / "log"
    knob = root.path / "proc/sys/vm/swappiness"
    show = f"sh -c 'echo $1 $(cat {knob}) >> {log}' sh"
    args = ("--prepare", f"{show} before", "--cleanup", f"{show} after")
    done = root("run", *SET, *args, "--", "sh", "-c", f"echo run $(cat {knob}) >> {log}; exit 3")
    assert done.returncode == 3
    assert log.read_text() == "before 10\nrun 10\nafter 10\n"


def test_a_preparation_that_fails_stops_the_run(root: Root, tmp_path: Path) -> None:
    before = root.settings()
    ran = tmp_path / "ran"
    prepare = "sh -c 'echo no space >&2; exit 4'"
    done = root("run", *SET, "--prepare", prepare, "--", "touch", str(ran))
    assert done.returncode == 125
    assert "the preparation command" in done.stderr
    assert "exited with code 4" in done.stderr
    assert "no space" in done.stderr
    assert not ran.exists()
    assert root.settings() == before


def test_a_timeout_ends_the_whole_group(root: Root, tmp_path: Path) -> None:
    before = root.settings()
    with started(
        "run", *SET, "--timeout", "300ms", "--", *stubborn(tmp_path), root=root.path
    ) as child:
        members = pids(tmp_path)
        done = finish(child)
    assert done.returncode == 124
    assert "time limit" in done.stderr
    assert not any(is_alive(pid) for pid in members)
    assert root.settings() == before
    assert root.layers() == []


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT], ids=str
)
def test_a_signal_to_kilter_ends_the_group_and_restores(
    root: Root, tmp_path: Path, number: signal.Signals
) -> None:
    before = root.settings()
    with started("run", *SET, "--", *stubborn(tmp_path), root=root.path) as child:
        members = pids(tmp_path)
        assert root.get("vm.swappiness") == "10"
        child.send_signal(number)
        done = finish(child)
    assert done.returncode == 128 + number
    assert not any(is_alive(pid) for pid in members)
    assert root.settings() == before
    assert root.layers() == []


def test_a_second_ctrl_c_does_not_wait(root: Root, tmp_path: Path) -> None:
    before = root.settings()
    with started("run", *SET, "--", *stubborn(tmp_path), root=root.path) as child:
        members = pids(tmp_path)
        child.send_signal(signal.SIGINT)
        wait_until(lambda: not is_alive(members[0]), "the parent heeds the first")
        child.send_signal(signal.SIGINT)
        done = finish(child)
    assert done.returncode == 128 + signal.SIGINT
    assert not any(is_alive(pid) for pid in members)
    assert root.settings() == before


def test_a_command_that_survives_ctrl_c_by_design_keeps_its_settings_until_it_ends(
    root: Root, tmp_path: Path
) -> None:
    # Saves its work on SIGTERM, under the settings that were asked for, and exits by itself.
    knob = root.path / "proc/sys/vm/swappiness"
    script = (
        f'trap "cat {knob} > {tmp_path}/saved; exit 7" TERM\n'
        f"echo $$ > {tmp_path}/parent; touch {tmp_path}/child; echo > {tmp_path}/child\n"
        "while :; do sleep 0.02; done"
    )
    with started("run", *SET, "--", "sh", "-c", script, root=root.path) as child:
        wait_until(lambda: (tmp_path / "child").exists(), "the workload runs")
        child.send_signal(signal.SIGTERM)
        done = finish(child)
    assert (tmp_path / "saved").read_text() == "10\n"
    assert done.returncode == 128 + signal.SIGTERM
    assert root.get("vm.swappiness") == "60"


@pytest.mark.parametrize("ignored", [signal.SIGINT, signal.SIGHUP])
def test_what_kilter_was_told_to_ignore_stays_ignored(
    root: Root, tmp_path: Path, ignored: signal.Signals
) -> None:
    go = tmp_path / "go"
    script = f"echo $$ > {tmp_path}/pid; until [ -e {go} ]; do sleep 0.02; done"
    words = argv("run", *SET, "--", "sh", "-c", script, root=root.path)
    with subprocess.Popen(
        ["sh", "-c", f'trap "" {ignored.value}; exec "$@"', "sh", *words],
        stderr=subprocess.DEVNULL,
        env=environment(),
    ) as child:
        wait_until(lambda: (tmp_path / "pid").exists(), "the workload runs")
        child.send_signal(ignored)
        go.touch()
        assert child.wait(60) == 0


def test_metrics_come_from_the_output(root: Root) -> None:
    args = ("--metric", "time=/Time: ([0-9.]+)/", "--metric", "wall_s")
    done = root("--json", "run", *args, "--", "echo", "Time: 1.25")
    record = json.loads(done.stdout)
    assert record["metrics"]["time"] == 1.25
    assert record["metrics"]["wall_s"] == record["wall_s"]
    assert record["stdout_tail"] == "Time: 1.25\n"


def test_a_metric_that_does_not_match_shows_the_output(root: Root) -> None:
    before = root.settings()
    done = root("run", *SET, "--metric", "time=/Time: ([0-9.]+)/", "--", "echo", "no number here")
    assert done.returncode == 125
    assert "error: metric time" in done.stderr
    assert "no number here" in done.stdout + done.stderr
    assert root.settings() == before


def test_the_record_tells_what_was_kept(root: Root) -> None:
    record = root.json("run", *SET, "--", "true")
    assert record["settings"] == {"vm.swappiness": "10", "vm.page-cluster": "0"}
    assert record["command"] == ["true"]
    assert 0 < record["wall_s"] < 60
    assert record["fingerprint"]["id"]


def test_cpus_pin_the_workload(root: Root) -> None:
    cpu = min(os.sched_getaffinity(0))
    done = root(
        "run", "--cpus", str(cpu), "--", "sh", "-c", "grep Cpus_allowed_list /proc/self/status"
    )
    assert done.stdout.split() == ["Cpus_allowed_list:", str(cpu)]


def test_a_run_inside_a_run_is_refused_when_both_set_something(root: Root) -> None:
    before = root.settings()
    inner = argv("run", "--set", "vm.stat_interval=5", "--", "true", root=root.path)
    done = root("run", *SET, "--", *inner)
    assert done.returncode == 125
    assert "another experiment is running" in done.stderr
    assert root.settings() == before
    plain = argv("run", "--", "true", root=root.path)
    assert root("run", *SET, "--", *plain).returncode == 0


def test_confirm_reverts_unless_confirmed(root: Root) -> None:
    root.profile("calm", {"vm.swappiness": "10"})
    before = root.settings()
    done = root("apply", "calm", "--confirm", "1")
    assert done.returncode == 1
    assert "Not confirmed: put back." in done.stderr
    assert root.settings() == before
    assert root.layers() == []
    done = root("apply", "calm", "--confirm", "60", input="\n")
    assert done.returncode == 0
    assert root.get("vm.swappiness") == "10"
    assert root.json("status")["layers"][0]["alive"] is True
    assert root("revert").returncode == 0
    assert root.settings() == before


def test_a_lost_terminal_reverts_what_was_not_confirmed(root: Root) -> None:
    root.profile("calm", {"vm.swappiness": "10"})
    before = root.settings()
    args = ("apply", "calm", "--confirm", "600")
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
        with started(*args, root=root.path, stdin=subprocess.PIPE) as child:
            wait_until(lambda: root.get("vm.swappiness") == "10", "the profile is in force")
            wait_until(lambda: "held" in root("status").stdout, "the layer is complete")
            child.send_signal(number)
            wait_until(lambda: root.settings() == before, f"restored after {number!r}")
            wait_until(lambda: root.layers() == [], "the layer is gone")


def test_a_bench_of_the_catalog_runs_under_settings(root: Root) -> None:
    root.put(
        "etc/kilter/workloads/tiny.toml",
        '[[workload]]\nname = "tiny"\nsummary = "s"\nwhy = "w"\ncommand = ["echo", "Time: 3"]\n'
        '[[workload.metrics]]\nname = "time"\nunit = "s"\n'
        'source = { from = "regex", pattern = "Time: ([0-9.]+)" }\n',
    )
    before = root.settings()
    done = root("bench", "tiny", "--runs", "3", *SET)
    assert done.returncode == 0, done
    assert "time" in done.stdout
    assert "3.000" in done.stdout
    assert root.settings() == before
