"""Every test of ``inside`` once for each kind of kernel, as pytest's own items on this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from . import guest, kernels
from .kinds import KINDS, Kind
from .places import cache as cache_place
from .session import OPTIONS, REPOSITORY, TESTS, Session

GOLDEN = Path(__file__).with_name("golden")
collect_ignore = ["inside"]
SESSIONS = pytest.StashKey[dict[str, Session]]()
HANDED = pytest.StashKey[list[str]]()
LINES = "guests"
"""Closing lines, of this process and of its workers."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this folder."""
    group = parser.getgroup("guests")
    group.addoption(
        "--kernel",
        action="append",
        choices=[kind.name for kind in KINDS],
        help="boot this kind of kernel only (may be repeated)",
    )
    group.addoption(
        "--update-golden", action="store_true", help="keep what the catalog finds as expected"
    )
    group.addoption(
        "--guest-logs", type=Path, help="where kernel logs and the guests' output are kept"
    )


def pytest_configure(config: pytest.Config) -> None:
    """No guest has been booted yet."""
    config.stash[SESSIONS] = {}
    config.stash[HANDED] = []


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """The kinds of kernels stand in ``kinds.py``."""
    if file_path == Path(__file__).with_name("kinds.py"):
        return Kinds.from_parent(parent, path=file_path)
    return None


@cache
def tests_inside(more: tuple[str, ...]) -> list[str]:
    """The names of all tests that a guest runs."""
    words = [sys.executable, "-m", "pytest", "--collect-only", *OPTIONS, *TESTS, *more]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    names = [line for line in done.stdout.splitlines() if "::" in line]
    if done.returncode != 0 or not names:
        raise pytest.UsageError(f"the guests' tests cannot be collected:\n{done.stdout}")
    return names


class Kinds(pytest.File):
    """All kinds of kernels."""

    def collect(self) -> Iterable[pytest.Collector]:
        """Those that were asked for."""
        wanted = self.config.getoption("--kernel")
        for kind in KINDS:
            if not wanted or kind.name in wanted:
                yield KernelTests.from_parent(self, name=kind.name, kind=kind)


class KernelTests(pytest.Collector):
    """One kernel."""

    def __init__(self, *, kind: Kind, **more: Any) -> None:
        super().__init__(**more)
        self.kernel = kernels.remembered(kind)
        self.more = kind.more

    def collect(self) -> Iterable[pytest.Item]:
        """Its tests, and its log at the end; or the reason for which there is none."""
        reason = guest.reason_not_to() or self.kernel.missing
        if reason:
            yield NoKernel.from_parent(self, name="kernel", reason=reason)
            return
        for test in tests_inside(self.more):
            yield GuestTest.from_parent(self, name=short(test), test=test)
        yield KernelLog.from_parent(self, name="kernel-log")


def short(test: str) -> str:
    """``inside/test_x.py::test_y`` → ``test_x.test_y``.

    A kernel is then one scope of xdist (``--dist loadscope``): one worker, one guest.
    """
    file, _, rest = test.partition("::")
    return f"{Path(file).stem}.{rest}"


class NoKernel(pytest.Item):
    """A kernel that cannot be booted here."""

    def __init__(self, *, reason: str, **more: Any) -> None:
        super().__init__(**more)
        self.reason = reason

    def runtest(self) -> None:
        """Says why."""
        pytest.skip(self.reason)


class InGuest(pytest.Item):
    """Something that a guest tells."""

    @property
    def kernel(self) -> kernels.Kernel:
        """The kernel that it is about."""
        parent = self.parent
        assert isinstance(parent, KernelTests)
        return parent.kernel

    def guest_session(self) -> Session:
        """This kernel's session; booted by whoever asks first."""
        sessions = self.config.stash[SESSIONS]
        kind = self.kernel.kind
        if kind not in sessions:
            sessions[kind] = self._boot()
        return sessions[kind]

    def _boot(self) -> Session:
        chosen = [
            item.test
            for item in self.session.items
            if isinstance(item, GuestTest) and item.parent is self.parent
        ]
        where = self.config.getoption("--guest-logs") or cache_place() / "logs"
        update = self.config.getoption("--update-golden")
        session = Session(
            self.kernel,
            where / self.kernel.kind,
            chosen,
            kvm=guest.kvm_works(self.kernel),
            golden=GOLDEN if update else None,
        )
        session.start()
        return session

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The guest's own words."""
        if isinstance(excinfo.value, FailedInGuestError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)


class FailedInGuestError(Exception):
    """A failure in a guest, as it told it."""


class GuestTest(InGuest):
    """One test in one kernel."""

    def __init__(self, *, test: str, **more: Any) -> None:
        super().__init__(**more)
        self.test = test

    def runtest(self) -> None:
        """Waits for the guest's result."""
        result = self.guest_session().result(self.test)
        if result.state == "skipped":
            pytest.skip(result.text)
        if result.state != "passed":
            raise FailedInGuestError(result.text)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Named by kernel and test."""
        return self.path, None, f"{self.kernel.kind}: {self.name}"


class KernelLog(InGuest):
    """The log of a kernel's boots: no oops, no warning, no refusal to end."""

    def runtest(self) -> None:
        """Looks at it when all tests have run."""
        account = self.guest_session().finish()
        if account.harm:
            raise FailedInGuestError("\n\n".join(account.harm))
        if account.codes and account.codes[-1] not in (0, 1):
            raise FailedInGuestError(f"the guest's test run ended with {account.codes[-1]}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist hands its closing lines to whoever prints."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[LINES] = closing_lines(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended."""
    node.config.stash[HANDED] += getattr(node, "workeroutput", {}).get(LINES, [])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """A closing line per kernel."""
    for line in [*config.stash[HANDED], *closing_lines(config)]:
        terminalreporter.write_line(line)


def closing_lines(config: pytest.Config) -> list[str]:
    """Those of the kernels that were booted by this process."""
    return [closing_line(kind, session) for kind, session in config.stash[SESSIONS].items()]


def closing_line(kind: str, session: Session) -> str:
    """What came of a kernel."""
    states = [result.state for result in session.results.values()]
    counts = ", ".join(f"{states.count(s)} {s}" for s in ("passed", "failed", "skipped"))
    account = session.account
    how = "KVM" if session.kvm else "emulated"
    stalls = f", {account.stalls} stalls in its log" if account.stalls else ""
    boots = f", {account.boots} boots" if account.boots > 1 else ""
    return (
        f"{kind} {session.kernel.release} ({session.kernel.suite}): {counts} in"
        f" {account.seconds:.0f} s ({how}, first test after {account.first_word_s:.0f} s{boots}{stalls})"
    )


@pytest.fixture(scope="session", autouse=True)
def _hold_cache() -> Iterator[None]:
    """No other run removes kernels meanwhile."""
    with kernels.in_use():
        yield
