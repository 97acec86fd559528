"""Reclaim itself: every bar of `kilter reclaim once` and `run` in one table, a bare loop beside it.

Throughput beside a bare MADV_PAGEOUT loop over the same memory with the same call size, and what
that size costs beside one call over everything; two workers; both over what a Python program
holds, and over pages that are all alike: a third noise and the rest zeros, which compress so fast
that most of the time is the kernel's other work. The choice of ranges among 20,000 mappings; how
long the target's own mmap, munmap and first touches wait meanwhile; what an app loses that touches
everything right after each page-out; what the daemon costs at rest and with 2,000 processes. It
swaps to a zram device of its own, which it takes away again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Found = dict[str, Any]
CONTROL = Path("/sys/class/zram-control")
SOURCE = Path(__file__).with_name("load.c")
HUGE_CALL_KIB = 1 << 20
# A program with many small objects: it holds the syntax trees of Python's own library.
PROGRAM = """
import ast, pathlib, sys, sysconfig
library = pathlib.Path(sysconfig.get_path("stdlib"))
trees = [ast.parse(file.read_bytes()) for file in sorted(library.glob("*.py"))]
print("ready", flush=True)
sys.stdin.read()
"""


class Load:
    """A load, and the lines that it answers with."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.pid = process, process.pid

    def line(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, command: str) -> list[float]:
        """Its answer to a command, in numbers."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return [float(word) for word in self.line().split() if word != "begun"]


@contextmanager
def load(binary: Path, *words: object, group: Path | None = None) -> Iterator[Load]:
    """A load, ready; in a cgroup where one is given."""
    command = [str(binary), *map(str, words)]
    if group is not None:
        command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *command]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            loaded = Load(process)
            if loaded.line() != "ready":
                sys.exit(f"{' '.join(command)}: not ready")
            yield loaded
        finally:
            process.terminate()


def keep_heap(file: Path) -> None:
    """Writes what the program holds, without the pages that it has not touched."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
        with Path(f"/proc/{process.pid}/mem").open("rb") as memory, file.open("wb") as kept:
            for span, permissions, _, _, _, *name in map(str.split, maps):
                if permissions.startswith("rw") and name in ([], ["[heap]"]):
                    start, end = (int(word, 16) for word in span.split("-"))
                    memory.seek(start)
                    for _ in range(start, end, 4096):
                        page = memory.read(4096)
                        if any(page):
                            kept.write(page)
        process.terminate()


@contextmanager
def swap(mib: int) -> Iterator[Path]:
    """Swap to a zram device of this benchmark's own; its directory in /sys."""
    number = int((CONTROL / "hot_add").read_text())
    device, block = Path(f"/dev/zram{number}"), Path(f"/sys/block/zram{number}")
    made = not device.exists()
    if made:
        major, minor = map(int, (block / "dev").read_text().split(":"))
        os.mknod(device, 0o600 | 0o060000, os.makedev(major, minor))
    try:
        (block / "disksize").write_text(f"{mib}M")
        subprocess.run(["mkswap", device], check=True, capture_output=True)
        subprocess.run(["swapon", "-p", "1000", device], check=True)
        yield block
    finally:
        subprocess.run(["swapoff", device], check=False, capture_output=True)
        (block / "reset").write_text("1")
        (CONTROL / "hot_remove").write_text(str(number))
        if made:
            device.unlink(missing_ok=True)


