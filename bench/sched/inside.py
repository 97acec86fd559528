"""The measurements, in the guest: told what to measure as JSON, prints a line of JSON for each.

Everything is measured on the scheduler that ``kilter sched run hrrn`` or the knob ``sched`` starts.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import programs
import work

from vm.hogs import Hog, Waits, cpu_s, hogs, shares

SEPARATOR = "\x1e"
"""Before a line that is meant for the host."""
STATE = Path("/sys/kernel/sched_ext/state")
PARAMETERS = Path("/run/kilter/sched/hrrn")
LENGTHS = (1, 10, 100, 1000)
"""Queued tasks at which costs are measured."""
Found = dict[str, Any]


class Bench:
    """What is needed to measure."""

    def __init__(self, told: Found) -> None:
        self.kilter: str = told["kilter"]
        self.peer: str = told["peer"]
        self.place: str = told["place"]
        self.blocks: int = told["blocks"]
        self.peer_blocks: int = told["peer_blocks"]

    def status(self) -> Found | None:
        """What the scheduler in force tells; None if there is none."""
        words = [self.kilter, "sched", "status", "--json"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        found: Found | None = json.loads(done.stdout).get("hrrn")
        return found

    def counters(self) -> Found:
        """Its counters; an error if it was ejected."""
        status = self.status()
        if status is None:
            raise SystemExit("hrrn is no longer in force")
        total: Found = status["total"]
        return total

    @contextmanager
    def hrrn(self, *options: str) -> Iterator[Found]:
        """The scheduler in force; what it told when it was."""
        words = [self.kilter, "sched", "run", "hrrn", *options]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as child:
            assert child.stderr is not None
            try:
                while (status := self.status()) is None:
                    if child.poll() is not None:
                        raise SystemExit(child.stderr.read())
                    time.sleep(0.1)
                yield status
                if child.poll() is not None:
                    raise SystemExit(child.stderr.read())
            finally:
                child.terminate()
                child.wait(60)


@contextmanager
def ahead() -> Iterator[None]:
    """Whoever measures is a real-time task, for it would get a hundredth of a CPU otherwise."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def started(bench: Bench) -> Found:
    """Seconds of loading and attaching."""
    times = []
    for _ in range(7):
        with bench.hrrn() as status:
            times.append(status["start_s"])
    return {"start_s": times}


def changed(bench: Bench) -> Found:
    """Milliseconds until a change of a parameter is seen in the kernel, while every CPU is busy."""
    seen = []
    with bench.hrrn(), hogs([Hog()] * 2):
        for number in range(20):
            (PARAMETERS / "max_lifetime_ms").write_text(f"{20_000 + number}\n")
            time.sleep(0.3)
            status = bench.status()
            assert status is not None
            assert status["params"]["max_lifetime_ms"] == 20_000 + number
            seen.append(status.get("change_seen_ms", float("inf")))
    return {"change_ms": seen}


def crowd(bench: Bench, wanted: list[Hog], seconds: float) -> Found:
    """The longest wait of anybody by its own clock, and whether all ran.

    Whoever measures sleeps meanwhile: it is a real-time task, and nobody else runs beside it.
    """
    file = Path("/tmp/waits")
    file.unlink(missing_ok=True)
    waits = Waits(file, len(wanted))
    with hogs(wanted, file) as pids, ahead(), bench.hrrn():
        time.sleep(3)
        before, begun = bench.counters(), time.monotonic()
        spent = [cpu_s(pid) for pid in pids]
        waits.begin()
        time.sleep(seconds)
        longest_s = waits.longest_s()
        parts = [cpu_s(pid) - was for pid, was in zip(pids, spent, strict=True)]
        after, took_s = bench.counters(), time.monotonic() - begun
        return {
            "wait_max_s": longest_s,
            "runnable": sum(hog.work_us == 0 for hog in wanted),
            "ran": sum(part > 0 for part in parts),
            "tasks": len(wanted),
            "seconds": seconds,
            "turn_ms": 1e3
            * len(os.sched_getaffinity(0))
            * took_s
            / max(1, after["picks"] - before["picks"]),
        }


def pinned(bench: Bench) -> Found:
    """Hundreds of hogs, each pinned to a CPU."""
    return crowd(bench, [Hog(number % 2) for number in range(400)], 60)


def sleepers(bench: Bench) -> Found:
    """Hogs beside tasks that sleep most of the time."""
    return crowd(bench, [Hog()] * 40 + [Hog(work_us=200, sleep_us=5000)] * 20, 30)


def shared(bench: Bench) -> Found:
    """Parts of a CPU in percent."""
    found = {}
    four_and_one = [Hog(0, uid=64_301)] * 4 + [Hog(0, uid=64_302)]
    for name, options, wanted, of in (
        ("equal", [], [Hog(0), Hog(0)], 0),
        ("nice", [], [Hog(0), Hog(0, nice=19)], 1),
        ("per_uid", ["--per-uid"], four_and_one, 4),
    ):
        with bench.hrrn(*options), hogs(wanted) as pids:
            time.sleep(2)
            found[name] = shares(pids, 25)[of]
    return found


