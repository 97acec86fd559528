"""The BPF programs in the kernel and what they cost, by the kernel's own statistics."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CALL = {"x86_64": 321, "aarch64": 280}
NEXT_ID, FD_BY_ID, INFO_BY_FD = 11, 13, 15
"""Commands of bpf(2)."""
STRUCT_OPS = 27
"""The type of a scheduler's programs."""
INFO_BYTES = 208
"""``struct bpf_prog_info`` up to ``run_cnt`` (Linux 5.1)."""
ENABLED = Path("/proc/sys/kernel/bpf_stats_enabled")

libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Cost:
    """What a program has taken."""

    ns: int
    calls: int

    def since(self, before: Cost) -> Cost:
        """The difference."""
        return Cost(self.ns - before.ns, self.calls - before.calls)

    @property
    def each(self) -> float:
        """Nanoseconds of a call."""
        return self.ns / self.calls if self.calls else float("nan")


def bpf(command: int, attributes: bytes) -> tuple[int, bytes]:
    """The system call: its result, and its attributes as it left them."""
    buffer = ctypes.create_string_buffer(attributes, 128)
    result = libc.syscall(CALL[platform.machine()], command, buffer, 128)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result, buffer.raw


def numbers() -> Iterator[int]:
    """The numbers of all programs."""
    last = 0
    while True:
        try:
            _, answer = bpf(NEXT_ID, struct.pack("=II", last, 0))
        except FileNotFoundError:
            return
        last = struct.unpack_from("=I", answer, 4)[0]
        yield last


def cost_of(number: int) -> tuple[str, Cost] | None:
    """Name and cost of a scheduler's program; None for others."""
    try:
        fd, _ = bpf(FD_BY_ID, struct.pack("=I", number))
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    try:
        info = ctypes.create_string_buffer(INFO_BYTES)
        bpf(INFO_BY_FD, struct.pack("=IIQ", fd, INFO_BYTES, ctypes.addressof(info)))
    finally:
        os.close(fd)
    kind = struct.unpack_from("=I", info.raw)[0]
    name = info.raw[64:80].split(b"\0")[0].decode()
    ns, calls = struct.unpack_from("=QQ", info.raw, 192)
    return (name, Cost(ns, calls)) if kind == STRUCT_OPS else None


def costs() -> dict[str, Cost]:
    """All programs of the loaded scheduler, by name."""
    return dict(found for number in numbers() if (found := cost_of(number)))


@contextmanager
def counted() -> Iterator[dict[str, Cost]]:
    """What the scheduler's programs cost meanwhile; filled in at the end."""
    spent: dict[str, Cost] = {}
    ENABLED.write_text("1")
    before = costs()
    try:
        yield spent
        after = costs()
    finally:
        ENABLED.write_text("0")
    spent |= {name: cost.since(before[name]) for name, cost in after.items() if name in before}
