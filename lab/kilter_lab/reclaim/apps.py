"""The apps that the experiments switch between, and how they are spoken to.

Each kind holds its memory as real programs do. Two of three cost at least 4 ms to rebuild each MB:
an index of Python objects, and an SQL database in memory. The third, a large buffer as an image
editor or a game has it, is filled again as fast as memory can be written.

An app is a process of its own (``python3 -I apps.py KIND MB TASKS``). It joins a
memory cgroup, builds its data, and from then on touches its working set whenever it is brought to
the front. It ends when its standard input does, so none outlives who started it.
"""

from __future__ import annotations

import mmap
import os
import random
import resource
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

MIB = 1 << 20

WORKING_SET = 0.5
"""Share of an app's data that it touches when it comes to the front."""

ENTRIES_A_MIB = 2000
"""Entries of the index that take a MiB."""

ROWS_A_MIB = 2500
"""Rows of the database that take a MiB."""

LINE_S = 120.0
"""An app that says nothing for so long will never."""

Touch = Callable[[], int]


def index(mib: int) -> Touch:
    """Python objects: lines of text, parsed into dictionaries and found by name."""
    entries: dict[str, Any] = {}
    for i in range(mib * ENTRIES_A_MIB):
        identity, name, tag, size = f"{i},entry {i},tag {i % 97},{i * 31}".split(",")
        entries[name] = {"id": int(identity), "tags": [tag, i % 89], "size": int(size)}

    def touch() -> int:
        wanted = int(len(entries) * WORKING_SET)
        return sum(entry["size"] for entry in islice(entries.values(), wanted))

    return touch


def database(mib: int) -> Touch:
    """An SQL database in memory."""
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, sender TEXT, body TEXT)")
    rows = mib * ROWS_A_MIB
    words = random.Random(1).choices(
        ["kernel", "page", "swap", "cgroup", "task", "memory", "app", "switch"], k=128
    )
    body = " ".join(words)
    base.executemany(
        "INSERT INTO message VALUES (?, ?, ?)",
        (
            (i, f"sender {i * 7919 % 10007}", f"{i} {body[i % 64 : i % 64 + 320]}")
            for i in range(rows)
        ),
    )
    base.commit()

    def touch() -> int:
        wanted = int(rows * WORKING_SET)
        query = "SELECT sum(length(body)) FROM message WHERE id < ?"
        (total,) = base.execute(query, (wanted,)).fetchone()
        return int(total)

    return touch


def canvas(mib: int) -> Touch:
    """One large buffer that compresses about 3:1."""
    noise = random.Random(2)
    page = mmap.PAGESIZE
    part = b"".join(
        noise.randbytes(page // 3) + bytes(page - page // 3) for _ in range(MIB // page)
    )
    buffer = mmap.mmap(-1, mib * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for start in range(0, mib * MIB, MIB):
        buffer[start : start + MIB] = part

    def touch() -> int:
        return sum(buffer[at] for at in range(0, int(mib * MIB * WORKING_SET), page))

    return touch


KINDS: dict[str, Callable[[int], Touch]] = {"index": index, "database": database, "canvas": canvas}
DEAR = ("index", "database")
"""Kinds that cost at least 4 ms/MB to rebuild, which the experiment ``startup`` measures."""


def mix(apps: int) -> list[str]:
    """The kinds of so many apps, the most used first: half of them dear to rebuild."""
    return [DEAR[i // 2 % len(DEAR)] if i % 2 == 0 else "canvas" for i in range(apps)]


class EndedError(Exception):
    """The app ended: it was killed, or failed."""


@dataclass(frozen=True)
class Launch:
    """What it took until an app had answered."""

    seconds: float
    cpu_s: float
    """CPU time of the app for it."""
    major_faults: int


class App:
    """A running app."""

    def __init__(self, kind: str, mib: int, tasks: Path | None) -> None:
        begun = time.monotonic()
        words = [sys.executable, "-I", __file__, kind, str(mib), str(tasks or "")]
        self._child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._cpu_s, self._faults = 0.0, 0
        try:
            self.started = self._answer(begun)
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        """Its process."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether nobody has killed it."""
        return self._child.poll() is None

    @property
    def killed(self) -> bool:
        """Whether a signal ended it."""
        return (self._child.poll() or 0) < 0

    def front(self) -> Launch:
        """Bring it to the front: it touches its working set. EndedError where it is dead."""
        begun = time.monotonic()
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(b"front\n")
        except BrokenPipeError as error:
            raise self._ended() from error
        return self._answer(begun)

    def rank(self, oom_score_adj: int) -> None:
        """Tell how expendable it is, as Android's activity manager does."""
        with suppress(ProcessLookupError, FileNotFoundError):
            Path(f"/proc/{self.pid}/oom_score_adj").write_text(str(oom_score_adj))

    def end(self) -> float:
        """Kill it if it lives; seconds until it was gone."""
        begun = time.monotonic()
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGKILL)
        self._child.wait()
        took = time.monotonic() - begun
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                stream.close()
        return took

    def _answer(self, begun: float) -> Launch:
        out = self._child.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], LINE_S)
        if not ready:
            raise self._ended(f"it said nothing for {LINE_S:.0f} s")
        words = out.readline().split()
        took = time.monotonic() - begun
        if len(words) != 2:
            raise self._ended()
        cpu_s, faults = float(words[0]), int(words[1])
        launch = Launch(took, cpu_s - self._cpu_s, faults - self._faults)
        self._cpu_s, self._faults = cpu_s, faults
        return launch

    def _ended(self, why: str = "") -> EndedError:
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(5)
        return EndedError(why or f"it ended with {self._child.poll()}")


def main(kind: str, mib: str, tasks: str) -> None:
    """Be an app."""
    # The terminal's signals are for who started it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if tasks:
        Path(tasks).write_text("0")
    touch = KINDS[kind](int(mib))
    _tell()
    # Unbuffered: nothing that a switch does not need is touched.
    while os.read(0, 64):
        touch()
        _tell()


def _tell() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    os.write(1, b"%.6f %d\n" % (used.ru_utime + used.ru_stime, used.ru_majflt))


if __name__ == "__main__":
    main(*sys.argv[1:])
