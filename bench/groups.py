"""Per-uid groups: every bar of `kilter groups` in one table, cgrulesengd beside it.

The experiment (four tasks of one user against one of another, pinned to one CPU), forks right after
a setuid, a storm of forks without one, setuids while the daemon is stopped, latency at 500 setuids
a second, what the daemon costs at rest, and a start with 1,000 users and 10,000 tasks. Only uids
that nobody has are moved. cgrulesengd (Debian's cgroup-tools) gets rules for the same uids.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

CROWD = Path(__file__).parents[1] / "tests" / "cli" / "crowd.py"
UID = 64_301
MANY = range(70_000, 71_000)
USER = "bench-kilter"


def hierarchy() -> Path:
    """The cpu controller's hierarchy."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup" and "cpu" in options.split(","):
            return Path(before.split(" ")[4])
    return Path("/sys/fs/cgroup")


def group_of(pid: int | str) -> str:
    """The group of a process."""
    lines = []
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    fields = [line.split(":", 2) for line in lines]
    v1 = [path for _, names, path in fields if "cpu" in names.split(",")]
    v2 = [path for _, names, path in fields if names == ""]
    return (v1 or v2 or [""])[0]


class Daemon:
    """A daemon that groups one uid, and what it costs."""

    def __init__(self, name: str, process: subprocess.Popen[str], group: str) -> None:
        self.name, self.process, self.group = name, process, group

    def cpu_ms(self) -> float:
        """CPU time so far."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6

    def wakeups(self) -> int:
        """Times that it went to sleep so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("voluntary_ctxt_switches:")[1].split()[0])

    def rss_mib(self) -> float:
        """Resident set."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


@contextmanager
def kilter_daemon(binary: str, only: str = str(UID), *, realtime: bool = True) -> Iterator[Daemon]:
    """`kilter groups run`, ready."""
    options = [] if realtime else ["--no-realtime"]
    with subprocess.Popen(
        [binary, "groups", "run", "--only", only, *options], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if line.startswith("Ready"):
                    break
            name = "kilter" if realtime else "kilter --no-realtime"
            yield Daemon(name, process, f"/kilter-{UID}")
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def cgrulesengd() -> Iterator[Daemon]:
    """Cgrulesengd with a rule for the same uid, its files seen by nobody else."""
    group = hierarchy() / USER
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        passwd = Path("/etc/passwd").read_text() + f"{USER}:x:{UID}:{UID}::/:/bin/sh\n"
        (place / "passwd").write_text(passwd)
        (place / "cgrules.conf").write_text(f"{USER}\tcpu\t{USER}\n")
        (place / "cgconfig.conf").write_text("")
        # /etc is seen through an overlay: the machine's own files stay as they are.
        script = (
            f"mkdir {place}/up {place}/work && mount -t tmpfs t {place}/up && "
            f"mkdir {place}/up/u {place}/up/w && mount -t overlay o "
            f"-o lowerdir=/etc,upperdir={place}/up/u,workdir={place}/up/w /etc && "
            f"cp {place}/passwd {place}/cgrules.conf {place}/cgconfig.conf /etc/ && "
            "mkdir -p /etc/cgconfig.d /etc/cgrules.d && "
            f"exec cgrulesengd -n -Q"
        )
        group.mkdir()
        with subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", script], text=True, stderr=subprocess.DEVNULL
        ) as process:
            try:
                time.sleep(2)
                if process.poll() is not None:
                    sys.exit(f"cgrulesengd ended with code {process.returncode}")
                yield Daemon("cgrulesengd", process, f"/{USER}")
            finally:
                process.terminate()
                process.wait(60)
                for pid in (group / "cgroup.procs").read_text().split():
                    (hierarchy() / "cgroup.procs").write_text(pid)
                group.rmdir()


@contextmanager
def crowd(*words: object) -> Iterator[subprocess.Popen[str]]:
    """Processes that change their uid."""
    command = [sys.executable, str(CROWD), *map(str, words)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            yield child
        finally:
            assert child.stdin is not None
            with suppress(OSError):
                child.stdin.close()
            child.wait(120)


def pids_of(child: subprocess.Popen[str]) -> list[int]:
    """The pids that a crowd tells."""
    assert child.stdout is not None
    pids: list[int] = json.loads(child.stdout.readline())
    return pids


def misplaced(pids: list[int], group: str, within_s: float) -> int:
    """Processes that are still outside the group after some time."""
    until = time.monotonic() + within_s
    left = pids
    while left and time.monotonic() < until:
        left = [pid for pid in left if group_of(pid) != group]
        time.sleep(0.05)
    return len(left)


def forks_after_setuid(daemon: Daemon) -> tuple[int, int, float]:
    """300 setuids, 10 forks after each: misplaced, of how many, and CPU in milliseconds."""
    before = daemon.cpu_ms()
    with crowd(UID, 300, 10) as child:
        pids = pids_of(child)
        left = misplaced(pids, daemon.group, 3)
        return left, len(pids), daemon.cpu_ms() - before


def storm(daemon: Daemon, count: int) -> float:
    """Forks without setuid; CPU of the daemon in milliseconds."""
    before = daemon.cpu_ms()
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    time.sleep(0.5)
    return daemon.cpu_ms() - before


def while_stopped(daemon: Daemon, count: int) -> int:
    """Setuids while the daemon is stopped for a second; misplaced after it continues."""
    with crowd(UID, count, 0, "signal") as child:
        os.kill(daemon.process.pid, signal.SIGSTOP)
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
        begun = time.monotonic()
        pids = pids_of(child)
        time.sleep(max(0.0, 1 - (time.monotonic() - begun)))
        os.kill(daemon.process.pid, signal.SIGCONT)
        return misplaced(pids, daemon.group, 5)


def latency(daemon: Daemon, count: int, rate: float) -> list[float]:
    """Microseconds from setuid to placed; infinite where it never came within a second."""
    reader, writer = os.pipe()
    begun = time.monotonic()
    started = []
    for number in range(count):
        time.sleep(max(0.0, begun + number / rate - time.monotonic()))
        pid = os.fork()
        if pid == 0:
            os.write(writer, b"%.1f\n" % placed_after(daemon.group))
            os._exit(0)
        started.append(pid)
    for pid in started:
        os.waitpid(pid, 0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        return [float(line) for line in lines]


def placed_after(group: str) -> float:
    """In the child: change the uid, and wait until this process is in the group."""
    begun = time.perf_counter()
    os.setresuid(UID, UID, UID)
    while group_of("self") != group:
        if time.perf_counter() - begun > 1:
            return float("inf")
        # Hundreds that look without a pause would keep the daemon from its work.
        time.sleep(20e-6)
    return (time.perf_counter() - begun) * 1e6


def many(binary: str) -> tuple[float, int]:
    """Start with 1,000 users and 10,000 tasks: seconds from start to ready, and tasks moved."""
    started = []
    for number in range(10_000):
        pid = os.fork()
        if pid == 0:
            uid = MANY[number % len(MANY)]
            os.setresuid(uid, uid, uid)
            signal.pause()
            os._exit(0)
        started.append(pid)
    try:
        time.sleep(1)
        begun = time.perf_counter()
        with kilter_daemon(binary, f"{MANY[0]}-{MANY[-1]}"):
            took = time.perf_counter() - begun
            placed = [
                group_of(pid) == f"/kilter-{MANY[number % len(MANY)]}"
                for number, pid in enumerate(started)
            ]
        return took, sum(placed)
    finally:
        for pid in started:
            os.kill(pid, signal.SIGKILL)
        for pid in started:
            os.waitpid(pid, 0)


def quantile(values: list[float], part: float) -> float:
    """A quantile, by rank."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def row(what: str, bar: str, *found: str) -> None:
    """A line of the table."""
    cells = "".join(f"{cell:>24}" for cell in (bar, *found))
    print(f"{what:<44}{cells}", flush=True)


