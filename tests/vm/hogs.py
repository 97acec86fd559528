"""Tasks that always want a CPU, and what each gets of it.

As a script it starts those that it is told of and prints their processes; they end with its input.
A process of its own starts them, because a fork of a small one is cheap.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn


@dataclass(frozen=True)
class Hog:
    """What a hog is before it starts to spin."""

    cpu: int | None = None
    """The only CPU that it may run on."""
    nice: int = 0
    uid: int = 0
    work_us: int = 0
    """0: it spins for ever; otherwise it sleeps after each so long a piece of work."""
    sleep_us: int = 1000


class Waits:
    """How long each of some hogs was without a CPU, by its own clock, in a file that they share.

    Of its numbers the first tells how often they have begun anew; then each hog has two: when it last
    had a CPU, and its longest pause since they began anew, in nanoseconds.
    """

    def __init__(self, path: Path, hogs: int) -> None:
        size = 8 * (1 + 2 * hogs)
        if not path.exists():
            path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self.numbers = memoryview(mmap.mmap(file.fileno(), size)).cast("Q")
        self.path, self.round = path, 0

    def begin(self) -> None:
        """Forget what was."""
        self.numbers[0] += 1

    def note(self, hog: int) -> None:
        """A hog has a CPU now."""
        now, mine = time.monotonic_ns(), 1 + 2 * hog
        if self.round == self.numbers[0]:
            pause = now - self.numbers[mine]
            self.numbers[mine + 1] = max(self.numbers[mine + 1], pause)
        else:
            self.round, self.numbers[mine + 1] = self.numbers[0], 0
        self.numbers[mine] = now

    def longest_s(self) -> float:
        """The longest pause of all, that which goes on included."""
        now, numbers = time.monotonic_ns(), list(self.numbers[1:])
        return max(now - min(numbers[::2]), *numbers[1::2]) / 1e9


@contextmanager
def hogs(wanted: list[Hog], waits: Path | None = None) -> Iterator[list[int]]:
    """They spin meanwhile; their processes. ``waits`` is the file of their ``Waits``."""
    told = json.dumps([asdict(hog) for hog in wanted])
    with subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, told, *([str(waits)] if waits else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            yield json.loads(child.stdout.readline())
        finally:
            child.stdin.close()
            child.wait(120)


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def shares(pids: list[int], seconds: float) -> list[float]:
    """What part each gets of all that they get together, in percent."""
    before = [cpu_s(pid) for pid in pids]
    time.sleep(seconds)
    got = [cpu_s(pid) - was for pid, was in zip(pids, before, strict=True)]
    return [100 * part / sum(got) for part in got]


def start(hog: Hog, group: int, note: Callable[[], None]) -> int:
    """A hog's process, stopped and in a process group (0: its own)."""
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, group)
        spin(hog, note)
    os.waitpid(pid, os.WUNTRACED)
    return pid


def spin(hog: Hog, note: Callable[[], None]) -> NoReturn:
    """Be a hog, once it is continued: work, with pauses if it is told so."""
    if hog.cpu is not None:
        os.sched_setaffinity(0, {hog.cpu})
    os.nice(hog.nice)
    os.setresuid(hog.uid, hog.uid, hog.uid)
    os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        until = time.thread_time_ns() + hog.work_us * 1000
        while not hog.work_us or time.thread_time_ns() < until:
            for _ in range(100):
                pass
            note()
        time.sleep(hog.sleep_us / 1e6)


def main() -> None:
    """Start them, tell, wait for the end of the input, end them."""
    pids: list[int] = []
    wanted = json.loads(sys.argv[1])
    waits = Waits(Path(sys.argv[2]), len(wanted)) if len(sys.argv) > 2 else None
    for number, hog in enumerate(wanted):
        note = partial(waits.note, number) if waits else lambda: None
        pids.append(start(Hog(**hog), pids[0] if pids else 0, note))
    print(json.dumps(pids), flush=True)
    # All begin together: who starts hundreds of hogs would otherwise wait behind the first ones. And
    # nothing is between them, as the lock of a pipe would be: its owner waits for its turn too.
    os.killpg(pids[0], signal.SIGCONT)
    sys.stdin.read()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
