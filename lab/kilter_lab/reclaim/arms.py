"""Who reclaims in the background: the arms of the experiment on app switching."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from kilter_lab.errors import LabError
from kilter_lab.reclaim import peers

KERNEL_SWAPPINESS = 60
"""Of the arm ``swap``: the kernel's own default."""

CACHED_ADJ = 900
"""oom_score_adj from which an app counts as cached, as on Android."""

READY_S = 10.0
END_S = 5.0


class ArmSpec(msgspec.Struct, frozen=True):
    """What an arm is."""

    about: str
    peer: str = ""
    """First argument of :mod:`kilter_lab.reclaim.peers`."""
    policy: str = ""
    """Of ``kilter reclaim run``."""
    swaps: bool = False
    """Whether the kernel may swap by itself."""


ARMS = {
    "none": ArmSpec("nobody reclaims"),
    "swap": ArmSpec("nobody reclaims, and the group may swap by itself", swaps=True),
    "kilter": ArmSpec("kilter reclaim run --policy pressure", policy="pressure"),
    "on-cached": ArmSpec("kilter reclaim run --policy on-cached", policy="on-cached"),
    "every-switch": ArmSpec("plain page-out of all of an app at every switch", peer="every-switch"),
    "senpai": ArmSpec("senpai's method: squeezing by pressure", peer="senpai"),
}


def config() -> str:
    """``reclaim.toml`` for the arms of kilter: what counts as cached.

    The experiment packs switches that lie minutes apart into a second, so an app may be paged out
    again at once, where 10 s lie between by default.
    """
    return f"[cached]\noom_score_adj = {CACHED_ADJ}\n[params]\napp_throttle_s = 0\n"


class Reclaimer:
    """The process of an arm; none for ``none`` and ``swap``."""

    def __init__(self, arm: str, kilter: Sequence[str], group: Path | None) -> None:
        self.spec = ARMS[arm]
        self._child: subprocess.Popen[bytes] | None = None
        self._config: str | None = None
        self.cpu_s = 0.0
        """CPU time that it took, known once it has ended."""
        # A file: nobody reads while it runs, and a full pipe would hold it up.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        words = self._words(kilter, group)
        if words:
            self._child = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._said
            )

    def _words(self, kilter: Sequence[str], group: Path | None) -> list[str]:
        if self.spec.peer:
            return [sys.executable, "-I", peers.__file__, self.spec.peer, str(group or "")]
        if not self.spec.policy:
            return []
        handle, self._config = tempfile.mkstemp(prefix="kilter-", suffix=".toml")
        with os.fdopen(handle, "w") as file:
            file.write(config())
        limits = ["--within", str(group)] if group else []
        run = ["reclaim", "run", "--config", self._config, "--policy", self.spec.policy]
        return [*kilter, *run, *limits]

    def cached(self, pid: int) -> None:
        """Tell a peer that an app has left the front; kilter sees it for itself."""
        if self._child is not None and self.spec.peer:
            assert self._child.stdin is not None
            with suppress(BrokenPipeError):
                self._child.stdin.write(f"cached {pid}\n".encode())
                self._child.stdin.flush()

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._child is not None and self._child.poll() is None

    def check(self) -> None:
        """LabError where it has died: the arm would be ``none`` under another name."""
        if self._child is not None and not self.alive:
            self._said.seek(0)
            said = self._said.read().decode(errors="replace").strip()
            raise LabError(f"{self.spec.about}: ended with {self._child.returncode}: {said}")

    def end(self) -> None:
        """End it, and count what it cost."""
        child, self._child = self._child, None
        self._said.close()
        if self._config:
            Path(self._config).unlink(missing_ok=True)
        if child is None:
            return
        assert child.stdin is not None
        child.stdin.close()
        if child.returncode is None:
            self.cpu_s = _ended(child)


def _ended(child: subprocess.Popen[bytes]) -> float:
    """End a process; the CPU time that it took."""
    # Not by Popen, which would collect one that has just ended, and its CPU time with it.
    os.kill(child.pid, signal.SIGTERM)
    until = time.monotonic() + END_S
    pid = 0
    while pid == 0:
        pid, _, used = os.wait4(child.pid, os.WNOHANG)
        if pid == 0 and time.monotonic() > until:
            os.kill(child.pid, signal.SIGKILL)
        time.sleep(0.005)
    child.returncode = 0
    return used.ru_utime + used.ru_stime
