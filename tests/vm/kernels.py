"""Finds a kernel of each kind in Debian's suites, unpacks it, and remembers it.

``python -m vm.kernels`` (with ``tests`` on the path) brings the cache up to date and prints what it
has. Nothing is installed: packages are unpacked below the cache, by version, and removed once a newer
one of their kind has come. A suite that cannot be reached keeps what the cache has of it.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from .apt import Package, Suite, SuiteError, mirror
from .btf import Has, ImageError, inspect
from .kinds import KINDS, Kind
from .places import cache

TRIED = 8
"""Newest kernels of a kind's suites that are looked into, at most."""

RELEASE = r"linux-image-(\d+\.[0-9.]+[^ ]*-amd64)"
OTHERS = re.compile(r"-(rt|cloud|dbg|unsigned|signed)\b")
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


@dataclass(frozen=True)
class Kernel:
    """A kernel of a kind; ``missing`` tells why there is none."""

    kind: str
    release: str = ""
    version: str = ""
    suite: str = ""
    missing: str = ""

    @property
    def place(self) -> Path:
        """Where it is unpacked."""
        return cache() / "kernels" / f"{self.release}_{self.version}"

    @property
    def image(self) -> Path:
        """The compressed kernel."""
        return image_in(self.place, self.release)

    @property
    def config(self) -> Path:
        """What it was built with."""
        old, new = (
            self.place / f"boot/config-{self.release}",
            self.place / f"usr/lib/modules/{self.release}/config",
        )
        return old if old.exists() else new


def image_in(tree: Path, release: str) -> Path:
    """The kernel image in an unpacked package."""
    old, new = tree / f"boot/vmlinuz-{release}", tree / f"usr/lib/modules/{release}/vmlinuz"
    return old if old.exists() else new


@dataclass(frozen=True)
class Candidate:
    """A kernel of a suite: its packages, the one with the image first."""

    suite: Suite
    release: str
    version: str
    packages: tuple[str, ...]

    def kernel(self, kind: Kind) -> Kernel:
        """It, as the kernel of a kind."""
        return Kernel(kind.name, self.release, self.version, self.suite.name)


def candidates(suite: Suite) -> list[Candidate]:
    """The kernels of a suite for ordinary machines."""
    found = []
    for package in suite.packages(RELEASE):
        release = re.fullmatch(RELEASE, package.name)
        if release and not OTHERS.search(package.name):
            parts = parts_of(package, release[1])
            found.append(Candidate(suite, release[1], package.version, parts))
    return found


def parts_of(package: Package, release: str) -> tuple[str, ...]:
    """The packages of a kernel: one up to 7.1; image, modules and configuration since."""
    parts = [
        f"linux-{part}-{release}"
        for part in ("binary", "modules", "base")
        if f"linux-{part}-{release} " in package.depends
    ]
    whole = [] if len(parts) == 3 else [package.name]
    return tuple(f"{name}={package.version}" for name in parts + whole)


def newest_first(kernels: list[Candidate]) -> list[Candidate]:
    """By Debian's order of versions."""

    def compare(one: Candidate, other: Candidate) -> int:
        words = ["dpkg", "--compare-versions", one.version, "gt", other.version]
        newer = subprocess.run(words, check=False).returncode == 0
        return -1 if newer else int(one.version != other.version)

    return sorted(kernels, key=functools.cmp_to_key(compare))


