"""Boots a kernel with this machine's file system inside (virtme-ng, QEMU) and runs a command in it.

The file system is a read-only view with a layer in memory on top: what a guest writes is gone with it.
The command's output, one line at a time, and the kernel's log, in a file, are kept apart. The exit code
is the command's own, passed on a channel of its own; a guest that ends without one has crashed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .kernels import Kernel
from .klog import Verdict, judge
from .places import cache

CPUS = 2
MEMORY = "2G"
DISK_BYTES = 64 * 1024 * 1024
PROBE_S = 60.0
"""A stock kernel boots in five seconds where KVM works."""

KERNEL_WORDS = (
    "oops=panic",  # an oops ends the guest, so that nothing goes on with a broken kernel
    "hung_task_panic=0",
    "rcupdate.rcu_cpu_stall_timeout=60",
)

COMMAND_MAX = 1000
"""Characters: it is handed over, encoded, in the kernel's command line, which takes 2 KiB."""

HALTED = b"PANIC: early exception"
"""A kernel that says this stops there, and never ends its machine."""

ONE_THREAD = "-accel tcg,thread=single"
"""One thread for all emulated CPUs. With one for each, QEMU 7.2 may run code of the kernel that
another CPU has just patched, and a kernel that loads a scheduler dies of it (``Oops: int3``)."""


class GuestError(Exception):
    """A guest cannot be started at all."""


@dataclass(frozen=True)
class Ending:
    """How a guest ended."""

    code: int | None
    """The command's exit code; None if the guest ended without one."""
    why: str
    """Why there is none."""
    seconds: float
    log: Verdict


class Guest:
    """One boot of a kernel."""

    def __init__(
        self,
        kernel: Kernel,
        work: Path,
        kvm: bool = False,
        writable: Path | None = None,
        cpus: int = CPUS,
        memory: str = MEMORY,
    ) -> None:
        self.kernel = kernel
        self.work = work
        self.kvm = kvm
        self.writable = writable
        """A directory of the host's that the guest may write to."""
        self.cpus = cpus
        self.memory = memory
        self.console = work / "kernel.log"
        self.heard = time.monotonic()
        """When the guest's command last said something."""
        self.halted = False

    def run(
        self, command: str, hear: Callable[[str], None], limit_s: float, silence_s: float
    ) -> Ending:
        """Boot, run a shell command, hand each line of its output to ``hear``, and shut down.

        The guest is killed after ``limit_s`` in all or ``silence_s`` without a word.

        Raises:
            GuestError: the command is too long.
        """
        if len(command) > COMMAND_MAX:
            raise GuestError(f"a command of {len(command)} characters, {COMMAND_MAX} are possible")
        self.work.mkdir(parents=True, exist_ok=True)
        disk = self.work / "disk.img"
        with disk.open("wb") as file:
            file.truncate(DISK_BYTES)
        began = self.heard = time.monotonic()
        child = subprocess.Popen(
            self._words(command, disk),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            start_new_session=True,
        )
        threads = [
            threading.Thread(target=self._listen, args=(child, hear), daemon=True),
            threading.Thread(target=self._keep_log, args=(child,), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            why = self._wait(child, began + limit_s, silence_s)
        finally:
            stop(child)
        for thread in threads:
            thread.join(10.0)
        disk.unlink(missing_ok=True)
        return self._ending(child.returncode, why, time.monotonic() - began)

    def _words(self, command: str, disk: Path) -> list[str]:
        appended = [word for kernel in KERNEL_WORDS for word in ("--append", kernel)]
        return [
            str(vng()),
            *([] if self.kvm else ["--disable-kvm"]),
            *([] if self.kvm or self.cpus == 1 else [f"--qemu-opts={ONE_THREAD}"]),
            *("--run", str(self.kernel.image)),
            *("--cpus", str(self.cpus), "--memory", self.memory, "--user", "root"),
            *("--disk", str(disk)),
            *([] if self.writable is None else ["--rwdir", str(self.writable)]),
            *appended,
            "--verbose",  # the kernel's log, on standard error
            *("--exec", f"{command} 2>&1"),
        ]

    def _listen(self, child: subprocess.Popen[bytes], hear: Callable[[str], None]) -> None:
        assert child.stdout is not None
        with child.stdout as output:
            for line in output:
                self.heard = time.monotonic()
                hear(line.decode(errors="replace").rstrip("\r\n"))

    def _keep_log(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stderr is not None
        with self.console.open("wb") as log, child.stderr as lines:
            for line in lines:
                log.write(line.replace(b"\r", b""))
                log.flush()
                self.halted |= HALTED in line

    def _wait(self, child: subprocess.Popen[bytes], until: float, silence_s: float) -> str:
        while True:
            with suppress(subprocess.TimeoutExpired):
                child.wait(1.0)
                return ""
            if time.monotonic() > until:
                return "it ran out of time and was killed"
            if self.halted:
                return "its kernel came to a halt as it booted"
            if time.monotonic() - self.heard > silence_s:
                return f"it said nothing for {silence_s:.0f} s and was killed"

    def _ending(self, code: int, why: str, seconds: float) -> Ending:
        verdict = judge(self.console.read_text(errors="replace"))
        if why:
            return Ending(None, why, seconds, verdict)
        if code == 255 or code < 0:
            told = verdict.harm or "\n".join(self.tail(15))
            return Ending(None, f"it ended in the middle:\n{told}", seconds, verdict)
        return Ending(code, "", seconds, verdict)

    def tail(self, lines: int) -> list[str]:
        """The last lines of the kernel's log."""
        return self.console.read_text(errors="replace").splitlines()[-lines:]


def stop(child: subprocess.Popen[bytes]) -> None:
    """Ends a guest, and what it started."""
    if child.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def vng() -> Path:
    """The starter of guests, installed beside this Python or elsewhere."""
    beside = Path(sys.executable).parent / "vng"
    found = beside if beside.exists() else shutil.which("vng")
    if found is None:
        raise GuestError("virtme-ng is missing (make test-vm installs it)")
    return Path(found)


def environment() -> dict[str, str]:
    """As the caller's; vng's own helpers and the system's tools are found too."""
    path = f"{vng().parent}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return os.environ | {"PATH": path}


def reason_not_to() -> str:
    """Why guests cannot be started here; empty if they can."""
    try:
        vng()
    except GuestError as error:
        return str(error)
    tools = {"qemu-system-x86_64": "qemu-system-x86", "depmod": "kmod", "busybox": "busybox-static"}
    path = environment()["PATH"]
    lacking = [package for tool, package in tools.items() if not shutil.which(tool, path=path)]
    return f"missing: {', '.join(lacking)} (make test-vm installs it)" if lacking else ""


def kvm_works(kernel: Kernel) -> bool:
    """Whether KVM boots a stock kernel here; asked once a boot of this machine."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    known = cache() / "kvm"
    if known.exists() and known.read_text().startswith(boot):
        return known.read_text().endswith("works")
    guest = Guest(kernel, cache() / "probe", kvm=True)
    ending = guest.run("true", lambda _: None, PROBE_S, PROBE_S)
    known.write_text(f"{boot} {'works' if ending.code == 0 else 'fails'}")
    return ending.code == 0


def quoted(*words: object) -> str:
    """Words as a shell takes them."""
    return shlex.join(str(word) for word in words)
