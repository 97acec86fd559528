"""The counters of ``/proc/vmstat`` that the patch set's own table has, by today's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

ZONES = ("dma", "dma32", "normal", "movable", "device")


def _zones(name: str) -> dict[str, tuple[str, ...]]:
    """A counter for each zone, and their sum."""
    named = {f"{name}_{zone}": (f"{name}_{zone}",) for zone in ("dma", "movable", "normal")}
    return named | {f"{name}_total": tuple(f"{name}_{zone}" for zone in ZONES)}


def _same(*names: str) -> dict[str, tuple[str, ...]]:
    return {name: (name,) for name in names}


def _split(*names: str) -> dict[str, tuple[str, ...]]:
    """Counters that are kept for anonymous memory and for files apart since Linux 5.9."""
    return {name: (name, f"{name}_anon", f"{name}_file") for name in names}


ROWS: dict[str, tuple[str, ...]] = {
    **_zones("allocstall"),
    **_same(
        "compact_daemon_wake", "compact_fail", "compact_free_scanned", "compact_isolated",
        "compact_migrate_scanned", "compact_stall", "compact_success",
        "kswapd_high_wmark_hit_quickly", "kswapd_inodesteal", "kswapd_low_wmark_hit_quickly",
        "nr_dirtied", "nr_vmscan_immediate_reclaim", "nr_vmscan_write", "nr_written",
        "pageoutrun", "pgactivate",
    ),
    **_zones("pgalloc"),
    **_same(
        "pgdeactivate", "pgfault", "pgfree", "pginodesteal", "pglazyfreed", "pgmajfault",
        "pgmigrate_fail", "pgmigrate_success", "pgpgin", "pgpgout", "pgrefill", "pgrotated",
        "pgscan_direct", "pgscan_direct_throttle", "pgscan_kswapd",
    ),
    "pgscan_total": tuple(
        f"pgscan_{who}" for who in ("direct", "kswapd", "khugepaged", "proactive")
    ),
    **_zones("pgskip"),
    **_same("pgsteal_direct", "pgsteal_kswapd"),
    "pgsteal_total": tuple(
        f"pgsteal_{who}" for who in ("direct", "kswapd", "khugepaged", "proactive")
    ),
    **_same("pswpin", "pswpout", "slabs_scanned"),
    **_split("workingset_activate"),
    **_same("workingset_nodereclaim"),
    **_split("workingset_refault", "workingset_restore"),
}  # fmt: skip
"""The table's rows in its order: each a sum of today's counters, of which a kernel may lack some.

Its row ``pgpgoutclean`` is no counter of any released kernel.
"""

NOTES = (
    "MADV_PAGEOUT counts in pswpout, nr_vmscan_write and pgpgout, but not in pgscan_* and "
    "pgsteal_*: part of their fall is by construction.",
    "Reclaim at a cgroup's limit counts neither in allocstall_* nor in pgscan_direct and "
    "pgsteal_direct, which tell of the whole machine's shortage: here see the limit hits.",
    "pgpgin and pgpgout include what goes to zram and comes back.",
)


def read(path: Path = Path("/proc/vmstat")) -> dict[str, int]:
    """All counters now."""
    return parse(path.read_text())


def parse(text: str) -> dict[str, int]:
    """Lines ``name number``."""
    return {name: int(value) for name, value in (line.split() for line in text.splitlines())}


def rows(counters: Mapping[str, int]) -> dict[str, int]:
    """The rows that this kernel has, in the table's order."""
    return {
        row: sum(counters.get(name, 0) for name in names)
        for row, names in ROWS.items()
        if any(name in counters for name in names)
    }


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """What each row grew by."""
    return {row: value - before.get(row, 0) for row, value in after.items()}


def table(
    base: Mapping[str, float], arm: Mapping[str, float], names: Iterable[str]
) -> list[tuple[str, float, float, float, float]]:
    """Rows (name, A, B, delta, ratio in percent of A) of the counters' means."""
    found = []
    for name in names:
        a, b = base[name], arm[name]
        found.append((name, a, b, b - a, 0.0 if a == 0 else (b - a) / a * 100))
    return found
