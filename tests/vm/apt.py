"""Debian's packages of other suites than this machine's, downloaded and never installed.

apt does the work: its own configuration, proxies, credentials and keys hold as they do for the
machine. Only the list of sources, the package lists and the state are private, one directory a
suite, so that a suite that cannot be reached does not keep the others away.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

PUBLIC_MIRROR = "http://deb.debian.org/debian"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
FRESH_S = 20 * 3600.0
"""Package lists younger than this are not asked for again."""
TIMEOUT_S = 600.0


class SuiteError(Exception):
    """A suite cannot be used, in apt's own words."""


@dataclass(frozen=True)
class Package:
    """A binary package of a suite."""

    name: str
    version: str
    depends: str


def mirror() -> str:
    """The mirror of Debian that this machine's apt uses; the public one if that tells none."""
    fields = "$(REPO_URI)|$(LABEL)"
    done = subprocess.run(
        ["apt-get", "indextargets", "--format", fields, "Created-By: Packages"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    for line in done.stdout.splitlines():
        uri, _, label = line.partition("|")
        if label == "Debian":
            return uri.rstrip("/")
    return PUBLIC_MIRROR


def shown(uri: str) -> str:
    """A mirror's address without credentials."""
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host))


class Suite:
    """One suite, with apt's private directories below ``place``."""

    def __init__(self, name: str, place: Path, uri: str) -> None:
        self.name = name
        self.place = place
        self.uri = uri
        self.sources = place / "suite.sources"

    def refresh(self, force: bool = False) -> None:
        """Bring the package lists up to date, unless they are fresh."""
        stamp = self.place / "refreshed"
        text = self._stanza()
        self.place.mkdir(parents=True, exist_ok=True)
        (self.place / "apt.conf").write_text(self._configuration())
        same = self.sources.exists() and self.sources.read_text() == text
        young = stamp.exists() and time.time() - stamp.stat().st_mtime < FRESH_S
        if same and young and not force:
            return
        for part in ("lists/partial", "cache/archives/partial"):
            (self.place / part).mkdir(parents=True, exist_ok=True)
        self.sources.write_text(text)
        self._run("apt-get", "update", "-q", "--error-on=any")
        stamp.touch()

    def packages(self, pattern: str) -> Iterator[Package]:
        """Packages whose whole name matches."""
        stanzas = self._run("apt-cache", "dumpavail").split("\n\n")
        for stanza in stanzas:
            if not re.match(rf"Package: ({pattern})\n", stanza):
                continue
            fields = dict(
                line.split(": ", 1)
                for line in stanza.splitlines()
                if ": " in line and not line.startswith(" ")
            )
            yield Package(fields["Package"], fields["Version"], fields.get("Depends", ""))

    def download(self, names: list[str], into: Path) -> list[Path]:
        """Download packages, signed and checked; returns their files."""
        into.mkdir(parents=True, exist_ok=True)
        self._run("apt-get", "download", "-q", *names, cwd=into)
        return sorted(into.glob("*.deb"))

    def _stanza(self) -> str:
        fields = {
            "Types": "deb",
            "URIs": self.uri,
            "Suites": self.name,
            "Components": "main",
            "Signed-By": KEYRING,
        }
        return "".join(f"{key}: {value}\n" for key, value in fields.items())

    def _configuration(self) -> str:
        """Read by apt after the machine's own configuration."""
        private = {
            "Dir::Etc::sourcelist": self.sources,
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State": self.place,
            "Dir::State::lists": self.place / "lists",
            "Dir::State::status": "/dev/null",
            "Dir::Cache": self.place / "cache",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            "Acquire::Retries": "2",
        }
        # The machine's hooks are for its own lists.
        hooks = ["APT::Update::Pre-Invoke", "APT::Update::Post-Invoke"]
        hooks.append("APT::Update::Post-Invoke-Success")
        text = "".join(f"#clear {hook};\n" for hook in hooks)
        return text + "".join(f'{key} "{value}";\n' for key, value in private.items())

    def _run(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            [words[0], "-c", str(self.place / "apt.conf"), *words[1:]],
            capture_output=True,
            text=True,
            env=os.environ | {"LC_ALL": "C"},
            cwd=cwd or self.place,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise SuiteError(self._reason(done.stderr))
        return done.stdout

    def _reason(self, text: str) -> str:
        told = [line for line in text.splitlines() if line.startswith(("E:", "Err:"))]
        first = told[0] if told else text.strip() or "apt failed without a word"
        return f"suite {self.name} of {shown(self.uri)}: {first}"
