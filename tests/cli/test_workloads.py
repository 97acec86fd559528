"""The catalog's workloads, and the built-in loads behind some of them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from .program import children, kilter, started, wait_until

WORKLOADS = {
    entry["workload"]["name"]: entry
    for entry in json.loads(kilter("--json", "bench", "--list").stdout)
}

SHORT = (
    "cyclictest-loaded",
    "latencymark",
    "latencymark-big",
    "latencymark-little",
    "perf-bench-memcpy",
    "stress-ng-cachy",
    "voicemark",
)
"""Those that take seconds also on a busy machine."""


@pytest.mark.parametrize("name", SHORT)
def test_a_workload_yields_its_metrics(name: str) -> None:
    entry = WORKLOADS[name]
    if not entry["installed"]:
        pytest.skip(f"{entry['workload']['package']} is not installed")
    if entry["workload"].get("needs_root") and os.geteuid() != 0:
        pytest.skip(f"{name} needs root")
    done = kilter("--json", "bench", name, "--runs", "1")
    assert done.returncode == 0, done
    (record,) = json.loads(done.stdout)
    names = {
        metric["name"]
        for metric in entry["workload"]["metrics"]
        # A virtual machine may have no counters, which is not an error.
        if not metric["source"].get("field", "").startswith("counters.")
    }
    assert names <= set(record["metrics"])
    assert all(value >= 0 for value in record["metrics"].values())
    assert "left processes" not in done.stderr


def test_what_tweak_scripts_were_judged_by_is_there() -> None:
    commands = {name: " ".join(entry["workload"]["command"]) for name, entry in WORKLOADS.items()}
    assert commands["hackbench-threads"] == "hackbench -pTl 4000"
    assert commands["hackbench-processes"] == "hackbench -pl 8000"
    assert "--nr_loops=50" in commands["perf-bench-memcpy"]
    assert "--cpu 4 --cpu-method all" in commands["stress-ng-cachy"]
    assert "--policy=fifo" in commands["cyclictest-loaded"]
    assert {"voicemark", "latencymark", "latencymark-little", "latencymark-big"} <= set(commands)


def test_a_command_beside_a_load_has_its_own_code_and_output() -> None:
    done = kilter("load", "beside", "--groups", "1", "--", "sh", "-c", "echo here; exit 3")
    assert (done.returncode, done.stdout) == (3, "here\n")
    missing = kilter("load", "beside", "--", "/nonexistent/program")
    assert missing.returncode == 2
    assert "/nonexistent/program" in missing.stderr


def test_the_load_dies_with_what_it_stands_beside() -> None:
    with started("load", "beside", "--groups", "1", "--", "sleep", "60") as child:
        wait_until(lambda: len(children(child.pid)) == 2, "both run")
        both = children(child.pid)
        child.kill()
        child.wait()

        def loads() -> list[int]:
            return [pid for pid in both if "messaging" in command_of(pid)]

        wait_until(lambda: not loads(), "the load is gone")
        (left,) = [pid for pid in both if "sleep" in command_of(pid)]
        os.kill(left, signal.SIGKILL)


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def test_audio_keeps_to_the_cores_it_is_given() -> None:
    short = ("--runtime", "0.3", "--warmup", "0.1")
    result = json.loads(kilter("load", "voicemark", *short, "--cores", "big").stdout)
    online = Path("/sys/devices/system/cpu/online").read_text().strip()
    assert result["cpus"]
    assert result["kinds_differ"] or result["cpus"] == online
