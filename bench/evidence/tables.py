"""Tables of measured against promised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True)
class Row:
    """A line; ``met`` where a target applies to it."""

    cells: Sequence[str]
    met: bool | None = None


@dataclass
class Table:
    """Lines with their target."""

    title: str
    target: str
    columns: Sequence[str]
    rows: list[Row] = field(default_factory=list)

    @property
    def missed(self) -> int:
        """Lines that miss their target."""
        return sum(row.met is False for row in self.rows)


@dataclass(frozen=True)
class Effort:
    """What a section may spend."""

    replays: int
    seed: int
    jobs: int


Section = Callable[[Effort], Iterator[Table]]


def each(effort: Effort, work: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """``work`` on each item, in order, by as many processes as there are jobs."""
    if effort.jobs == 1:
        return [work(item) for item in items]
    with ProcessPoolExecutor(effort.jobs) as pool:
        return list(pool.map(work, items))


def rendered(table: Table) -> str:
    """The table as text."""
    marks = {True: "met", False: "MISSED", None: ""}
    lines = [
        [*table.columns, "target"],
        *([*row.cells, marks[row.met]] for row in table.rows),
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    head = table.title + (f" (target: {table.target})" if table.target else "")
    return "\n".join([head, "-" * len(head), *text])
