"""The built-in messaging load beside hackbench (rt-tests), at the same groups and loops.

Interleaved; the median time that each reports, and the ratio. Near 1 means that a verdict on the
built-in load is a verdict on hackbench's pattern.
"""

import argparse
import json
import re
import statistics
import subprocess

PATTERNS = {
    "pipes, threads": (["-p", "-T"], ["--pipe", "--threads"]),
    "pipes, processes": (["-p"], ["--pipe"]),
    "sockets, processes": ([], []),
}
GROUPS, LOOPS = "5", "400"


def hackbench(options: list[str]) -> float:
    command = ["hackbench", *options, "-g", GROUPS, "-l", LOOPS]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"Time: ([0-9.]+)", output)
    if found is None:
        raise SystemExit(f"error: hackbench printed no time: {output}")
    return float(found[1])


def messaging(kilter: str, options: list[str]) -> float:
    command = [kilter, "load", "messaging", *options, "--groups", GROUPS, "--loops", LOOPS]
    output = subprocess.run(command, check=True, capture_output=True).stdout
    return float(json.loads(output)["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kilter")
    parser.add_argument("--runs", type=int, default=15)
    args = parser.parse_args()
    for name, (theirs, ours) in PATTERNS.items():
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(args.runs):
            times[0].append(hackbench(theirs))
            times[1].append(messaging(args.kilter, ours))
        peer, own = (statistics.median(values) for values in times)
        print(f"{name:20} hackbench {peer:.3f} s   kilter {own:.3f} s   ratio {own / peer:.2f}")


if __name__ == "__main__":
    main()
