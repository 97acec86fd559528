"""What a guest refuses to start with."""

from __future__ import annotations

from pathlib import Path

import pytest

from .guest import COMMAND_MAX, Guest, GuestError
from .kernels import Kernel

KERNEL = Kernel("cfs", "6.1.0-50-amd64", "6.1.176-1", "bookworm")


def test_a_command_that_the_kernels_own_has_no_room_for(tmp_path: Path) -> None:
    """A kernel whose command line is cut off ends as it boots, or runs something else."""
    guest = Guest(KERNEL, tmp_path / "work")
    with pytest.raises(GuestError, match=f"{COMMAND_MAX} are possible"):
        guest.run("x" * (COMMAND_MAX + 1), print, 1.0, 1.0)
    assert not guest.work.exists()
