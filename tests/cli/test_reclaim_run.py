"""`kilter reclaim run`: who is cached, what is left alone, and what ends it."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from .program import BINARY, kilter, started, wait_until
from .reclaim import (
    MIB,
    PARAMETERS,
    SCORE,
    Swap,
    app,
    calm,
    daemon,
    end,
    followed,
    is_running,
    memory_group,
    once,
    status,
)

pytestmark = [pytest.mark.real_kernel, pytest.mark.usefixtures("alone")]


@pytest.fixture
def no_experiment() -> None:
    """Nobody else's experiment: there is one at a time on a machine."""
    until = time.monotonic() + 60
    while "experiment" in json.loads(kilter("status", "--json").stdout):
        if time.monotonic() > until:
            pytest.skip("an experiment is running on this machine")
        time.sleep(0.2)


def test_who_plays_sound_is_left_alone(swap: Swap, tmp_path: Path) -> None:
    """An app has memory in common with a sound server: a file without a name that tells its own."""
    options = ("--policy", "on-cached")
    with memory_group("kilter-test-sound", 900) as group, ExitStack() as stack:
        stack.enter_context(daemon(tmp_path, SCORE, *options, "--within", group))
        background = stack.enter_context(app(40, "sound", group=group))
        background.score(950)
        wait_until(lambda: "sound" in followed(background.pid).get("why", ""), "it is left out")
        assert followed(background.pid)["state"] == "left-out"
        assert background.swapped == 0


def check_it_stops(tmp_path: Path, said: str) -> None:
    """Pages that swap has no room for stop the daemon, and nothing of them is lost."""
    with memory_group("kilter-test-full", 900) as group, ExitStack() as stack:
        options = ("--policy", "on-cached", "--within", group)
        stack.enter_context(daemon(tmp_path, SCORE, *options))
        background = stack.enter_context(app(64, group=group))
        background.score(950)
        wait_until(lambda: said in status().get("stopped", ""), "it is told")
        assert calm(3.0)
        assert background.tell("touch") == "whole"


def test_full_swap_is_told_and_nothing_is_lost(swap: Swap, tmp_path: Path) -> None:
    if len(Path("/proc/swaps").read_text().splitlines()) > 2:
        pytest.skip("this machine swaps elsewhere too")
    swap.off()
    swap.on(24)
    with app(64) as background:
        told = once(background.pid)
        assert told["reclaimed_bytes"] < 32 * MIB
        assert "swap" in " ".join(told["warnings"]), told["warnings"]
        assert background.tell("touch") == "whole"
    check_it_stops(tmp_path, "swap")


def test_full_compressed_memory_is_told_and_nothing_is_lost(swap: Swap, tmp_path: Path) -> None:
    """Swap has room, but the memory behind it has reached its limit: writes to it fail."""
    (swap.block / "mem_limit").write_text("8M")
    with app(64) as background:
        told = once(background.pid)
        assert told["gained_bytes"] < 40 * MIB
        assert told["swap_cache_grew_bytes"] > 20 * MIB, "taken from it, but not written"
        assert "zram" in " ".join(told["warnings"]), told["warnings"]
        assert background.tell("touch") == "whole"
    check_it_stops(tmp_path, "compressed")


def test_without_pressure_information_it_goes_by_the_clock(swap: Swap, tmp_path: Path) -> None:
    if not Path("/proc/pressure/memory").exists():
        pytest.skip("all tests here are without pressure information")
    hide = 'mount -t tmpfs none /proc/pressure; exec "$@"'
    hidden = ("unshare", "--mount", "sh", "-c", hide, "sh")
    config = tmp_path / "reclaim.toml"
    config.write_text(SCORE)
    with memory_group("kilter-test-clock", 200) as group, ExitStack() as stack:
        process = stack.enter_context(
            started("reclaim", "run", "--config", config, "--within", group, prefix=hidden)
        )
        wait_until(is_running, "it runs")
        background = stack.enter_context(app(90, group=group))
        background.score(900)
        stack.enter_context(app(80, group=group))
        wait_until(lambda: background.swapped > 60 * MIB, "it is out")
        assert calm(2.0)
        said = end(process).stderr
        # Groups of cgroup v2 have pressure information of their own.
        assert (group / "memory.pressure").exists() or "no memory pressure" in said


def test_rules_decide_and_what_must_stay_stays(swap: Swap, tmp_path: Path) -> None:
    rules = '[[rule]]\nname = "python*"\ncached = "always"\n'
    with memory_group("kilter-test-rules", 900) as group, ExitStack() as stack:
        options = ("--policy", "on-cached", "--within", group)
        stack.enter_context(daemon(tmp_path, SCORE + rules, *options))
        names = [stack.enter_context(app(24, *words, group=group)) for words in ((), ("lock",))]
        free, locked = names
        wait_until(lambda: free.swapped > 18 * MIB, "a rule says that it is cached")
        wait_until(lambda: "locked" in followed(locked.pid).get("why", ""), "it has locked memory")
        assert followed(locked.pid)["state"] == "left-out"
        assert locked.field("VmRSS") > 24 * MIB
        # A changed configuration is taken up.
        never = rules.replace("always", "never")
        (tmp_path / "reclaim.toml").write_text(SCORE + never)
        wait_until(lambda: followed(free.pid)["state"] == "left-out", "it is read again")
        (tmp_path / "reclaim.toml").write_text("nonsense = 1\n")
        time.sleep(1)
        assert followed(free.pid)["state"] == "left-out", "what cannot be read changes nothing"


