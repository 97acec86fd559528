"""What the catalog finds on a kernel of each kind, beside what it found when somebody last looked.

The file tells of each entry whether it is here, and why not where it is not; for words, what the file
offers. Values are not in it: they differ with the machine's size and with minor versions. Suites move on
to newer series by themselves; what is new there, and entries that the file does not know yet, are told
and do not count.
``KILTER_UPDATE_GOLDEN`` (pytest ``--update-golden``) has the guest write its own.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from cli.program import GUEST

from .machine import Machine, specs

FILE = Path(__file__).parents[1] / "golden" / f"{GUEST}.json"
UPDATE = os.environ.get("KILTER_UPDATE_GOLDEN")
"""A directory of the host's that the guest may write to."""

DEVICE = "vda"
"""The guest's disk: devices differ in what they can do."""


def series() -> str:
    """``7.3`` of ``7.3.4+deb13-amd64``."""
    return ".".join(re.findall(r"\d+", os.uname().release)[:2])


def found(machine: Machine) -> dict[str, str]:
    """What this kernel says of each entry of the catalog."""
    knobs = {spec["name"]: state(machine, spec["name"]) for spec in specs()}
    return {"kernel series": series()} | knobs


def state(machine: Machine, spec: str) -> str:
    """Its file with the words that it offers; or the reason for which it cannot be used."""
    knobs = [
        knob for knob in machine.of(spec) if "<dev>" not in spec or f".{DEVICE}." in knob["name"]
    ]
    if not knobs:
        return "no such device"
    told = knobs[0]["state"]
    if told["state"] != "present":
        reason: str = told["reason"]
        return reason
    words = "".join(f" {word}" for word in sorted(knobs[0].get("offered", [])))
    return generic(told["path"]) + words + ("" if told["writable"] else " (read-only)")


def generic(path: str) -> str:
    """A path without the names of this machine's devices, and without sizes."""
    return re.sub(r"-\d+kB/", "-<size>/", path.replace(f"/{DEVICE}/", "/<dev>/"))


def test_the_catalog_finds_what_it_found_before(machine: Machine) -> None:
    now = found(machine)
    if UPDATE:
        Path(UPDATE, f"{GUEST}.json").write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
        pytest.skip("written anew: look at the difference")
    assert FILE.exists(), f"{FILE} is missing: pytest tests/vm --update-golden"
    before = json.loads(FILE.read_text())
    differ = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    told = [f"{name}: was {before.get(name)}, is {now.get(name)}" for name in sorted(differ)]
    if not differ:
        return
    told += ["if this is right: pytest tests/vm --update-golden"]
    if "kernel series" in differ or differ.isdisjoint(before):
        # Another series, or entries that are new in the catalog: nothing to hold against anybody.
        pytest.skip("\n".join(told))
    pytest.fail("\n".join(told))
