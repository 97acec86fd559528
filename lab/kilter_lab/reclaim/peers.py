"""Other ways to reclaim, for the same table: what kilter is compared with.

``python3 -I peers.py every-switch`` pages an app out, all of it and at once, whenever it is told
that the app has left the front. ``python3 -I peers.py senpai GROUP`` squeezes a memory cgroup as
senpai does: a little less memory as long as there is next to no pressure, more as soon as there is.
Both read lines ``cached PID`` from standard input, and end with it.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROCESS_MADVISE = 440
MADV_PAGEOUT = 21
MOST_RANGES = 1024

INTERVAL_S = 0.25
"""Senpai's is 6 s; the experiment packs switches that lie minutes apart into a second."""
TARGET = 0.010 / 6
"""Share of the time for which somebody may wait for memory: senpai's 10 ms in 6 s."""
MOST_PROBE = 0.01
"""Senpai takes at most 1 % away in an interval."""
PROBE = 10.0
"""Pressure is this many times below the target where a probe takes all it may."""
BACK_OFF = 20.0
"""Pressure is this many times above the target where the limit is doubled."""
SWAPPINESS = 60
"""While senpai squeezes: without swap it could only drop page cache."""


class Range(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t))


def page_out(pid: int) -> int:
    """MADV_PAGEOUT on all private writable memory of a process; bytes that the kernel walked."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return 0
    try:
        found = list(writable(Path(f"/proc/{pid}/maps").read_text()))
        walked = 0
        for at in range(0, len(found), MOST_RANGES):
            part = found[at : at + MOST_RANGES]
            vector = (Range * len(part))(*(Range(*one) for one in part))
            done = libc.syscall(PROCESS_MADVISE, pidfd, vector, len(part), MADV_PAGEOUT, 0)
            walked += max(0, done)
        return walked
    except ProcessLookupError:
        return 0
    finally:
        os.close(pidfd)


def writable(maps: str) -> Iterator[tuple[int, int]]:
    """Start and length of the private writable ranges of a ``maps``."""
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if fields[1].startswith("rw-p"):
            start, _, end = fields[0].partition("-")
            yield int(start, 16), int(end, 16) - int(start, 16)


def every_switch() -> None:
    """Page out whatever leaves the front."""
    for line in sys.stdin:
        word, _, pid = line.partition(" ")
        if word == "cached":
            page_out(int(pid))


def senpai(group: Path) -> None:
    """Squeeze, until standard input ends."""
    limit = Limit(group)
    while True:
        before, waited = time.monotonic(), stalled()
        until = before + INTERVAL_S
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([0], [], [], left)
            if ready and not os.read(0, 4096):
                return
        limit.adjust(adjustment((stalled() - waited) / (time.monotonic() - before)))


def adjustment(pressure: float) -> float:
    """Change of the limit at this pressure (0 to 1), as a share of it."""
    if pressure > TARGET:
        return min(1.0, (pressure / TARGET / BACK_OFF) ** 2)
    ratio = TARGET / max(pressure, TARGET / PROBE)
    return -MOST_PROBE * min(1.0, (ratio / PROBE) ** 2)


def stalled() -> float:
    """Seconds so far for which somebody on this machine waited for memory."""
    try:
        some = Path("/proc/pressure/memory").read_text().splitlines()[0]
    except OSError:
        return 0.0  # No PSI: nobody knows.
    return int(some.rpartition("total=")[2]) / 1e6


class Limit:
    """A group's memory limit that can be pressed."""

    def __init__(self, group: Path) -> None:
        self.v2 = (group / "memory.high").exists()
        names = ("memory.high", "memory.current")
        if not self.v2:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        self.limit, self.usage = (group / name for name in names)
        self.swappiness = group / "memory.swappiness"
        self.normal = self.limit.read_text()

    def adjust(self, part: float) -> None:
        """Press harder (below 0) or less hard."""
        used = int(self.usage.read_text())
        if self.v2:
            self.limit.write_text(str(int(used * (1 + part))))
            return
        # v1 has no memory.high. Its limit is lowered only after so much has been reclaimed, so
        # nobody is killed for it, and is put back before anybody needs memory.
        if part >= 0:
            return
        own = self.swappiness.read_text()
        self.swappiness.write_text(str(SWAPPINESS))
        try:
            with suppress(OSError):
                self.limit.write_text(str(int(used * (1 + part))))
        finally:
            self.limit.write_text(self.normal)
            self.swappiness.write_text(own)


if __name__ == "__main__":
    if sys.argv[1] == "every-switch":
        every_switch()
    else:
        senpai(Path(sys.argv[2]))
