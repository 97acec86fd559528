"""A stand-in for the kilter binary that speaks its side of the pipes. Started as a program.

Its behaviour comes from the environment variable ``FAKE_KILTER``, a JSON object:

``effect``: {knob: {value: factor}} on the run time; ``refuse``: [knob]; ``fail``: {"knob=value":
exit code}; ``die_after``: replies before it dies; ``status``: exit status then; ``torn``: writes
half a line before dying; ``pad``: bytes of standard-output tail in each reply; ``slow_end``:
seconds that putting settings back takes; ``run_s``: seconds that a run really takes; ``log``: file
that gets a line for what happens.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

Json = dict[str, Any]

PLAN = json.loads(os.environ.get("FAKE_KILTER", "{}"))
STOPPED = False


def note(text: str) -> None:
    if "log" in PLAN:
        with Path(PLAN["log"]).open("a") as stream:
            stream.write(text + "\n")


def stop(_number: int, _frame: object) -> None:
    global STOPPED
    STOPPED = True


def record(request: Json, outcome: Json, wall: float, first: bool) -> Json:
    found = {
        "command": request["command"],
        "settings": request["settings"],
        "started": "2025-01-01T00:00:00Z",
        "started_boottime_s": time.clock_gettime(time.CLOCK_BOOTTIME),
        "outcome": outcome,
        "wall_s": wall,
        "user_s": wall / 2,
        "sys_s": wall / 4,
        "max_rss_kib": 2000,
        "voluntary_switches": 3,
        "involuntary_switches": 1,
        "minor_faults": 100,
        "major_faults": 0,
        "machine": {"steal_s": 0.0, "load_1m": 0.5},
        "metrics": PLAN.get("metrics", {}),
        "stdout_tail": "x" * PLAN.get("pad", 0),
        "stderr_tail": "it broke\n" if outcome.get("code") else "",
    }
    if first:
        found["fingerprint"] = {
            "id": "fake", "kernel": "6.12", "arch": "x86_64", "os": "", "cpu": "", "cpus": 2,
            "memory_kib": 1, "cgroup": "v2", "virtualisation": "none", "cpufreq": "none",
            "sched_ext": "", "boot_id": "b",
        }  # fmt: skip
    return found


def answer(request: Json, first: bool, rng: random.Random) -> Json:
    for knob in request["settings"]:
        if knob in PLAN.get("refuse", []):
            return {
                "id": request["id"], "result": "not-run",
                "error": f"{knob} = 999 is out of range", "hint": f"kilter knobs show {knob}",
            }  # fmt: skip
    wall, outcome = 0.1, {"outcome": "exited", "code": 0}
    for knob, value in request["settings"].items():
        wall *= PLAN.get("effect", {}).get(knob, {}).get(value, 1.0)
        code = PLAN.get("fail", {}).get(f"{knob}={value}")
        if code:
            outcome = {"outcome": "exited", "code": code}
    if PLAN.get("fail", {}).get("always"):
        outcome = {"outcome": "exited", "code": PLAN["fail"]["always"]}
    time.sleep(PLAN.get("run_s", 0.0))
    if STOPPED:
        outcome = {"outcome": "interrupted"}
    wall *= 1 + rng.gauss(0, PLAN.get("noise", 0.01))
    return {"id": request["id"], "result": "ran", "record": record(request, outcome, wall, first)}


def batch() -> int:
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    note(f"start {' '.join(sys.argv[1:])}")
    rng = random.Random(4)
    for made, line in enumerate(iter(sys.stdin.readline, "")):
        if made == PLAN.get("die_after", -1):
            if PLAN.get("torn"):
                sys.stdout.write('{"id": 1, "resu')
                sys.stdout.flush()
            return int(PLAN.get("status", 3))
        if STOPPED:
            break
        reply = answer(json.loads(line), made == 0, rng)
        note(f"run {json.loads(line)['id']}")
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()
    time.sleep(PLAN.get("slow_end", 0.0))
    note("settings are back")
    return 130 if STOPPED else 0


def main() -> int:
    words = [w for w in sys.argv[1:] if not w.startswith("--root")]
    if words[:1] == ["run"]:
        return batch()
    data = sys.stdin.read()
    note(f"{' '.join(words)}: {data.strip()}")
    if "keep_fails" in PLAN:
        print("error: the disk is full", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
