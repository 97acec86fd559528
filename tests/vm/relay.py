"""How a guest's test run tells the host: lines of JSON, each after a record separator (RFC 7464).

In the guest this module is a pytest plugin (``-p vm.relay``); on the host it reads the lines back.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

SEPARATOR = "\x1e"
CHANNEL = "KILTER_GUEST_CHANNEL"
"""The file descriptor that the guest's reports go to."""
WANTED = "KILTER_GUEST_TESTS"
"""A file with the tests to run, one name a line."""


def parse(line: str) -> dict[str, Any] | None:
    """A report, or None for any other line. pytest's own dots may stand before it."""
    _, separator, text = line.partition(SEPARATOR)
    if not separator:
        return None
    report: dict[str, Any] = json.loads(text)
    return report


def tell(**report: Any) -> None:
    """One report, in one write."""
    channel = os.environ.get(CHANNEL)
    if channel:
        os.write(int(channel), (SEPARATOR + json.dumps(report) + "\n").encode())


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Only what the host wants."""
    wanted = set(Path(os.environ[WANTED]).read_text().split("\n"))
    dropped = [item for item in items if item.nodeid not in wanted]
    items[:] = [item for item in items if item.nodeid in wanted]
    config.hook.pytest_deselected(items=dropped)


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test begins: if the guest dies now, it is this test's doing."""
    tell(test=nodeid, state="started")


def pytest_runtest_logreport(report: Any) -> None:
    """What came of a test; the last word on it is the worst."""
    if report.when == "call" or report.outcome != "passed":
        text = report.longreprtext
        if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
            text = report.longrepr[2].removeprefix("Skipped: ")
        tell(test=report.nodeid, state=report.outcome, text=text, seconds=report.duration)
    if report.when == "teardown":
        tell(test=report.nodeid, state="ended")
