"""Files written whole or not at all, and through nobody's link."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace(content: bytes, path: Path) -> None:
    """Write a finished file beside the place and rename it into it; a link there is replaced."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
