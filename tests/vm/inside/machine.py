"""The guest's settings, read from the kernel's own files: what kilter says of them is not believed."""

from __future__ import annotations

import json
import re
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cli.program import TIMEOUT_S, argv, environment, kilter

CATALOG = Path(__file__).parents[3] / "catalog"

Knob = dict[str, Any]


def specs() -> list[dict[str, Any]]:
    """The entries of the catalog, in its order."""
    return [
        knob
        for file in sorted((CATALOG / "knobs").glob("*.toml"))
        for knob in tomllib.loads(file.read_text())["knob"]
    ]


def profiles() -> list[str]:
    """The names of the built-in profiles."""
    return sorted(file.stem for file in (CATALOG / "profiles").glob("*.toml"))


def ask(*args: object) -> Any:
    """What a kilter command prints as JSON."""
    done = kilter("--json", *args)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


class Machine:
    """All knobs of the guest, and what their files show."""

    def __init__(self) -> None:
        self.knobs: list[Knob] = ask("knobs", "list", "--all")
        files = {k["state"]["path"] for k in self.knobs if k["state"]["state"] == "present"}
        self.files = sorted(Path(file) for file in files)
        first = self.shown()
        time.sleep(0.5)
        second = self.shown()
        restless = {file for file in self.files if first.get(file) != second.get(file)}
        self.files = [file for file in self.files if file not in restless]

    def shown(self) -> dict[Path, str]:
        """The contents of every knob's file; of those that are gone, nothing."""
        return {file: text for file in self.files if (text := read(file)) is not None}

    def of(self, spec: str) -> list[Knob]:
        """The instances of a catalog entry, or its one absent self."""
        return [knob for knob in self.knobs if knob["spec"]["name"] == spec]

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """All files show afterwards what they showed before."""
        before = self.shown()
        yield
        after = self.shown()
        changed = {
            str(file): (text, after.get(file))
            for file, text in before.items()
            if value(text) != value(after.get(file))
        }
        assert not changed, f"not as before: {changed}"


def value(text: str | None) -> str | None:
    """What a file holds; of words to choose from, the chosen one, for modules bring more of them."""
    chosen = re.search(r"[\[(](\S+)[\])]", text or "")
    return chosen[1] if chosen else text


def read(file: Path) -> str | None:
    """The contents of a kernel file, or None."""
    try:
        return file.read_text()
    except OSError:
        return None


class Batch:
    """One ``kilter run --batch`` for many experiments: in a slow guest each start is dear."""

    def __init__(self) -> None:
        self.child = subprocess.Popen(
            argv("run", "--batch"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=environment(),
        )
        self.number = 0

    def run(self, settings: dict[str, str], command: list[str]) -> dict[str, Any]:
        """One experiment; the reply."""
        self.number += 1
        request = {"id": self.number, "settings": settings, "command": command}
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(json.dumps(request) + "\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        assert line, f"the batch ended: {self.child.communicate()[1]}"
        reply: dict[str, Any] = json.loads(line)
        assert reply["id"] == self.number
        return reply

    def close(self) -> None:
        """The end of its input ends it."""
        _, said = self.child.communicate(timeout=TIMEOUT_S)
        assert self.child.returncode == 0, said
