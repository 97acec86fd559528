"""What kilter adds: to one command, and between the runs of a comparison.

`true`, `kilter run -- true`, and the same with ten knobs, interleaved: medians, and the largest
resident set (bar: 8 MiB). Then a comparison of `true` under two values: the time from the end of
one run to the start of the next.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

TEN = {
    "kernel.sched_autogroup_enabled": "0",
    "vm.compaction_proactiveness": "10",
    "vm.dirty_background_ratio": "5",
    "vm.dirty_ratio": "30",
    "vm.extfrag_threshold": "600",
    "vm.page-cluster": "0",
    "vm.stat_interval": "2",
    "vm.swappiness": "10",
    "vm.vfs_cache_pressure": "50",
    "vm.watermark_scale_factor": "20",
}


def once(command: list[str]) -> float:
    """Wall time of one execution, in milliseconds."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1e3


def resident(kilter: str, command: list[str]) -> float:
    """Largest resident set of a command in MiB, measured by a kilter around it."""
    outer = [kilter, "run", "--json", "--", *command]
    record = subprocess.run(outer, check=True, capture_output=True).stdout
    return float(json.loads(record)["max_rss_kib"]) / 1024


def gaps(kilter: str, blocks: int) -> list[float]:
    """Milliseconds between the runs of one comparison."""
    with tempfile.TemporaryDirectory() as directory:
        export = Path(directory) / "runs.json"
        command = [kilter, "compare", "--with", "vm.swappiness=50", "--blocks", str(blocks)]
        subprocess.run(
            [*command, "--export", str(export), "--", "true"], check=True, capture_output=True
        )
        exported = json.loads(export.read_text())
    records = [run["record"] for run in exported["runs"]]
    runs = sorted(records, key=lambda run: run["started_boottime_s"])
    ends = [run["started_boottime_s"] + run["wall_s"] for run in runs]
    return [
        (run["started_boottime_s"] - end) * 1e3 for run, end in zip(runs[1:], ends, strict=False)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kilter")
    parser.add_argument("--runs", type=int, default=200)
    args = parser.parse_args()
    settings = [word for knob, value in TEN.items() for word in ("--set", f"{knob}={value}")]
    commands = {
        "true": ["true"],
        "kilter run -- true": [args.kilter, "run", "--", "true"],
        "… with ten knobs": [args.kilter, "run", *settings, "--", "true"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(args.runs):
        for name, command in commands.items():
            times[name].append(once(command))
    base = statistics.median(times["true"])
    bars = {"kilter run -- true": 3, "… with ten knobs": 5}
    for name, values in times.items():
        median = statistics.median(values)
        bar = f"   + {median - base:.2f} ms (bar: {bars[name]} ms)" if name in bars else ""
        print(f"{name:20} {median:6.2f} ms   {resident(args.kilter, commands[name]):4.1f} MiB{bar}")
    between = gaps(args.kilter, 20)
    median, p90 = statistics.median(between), statistics.quantiles(between, n=10)[8]
    print(f"between two runs of a comparison: {median:.2f} ms, p90 {p90:.2f} ms (bar: 10 ms)")


if __name__ == "__main__":
    main()
