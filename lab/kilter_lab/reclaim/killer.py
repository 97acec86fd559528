"""What experiments on a whole, small machine need: that it is small, and Debian's earlyoom."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType

from kilter_lab.errors import LabError
from kilter_lab.reclaim.place import PATH

OPTIONS = ("-m", "15", "-s", "100", "-r", "0")
"""Kill when less than 15 % of the memory is available, however much swap is free: Android's killer
acts on memory too, long before swap is full."""

LARGEST_MIB = 4096
"""A machine with more memory than this is not made short of memory as a whole."""


def need_small_machine() -> None:
    """LabError where the machine has too much memory to be made short of it as a whole."""
    total = int(Path("/proc/meminfo").read_text().split("MemTotal:")[1].split()[0]) // 1024
    if total > LARGEST_MIB:
        raise LabError(
            "without a memory cgroup the whole machine runs out of memory, and this one has "
            f"{total} MiB: this is for a guest or a small machine",
            "leave out --killer: a memory cgroup's own OOM killer is the default",
        )


class Earlyoom:
    """earlyoom, running. It kills the process with the highest oom_score."""

    def __init__(self) -> None:
        binary = shutil.which("earlyoom", path=f"{os.environ.get('PATH', '')}:{PATH}")
        if binary is None:
            raise LabError("earlyoom is missing", "apt-get install earlyoom")
        self._words = [binary, *OPTIONS]
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Earlyoom:
        quiet = subprocess.DEVNULL
        self._child = subprocess.Popen(self._words, stdout=quiet, stderr=quiet)
        time.sleep(0.5)
        self.check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._child is not None
        self._child.terminate()
        self._child.wait()

    def check(self) -> None:
        """LabError where it has died."""
        assert self._child is not None
        if self._child.poll() is not None:
            raise LabError(f"earlyoom ended with {self._child.returncode}")
