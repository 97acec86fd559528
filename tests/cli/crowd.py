"""Processes that change their uid: started, told by pid, and ended with the one that started them.

Run as a program. Each line on standard output is a JSON list of pids; the end of standard input is
the end of all of them.

    crowd.py UID COUNT CHILDREN [double] [signal]

COUNT processes become UID; each forks CHILDREN times right after. With ``double``, each of these is
an orphan of a double fork. With ``signal``, nobody starts before a line on standard input.
"""

from __future__ import annotations

import json
import os
import signal
import sys


def pause() -> None:
    """Sleep until killed."""
    while True:
        signal.pause()


def child(pipe: int, double: bool) -> None:
    """A child that tells its pid and stays."""
    if double and os.fork() > 0:
        os._exit(0)
    os.write(pipe, b"%d\n" % os.getpid())
    pause()


def member(uid: int, children: int, double: bool, pipe: int) -> None:
    """A process that changes its uid and forks at once."""
    os.setresuid(uid, uid, uid)
    for _ in range(children):
        if os.fork() == 0:
            child(pipe, double)
    os.write(pipe, b"%d\n" % os.getpid())
    pause()


def main(words: list[str]) -> None:
    """Start, tell, wait, end."""
    uid, count, children = (int(word) for word in words[:3])
    reader, writer = os.pipe()
    if "signal" in words:
        sys.stdin.readline()
    started = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            member(uid, children, "double" in words, writer)
        started.append(pid)
    pids: list[int] = []
    with os.fdopen(reader) as lines:
        while len(pids) < count * (1 + children):
            pids.append(int(lines.readline()))
        print(json.dumps(pids), flush=True)
        sys.stdin.read()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in started:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
