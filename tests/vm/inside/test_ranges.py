"""Every searchable knob at both ends of what ``tune`` samples: the kernel survives, the original
returns, and no other setting is moved for good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .machine import Batch, Knob, Machine, read, specs
from .machine import value as value_of

SEARCHED = [spec["name"] for spec in specs() if "search" in spec]


def ends(knob: Knob) -> list[str]:
    """The first and the last value that a search samples here."""
    search = knob["spec"]["search"]
    if search["scale"] != "values":
        return [str(search["min"]), str(search["max"])]
    values: list[str] = search["values"]
    # Words that this kernel does not offer are not searched either.
    offered = knob.get("offered", values)
    values = [value for value in values if value in offered]
    return sorted({*values[:1], *values[-1:]})


def with_partners(machine: Machine, knob: Knob, value: str) -> dict[str, str]:
    """The value, and what the catalog asks for beside it: one knob may have to stay below another."""
    settings = {knob["name"]: value}
    for other in machine.knobs:
        if other["state"]["state"] != "present":
            continue
        below = other["spec"].get("couplings", {}).get("at_most") == knob["name"]
        above = knob["spec"].get("couplings", {}).get("at_most") == other["name"]
        now = int(other["state"]["value"]) if below or above else 0
        if (below and now > int(value)) or (above and now < int(value)):
            settings[other["name"]] = value
    return settings


@pytest.mark.parametrize("spec", SEARCHED)
def test_both_ends_of_a_search_range(machine: Machine, batch: Batch, spec: str) -> None:
    here = [knob for knob in machine.of(spec) if knob["state"]["state"] == "present"]
    writable = [knob for knob in here if knob["state"]["writable"]]
    if not writable:
        states = [knob["state"].get("detail", "read-only") for knob in machine.of(spec)]
        pytest.skip(f"not on this kernel: {'; '.join(states) or 'no such device'}")
    with machine.undisturbed():
        try:
            for knob in writable:
                before = read(Path(knob["state"]["path"]))
                for value in ends(knob):
                    try_out(batch, knob, with_partners(machine, knob, value), before)
        finally:
            # A batch holds values until a run has others.
            assert batch.run({}, ["true"])["result"] == "ran"


def try_out(batch: Batch, knob: Knob, settings: dict[str, str], before: str | None) -> None:
    """One experiment, whose workload shows the file as the kernel shows it meanwhile."""
    name, file = knob["name"], Path(knob["state"]["path"])
    value = settings[name]
    reply = batch.run(settings, ["cat", str(file)])
    assert reply["result"] == "ran", f"{name}={value}: {reply}"
    record: dict[str, Any] = reply["record"]
    assert record["outcome"] == {"outcome": "exited", "code": 0}
    kept = record["settings"][name]
    rounded = [warning for warning in record.get("warnings", []) if name in warning]
    assert kept == value or rounded, f"{name}: {kept} instead of {value}, and no word of it"
    shown = record["stdout_tail"]
    assert shown == read(file)
    changed = value_of(shown) != value_of(before)
    assert changed == (kept != knob["state"]["value"]), f"{shown} was {before}"
