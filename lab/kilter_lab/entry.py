"""From a request to an exit status: decode, dispatch, and tell errors once.

Exit status: 0 done, 1 the answer is no, 2 an error, 130 after Ctrl-C (128 + signal for others).
"""

from __future__ import annotations

import logging
import signal
import sys
from types import FrameType
from typing import NoReturn

import msgspec

from kilter_lab.console import Console
from kilter_lab.errors import Ended, LabError, RequestError, ToldError
from kilter_lab.messages import (
    AppswitchRequest,
    AuditRequest,
    CompareRequest,
    LabRequest,
    ReportRequest,
    SelftestRequest,
    StartupRequest,
    TuneRequest,
)
from kilter_lab.runner import BatchRunner


def main() -> int:
    """Run the one request that standard input holds."""
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, _end)
    # It tells where it keeps its fonts; nobody asked.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    console = Console()
    try:
        return _dispatch(_decode(sys.stdin.buffer.read()), console)
    except ToldError:
        return 2
    except LabError as error:
        console.error(str(error))
        if error.hint:
            console.hint(error.hint)
        return 2
    except BrokenPipeError:
        return 141
    except KeyboardInterrupt:
        console.note("interrupted: settings are back")
        return 130
    except Ended as ended:
        return ended.status


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    raise Ended(number)


def _decode(text: bytes) -> LabRequest:
    try:
        request: LabRequest = msgspec.json.decode(text, type=LabRequest)
    except msgspec.MsgspecError as error:
        raise RequestError(f"the request cannot be read: {error}") from error
    return request


def _dispatch(request: LabRequest, console: Console) -> int:
    # Optuna and the report's libraries take long to import: only where they are needed.
    if isinstance(request, ReportRequest):
        from kilter_lab.report import run as report

        return report(request)
    with BatchRunner(request.context) as runner:
        match request:
            case CompareRequest():
                from kilter_lab.compare import compare

                return compare(request, runner, console)
            case TuneRequest():
                from kilter_lab.tune import tune

                return tune(request, runner, console)
            case AuditRequest():
                from kilter_lab.audit import audit

                return audit(request, runner, console)
            case SelftestRequest():
                from kilter_lab.selftest import selftest

                return selftest(request, runner, console)
            case AppswitchRequest():
                from kilter_lab.reclaim.appswitch import appswitch

                return appswitch(request, runner, console)
            case StartupRequest():
                from kilter_lab.reclaim.startup import startup

                return startup(request, runner, console)
