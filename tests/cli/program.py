"""Starting the kilter binary as a person would, and waiting for what it does."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

Done = subprocess.CompletedProcess[str]

SLOW = "KILTER_SLOW" in os.environ
"""A guest without KVM, twenty times slower: tests that repeat do so less often, and wait longer."""

GUEST = os.environ.get("KILTER_GUEST_KIND", "")
"""The kind of kernel that a guest runs; empty on a machine of one's own."""

TIMEOUT_S = 480.0 if SLOW else 120.0
"""No single command of these tests takes a hundredth of it on an idle machine."""


def find_binary() -> Path:
    """The binary under test: ``KILTER``, or the ``kilter`` beside this Python."""
    named = os.environ.get("KILTER")
    beside = Path(sys.executable).parent / "kilter"
    binary = Path(named).absolute() if named else beside
    if not binary.exists():
        sys.exit(f"{binary} does not exist: build kilter (make build), or set KILTER")
    return binary


BINARY = find_binary()
HOME = tempfile.mkdtemp(prefix="kilter-home-")
atexit.register(shutil.rmtree, HOME, ignore_errors=True)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """A plain environment: nothing of the caller's that kilter or sudo would heed."""
    plain = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": HOME, "LANG": "C.UTF-8"}
    return plain | dict(extra or {})


def argv(*args: object, root: Path | None = None) -> list[str]:
    """The words of a kilter command."""
    chosen = [] if root is None else ["--root", root]
    return [str(word) for word in (BINARY, *chosen, *args)]


def kilter(
    *args: object,
    root: Path | None = None,
    input: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    prefix: tuple[str, ...] = (),
) -> Done:
    """Run kilter to its end. ``prefix`` is put before it (``strace …``, ``setpriv …``)."""
    return ended([*prefix, *argv(*args, root=root)], input=input, env=env, cwd=cwd)


def ended(
    words: Sequence[str],
    *,
    input: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Done:
    """Run a command line of kilter's to its end."""
    done = subprocess.run(
        words,
        input=input,
        stdin=subprocess.DEVNULL if input is None else None,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env=environment(env),
        cwd=cwd,
        timeout=TIMEOUT_S,
        check=False,
    )
    check_sane(done)
    return done


def check_sane(done: Done) -> None:
    """What no command may ever do, whatever it is given."""
    assert "panicked" not in done.stderr, done.stderr
    assert "RUST_BACKTRACE" not in done.stderr, done.stderr
    assert "Traceback" not in done.stderr, done.stderr


@contextmanager
def started(
    *args: object,
    root: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | None = subprocess.DEVNULL,
    prefix: tuple[str, ...] = (),
) -> Iterator[subprocess.Popen[str]]:
    """A kilter that runs meanwhile. At the end it is asked to stop, and killed if it does not.

    ``prefix`` must execute kilter in its own place.
    """
    child = subprocess.Popen(
        [*prefix, *argv(*args, root=root)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env=environment(env),
        start_new_session=True,
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.wait(10)
        if child.poll() is None:
            child.kill()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        child.wait()


def finish(child: subprocess.Popen[str]) -> Done:
    """Wait for a started command and return what it said."""
    out, err = child.communicate(timeout=TIMEOUT_S)
    done = Done(child.args, child.returncode, out, err)
    check_sane(done)
    return done


def wait_until(
    happens: Callable[[], bool], what: str, within_s: float = 90.0 if SLOW else 10.0
) -> float:
    """Poll until something happens; the seconds it took."""
    begun = time.monotonic()
    while not happens():
        assert time.monotonic() - begun < within_s, f"not within {within_s} s: {what}"
        time.sleep(0.002)
    return time.monotonic() - begun


def stat_fields(pid: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` after the name, state first; empty if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    return stat_fields(pid)[:1] not in ([], ["Z"], ["X"])


def children(pid: int) -> list[int]:
    """Processes whose parent is this one now."""
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [number for number in numbers if stat_fields(number)[1:2] == [str(pid)]]


def kill_quietly(pid: int) -> None:
    """SIGKILL to a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
