"""How long a profile takes from process start to exit: kilter beside TuneD, on this kernel.

kilter applies a profile that changes 40 files and takes it back; TuneD applies its
throughput-performance (its own log tells when it is applied) and is ended. Interleaved, medians.
Every setting is compared before and after.
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FILES = 40
PROFILE = "bench-apply"
APPLIED = "static tuning from profile 'throughput-performance' applied"

Knob = dict[str, Any]
"""As `kilter knobs list --json` prints it."""


def knobs(kilter: str) -> list[Knob]:
    listed = subprocess.run([kilter, "knobs", "list", "--json"], capture_output=True, check=True)
    return [knob for knob in json.loads(listed.stdout) if knob["state"]["writable"]]


def other_value(knob: Knob) -> str | None:
    """A harmless value that the knob does not have now."""
    spec, now = knob["spec"], knob["state"]["value"]
    couplings = spec.get("couplings", {})
    if spec["risk"] in ("hang", "security", "durability"):
        return None
    if couplings.get("excludes"):
        return None
    # The kernel itself takes 10 to 30 ms for each write to a queue or to the idle governor
    # (it waits for a grace period), whoever writes; TuneD's profile writes none of these here.
    if knob["name"].startswith(("block.", "cpuidle.")):
        return None
    search = spec.get("search")
    match spec["value"]["type"]:
        case "bool":
            return "0" if now == "1" else "1"
        case "choice" if search:
            return next((value for value in search.get("values", []) if value != now), None)
        case "int":
            step = (search or {}).get("step", 1)
            nearby = (int(now) - step, int(now) + step)
            limits = spec["value"]
            return next((str(n) for n in nearby if limits["min"] <= n <= limits["max"]), None)
    return None


def accepted(kilter: str, name: str, value: str) -> bool:
    """Whether this kernel takes the value."""
    trial = [kilter, "run", "--set", f"{name}={value}", "--", "true"]
    return subprocess.run(trial, capture_output=True).returncode == 0


def save_profile(kilter: str) -> int:
    values = {
        knob["name"]: other_value(knob) for knob in knobs(kilter) if not knob["virtual_device"]
    }
    offered = [(name, value) for name, value in values.items() if value is not None]
    chosen = [pair for pair in offered if accepted(kilter, *pair)][:FILES]
    profile = {"name": PROFILE, "summary": "Made by a benchmark",
               "set": {name: {"value": value} for name, value in chosen}}  # fmt: skip
    subprocess.run(
        [kilter, "profile", "save"],
        input=json.dumps(profile).encode(),
        check=True,
        capture_output=True,
    )
    return len(chosen)


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")


def time_kilter(kilter: str) -> float:
    start = time.perf_counter()
    run([kilter, "apply", PROFILE])
    elapsed = time.perf_counter() - start
    run([kilter, "revert", PROFILE])
    return elapsed


def time_tuned() -> float:
    start = time.perf_counter()
    command = [
        "tuned",
        "--no-dbus",
        "--no-socket",
        "--profile",
        "throughput-performance",
        "--debug",
    ]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as tuned:
        elapsed = next(
            (time.perf_counter() - start for line in tuned.stderr or () if APPLIED in line), None
        )
        tuned.send_signal(signal.SIGTERM)
        tuned.communicate()
    if elapsed is None:
        sys.exit("error: TuneD did not say that its profile was applied")
    return elapsed


def row(name: str, seconds: list[float]) -> str:
    low, middle, high = (f(seconds) * 1e3 for f in (min, statistics.median, max))
    return f"{name:30} {middle:6.1f} ms  ({low:.1f} … {high:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kilter")
    parser.add_argument("--runs", type=int, default=15)
    args = parser.parse_args()
    before = {knob["name"]: knob["state"]["value"] for knob in knobs(args.kilter)}
    count = save_profile(args.kilter)
    ours, theirs = [], []
    try:
        for _ in range(args.runs):
            ours.append(time_kilter(args.kilter))
            theirs.append(time_tuned())
    finally:
        Path(f"/etc/kilter/profiles/{PROFILE}.toml").unlink()
    after = {knob["name"]: knob["state"]["value"] for knob in knobs(args.kilter)}
    print(row(f"kilter apply, {count} knobs", ours))
    print(row("tuned, throughput-performance", theirs))
    ratio = statistics.median(theirs) / statistics.median(ours)
    print(f"{'ratio':30} {ratio:6.1f} ×   (bar: 10 ×; aim for kilter: 5 ms)")
    changed = {name for name in before if after.get(name) != before[name]}
    print(
        "settings after: "
        + ("as before" if not changed else f"CHANGED: {', '.join(sorted(changed))}")
    )


if __name__ == "__main__":
    main()
