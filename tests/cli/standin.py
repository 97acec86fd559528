"""A kilter beside a stand-in for Python, which keeps the request that the lab would have got."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from . import schemas
from .program import BINARY, HOME, Done, ended
from .roots import Root

SCRIPT = '#!/bin/sh\nprintf "%s\\n" "$@" > "${0%/*}/words"\ncat > "${0%/*}/request"\n'


@cache
def copied_binary() -> Path:
    """One copy of the binary for all stand-ins, on the file system of temporary files."""
    return Path(shutil.copy2(BINARY, Path(HOME) / "kilter"))


class Lab:
    """The binary, beside the stand-in."""

    def __init__(self, directory: Path, root: Root) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.root = root
        self.binary = directory / "kilter"
        os.link(copied_binary(), self.binary)
        python = directory / "python3"
        python.write_text(SCRIPT)
        python.chmod(0o755)

    def __call__(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        at_root: bool = True,
    ) -> Done:
        """Run kilter on the fake root."""
        chosen = ["--root", str(self.root.path)] if at_root else []
        return ended([*prefix, str(self.binary), *chosen, *args], env=env)

    def asked(self, *args: str, **more: Any) -> Any:
        """The request that a command hands over, checked against its schema."""
        done = self(*args, **more)
        assert done.returncode == 0, done
        assert (self.directory / "words").read_text() == "-I\n-m\nkilter_lab\n"
        request = json.loads((self.directory / "request").read_text())
        schemas.check("lab-request", request)
        (self.directory / "request").unlink()
        return request

    def refused(self, *args: str, says: tuple[str, ...], hint: str = "", **more: Any) -> Done:
        """The command fails as wrong usage with these words, and nothing is asked or written."""
        before = self.root.settings()
        done = self(*args, **more)
        assert done.returncode == 2, done
        assert done.stdout == ""
        assert done.stderr.startswith("error: "), done.stderr
        for word in says:
            assert word in done.stderr, f"{word!r} is not in {done.stderr!r}"
        if hint:
            assert f"\nhint: {hint}" in done.stderr, done.stderr
        assert not (self.directory / "request").exists()
        assert self.root.settings() == before
        assert self.root.layers() == []
        for place in ("run/kilter", "var", "etc/kilter/profiles/new.toml"):
            assert not (self.root.path / place).exists(), place
        return done
