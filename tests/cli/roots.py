"""A fake root: a directory with a machine's files, and kilter pointed at it."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .machines import MACHINES, file_of
from .program import Done, kilter

Tree = dict[str, str]


def tree_of(directory: Path) -> Tree:
    """Everything below a directory: files with their bytes, links with their targets."""
    tree: Tree = {}
    for folder, names, files in os.walk(directory):
        for name in names + files:
            path = Path(folder, name)
            key = str(path.relative_to(directory))
            if path.is_symlink():
                tree[key] = f"link to {path.readlink()}"
            elif path.is_dir():
                tree[key] = "directory"
            else:
                tree[key] = path.read_bytes().decode("latin-1")
    return tree


class Root:
    """One machine's files below a temporary directory."""

    def __init__(self, path: Path, machine: str = "eevdf") -> None:
        self.path = path
        for file, text in MACHINES[machine].items():
            self.put(file, text)
        (path / "run").mkdir(exist_ok=True)

    def __call__(self, *args: object, **more: Any) -> Done:
        """Run kilter on this root."""
        return kilter(*args, root=self.path, **more)

    def json(self, *args: object, code: int = 0) -> Any:
        """Run kilter with ``--json`` and return what it printed."""
        done = self("--json", *args)
        assert done.returncode == code, done
        return json.loads(done.stdout)

    def put(self, file: str, text: str) -> Path:
        """Make a file, with a final newline as the kernel shows it."""
        path = self.path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
        return path

    def set(self, knob: str, value: str) -> None:
        """Change a knob's file behind kilter's back."""
        self.put(file_of(knob), value)

    def get(self, knob: str) -> str:
        """What a knob's file shows."""
        return (self.path / file_of(knob)).read_text().strip()

    def profile(self, name: str, values: Mapping[str, str], head: str = "") -> Path:
        """Write a profile into this machine's own catalog."""
        text = f'name = "{name}"\n{head}\n[set]\n'
        text += "".join(f'"{knob}" = {{ value = "{value}" }}\n' for knob, value in values.items())
        return self.put(f"etc/kilter/profiles/{name}.toml", text)

    def settings(self) -> Tree:
        """The kernel's files, bytes and all."""
        return {
            f"{tree}/{file}": text
            for tree in ("proc", "sys")
            for file, text in tree_of(self.path / tree).items()
        }

    def layers(self) -> list[str]:
        """Names of the files of layers in the journal."""
        directory = self.path / "run/kilter/layers"
        return sorted(os.listdir(directory)) if directory.is_dir() else []


class RealKernel(Root):
    """The running machine, with the interface of a fake root. Settings are those of the catalog."""

    def __init__(self) -> None:
        self.path = Path("/")
        first = self._states()
        time.sleep(0.3)
        second = self._states()
        self.restless = {knob for knob in first if first[knob] != second.get(knob)}
        """Knobs that change by themselves."""

    def _states(self) -> dict[str, Any]:
        return {knob["name"]: knob["state"] for knob in self.json("knobs", "list", "--all")}

    def states(self) -> dict[str, Any]:
        """The values of all knobs that keep still, or why they cannot be read."""
        return {knob: v for knob, v in self._states().items() if knob not in self.restless}

    def settings(self) -> Tree:
        """The values of those that are here."""
        return {
            knob: state["value"]
            for knob, state in self.states().items()
            if state["state"] == "present"
        }

    def has(self, knob: str, value: str) -> bool:
        """Whether this kernel has the knob and it could take another value than it has."""
        return self.settings().get(knob) not in (None, value)

    def put(self, file: str, text: str) -> Path:
        """Files of the machine are changed by kilter alone."""
        raise AssertionError(f"{file}: no test writes files of the running machine")

    def disk(self) -> str:
        """A block device with hardware behind it, or an empty string."""
        found = [
            knob["name"].split(".")[1]
            for knob in self.json("knobs", "list", "block.*.iostats")
            if not knob["virtual_device"]
        ]
        return found[0] if found else ""


@contextmanager
def machine_alone() -> Iterator[None]:
    """One test on the running machine at a time, also among workers and among several runs."""
    with (Path(tempfile.gettempdir()) / "kilter-real-kernel.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


PATIENCE_S = 60.0
"""How long the machine may be in use before a test gives up."""


def undisturbed(machine: RealKernel) -> Iterator[RealKernel]:
    """Waits until nothing is in force, and compares all settings at the end."""

    def is_free() -> bool:
        status = machine.json("status")
        return not status["layers"] and "experiment" not in status

    until = time.monotonic() + PATIENCE_S
    while not is_free():
        if time.monotonic() > until:
            pytest.skip("a profile or an experiment is in force on this machine")
        time.sleep(0.2)
    before = machine.states()
    yield machine
    assert machine.json("status")["layers"] == []
    assert machine.states() == before
