"""Where words go: data to standard output, progress, warnings, errors and hints to standard error.

The progress bar is drawn between blocks, while no run is being timed; within a block it is
refreshed at most once a second, so that drawing never competes with short runs.

On a terminal lines end between words; elsewhere nothing is broken. Commands are broken nowhere, so
that they can be copied.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

REDRAW_S = 1.0


class Console:
    """The two streams; colours and bars only on terminals, and none with ``NO_COLOR``."""

    def __init__(self, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self.out = _rich(stdout, stderr=False)
        self.err = _rich(stderr, stderr=True)
        self._warned: set[str] = set()

    @property
    def columns(self) -> int | None:
        """Columns of the terminal that standard output is, if it is one."""
        return self.out.width if self.out.is_terminal else None

    def data(self, text: Text | str = "") -> None:
        """A line of data on standard output."""
        _line(self.out, text)

    def command(self, text: Text | str) -> None:
        """A line of data with a command to type."""
        self.out.print(text, soft_wrap=True)

    def raw(self, text: str) -> None:
        """Data for programs, verbatim, with a final newline."""
        self.out.file.write(text if text.endswith("\n") else text + "\n")
        self.out.file.flush()

    def note(self, text: str) -> None:
        """What is being done now."""
        _line(self.err, Text(text, style="dim"))

    def warn(self, text: str) -> None:
        """A warning, once."""
        if text not in self._warned:
            self._warned.add(text)
            _line(self.err, _told("warning", "yellow", text))

    def error(self, text: str) -> None:
        """The error that ends the command."""
        _line(self.err, _told("error", "red", text))

    def hint(self, text: str) -> None:
        """The next thing to type."""
        self.err.print(_told("hint", "cyan", text), soft_wrap=True)

    @contextmanager
    def progress(self, what: str, total: float, unit: str = "") -> Iterator[Bar]:
        """A bar that vanishes at its end; nothing where standard error is no terminal."""
        if not self.err.is_terminal:
            yield Bar(None, None)
            return
        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[told]}"),
            console=self.err,
            auto_refresh=False,
            transient=True,
        )
        with progress:
            task = progress.add_task(what, total=total, told="")
            bar = Bar(progress, task, unit)
            bar.at(0)
            yield bar


class Bar:
    """A progress bar; does nothing without a terminal."""

    def __init__(self, progress: Progress | None, task: TaskID | None, unit: str = "") -> None:
        self._progress = progress
        self._task = task
        self._unit = unit
        self._drawn = 0.0

    def at(self, done: float, told: str = "") -> None:
        """Between blocks: draw now."""
        if self._progress is None or self._task is None:
            return
        total = self._progress.tasks[0].total or 0
        counted = f"{done:g}/{total:g} {self._unit}  " if self._unit else ""
        self._progress.update(self._task, completed=done, told=counted + told)
        self._draw()

    def tick(self, done: float) -> None:
        """Within a block: draw if the last drawing is a second old."""
        if self._progress is None or self._task is None:
            return
        self._progress.update(self._task, completed=done)
        if time.monotonic() - self._drawn >= REDRAW_S:
            self._draw()

    def _draw(self) -> None:
        if self._progress is not None:
            self._progress.refresh()
            self._drawn = time.monotonic()


def _told(word: str, colour: str, text: str) -> Text:
    return Text.assemble((f"{word}:", f"bold {colour}"), " ", text)


def _line(console: RichConsole, text: Text | str) -> None:
    console.print(text, soft_wrap=not console.is_terminal)


def _rich(stream: TextIO | None, stderr: bool) -> RichConsole:
    return RichConsole(
        file=stream, stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True
    )