@contextmanager
def daemon(kilter: str, config: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`kilter reclaim run`, ready."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(config)
        file.flush()
        command = [kilter, "reclaim", "run", "--config", file.name, *options]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            try:
                for line in process.stderr:
                    if line.startswith("Ready"):
                        break
                # It tells of every action, and waits for whoever does not read.
                threading.Thread(target=process.stderr.read, daemon=True).start()
                yield process
            finally:
                process.terminate()


def once(kilter: str, pid: int, *options: object) -> dict[str, float]:
    """What one reclaim by kilter told."""
    words = [kilter, "reclaim", "once", str(pid), "--anon", *map(str, options), "--json"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def bare(binary: Path, pid: int, call_kib: int, threads: int = 1) -> tuple[float, float]:
    """Wall and CPU seconds of a bare loop in each thread."""
    words = [str(binary), "bare", str(pid), str(call_kib), str(threads)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    wall, cpu = map(float, done.stdout.split())
    return wall, cpu


def row(what: str, bar: str, value: str) -> None:
    """A line of the table."""
    print(f"{what:<64} {bar:>12} {value}", flush=True)


def ratio(above: list[tuple[float, float]], below: list[tuple[float, float]]) -> str:
    """Ratios of the medians of wall and of CPU time."""
    median = statistics.median
    wall = median(pair[0] for pair in above) / median(pair[0] for pair in below)
    cpu = median(pair[1] for pair in above) / median(pair[1] for pair in below)
    return f"{wall:.2f} by wall time, {cpu:.2f} by CPU time"


def throughput(kilter: str, binary: Path, block: Path, mib: int, repeats: int) -> None:
    """All ways to page out the same memory, in turn; two kinds of memory."""
    heap = binary.with_name("heap")
    keep_heap(heap)
    kinds: dict[str, list[object]] = {
        "what a Python program holds": ["copy", mib, heap],
        "pages that are all alike": ["hold", mib],
    }
    for kind, words in kinds.items():
        with load(binary, *words) as target:
            ways_out(kilter, binary, target, kind, mib, repeats)
            original, compressed = (block / "mm_stat").read_text().split()[:2]
        row(f"{kind}: bytes by compressed bytes", "", f"{int(original) / int(compressed):.1f}")


def ways_out(kilter: str, binary: Path, target: Load, kind: str, mib: int, repeats: int) -> None:
    """The rows of one kind of memory."""

    def by_kilter(*options: object) -> Callable[[int], tuple[float, float]]:
        def page_out(pid: int) -> tuple[float, float]:
            told = once(kilter, pid, *options)
            return told["seconds"], told["cpu_s"]

        return page_out

    ways: dict[str, Callable[[int], tuple[float, float]]] = {
        "kilter": by_kilter("--call-kib", 1024),
        "bare": lambda pid: bare(binary, pid, 1024),
        "one call": lambda pid: bare(binary, pid, HUGE_CALL_KIB),
        "two": by_kilter("--call-kib", 1024, "--workers", 2),
        "two bare": lambda pid: bare(binary, pid, 1024, 2),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for repeat in range(repeats):
        order = list(ways) if repeat % 2 == 0 else list(ways)[::-1]
        for name in order:
            target.tell("touch")
            times[name].append(ways[name](target.pid))
    rate = mib / 1024 * 1.073741824 / statistics.median(wall for wall, _ in times["kilter"])
    row(f"{kind}: GB/s by kilter, calls of 1 MiB", "", f"{rate:.2f}")
    row("… kilter by the bare loop", "≥ 0.9", ratio(times["bare"], times["kilter"]))
    row("… a bare loop by one call over everything", "", ratio(times["bare"], times["one call"]))
    row("… one worker by two", "≥ 1.6", halved(times["kilter"], times["two"]))
    row("… one bare loop by two", "", halved(times["bare"], times["two bare"]))


def halved(one: list[tuple[float, float]], two: list[tuple[float, float]]) -> str:
    """What a second worker brings."""
    fastest = [min(wall for wall, _ in times) for times in (one, two)]
    return f"{ratio(one, two)}; {fastest[0] / fastest[1]:.2f} by the fastest runs"


def scan(kilter: str, binary: Path, repeats: int) -> None:
    """The choice of ranges among 20,000 mappings."""
    with load(binary, "hold", 256, 20_000) as target:
        times = [once(kilter, target.pid)["scan_s"] * 1e3 for _ in range(repeats)]
    row("choice among 20,000 mappings", "≤ 30 ms", f"{statistics.median(times):.1f} ms")


def waiting(kilter: str, binary: Path, mib: int) -> None:
    """How long the target's own calls wait while it is reclaimed from."""
    ways: list[tuple[str, Callable[[int], object], tuple[str, str]]] = [
        ("nobody", lambda _: time.sleep(0.5), ("", "")),
        ("kilter", lambda pid: once(kilter, pid), ("≤ 40 ms", "≤ 0.1 ms")),
        ("two workers", lambda pid: once(kilter, pid, "--workers", 2), ("", "")),
        ("one call", lambda pid: bare(binary, pid, HUGE_CALL_KIB), ("", "")),
    ]
    for name, page_out, bars in ways:
        with load(binary, "probe", mib) as target:
            target.tell("begin")
            page_out(target.pid)
            numbers = target.tell("report")
        for what, bar, (p50, p99, most) in [
            ("mmap, munmap", bars[0], numbers[:3]),
            ("first touch", bars[1], numbers[3:]),
        ]:
            values = f"{p50 / 1e3:.3f}, {p99 / 1e3:.3f}, {most / 1e3:.3f} ms"
            row(f"{what} of the target, {name}: p50, p99, longest", bar, values)


@contextmanager
def memory_group(limit_mib: int) -> Iterator[Path]:
    """A memory cgroup, of v1 or v2, with a limit."""
    base = Path("/sys/fs/cgroup")
    is_v1 = (base / "memory/memory.limit_in_bytes").exists()
    group = base / ("memory/kilter-bench" if is_v1 else "kilter-bench")
    group.mkdir()
    try:
        limit = "memory.limit_in_bytes" if is_v1 else "memory.max"
        (group / limit).write_text(f"{limit_mib}M")
        yield group
    finally:
        for _ in range(100):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.05)


def adversary(kilter: str, binary: Path, mib: int, seconds: int) -> None:
    """An app that a rule calls cached, and that touches everything without pause."""
    rule = '[[rule]]\nname = "load"\ncached = "always"\n'
    # Memory is always scarce under the limit: nine tenths of it are wanted.
    options = {"on-cached": (), "pressure": ("--set", "available_percent=90")}
    for policy, more in options.items():
        with (
            memory_group(2 * mib) as group,
            daemon(kilter, rule, "--policy", policy, "--within", str(group), *more),
            load(binary, "adversary", mib, seconds, group=group) as target,
        ):
            lost, hits = target.line().split()
        value = f"{lost} %, in {hits} rounds"
        row(f"adversary of {mib} MiB for {seconds} s, {policy}: time lost", "≤ 2 %", value)


def cpu_s(process: subprocess.Popen[str]) -> float:
    """CPU time so far."""
    text = Path(f"/proc/{process.pid}/schedstat").read_text()
    return int(text.split()[0]) / 1e9


def rss_mib(process: subprocess.Popen[str]) -> str:
    """Resident now, and at most so far."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    sizes = [int(status.split(name + ":")[1].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")]
    return f"{sizes[0]:.1f} MiB now, {sizes[1]:.1f} at most"


def told(kilter: str) -> Found:
    """What the daemon tells of itself; what it answers with goes to standard error."""
    words = [kilter, "reclaim", "status", "--json"]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    daemon: Found = json.loads(done.stdout)["daemon"]
    return daemon


def at_rest(kilter: str, binary: Path, seconds: float) -> None:
    """What the daemon costs, alone and with a crowd."""
    with daemon(kilter, "") as process:
        time.sleep(5)
        before = cpu_s(process)
        time.sleep(seconds)
        used = 100 * (cpu_s(process) - before) / seconds
        row("daemon at rest: resident", "≤ 4 MiB", rss_mib(process))
        row("daemon at rest: CPU", "0.0 %", f"{used:.3f} %")
    with load(binary, "crowd", 2000, 13):
        time.sleep(3)
        with daemon(kilter, "") as process:
            time.sleep(10)
            before = cpu_s(process)
            time.sleep(2 * seconds)
            used = 100 * (cpu_s(process) - before) / (2 * seconds)
            # Asked last: an answer of 2,000 apps takes memory itself.
            resident = rss_mib(process)
            found = told(kilter)
            total = found["total"]
            events = found["memory"]["pressure_events"]
            value = f"{used:.3f} % in {2 * seconds:.0f} s; since its start {total['looks']} looks, "
            value += f"{total['sweeps']} sweeps, {events} events of memory pressure"
            row("2,000 processes of 13 MB followed: CPU", "≤ 0.2 %", value)
            row("2,000 processes of 13 MB followed: resident", "≤ 4 MiB", resident)
            row("after an answer that tells of all of them: resident", "", rss_mib(process))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kilter")
    parser.add_argument("--mib", type=int, default=512, help="memory that is paged out")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=60, help="of the adversary, and at rest")
    parser.add_argument("--only", default="throughput,scan,waiting,adversary,rest")
    options = parser.parse_args()
    # Ended from outside, it still takes its swap away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if os.geteuid() != 0 or not (CONTROL / "hot_add").exists():
        sys.exit("needs root, and a kernel to which zram devices can be added")
    wanted = options.only.split(",")
    print(f"Linux {os.uname().release}, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as directory, swap(4 * options.mib) as block:
        binary = Path(directory) / "load"
        subprocess.run(["cc", "-O2", "-pthread", "-o", binary, SOURCE], check=True)
        if "throughput" in wanted:
            throughput(options.kilter, binary, block, options.mib, options.repeats)
        if "scan" in wanted:
            scan(options.kilter, binary, options.repeats)
        if "waiting" in wanted:
            waiting(options.kilter, binary, options.mib)
        if "adversary" in wanted:
            adversary(options.kilter, binary, options.mib // 2, options.seconds)
        if "rest" in wanted:
            at_rest(options.kilter, binary, options.seconds)


if __name__ == "__main__":
    main()