class Fetcher:
    """Brings kernels of all kinds into the cache."""

    def __init__(self, force: bool = False) -> None:
        self.force = force
        self.uri = mirror()
        self.suites: dict[str, list[Candidate] | SuiteError] = {}

    def fetch(self, kind: Kind) -> Kernel:
        """The newest kernel of a kind; the one in the cache if its suites are out of reach."""
        kernel = self._newest(kind)
        if kernel.missing:
            old = remembered(kind)
            if not old.missing:
                say(f"{kind.name}: keeping {old.release}: {kernel.missing}")
                return old
        (cache() / "kinds").mkdir(exist_ok=True)
        (cache() / "kinds" / f"{kind.name}.json").write_text(json.dumps(asdict(kernel)))
        return kernel

    def _newest(self, kind: Kind) -> Kernel:
        listed, reasons = [], []
        for name in kind.suites:
            found = self._candidates(name)
            if isinstance(found, SuiteError):
                reasons.append(str(found))
            else:
                listed += found
        for candidate in newest_first(listed)[:TRIED]:
            try:
                if self._fits(kind, candidate):
                    return self._unpack(kind, candidate)
            except (SuiteError, ImageError, OSError, subprocess.SubprocessError) as error:
                reasons.append(f"{candidate.release}: {error}")
        tried = f"none of {len(listed[:TRIED])} kernels in {', '.join(kind.suites)} is one"
        return Kernel(kind.name, missing="; ".join([*reasons, tried]))

    def _candidates(self, name: str) -> list[Candidate] | SuiteError:
        if name not in self.suites:
            suite = Suite(name, cache() / "apt" / name, self.uri)
            try:
                suite.refresh(self.force)
                self.suites[name] = candidates(suite)
            except (SuiteError, subprocess.SubprocessError, OSError) as error:
                self.suites[name] = SuiteError(str(error))
        return self.suites[name]

    def _fits(self, kind: Kind, candidate: Candidate) -> bool:
        """Whether a candidate has what its kind has: known from before, or from its image."""
        known = cache() / "has" / f"{candidate.release}_{candidate.version}.json"
        if known.exists():
            return kind.fits(Has(**json.loads(known.read_text())))
        say(f"looking into {candidate.release} of {candidate.suite.name}")
        with unpacked(candidate, candidate.packages[:1]) as tree:
            has = inspect(image_in(tree, candidate.release))
            known.parent.mkdir(exist_ok=True)
            known.write_text(json.dumps(asdict(has)))
            fits = kind.fits(has)
            if fits and len(candidate.packages) == 1:
                self._keep(tree, candidate.kernel(kind))
        return fits

    def _unpack(self, kind: Kind, candidate: Candidate) -> Kernel:
        kernel = candidate.kernel(kind)
        if not kernel.place.exists():
            say(f"unpacking {kernel.release} of {kernel.suite}")
            with unpacked(candidate, candidate.packages) as tree:
                self._keep(tree, kernel)
        return kernel

    def _keep(self, tree: Path, kernel: Kernel) -> None:
        """Make a tree of all packages bootable, and move it to its place."""
        if not (tree / "lib").exists():
            (tree / "lib").symlink_to("usr/lib")
        words = ["depmod", "-b", str(tree), kernel.release]
        subprocess.run(words, check=True, env=os.environ | {"PATH": PATH})
        kernel.place.parent.mkdir(exist_ok=True)
        tree.rename(kernel.place)


@contextmanager
def unpacked(candidate: Candidate, packages: tuple[str, ...]) -> Iterator[Path]:
    """A tree of some of a candidate's packages; gone afterwards unless it was moved away."""
    work = Path(tempfile.mkdtemp(prefix="unpack-", dir=cache()))
    try:
        tree = work / "tree"
        for file in candidate.suite.download(list(packages), work):
            subprocess.run(["dpkg", "-x", file, tree], check=True)
            file.unlink()
        yield tree
    finally:
        shutil.rmtree(work, ignore_errors=True)


def remembered(kind: Kind) -> Kernel:
    """The kernel of a kind that the cache has, without asking anybody."""
    file = cache() / "kinds" / f"{kind.name}.json"
    if not file.exists():
        return Kernel(kind.name, missing="not fetched yet (make test-vm does)")
    kernel = Kernel(**json.loads(file.read_text()))
    if not kernel.missing and not kernel.image.exists():
        return Kernel(kind.name, missing=f"{kernel.image} is gone (make test-vm fetches it anew)")
    return kernel


@contextmanager
def in_use(exclusive: bool = False) -> Iterator[bool]:
    """Holds the cache: shared while guests run, exclusively while kernels are removed."""
    with (cache() / "lock").open("w") as lock:
        how = fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH
        try:
            fcntl.flock(lock, how)
        except BlockingIOError:
            yield False
        else:
            yield True


def remove_old(kept: list[Kernel]) -> None:
    """Removes kernels that no kind needs any more, unless guests are running."""
    places = {kernel.place for kernel in kept if not kernel.missing}
    with in_use(exclusive=True) as alone:
        for tree in (cache() / "kernels").glob("*") if alone else []:
            if tree not in places:
                say(f"removing {tree.name}")
                shutil.rmtree(tree, ignore_errors=True)


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Brings the cache up to date (``--refresh``: also package lists that are young)."""
    fetcher = Fetcher("--refresh" in sys.argv[1:])
    kernels = [fetcher.fetch(kind) for kind in KINDS]
    remove_old(kernels)
    for kind, kernel in zip(KINDS, kernels, strict=True):
        what = kernel.missing or f"{kernel.release} ({kernel.suite})"
        print(f"{kind.name:<14} {kind.summary:<44} {what}")


if __name__ == "__main__":
    main()
