"""An app in the background: memory that it fills, and what it is told to do with it.

    background.py MIB [WORD ...]

Words: ``lock`` locks the memory, ``share`` has a child share it copy-on-write, ``mappings=N`` cuts it
into that many, ``sound`` shares a file with a sound server. Each line on standard input is a command that is answered with a line: ``touch`` reads
every page and says whether it holds what was written, ``busy SECONDS`` computes, ``exec`` becomes
another program with as much memory; the end of standard input is its end.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import sys
import time

PAGE = mmap.PAGESIZE
PROT_NONE = 0
LIBC = ctypes.CDLL(None, use_errno=True)


def pattern(page: int) -> bytes:
    """The first bytes of a page, which tell it from others."""
    return page.to_bytes(8, "little") * 4


def fill(memory: mmap.mmap, pages: int) -> None:
    """Pages that compress to about a third."""
    noise = random.Random(7).randbytes(PAGE // 3)
    for page in range(pages):
        memory[page * PAGE : page * PAGE + len(noise)] = noise
        memory[page * PAGE : page * PAGE + 32] = pattern(page)


def is_whole(memory: mmap.mmap, pages: int) -> bool:
    """Whether every page holds what was written."""
    return all(memory[page * PAGE : page * PAGE + 32] == pattern(page) for page in range(pages))


def address(memory: mmap.mmap) -> int:
    """Where the memory lies."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def cut(memory: mmap.mmap, pages: int, mappings: int) -> None:
    """Make many mappings of one, by giving every second stretch other rights."""
    stretch = max(1, pages // mappings)
    start = address(memory)
    for number in range(0, mappings, 2):
        at = ctypes.c_void_p(start + number * stretch * PAGE)
        if LIBC.mprotect(at, ctypes.c_size_t(stretch * PAGE), mmap.PROT_READ):
            raise OSError(ctypes.get_errno(), "mprotect")


def main() -> None:
    """Be the app."""
    pages = int(sys.argv[1]) * (1 << 20) // PAGE
    words = dict(word.partition("=")[::2] for word in sys.argv[2:])
    memory = mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    fill(memory, pages)
    if "lock" in words and LIBC.mlock(
        ctypes.c_void_p(address(memory)), ctypes.c_size_t(pages * PAGE)
    ):
        raise OSError(ctypes.get_errno(), "mlock")
    if "mappings" in words:
        cut(memory, pages, int(words["mappings"]))
    if "sound" in words:
        os.memfd_create("pipewire-memfd:flags=0x0000000f,type=2,size=2312")
    child = os.fork() if "share" in words else -1
    if child == 0:
        sys.stdin.read()
        os._exit(0)
    print("ready", flush=True)
    for line in sys.stdin:
        match line.split():
            case ["touch"]:
                print("whole" if is_whole(memory, pages) else "broken", flush=True)
            case ["busy", seconds]:
                until = time.process_time() + float(seconds)
                while time.process_time() < until:
                    pass
                print("done", flush=True)
            case ["exec"]:
                size = str(pages * PAGE >> 20)
                os.execv(sys.executable, [sys.executable, __file__, size])
    os._exit(0)


main()
