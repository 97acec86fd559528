"""Every built-in profile: applied, verified, taken back."""

from __future__ import annotations

import pytest

from cli.program import kilter

from .machine import Machine, ask, profiles


@pytest.mark.parametrize("name", profiles())
def test_a_profile_holds_and_comes_back(machine: Machine, name: str) -> None:
    with machine.undisturbed():
        plan = ask("apply", name, "--skip-risky")
        try:
            assert kilter("verify").returncode == 0
            effective = {change["knob"]: change["effective"] for change in plan["changes"]}
            now = {k["name"]: k["state"].get("value") for k in ask("knobs", "list", "--all")}
            assert {knob: now[knob] for knob in effective} == effective
        finally:
            assert kilter("revert", name).returncode == 0
