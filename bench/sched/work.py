"""The workloads on which schedulers are compared, with what is read from each and its bar."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

BESIDE = Path(__file__).resolve().parent / "beside.sh"
Bar = Literal["upper end ≤ 1.10", "below 1, aim ≤ 0.60", "no worse", "better"]


@dataclass(frozen=True)
class Load:
    """A workload."""

    summary: str
    command: list[str]
    metrics: list[str]
    """As ``kilter compare --metric`` takes them."""
    bar: Bar
    direction: Literal["min", "max"] = "min"

    @property
    def names(self) -> list[str]:
        """The metrics' names."""
        return [metric.partition("=")[0] for metric in self.metrics]


def load(name: str, kilter: str, place: str) -> Load:
    """A workload by its name; ``place`` has what ``materials`` made."""
    summary, command, metrics, bar, direction = LOADS[name]
    words = command.format(kilter=kilter, beside=BESIDE, place=place).split()
    return Load(summary, words, metrics, bar, direction)


LOADS: dict[str, tuple[str, str, list[str], Bar, Literal["min", "max"]]] = {
    "messaging": (
        "messages between tasks (kilter load messaging)",
        "{kilter} load messaging --pipe --threads -g 2 -l 60",
        ["seconds=json:/seconds"],
        "upper end ≤ 1.10",
        "min",
    ),
    "hackbench": (
        "hackbench (rt-tests)",
        "hackbench --pipe --threads -g 2 -l 60",
        ["seconds=/^Time:\\s([0-9.]+)/"],
        "upper end ≤ 1.10",
        "min",
    ),
    "wakeup": (
        "wake-up latency beside 4 hogs (cyclictest)",
        "{beside} hogs 4 cyclictest --quiet --policy=other --threads=1 --interval=2000"
        " --loops=300 --default-system",
        ["mean_us=/Avg:\\s*([0-9]+)/"],
        "below 1, aim ≤ 0.60",
        "min",
    ),
    "stress": (
        "stress-ng --cpu 4",
        "stress-ng --cpu 4 --cpu-method bitops --timeout 3 --metrics-brief --temp-path /tmp",
        ["bogo_ops_per_s=/cpu\\s+[0-9]+\\s+[0-9.]+\\s+[0-9.]+\\s+[0-9.]+\\s+([0-9.]+)/"],
        "no worse",
        "max",
    ),
    "compile": (
        "a drawing task beside a compile",
        "env PROGRAM={place}/program.c {beside} compile 3 {place}/frames 2 3000",
        ["wakeup_us=json:/wakeup_us/mean", "frame_us=json:/frame_us/mean"],
        "better",
        "min",
    ),
}
