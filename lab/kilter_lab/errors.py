"""What can go wrong, told once at the top: each error carries the next step where there is one."""

from __future__ import annotations


class LabError(Exception):
    """Ends the command with exit status 2; ``hint`` is the next command to type, in full."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class RequestError(LabError):
    """The request cannot be decoded or does not fit the study that it names."""


class WorkloadError(LabError):
    """The workload fails, or yields no usable number, where it must not: on the baseline."""


class BatchError(LabError):
    """``kilter run --batch`` ended early or answered something else than asked."""


class ToldError(BatchError):
    """The binary ended with a failure of its own, and has told it on standard error."""


class RefusedError(LabError):
    """Kilter refused a setting or a preparation failed."""


class StudyBusyError(LabError):
    """Another process works on the study."""


class Ended(BaseException):
    """SIGTERM or SIGHUP arrived; ``status`` is the exit status to end with."""

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.status = 128 + signal
