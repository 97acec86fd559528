"""Record the noise of this machine: consecutive runs of one unchanged command, as CSV.

No setting is changed, so every difference between runs is noise. The runs are made by
``kilter run --batch``, and every column is a field of kilter's own records. The rows of the
table in README.md are printed for each file.

    python3 bench/noise/record.py KILTER [--runs N] [--suffix=-busy] [--into DIR] [NAME…]
    python3 bench/noise/record.py --describe FILE…
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "lab")]

from kilter_lab.messages import Exited, LabContext, Ran, RunRecord, RunRequest  # noqa: E402
from kilter_lab.runner import BatchRunner  # noqa: E402

TICKS_A_SECOND = 100
"""Unit of ``steal_ticks``: /proc/stat counts stolen time in USER_HZ."""

SOURCE = """
    #include <stdio.h>
    #include <string.h>
    static unsigned table[256];
    static unsigned fold(const char *text, unsigned n)
    {
        unsigned sum = 0;
        for (unsigned i = 0; i < n; i++)
            sum = table[(sum ^ (unsigned char)text[i]) & 255] ^ (sum >> 8);
        return sum;
    }
    int main(int argc, char **argv)
    {
        for (unsigned i = 0; i < 256; i++)
            for (unsigned bit = 0, value = table[i] = i; bit < 8; bit++)
                table[i] = value = value & 1 ? 0xedb88320u ^ (value >> 1) : value >> 1;
        for (int i = 0; i < argc; i++)
            printf("%08x %s\\n", fold(argv[i], strlen(argv[i])), argv[i]);
        return 0;
    }
"""


def commands(kilter: str, scratch: Path) -> dict[str, list[str]]:
    """What is recorded, by the file's name."""
    source = scratch / "small.c"
    source.write_text(textwrap.dedent(SOURCE))
    target = scratch / "written"
    load = ["load", "messaging", "--pipe", "--threads", "--groups", "5", "--loops", "400"]
    return {
        "messaging": [kilter, *load],
        "hackbench": ["hackbench", "-pTl", "400", "-g", "5"],
        "compile": ["gcc", "-O2", "-c", str(source), "-o", str(scratch / "small.o")],
        "python-startup": ["python3", "-c", "import json,decimal,asyncio"],
        "disk": ["dd", "if=/dev/zero", f"of={target}", "bs=64k", "count=320", "conv=fsync"],
    }


def row(record: RunRecord, first_s: float) -> dict[str, float]:
    """One line of the file."""
    pressure = record.machine.pressure
    return {
        "start_s": round(record.started_boottime_s - first_s, 3),
        "wall_s": round(record.wall_s, 6),
        "user_s": round(record.user_s, 4),
        "sys_s": round(record.sys_s, 4),
        "steal_ticks": round(record.machine.steal_s * TICKS_A_SECOND),
        "voluntary_switches": record.voluntary_switches,
        "involuntary_switches": record.involuntary_switches,
        "minor_faults": record.minor_faults,
        "major_faults": record.major_faults,
        "load_1m": record.machine.load_1m,
        "cpu_some_s": round(pressure.cpu_some_s, 4) if pressure else 0.0,
        "memory_some_s": round(pressure.memory_some_s, 4) if pressure else 0.0,
        "io_some_s": round(pressure.io_some_s, 4) if pressure else 0.0,
    }


def record(kilter: str, command: list[str], runs: int) -> list[dict[str, float]]:
    """The runs, one after the other."""
    rows: list[dict[str, float]] = []
    with BatchRunner(LabContext(kilter=[kilter], seed=0)) as runner:
        first_s = None
        for reply in runner.run([RunRequest(i, {}, command) for i in range(runs)]):
            if not (isinstance(reply, Ran) and reply.record.outcome == Exited(0)):
                sys.exit(f"{' '.join(command)}: {reply}")
            first_s = reply.record.started_boottime_s if first_s is None else first_s
            rows.append(row(reply.record, first_s))
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def described(path: Path) -> str:
    """The file's row of the table in README.md."""
    with path.open() as file:
        walls = np.array([float(r["wall_s"]) for r in csv.DictReader(file)])
    centred = np.log(walls) - np.log(walls).mean()
    neighbours = float(centred[1:] @ centred[:-1] / (centred @ centred))
    half = len(walls) // 2
    halves = (np.median(walls[half:]) / np.median(walls[:half]) - 1) * 100
    return (
        f"| {path.name} | {len(walls)} | {np.median(walls):.3f} | "
        f"{walls.std() / walls.mean() * 100:.1f} % | {neighbours:.2f} | "
        f"{walls.max() / np.median(walls):.2f} | {halves:+.1f} % |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kilter", nargs="?")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--runs", type=int, default=250)
    parser.add_argument("--suffix", default="")
    parser.add_argument("--into", type=Path, default=HERE)
    parser.add_argument("--describe", nargs="+", type=Path, default=[])
    args = parser.parse_args()
    paths = list(args.describe)
    if args.kilter:
        with tempfile.TemporaryDirectory() as scratch:
            offered = commands(args.kilter, Path(scratch))
            for name in args.names or offered:
                paths.append(args.into / f"{name}{args.suffix}.csv")
                write(paths[-1], record(args.kilter, offered[name], args.runs))
    for path in paths:
        print(described(path))


if __name__ == "__main__":
    main()
