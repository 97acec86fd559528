"""`kilter hold run` beside CPUs that come and go and somebody else who writes."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.program import finish, kilter, started, wait_until

from .machine import Machine, ask

CPU = Path("/sys/devices/system/cpu/cpu1/online")
SWAPPINESS = Path("/proc/sys/vm/swappiness")
VERBOSE = Path("/sys/kernel/debug/sched/verbose")
KNOB = "sched.domains.cpu0.domain0.busy_factor"
THEIRS = "44"


@pytest.fixture
def factor() -> Iterator[Path]:
    """A file of the kernel's that goes with the second CPU, and comes back with its default."""
    if not CPU.exists():
        pytest.skip("the second CPU cannot be taken away")
    verbose = VERBOSE.read_text() if VERBOSE.exists() else ""
    if verbose:
        VERBOSE.write_text("Y\n")
    try:
        (knob,) = ask("knobs", "show", KNOB)
        if knob["state"]["state"] != "present":
            pytest.skip(f"this kernel has no {KNOB}")
        yield Path(knob["state"]["path"])
    finally:
        if CPU.read_text() != "1\n":
            CPU.write_text("1\n")
        if verbose:
            VERBOSE.write_text(verbose)


@contextmanager
def held(factor: Path, policy: str) -> Iterator[subprocess.Popen[str]]:
    """A hold of two values, each another than before."""
    other = str(int(factor.read_text()) + 7)
    values = {"vm.swappiness": "23", KNOB: other}
    lines = "".join(f'"{knob}" = {{ value = "{value}" }}\n' for knob, value in values.items())
    file = Path("/etc/kilter/profiles/held.toml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'name = "held"\n\n[set]\n{lines}')
    options = ("--policy", policy, "--every", "1s", "--revert-on-stop")
    with started("hold", "run", "held", *options) as child:
        wait_until(lambda: bool(running()), "it holds")
        assert shown(factor) == other
        yield child


def running() -> list[dict[str, object]]:
    """The holds of living processes."""
    holds = json.loads(kilter("--json", "hold", "status").stdout)
    return [hold for hold in holds if "pid" in hold]


def shown(file: Path) -> str:
    """What a file shows; nothing where it is gone."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def end(child: subprocess.Popen[str]) -> str:
    """Ask it to stop."""
    child.send_signal(signal.SIGTERM)
    done = finish(child)
    assert done.returncode == 0, done
    return done.stderr


@pytest.mark.parametrize("policy", ["yield", "enforce"])
def test_what_goes_with_a_cpu_is_set_again_when_it_is_back(
    machine: Machine, factor: Path, policy: str
) -> None:
    """That is the kernel's doing, whatever the policy; a person's change is left or set again."""
    before = SWAPPINESS.read_text()
    with machine.undisturbed():
        default = shown(factor)
        with held(factor, policy) as child:
            wanted = shown(factor)
            CPU.write_text("0\n")
            wait_until(lambda: shown(factor) != wanted, "the CPU took it along")
            CPU.write_text("1\n")
            # Told, and not only seen: what changes while it writes counts as an effect of that.
            wait_until(lambda: bool(running()[0]["set_again"]), "it is set again")
            assert shown(factor) == wanted
            SWAPPINESS.write_text(f"{THEIRS}\n")
            if policy == "enforce":
                wait_until(lambda: shown(SWAPPINESS) == "23", "it is enforced")
            else:
                wait_until(lambda: bool(running()[0]["drifted"]), "the change is noticed")
                assert shown(SWAPPINESS) == THEIRS
            said = end(child)
        assert f"{KNOB}: set again to {wanted}" in said
        assert shown(factor) == default
        if policy == "yield":
            assert shown(SWAPPINESS) == THEIRS, "the administrator's change stays"
            SWAPPINESS.write_text(before)
        assert ask("status")["layers"] == []
