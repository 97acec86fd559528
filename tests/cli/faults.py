"""Killing a process at the entry of a chosen system call, with strace.

strace counts the calls of each kind by themselves, so a crash point is a kind and a number: the third
``openat2``. The points of a command are read from a trace of it, from the first call that names the
journal on: whatever comes before leaves no trace.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from . import kills
from .program import argv, environment, is_alive, started, wait_until
from .roots import Root

# Whatever opens, reads, writes, locks, removes, forks or ends.
CALLS = ",".join(
    [
        "openat", "openat2", "read", "write", "pwrite64", "lseek", "ftruncate", "flock", "mkdir",
        "unlink", "unlinkat", "rename", "renameat2", "pipe2", "clone", "clone3", "fork", "vfork",
        "wait4", "kill", "exit_group",
    ]
)  # fmt: skip
# -I4: what ends strace must not leave a command untraced; no news of signals in the log.
STRACE = ("strace", "-qq", "-I4", "-e", "signal=none")
TIMEOUT_S = 120.0


class Point(NamedTuple):
    """A crash point: the Nth call of a kind."""

    call: str
    number: int


@cache
def reason_not_to() -> str:
    """Why faults cannot be injected here; empty if they can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    inject = ["-e", "trace=openat", "-e", "inject=openat:signal=KILL"]
    probe = subprocess.run(
        [*STRACE, "-o", "/dev/null", *inject, "true"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if probe.returncode != -signal.SIGKILL:
        return f"strace cannot inject here: {probe.stderr.strip()}"
    return ""


def points_of(log: str, marker: str = "") -> list[Point]:
    """The calls of a trace, from the first that names ``marker`` on."""
    counts: Counter[str] = Counter()
    points: list[Point] = []
    begun = not marker
    for line in log.splitlines():
        call = re.match(r"(\w+)\(", line)
        if call is None:
            continue
        counts[call[1]] += 1
        begun = begun or marker in line
        if begun:
            points.append(Point(call[1], counts[call[1]]))
    return points


def crash_points(root: Root, args: list[str], log: Path) -> list[Point]:
    """All crash points of a command, from a trace of one that survives."""
    trace = ["-o", str(log), "-e", f"trace={CALLS}"]
    words = [*STRACE, *trace, *argv(*args, root=root.path)]
    subprocess.run(words, check=True, capture_output=True, env=environment(), timeout=TIMEOUT_S)
    return points_of(log.read_text(), str(root.path / "run/kilter"))


def _inject(point: Point) -> list[str]:
    return ["-e", f"inject={point.call}:signal=KILL:when={point.number}"]


def killed(point: Point, root: Root, args: list[str], *, orphan: bool = False) -> bool:
    """Whether the command was killed there. ``orphan``: its guardian dies at birth."""
    options = ["-e", f"trace={point.call}", *_inject(point)]
    if orphan:
        # Only a guardian makes itself a session.
        options = ["-f", "-e", f"trace={point.call},setsid", *_inject(point)]
        options += ["-e", "inject=setsid:signal=KILL"]
    done = subprocess.run(
        [*STRACE, "-o", "/dev/null", *options, *argv(*args, root=root.path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=TIMEOUT_S,
        check=False,
    )
    assert "panicked" not in done.stderr
    return done.returncode == -signal.SIGKILL


def guardian_killed(point: Point | None, root: Root, args: list[str], directory: Path) -> str:
    """Kill a kilter, and its guardian at this point of its work; the guardian's trace."""
    told, log = directory / "pid", directory / "guardian.log"
    told.unlink(missing_ok=True)
    workload = ["sh", "-c", f"echo $$ > {told}; exec sleep 60"]
    options = ["-e", f"trace={CALLS}", *([] if point is None else _inject(point))]
    with started(*args, "--", *workload, root=root.path) as child:
        wait_until(lambda: kills.pid_in(told) is not None, "the workload runs")
        (guardian,) = kills.guardians(child.pid)
        words = [*STRACE, "-o", str(log), *options, "-p", str(guardian)]
        with subprocess.Popen(words, stdin=subprocess.DEVNULL) as tracer:
            wait_until(lambda: _is_traced(guardian), "strace has the guardian")
            child.kill()
            child.wait()
            wait_until(lambda: not is_alive(guardian), "the guardian has ended", 30)
            tracer.wait(30)
    pid = kills.pid_in(told)
    if pid is not None:
        wait_until(lambda: not is_alive(pid), "the workload has ended")
    return log.read_text()


def _is_traced(pid: int) -> bool:
    """Whether a tracer has attached, or has already killed it."""
    if not is_alive(pid):
        return True
    status = Path(f"/proc/{pid}/status").read_text()
    return "TracerPid:\t0\n" not in status


def each_killed(
    root: Root,
    args: list[str],
    log: Path,
    *,
    orphan: bool = False,
    prepare: list[str] | None = None,
) -> Iterator[Point]:
    """Kill the command at one point after the other; yields after each kill."""
    if prepare:
        assert root(*prepare).returncode == 0
    points = crash_points(root, args, log)
    assert root("revert").returncode == 0
    for point in points:
        if prepare:
            assert root(*prepare).returncode == 0
        if killed(point, root, args, orphan=orphan):
            yield point
        else:
            # A call that came once and not again (a workload's timing): nothing to look at.
            assert root("revert").returncode == 0
