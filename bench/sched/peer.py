"""scx_bpfland, which kilter's scheduler is measured beside: its published crate, built once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CRATE, VERSION = "scx_bpfland", "1.1.4"


def peer(cache: Path) -> str:
    """Its program, or nothing where it cannot be built; takes minutes the first time."""
    place = cache / "bench" / f"{CRATE}-{VERSION}"
    program = place / "bin" / CRATE
    if program.exists():
        return str(program)
    print(f"building {CRATE} {VERSION} into {place}", file=sys.stderr, flush=True)
    words = ["cargo", "install", "--quiet", "--locked", CRATE, "--version", VERSION]
    clang = {"BPF_CLANG": newest_clang()}
    done = subprocess.run([*words, "--root", str(place)], env=os.environ | clang, check=False)
    if done.returncode != 0:
        print(f"{CRATE} cannot be built: going on without it", file=sys.stderr, flush=True)
        return ""
    return str(program)


def newest_clang() -> str:
    """The clang to build with: ``clang``, or the newest with a version in its name."""
    if shutil.which("clang"):
        return "clang"
    named = [
        file.name
        for place in os.environ.get("PATH", "").split(":")
        for file in Path(place).glob("clang-*")
        if re.fullmatch(r"clang-\d+", file.name)
    ]
    return max(named, key=lambda name: int(name.partition("-")[2]), default="clang")
