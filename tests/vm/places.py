"""Where kernels and what is known of them are kept between runs: ``KILTER_VM_CACHE``, or the cache
directory of the user."""

from __future__ import annotations

import os
from pathlib import Path


def cache() -> Path:
    """The directory; made if need be."""
    named = os.environ.get("KILTER_VM_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    place = Path(named) if named else Path(base) / "kilter" / "vm"
    place.mkdir(parents=True, exist_ok=True)
    return place.absolute()