def experiment(binary: str, repeats: int, seconds: float) -> None:
    """The seed's table: medians over repeats."""
    words = [binary, "groups", "demo", "--seconds", str(seconds), "--json"]
    reports = [
        json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        for _ in range(repeats)
    ]
    for half, bar in (("before", "20 ± 2 %"), ("after", "50 ± 2 %")):
        shares = [report[half][-1]["share_percent"] for report in reports]
        row(f"lone task's share {half}", bar, f"{statistics.median(shares):.1f} %")
    speedups = [report["speedup"] for report in reports]
    row("lone task's work, after over before", "≥ 2.2", f"{statistics.median(speedups):.2f}")


def side_by_side(binary: str, count: int, forks: int, rest_s: float) -> None:
    """Kilter and, where it is installed, cgrulesengd."""
    columns: list[list[str]] = []
    makers: list[Callable[[], AbstractContextManager[Daemon]]] = [
        lambda: kilter_daemon(binary),
        lambda: kilter_daemon(binary, realtime=False),
    ]
    if shutil.which("cgrulesengd"):
        makers.append(cgrulesengd)
    for make in makers:
        with make() as daemon:
            rss, wakeups, idle = daemon.rss_mib(), daemon.wakeups(), daemon.cpu_ms()
            time.sleep(rest_s)
            in_a_minute = 60 / rest_s
            woken = (daemon.wakeups() - wakeups) * in_a_minute
            rest = f"{woken:.0f}, {(daemon.cpu_ms() - idle) * in_a_minute:.1f} ms"
            left, total, cost = forks_after_setuid(daemon)
            storm_ms = storm(daemon, forks)
            waits = latency(daemon, count, 500)
            never = sum(wait == float("inf") for wait in waits)
            stopped = while_stopped(daemon, 4000)
            print(f"{daemon.name}: done", file=sys.stderr)
            columns.append(
                [
                    daemon.name,
                    f"{left} of {total}",
                    f"{cost:.0f} ms",
                    f"{storm_ms:.1f} ms",
                    f"{quantile(waits, 0.5):.0f} / {quantile(waits, 0.9):.0f} µs",
                    f"{never} of {len(waits)}",
                    f"{stopped} of 4000",
                    f"{rss:.1f} / {daemon.rss_mib():.1f} MiB",
                    rest,
                ]
            )
    titles = [
        ("", "bar"),
        ("misplaced after 300 × (setuid, 10 forks)", "0"),
        ("CPU for these", "-"),
        (f"CPU for {forks} forks without setuid", "≤ 10 ms"),
        ("setuid to placed at 500/s, p50 / p90", "p90 ≤ 1000 µs"),
        ("never placed within 1 s", "0"),
        ("misplaced after 1 s stopped", "0"),
        ("resident at rest / after all this", "≤ 3 MiB"),
        ("wake-ups and CPU a minute at rest", "≤ 5, 0.0 %"),
    ]
    for number, (title, bar) in enumerate(titles):
        row(title, bar, *(column[number] for column in columns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kilter")
    parser.add_argument("--repeats", type=int, default=5, help="demonstrations")
    parser.add_argument("--seconds", type=float, default=4, help="of each half of one")
    parser.add_argument("--count", type=int, default=2000, help="setuids timed")
    parser.add_argument("--forks", type=int, default=20_000, help="in the storm")
    parser.add_argument("--rest", type=float, default=60, help="seconds at rest")
    options = parser.parse_args()
    # Ended from outside, it still removes its groups and ends its processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(f"Linux {os.uname().release}, load {os.getloadavg()[0]:.1f}")
    experiment(options.kilter, options.repeats, options.seconds)
    side_by_side(options.kilter, options.count, options.forks, options.rest)
    took, placed = many(options.kilter)
    row("start with 1,000 users and 10,000 tasks", "≤ 0.5 s", f"{took:.2f} s, {placed} placed")


if __name__ == "__main__":
    main()
