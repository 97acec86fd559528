"""`kilter hold` and a real sleep: what the kernel resets as it resumes is set again.

The guests of the other tests cannot sleep, for their file system is the host's (virtiofs has no way
through a suspend). This one has nothing but its memory.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from cli.program import BINARY

from . import guest, kernels
from .kinds import kind

FACTOR = "/sys/kernel/debug/sched/domains/cpu0/domain0/busy_factor"
HELD = 23
LIMIT_S = 400.0

# The other CPU goes before a sleep and comes after it, and the scheduler's domains with it. Nothing
# but the sleep itself can wake a hold that looks once an hour.
INIT = f"""#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /run /tmp /sbin /usr/bin
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t debugfs debug /sys/kernel/debug
exec > /dev/ttyS0 2>&1
echo Y > /sys/kernel/debug/sched/verbose
echo "default $(cat {FACTOR})"
kilter hold run held --every 1h > /hold.log 2>&1 &
hold=$!
until [ "$(cat {FACTOR})" = {HELD} ]; do sleep 1; done
echo "held $(cat {FACTOR})"
echo 0 > /sys/class/rtc/rtc0/wakealarm
echo +5 > /sys/class/rtc/rtc0/wakealarm
echo deep > /sys/power/mem_sleep
echo mem > /sys/power/state
echo "sleeps $(cat /sys/power/suspend_stats/success)"
tries=0
until grep -q "set again" /hold.log || [ $tries = 60 ]; do sleep 1; tries=$((tries + 1)); done
echo "after $(cat {FACTOR})"
kill $hold
wait $hold
echo "code $?"
cat /hold.log
reboot -f
"""


def put(file: Path, tree: Path) -> None:
    """A file of this machine at its own place in a tree."""
    place = tree / str(file).lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, place)


def image(tree: Path) -> Path:
    """A file system in memory: busybox, kilter with its libraries, the profile, the script."""
    busybox = shutil.which("busybox")
    assert busybox
    (tree / "bin").mkdir(parents=True)
    shutil.copy(busybox, tree / "bin/busybox")
    shutil.copy(BINARY, tree / "bin/kilter")
    listed = subprocess.run(["ldd", BINARY], capture_output=True, text=True, check=True).stdout
    for word in listed.split():
        if word.startswith("/"):
            put(Path(word), tree)
    profiles = tree / "etc/kilter/profiles"
    profiles.mkdir(parents=True)
    knob = "sched.domains.cpu0.domain0.busy_factor"
    (profiles / "held.toml").write_text(
        f'name = "held"\n\n[set]\n"{knob}" = {{ value = "{HELD}" }}\n'
    )
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    archive = tree.with_suffix(".cpio")
    with archive.open("wb") as file:
        words = ["busybox", "cpio", "-o", "-H", "newc"]
        subprocess.run(words, cwd=tree, input=names.encode(), stdout=file, check=True)
    return archive


def boot(kernel: kernels.Kernel, archive: Path) -> str:
    """What a machine with this file system says until it restarts, which ends it."""
    words = [
        *("qemu-system-x86_64", "-machine", "q35", "-cpu", "max", "-smp", "2", "-m", "512"),
        *shlex.split(guest.ONE_THREAD),
        *("-global", "ICH9-LPC.disable_s3=0", "-display", "none", "-nodefaults"),
        *("-no-reboot", "-serial", "stdio", "-kernel", str(kernel.image), "-initrd", str(archive)),
        *("-append", "console=ttyS0 quiet loglevel=3 no_console_suspend"),
    ]
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=guest.environment(),
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_a_resume_resets_is_set_again(tmp_path: Path) -> None:
    kernel = kernels.remembered(kind("eevdf"))
    reason = guest.reason_not_to() or kernel.missing
    if reason:
        pytest.skip(reason)
    said = boot(kernel, image(tmp_path / "tree"))
    told = dict(line.split(None, 1) for line in said.splitlines() if len(line.split()) == 2)
    assert told.get("held") == str(HELD), said
    assert told["default"] != told["held"], said
    assert told["sleeps"] == "1", said
    assert f"set again to {HELD}" in said, "the kernel's own reset, whatever the policy"
    assert (told["after"], told["code"]) == (str(HELD), "0"), said
