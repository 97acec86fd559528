"""TuneD's stock profiles, written by TuneD itself and planned by kilter: the same values.

TuneD runs in a mount namespace of its own, over copies of the settings, and is killed before it could
take anything back; all else of /proc, /sys and /etc/tuned is read-only or a copy there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .program import kilter
from .roots import machine_alone

PROFILES = ["throughput-performance", "latency-performance", "postgresql", "oracle", "mssql"]
"""Of those that run no scripts, load no modules and edit no boot loader."""

COPIED = ["/proc/sys", "/sys/kernel/mm/transparent_hugepage"]

INSIDE = """
set -e
copies=$1 profile=$2 out=$3 and=$4
mount -t tmpfs none "$copies"
# What it writes beside the copies is refused: block queues, interrupts, its own state.
cp -r /etc/tuned "$copies/etc"
mount --bind "$copies/etc" /etc/tuned
for tree in /proc /sys; do
  mount --bind "$tree" "$tree"
  mount -o remount,bind,ro "$tree"
done
[ ! -e /dev/cpu_dma_latency ] || mount --bind /dev/null /dev/cpu_dma_latency
number=0
for tree in $and; do
  number=$((number + 1))
  mkdir "$copies/$number"
  cp -r --no-preserve=mode "$tree/." "$copies/$number" 2>/dev/null || :
done
number=0
for tree in $and; do
  number=$((number + 1))
  mount --bind "$copies/$number" "$tree"
done
tuned --no-dbus -p "$profile" -l "$copies/log" >/dev/null 2>&1 &
for attempt in $(seq 120); do
  grep -q "static tuning from profile" "$copies/log" 2>/dev/null && break
  sleep 0.25
done
while read -r file; do printf '%s\\t%s\\n' "$file" "$(tr -s '\\t\\n' '  ' <"$file")"; done >"$out"
"""


def usable() -> str:
    """Why this cannot run here; empty if it can."""
    if os.geteuid() != 0:
        return "mounting over settings needs root"
    if not shutil.which("tuned"):
        return "TuneD is not installed"
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True)
    return "" if tried.returncode == 0 else "no mount namespace can be made here"


def shown(text: str) -> str:
    """A value as kilter shows it: of several words the one in brackets."""
    inside = text.partition("[")[2].partition("]")[0]
    return " ".join((inside or text).split())


def untouched() -> dict[str, str]:
    """What TuneD also writes, on the machine itself."""
    files = [*Path("/sys/block").glob("*/queue/read_ahead_kb"), Path("/etc/tuned/active_profile")]
    return {str(file): file.read_text() for file in files if file.exists()}


@pytest.fixture
def still() -> Iterator[None]:
    """No other test changes the machine's settings between kilter's look at them and TuneD's."""
    with machine_alone():
        yield


@pytest.mark.real_kernel
@pytest.mark.usefixtures("still")
@pytest.mark.parametrize("profile", PROFILES)
def test_the_values_are_those_that_tuned_writes(profile: str, tmp_path: Path) -> None:
    if why := usable():
        pytest.skip(why)
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    imported = json.loads(kilter("--json", "import", "tuned", profile, "--dry-run", env=env).stdout)
    settings = imported["profile"]["set"]
    planned: dict[str, str] = {}
    for knob, entry in settings.items():
        done = kilter("--json", "knobs", "list", knob, env=env)
        for found in json.loads(done.stdout) if done.returncode == 0 else []:
            path = found["state"]["path"]
            if any(path.startswith(f"{tree}/") for tree in COPIED):
                now = found["state"]["value"]
                wish, _, number = entry["value"].partition(":")
                larger = str(max(int(now), int(number or 0))) if wish == "at-least" else ""
                planned[path] = larger or entry["value"]
    assert len(planned) >= 3, "nothing to compare"
    before = untouched()
    copies, out = tmp_path / "copies", tmp_path / "out"
    copies.mkdir()
    inside = ["bash", "-c", INSIDE, "inside", str(copies), profile, str(out), " ".join(COPIED)]
    subprocess.run(
        ["unshare", "-m", "-p", "--fork", "--kill-child", "--propagation", "private", *inside],
        input="".join(f"{path}\n" for path in planned),
        text=True,
        timeout=90,
        check=True,
    )
    lines = (line.partition("\t") for line in out.read_text().splitlines())
    assert {path: shown(text) for path, _, text in lines} == planned
    assert untouched() == before
