"""What the measurements come to: lines of a table, each beside its bar."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import work

from kilter_lab import stats
from kilter_lab.messages import VerdictRecord

Found = dict[str, Any]
TICK_MS = 4.0
"""Debian's kernels have 250 ticks a second; at each the running task may lose its turn."""


@dataclass(frozen=True)
class Row:
    """A line; ``met`` where a bar applies to it."""

    what: str
    bar: str
    ours: str
    peer: str = ""
    met: bool | None = None


def started(found: Found) -> Iterator[Row]:
    times = found["start_s"]
    told = f"{statistics.median(times):.2f} s ({min(times):.2f}-{max(times):.2f})"
    yield Row("load and attach, median", "≤ 1 s", told, met=statistics.median(times) <= 1)


def changed(found: Found) -> Iterator[Row]:
    times = found["change_ms"]
    told = f"{max(times):.1f} ms, median {statistics.median(times):.1f} ms"
    what = f"change of max_lifetime_ms seen, longest of {len(times)}"
    yield Row(what, "≤ 10 ms", told, met=max(times) <= 10)


def waited(what: str, found: Found) -> Iterator[Row]:
    bound = max(1.0, found["runnable"] * TICK_MS / 1e3)
    longest = found["wait_max_s"]
    told = f"{longest:.2f} s; a turn took {found['turn_ms']:.1f} ms"
    yield Row(f"{what}: longest wait", f"≤ {bound:.1f} s", told, met=longest <= bound)
    yield Row(
        f"{what}: ran, none ejected",
        f"all {found['tasks']}",
        f"{found['ran']} in {found['seconds']:.0f} s",
        met=found["ran"] == found["tasks"],
    )


def shared(found: Found) -> Iterator[Row]:
    for what, name, wanted, by in (
        ("two equal hogs on a CPU", "equal", 50.0, 3.0),
        ("nice 19 against nice 0 on a CPU", "nice", 100 / 21, 0.15 * 100 / 21),
        ("1 task of a user against 4, --per-uid", "per_uid", 50.0, 5.0),
    ):
        share = found[name]
        bar = f"{wanted:.3g} ± {by:.2g} %"
        yield Row(what, bar, f"{share:.2f} %", met=abs(share - wanted) <= by)


def growth(found: Found) -> Iterator[Row]:
    lengths = list(found["pick"])
    for what, name, claim in (
        ("queue a task (ops.enqueue)", "enqueue", "O(1)"),
        ("take a task out and put it back (setpriority)", "requeue", "O(1)"),
        ("pick (ops.dispatch)", "pick", "O(n)"),
    ):
        costs = " / ".join(f"{found[name][length] / 1e3:.1f}" for length in lengths)
        yield Row(f"{what}, {' / '.join(lengths)} queued", f"seed: {claim}", f"{costs} µs")


def dispatched(found: Found) -> Iterator[Row]:
    def median(whose: str, of: str) -> float | None:
        values = [round_[of] for round_ in found[whose]]
        return statistics.median(values) if values else None

    for what, of in (("a call of ops.dispatch", "dispatch"), ("all BPF, a switch", "switch")):
        ours, peer = median("ours", of), median("peer", of)
        assert ours is not None
        told = "-" if peer is None else f"{peer / 1e3:.2f} µs"
        barred = of == "dispatch" and peer is not None
        yield Row(
            f"{what}, messaging beside 2 hogs",
            "aim ≤ 1.2 × peer" if of == "dispatch" else "",
            f"{ours / 1e3:.2f} µs" + (f" ({ours / peer:.2f} ×)" if peer else ""),
            told,
            ours <= 1.2 * peer if barred and peer else None,
        )


DIRECT: dict[str, Callable[[Found], Iterator[Row]]] = {
    "start": started,
    "change": changed,
    "pinned": lambda found: waited("400 pinned hogs", found),
    "sleepers": lambda found: waited("40 hogs beside 20 sleepers", found),
    "shares": shared,
    "growth": growth,
    "dispatch": dispatched,
}


def met(bar: work.Bar, record: VerdictRecord) -> bool:
    """Whether a workload's bar is met."""
    match bar:
        case "upper end ≤ 1.10":
            return record.high <= 1.1
        case "below 1, aim ≤ 0.60":
            return record.high < 1
        case "no worse":
            return record.verdict in ("better", "no-difference")
        case "better":
            return record.verdict == "better"


def told(record: VerdictRecord) -> str:
    """Ratio, interval, verdict."""
    return (
        f"{record.ratio:.3f} ({record.low:.3f}-{record.high:.3f}) {record.verdict}, "
        f"{record.blocks} blocks"
    )


def compared(name: str, ours: Found, peer: Found | None) -> Iterator[Row]:
    """A workload's lines: ratios to the kernel's own scheduler, all boots together."""
    load = work.load(name, "kilter", "")

    def record(metric: str, found: Found) -> VerdictRecord:
        return stats.verdict(metric, load.direction, found["blocks"][metric], region_percent=1.0)

    for metric in load.names:
        own = record(metric, ours)
        beside = told(record(metric, peer)) if peer else ""
        what = f"{load.summary}: {metric}, ratio to EEVDF"
        yield Row(what, load.bar, told(own), beside, met(load.bar, own))


def rendered(rows: list[Row]) -> str:
    """The table."""
    marks = {True: "met", False: "MISSED", None: ""}
    head = ("", "bar", "hrrn", "scx_bpfland", "")
    lines = [head, *((row.what, row.bar, row.ours, row.peer, marks[row.met]) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
