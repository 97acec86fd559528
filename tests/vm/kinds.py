"""The kinds of kernels that the tests boot, told by what a kernel has, never by its version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .btf import Has


@dataclass(frozen=True)
class Kind:
    """A kind of kernel, and the suites of Debian in which to look for the newest of it."""

    name: str
    summary: str
    suites: tuple[str, ...]
    fits: Callable[[Has], bool]
    more: tuple[str, ...] = ()
    """Files of tests that one kernel of their sort is enough for."""


RECENT = ("sid", "trixie-backports", "experimental")

KINDS = (
    Kind("sysctl", "CFS, its times are sysctls", ("bullseye",), lambda has: has.sysctls),
    Kind(
        "cfs",
        "CFS, its times are in debugfs",
        ("bookworm",),
        lambda has: not has.sysctls and not has.eevdf,
        # The hierarchy of the machine itself may be cgroup v1.
        more=(
            "tests/cli/test_groups.py",
            "tests/cli/test_reclaim_groups.py",
            "tests/cli/test_hold_systemd.py",
        ),
    ),
    Kind(
        "eevdf",
        "EEVDF without sched_ext",
        ("trixie", "bookworm-backports"),
        lambda has: has.eevdf and not has.sched_ext,
    ),
    Kind(
        "scx",
        "EEVDF and sched_ext",
        RECENT,
        lambda has: has.sched_ext and not has.lost_halves,
    ),
    Kind(
        "scx-defective",
        "sched_ext with functions missing in its BTF",
        RECENT,
        lambda has: has.sched_ext and bool(has.lost_halves),
    ),
)


def kind(name: str) -> Kind:
    """The kind of that name."""
    return next(kind for kind in KINDS if kind.name == name)
