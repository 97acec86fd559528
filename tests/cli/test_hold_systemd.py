"""`kilter hold` under systemd: at boot after sysctl.d, beside another writer and CPUs that go."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .program import BINARY, GUEST, Done, children, wait_until

pytestmark = [
    pytest.mark.real_kernel,
    pytest.mark.skipif(not GUEST, reason="it takes a machine of its own: make test-vm"),
]

PATIENCE_S = 150.0
SWAPPINESS = Path("/proc/sys/vm/swappiness")
CPU = Path("/sys/devices/system/cpu/cpu1/online")
UNITS = Path("/etc/systemd/system")
UNIT = "kilter-hold-held.service"
FILES = {
    Path("/etc/sysctl.d/99-admin.conf"): "vm.swappiness=33\n",
    Path("/etc/kilter/profiles/held.toml"): (
        'name = "held"\n\n[set]\n"vm.swappiness" = { value = "10" }\n'
    ),
    # Its own namespace of processes makes a container of it in systemd's eyes.
    UNITS / f"{UNIT}.d/here.conf": "[Unit]\nConditionVirtualization=\n",
}
# What takes long where CPUs are emulated, and has no part in this.
MASKED = (
    "systemd-udevd",
    "systemd-udev-trigger",
    "systemd-journald",
    "systemd-journal-flush",
    "systemd-tmpfiles-setup",
    "systemd-tmpfiles-setup-dev",
    "systemd-random-seed",
    "systemd-update-utmp",
    "systemd-remount-fs",
    "systemd-logind",
)


@pytest.fixture
def files() -> Iterator[None]:
    """Configuration of the machine, for this test."""
    links = [UNITS / f"{name}.service" for name in MASKED]
    before = SWAPPINESS.read_text()
    for file, text in FILES.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for link in links:
        link.symlink_to("/dev/null")
    yield
    for file in (*links, *FILES):
        file.unlink()
    SWAPPINESS.write_text(before)


class System:
    """A systemd that is the first process of its namespace."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def ask(self, *words: object) -> Done:
        """A command in it."""
        inside = ["nsenter", "--target", str(self.pid), "--pid", "--mount", *map(str, words)]
        return subprocess.run(inside, capture_output=True, text=True, check=False, timeout=120)

    def run(self, *words: object) -> str:
        """What a command in it says."""
        done = self.ask(*words)
        assert done.returncode == 0, done
        return done.stdout

    def trouble(self) -> str:
        """What is wrong with systemd itself; nothing once it is up and has applied sysctl.d."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            state = self.ask("systemctl", "is-system-running").stdout.strip()
            if state in ("running", "degraded"):
                break
            time.sleep(1)
        if self.ask("systemctl", "is-active", "systemd-sysctl", "multi-user.target").returncode:
            jobs = self.ask("systemctl", "list-jobs", "--no-pager").stdout
            failed = self.ask("systemctl", "--failed", "--no-pager", "--no-legend").stdout
            return f"after {PATIENCE_S:.0f} s systemd is {state}: {failed} {jobs}"
        return ""


@contextmanager
def booted(log: Path) -> Iterator[System]:
    """A boot, and its sudden end."""
    init = ["/lib/systemd/systemd", "--system", "--unit=multi-user.target", "--log-target=console"]
    words = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", *init]
    with (
        log.open("w") as output,
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as parent,
    ):
        wait_until(lambda: bool(children(parent.pid)), "it has begun")
        system = System(children(parent.pid)[0])
        try:
            if trouble := system.trouble():
                pytest.skip(trouble)
            yield system
        finally:
            os.kill(system.pid, signal.SIGKILL)


def swappiness() -> str:
    """As it is now."""
    return SWAPPINESS.read_text().strip()


def test_it_holds_from_boot_to_removal(files: None, tmp_path: Path) -> None:
    with booted(tmp_path / "first.log") as system:
        assert swappiness() == "33", "sysctl.d is applied at boot"
        hold = (BINARY, "hold", "held", "--policy", "enforce", "--every", "1s")
        system.run(*hold, "--revert-on-stop")
        assert swappiness() == "10", "the unit runs once it is installed"
        SWAPPINESS.write_text("77")
        wait_until(lambda: swappiness() == "10", "another writer is overruled")
        CPU.write_text("0")
        CPU.write_text("1")
        assert system.run("systemctl", "is-active", UNIT).strip() == "active"
        system.run("systemctl", "stop", UNIT)
        assert swappiness() == "33", "as it was"
    SWAPPINESS.write_text("60")
    with booted(tmp_path / "second.log") as system:
        wait_until(lambda: swappiness() == "10", "at boot, after sysctl.d")
        assert system.run("systemctl", "is-active", UNIT).strip() == "active"
        system.run(BINARY, "hold", "remove", "held")
        assert swappiness() == "33", "what sysctl.d had set"
        assert not (UNITS / UNIT).exists()