def growth(bench: Bench) -> Found:
    """Nanoseconds of queueing and picking, and of a change of priority, by the queue's length."""
    found: Found = {"enqueue": {}, "pick": {}, "requeue": {}, "scanned": {}}
    os.sched_setaffinity(0, {1})
    for length in LENGTHS:
        with bench.hrrn("--timeout-ms", "30000"), hogs([Hog(0)] * (length + 1)) as pids, ahead():
            time.sleep(3)
            before = bench.counters()
            with programs.counted() as spent:
                time.sleep(8)
            after = bench.counters()
            found["enqueue"][length] = named(spent, "enqueue").each
            found["pick"][length] = named(spent, "dispatch").each
            found["requeue"][length] = requeued(pids)
            picks = after["picks"] - before["picks"]
            found["scanned"][length] = (after["scanned"] - before["scanned"]) / max(1, picks)
    os.sched_setaffinity(0, {0, 1})
    return found


def requeued(pids: list[int]) -> float:
    """Nanoseconds of a system call that takes a waiting task out of its queue and puts it back."""
    times = []
    for number in range(200):
        pid = pids[number % len(pids)]
        begun = time.perf_counter_ns()
        os.setpriority(os.PRIO_PROCESS, pid, 1 - number // len(pids) % 2)
        times.append(time.perf_counter_ns() - begun)
    return statistics.median(times)


def named(spent: dict[str, programs.Cost], part: str) -> programs.Cost:
    """The cost of the program with that in its name; the kernel keeps 15 letters of it."""
    return next(cost for name, cost in spent.items() if part[:6] in name)


@contextmanager
def scheduler(program: str) -> Iterator[None]:
    """Another loadable scheduler in force."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen([program], stdout=quiet, stderr=quiet) as child:
        try:
            while STATE.read_text().strip() != "enabled":
                if child.poll() is not None:
                    raise SystemExit(f"{program} ended with {child.returncode}")
                time.sleep(0.05)
            yield
            if child.poll() is not None:
                raise SystemExit(f"{program} ended by itself with {child.returncode}")
        finally:
            child.terminate()
            child.wait(60)


def dispatched(bench: Bench) -> Found:
    """What a pick costs under the same load, ours and the peer's, in three rounds."""
    load = [bench.kilter, "load", "messaging", "--pipe", "--threads", "-g2", "-l40"]
    found: Found = {"ours": [], "peer": []}

    def measure(whose: str) -> None:
        with programs.counted() as spent, hogs([Hog()] * 2):
            subprocess.run(load, check=True, stdout=subprocess.DEVNULL)
        every = sum(cost.ns for cost in spent.values())
        switches = named(spent, "running").calls
        found[whose].append(
            {"dispatch": named(spent, "dispatch").each, "switch": every / max(1, switches)}
        )

    for _ in range(3):
        with bench.hrrn():
            measure("ours")
        if bench.peer:
            with scheduler(bench.peer):
                measure("peer")
    return found


DIRECT: dict[str, Callable[[Bench], Found]] = {
    "start": started,
    "change": changed,
    "pinned": pinned,
    "sleepers": sleepers,
    "shares": shared,
    "growth": growth,
    "dispatch": dispatched,
}


def compared(bench: Bench, name: str, rival: str) -> Found:
    """A workload under a scheduler and the kernel's own: each metric's values, block by block."""
    load = work.load(name, bench.kilter, bench.place)
    export = Path("/tmp/compare.json")
    metrics = [word for metric in load.metrics for word in ("--metric", metric)]
    blocks = bench.blocks if rival == "hrrn" else bench.peer_blocks
    words = [bench.kilter, "compare", "--blocks", str(blocks), "--export", str(export), *metrics]
    if rival == "hrrn":
        words += ["--base", "current", "--with", "sched=hrrn", "--", *load.command]
    else:
        under = [str(work.BESIDE), "under", bench.peer, *load.command]
        words += [" ".join(load.command), " ".join(under)]
    done = subprocess.run(words, stdout=sys.stderr, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"kilter compare ended with {done.returncode}")
    return {"blocks": in_blocks(json.loads(export.read_text()), load.names)}


def in_blocks(export: Found, names: list[str]) -> dict[str, list[list[list[float]]]]:
    """By metric: for each block the base's values and the rival's."""
    base = export["comparison"]["base"]["label"]
    found: dict[str, list[list[list[float]]]] = {name: [] for name in names}
    for number in sorted({run["block"] for run in export["runs"]}):
        runs = [run for run in export["runs"] if run["block"] == number]
        if any(run["outcome"] != "ok" for run in runs):
            continue
        for name, blocks in found.items():
            arms: tuple[list[float], list[float]] = ([], [])
            for run in runs:
                arms[run["arm"] != base].append(run["values"][name])
            blocks.append(list(arms))
    return found


def tell(name: str, rival: str, found: Found) -> None:
    """A line for the host."""
    line = json.dumps({"name": name, "rival": rival, "found": found})
    print(f"{SEPARATOR}{line}", flush=True)


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    told = json.loads(sys.argv[1])
    bench = Bench(told)
    for name, rival in told["steps"]:
        try:
            found = DIRECT[name](bench) if name in DIRECT else compared(bench, name, rival)
        except (Exception, SystemExit):
            traceback.print_exc()  # The others can be measured still.
        else:
            tell(name, rival, found)


if __name__ == "__main__":
    main()
