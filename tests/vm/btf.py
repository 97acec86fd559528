"""What a kernel image has, read from the image: its symbols' types (BTF), without booting it.

A kernel built with implicit arguments (7.1 and later) has each such kfunc twice in its BTF: as BPF
programs call it, and as ``NAME_impl`` with the argument that the verifier adds. Some toolchains lose
the second for a few functions, which then keep that argument in their own name; programs that need
them do not load ("cannot find function scx_bpf_kick_cpu_impl in BTF").
"""

from __future__ import annotations

import lzma
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SETUP_SECTORS = 0x1F1
MAGIC = 0x202
PAYLOAD = 0x248
"""Offsets in the boot header: Linux Documentation/arch/x86/boot.rst."""

ZSTD = b"\x28\xb5\x2f\xfd"
XZ = b"\xfd7zXZ\x00"

INT, PTR, ARRAY, STRUCT, UNION, ENUM = 1, 2, 3, 4, 5, 6
TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, PROTO = 8, 9, 10, 11, 12, 13
VAR, DATASEC, DECL_TAG, TYPE_TAG, ENUM64 = 14, 15, 17, 18, 19
"""Kinds of types: Linux Documentation/bpf/btf.rst."""

FIXED = {INT: 4, ARRAY: 12, VAR: 4, DECL_TAG: 4}
PER_MEMBER = {STRUCT: 12, UNION: 12, ENUM: 8, PROTO: 8, DATASEC: 12, ENUM64: 12}
THROUGH = {PTR, TYPEDEF, VOLATILE, CONST, RESTRICT, TYPE_TAG}


class ImageError(Exception):
    """An image that cannot be read."""


def vmlinux(image: Path) -> bytes:
    """The ELF file inside a compressed kernel image."""
    data = image.read_bytes()
    if data[MAGIC : MAGIC + 4] != b"HdrS":
        raise ImageError(f"{image} is no bzImage")
    start = (data[SETUP_SECTORS] + 1) * 512
    offset, length = struct.unpack_from("<II", data, PAYLOAD)
    payload = data[start + offset : start + offset + length]
    if payload.startswith(XZ):
        return lzma.LZMADecompressor().decompress(payload)
    if payload.startswith(ZSTD):
        # The payload ends in its size, which zstd takes for rubbish after it has done its work.
        return subprocess.run(["zstd", "-dcq"], input=payload, capture_output=True).stdout
    raise ImageError(f"{image} is compressed in a way unknown here")


def section(elf: bytes, wanted: str) -> bytes | None:
    """A section of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    for name, _, _, _, offset, length in headers:
        at = headers[names][4] + name
        if elf[at : at + len(wanted) + 1] == wanted.encode() + b"\0":
            return elf[offset : offset + length]
    return None


class Btf:
    """Functions of a BTF section with their parameters."""

    def __init__(self, data: bytes) -> None:
        header, types, types_len, strings, strings_len = struct.unpack_from("<IIIII", data, 4)
        self.strings = data[header + strings : header + strings + strings_len]
        self.data = data
        self.types: list[tuple[int, int, int, int, int]] = [(0, 0, 0, 0, 0)]
        at, end = header + types, header + types + types_len
        while at < end:
            name, info, size = struct.unpack_from("<III", data, at)
            kind, members = info >> 24 & 31, info & 0xFFFF
            self.types.append((kind, name, size, at + 12, members))
            at += 12 + FIXED.get(kind, 0) + PER_MEMBER.get(kind, 0) * members
        self.functions = {self.name(t[1]): t for t in self.types if t[0] == FUNC}

    def name(self, offset: int) -> str:
        """A string of the section."""
        return self.strings[offset : self.strings.index(b"\0", offset)].decode()

    def parameters(self, function: str) -> Iterator[str]:
        """The names of the types of a function's parameters, pointers and qualifiers stripped."""
        proto = self.types[self.functions[function][2]]
        for number in range(proto[4]):
            _, kind = struct.unpack_from("<II", self.data, proto[3] + 8 * number)
            while self.types[kind][0] in THROUGH and self.types[kind][2]:
                kind = self.types[kind][2]
            yield self.name(self.types[kind][1])

    def members(self, structure: str) -> list[str]:
        """The names of a structure's members; empty if there is no such structure."""
        for kind, name, _, at, count in self.types:
            if kind == STRUCT and name and self.name(name) == structure:
                offsets = [
                    struct.unpack_from("<I", self.data, at + 12 * i)[0] for i in range(count)
                ]
                return [self.name(offset) for offset in offsets]
        return []

    def lost_halves(self) -> list[str]:
        """Kfuncs of sched_ext that lack their ``_impl``."""
        return [
            name
            for name in sorted(self.functions)
            if name.startswith("scx_bpf_")
            and not name.endswith("_impl")
            and list(self.parameters(name))[-1:] == ["bpf_prog_aux"]
        ]


@dataclass(frozen=True)
class Has:
    """What a kernel has of what kilter's knobs and schedulers depend on."""

    eevdf: bool
    """The fair scheduler is EEVDF; else CFS."""
    sysctls: bool
    """The scheduler's times are sysctls (up to 5.12); else they are in debugfs."""
    sched_ext: bool
    lost_halves: list[str]
    """Kfuncs of sched_ext that its BTF describes wrongly."""


def inspect(image: Path) -> Has:
    """What a kernel image has."""
    data = section(vmlinux(image), ".BTF")
    if data is None:
        raise ImageError(f"{image} has no BTF")
    btf = Btf(data)
    return Has(
        eevdf="vlag" in btf.members("sched_entity"),
        sysctls="sched_proc_update_handler" in btf.functions,
        sched_ext=bool(btf.members("sched_ext_ops")),
        lost_halves=btf.lost_halves(),
    )