def test_swapoff_in_the_middle_stops_it(swap: Swap, tmp_path: Path) -> None:
    if len(Path("/proc/swaps").read_text().splitlines()) > 2:
        pytest.skip("this machine swaps elsewhere too")
    with memory_group("kilter-test-off", 900) as group, ExitStack() as stack:
        options = ("--policy", "on-cached", "--within", group)
        stack.enter_context(daemon(tmp_path, SCORE, *options))
        background = stack.enter_context(app(40, group=group))
        background.score(900)
        wait_until(lambda: background.swapped > 30 * MIB, "it is out")
        subprocess.run(["swapoff", swap.device], check=True)
        wait_until(lambda: status().get("stopped") == "there is no swap", "it is told", 40)
        before, begun = status()["total"], time.monotonic()
        time.sleep(3)
        after = status()["total"]
        rate = (after["wakeups"] - before["wakeups"]) / (time.monotonic() - begun)
        assert rate < 8, "no busy loop"
        assert after["pageouts"] == before["pageouts"]
        assert background.tell("touch") == "whole"


def test_an_app_that_comes_back_at_once_is_left_alone(swap: Swap, tmp_path: Path) -> None:
    rule = '[[rule]]\nname = "python*"\ncached = "always"\n[params]\napp_throttle_s = 0\n'
    with memory_group("kilter-test-back", 900) as group, ExitStack() as stack:
        options = ("--policy", "on-cached", "--within", group)
        stack.enter_context(daemon(tmp_path, rule, *options))
        background = stack.enter_context(app(40, group=group))
        told: dict[str, Any] = {}
        until = time.monotonic() + 40
        while told.get("refaulted_bytes", 0) < 20 * MIB:
            assert time.monotonic() < until, told
            assert background.tell("touch") == "whole"
            told = followed(background.pid)
        assert told["strikes"] >= 1
        assert told["left_alone_s"] > 0
        for _ in range(30):
            assert background.tell("touch") == "whole"
            time.sleep(0.05)
        assert status()["total"]["pageouts"] <= 2


def test_parameters_are_files_that_change_while_it_runs(
    no_experiment: None, tmp_path: Path
) -> None:
    with daemon(tmp_path, SCORE, "--set", "min_app_mb=20") as process:
        assert (PARAMETERS / "min_app_mb").read_text() == "20\n"
        assert kilter("run", "--set", "reclaim.delta_mb=33", "--", "true").returncode == 0
        assert (PARAMETERS / "delta_mb").read_text() == "8\n", "put back"
        seen = kilter(
            "run", "--set", "reclaim.delta_mb=33", "--", "cat", PARAMETERS / "delta_mb"
        ).stdout
        assert seen.startswith("33\n")
        (PARAMETERS / "refault_percent").write_text("0\n")
        wait_until(lambda: (PARAMETERS / "refault_percent").read_text() == "1\n", "put back")
        second = kilter("reclaim", "run", "--config", tmp_path / "reclaim.toml")
        assert second.returncode == 2
        assert "another" in second.stderr
        done = end(process)
        assert done.returncode == 0
        assert "refault_percent=0: it must lie from 1 to 100" in done.stderr
    refused = kilter("run", "--set", "reclaim.delta_mb=33", "--", "true")
    assert refused.returncode == 125
    assert "kilter reclaim run" in refused.stderr


def test_after_sigkill_nothing_needs_undoing(tmp_path: Path) -> None:
    with daemon(tmp_path, SCORE) as process:
        process.kill()
        process.wait()
    assert json.loads(kilter("reclaim", "status", "--json").stdout) == {}
    with daemon(tmp_path, SCORE, "--set", "delta_mb=9"):
        assert (PARAMETERS / "delta_mb").read_text() == "9\n", "what was left is taken over"
    assert not PARAMETERS.exists()


def test_the_policy_is_a_knob(no_experiment: None) -> None:
    if is_running():
        pytest.skip("a daemon of reclaim is running on this machine")
    inside = ("--", BINARY, "reclaim", "status", "--json")
    done = kilter("run", "--set", "reclaim.policy=on-cached", *inside)
    assert done.returncode == 0, done.stderr
    assert '"policy": "on-cached"' in done.stdout
    assert not is_running()
    done = kilter("run", "--set", "reclaim.policy=eager", "--", "true")
    assert done.returncode == 125


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("nonsense = 1\n", "unknown field"),
        ('policy = "eager"\n', "on-cached"),
        ("[params]\nidle_s = -1\n", "from 0 to 86400"),
        ('\n\n[[rule]]\nname = "x"\n', ":3:"),
        ('within = "/no/such/group"\n', "neither a process nor a cgroup"),
    ],
)
def test_a_wrong_configuration_starts_nothing(tmp_path: Path, config: str, said: str) -> None:
    path = tmp_path / "reclaim.toml"
    path.write_text(config)
    done = kilter("reclaim", "run", "--config", path)
    assert done.returncode == 2
    assert said in done.stderr
    assert not is_running()


def test_without_a_daemon_there_is_nothing_to_tell() -> None:
    if is_running():
        pytest.skip("a daemon of reclaim is running on this machine")
    assert "No daemon" in kilter("reclaim", "status").stdout
    done = kilter("reclaim", "explain", "x")
    assert done.returncode == 2
    assert "hint: sudo kilter reclaim run" in done.stderr
