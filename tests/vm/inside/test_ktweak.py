"""The script of a phone against kilter's profile of it: every file ends with the same value."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cli.program import TIMEOUT_S, kilter

from .machine import Machine, ask, read, value

SCRIPT = Path(__file__).parents[2] / "cli" / "scripts" / "phone-tweaks.sh"

NAME = "ktweak-script"

VIRTUAL = ("loop", "ram", "zram", "dm-", "md", "nbd")
"""Devices without hardware of their own, which the script writes to and kilter's globs leave alone."""


def is_virtual(file: Path) -> bool:
    return file.parts[:3] == ("/", "sys", "block") and file.parts[3].startswith(VIRTUAL)


@contextmanager
def put_back() -> Iterator[None]:
    """What the script changes of virtual devices; the lift of read_ahead_kb is undone last."""
    names = ("scheduler", "nr_requests", "add_random", "iostats", "read_ahead_kb")
    files = [
        queue / name
        for name in names
        for queue in sorted(Path("/sys/block").glob("*/queue"))
        if is_virtual(queue / name)
    ]
    before = {file: value(read(file)) for file in files}
    try:
        yield
    finally:
        for file, text in before.items():
            if text is not None and value(read(file)) != text:
                with suppress(OSError):
                    file.write_text(text.strip() + "\n")


def stand_ins(directory: Path) -> Path:
    """Nothing waits for the boot of a phone."""
    directory.mkdir()
    for name, line in (("sleep", "exit 0"), ("getprop", "echo 1")):
        (directory / name).write_text(f"#!/bin/sh\n{line}\n")
        (directory / name).chmod(0o755)
    return directory


def test_the_profile_sets_what_the_script_sets(machine: Machine, tmp_path: Path) -> None:
    told = tmp_path / "told"
    path = f"{stand_ins(tmp_path / 'bin')}:{os.environ['PATH']}"
    with machine.undisturbed(), put_back():
        plan = ask("apply", NAME, "--allow", "security,durability")
        try:
            assert all(skipped["because"]["detail"] for skipped in plan["skipped"])
            before = {file: value(text) for file, text in machine.shown().items()}
            done = subprocess.run(
                ["sh", str(SCRIPT)],
                env={"PATH": path, "TOLD": str(told)},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            assert done.returncode == 0, done
            set_by_script = {Path(line) for line in told.read_text().split()}
            assert len(set_by_script) > 15
            # On top of the profile the script must find nothing to change.
            after = {file: value(text) for file, text in machine.shown().items()}
            mine = {file for file in set_by_script if not is_virtual(file) and file in before}
            assert len(mine) > 15
            differing = {str(f): (before[f], after[f]) for f in mine if before[f] != after[f]}
            assert not differing, f"profile and script differ: {differing}"
            unknown = {file for file in set_by_script if not is_virtual(file)} - set(before)
            assert not unknown, f"set by the script, and no knob: {unknown}"
        finally:
            assert kilter("revert", NAME).returncode == 0
