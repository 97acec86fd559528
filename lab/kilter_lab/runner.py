"""How the lab has runs made: by ``kilter run --batch``, over pipes.

A whole block of requests is written at once, so that the child never waits for Python between two
runs. The child alone changes settings and puts them back; whatever happens here, the lab closes
its standard input and waits for it, and never kills it outright.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import IO, Protocol

import msgspec

from kilter_lab.errors import BatchError, ToldError
from kilter_lab.messages import BatchReply, LabContext, RunRequest

CLOSE_S = 2.0
"""An idle child has this long to end after its input closed, before it gets SIGTERM."""

OWN_FAILURE = 125
"""Exit status of ``kilter run`` where kilter itself fails; it has said why."""


class Runner(Protocol):
    """Makes runs one after the other and reports each as it ends, in order."""

    def run(self, requests: list[RunRequest]) -> Iterator[BatchReply]:
        """Make the runs; must be read to its end before the next call."""

    def now(self) -> float:
        """Seconds on the clock that budgets are kept by."""


class BatchRunner:
    """A ``kilter run --batch`` child; starts with the first request.

    Use as a context manager: leaving it waits for the settings to come back.
    """

    def __init__(self, context: LabContext) -> None:
        self.argv = [*context.kilter, "run", "--batch", *context.batch_options]
        self._child: subprocess.Popen[bytes] | None = None
        self._decoder = msgspec.json.Decoder(BatchReply)
        self._encoder = msgspec.json.Encoder()

    def __enter__(self) -> BatchRunner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with signals_ignored():
            self.close(at_once=error is not None)

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def run(self, requests: list[RunRequest]) -> Iterator[BatchReply]:
        """Write all requests, yield the replies as they come.

        Raises BatchError where the child cannot start, ends early, or answers out of order.
        """
        child = self._started()
        assert child.stdin is not None
        assert child.stdout is not None
        # A child that blocks on a full output pipe reads no more input: write beside reading.
        lines = b"".join(self._encoder.encode(r) + b"\n" for r in requests)
        writer = threading.Thread(target=_write, args=(child.stdin, lines), daemon=True)
        writer.start()
        for request in requests:
            yield self._reply(child, child.stdout, request.id)
        writer.join()

    def close(self, at_once: bool = False) -> int | None:
        """Close the child's input and wait for it, however long settings take to come back.

        ``at_once`` sends SIGTERM first, which ends a run in progress.
        """
        child, self._child = self._child, None
        if child is None:
            return None
        if at_once:
            child.terminate()
        # communicate() closes its input and drains its output: it must not block on a full pipe.
        try:
            child.communicate(timeout=None if at_once else CLOSE_S)
        except subprocess.TimeoutExpired:
            child.terminate()
            child.communicate()
        return child.returncode

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            try:
                self._child = subprocess.Popen(
                    self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            except OSError as error:
                raise BatchError(f"cannot start {self.argv[0]}: {error.strerror}") from error
        return self._child

    def _reply(
        self, child: subprocess.Popen[bytes], stdout: IO[bytes], expected: int
    ) -> BatchReply:
        line = stdout.readline()
        if not line.endswith(b"\n"):
            raise _death(child)
        try:
            reply: BatchReply = self._decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise BatchError(f"kilter run --batch answered what is no reply: {error}") from error
        if reply.id != expected:
            raise BatchError(f"kilter run --batch answered run {reply.id} instead of {expected}")
        return reply


def _death(child: subprocess.Popen[bytes]) -> BatchError:
    status = child.wait()
    how = f"signal {-status}" if status < 0 else f"exit status {status}"
    kind = ToldError if status == OWN_FAILURE else BatchError
    return kind(f"kilter run --batch ended before all runs were made ({how})")


def _write(stream: IO[bytes], data: bytes) -> None:
    # A dead child is reported by the reader, with its exit status.
    with suppress(OSError, ValueError):
        stream.write(data)
        stream.flush()


@contextmanager
def signals_ignored(
    signals: Iterable[signal.Signals] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
) -> Iterator[None]:
    """Ignore a second Ctrl-C while settings come back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.signal(s, signal.SIG_IGN) for s in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
