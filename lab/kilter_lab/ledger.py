"""The record of a study in Optuna's storage: everything that a report or a resumption needs.

A study is its attributes: what it asks, what was planned, and each block of runs, keyed by phase
and number and written in one transaction when its last run has ended. Trials follow from the
blocks of the search (``trials``). Optuna's own table of trials is not used: it takes some twenty
milliseconds for every trial of thirty knobs, during which the machine would stand idle between
blocks that are to be compared. Nothing else is kept anywhere, so a study that was cut short at
any moment is whole but for the block that was being run.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import msgspec
import optuna
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import (
    ArgumentError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)

from kilter_lab.errors import LabError, RequestError
from kilter_lab.messages import (
    Fingerprint,
    Metric,
    Question,
    RunOptions,
    Settings,
    VerdictRecord,
)
from kilter_lab.outcome import GuardRecord, Shown
from kilter_lab.study import Block, Dropped, Ending, FrontMember, Phase, StudyKnob
from kilter_lab.trials import BASELINE, Tried, trials_of

T = TypeVar("T")

FORMAT = 3
"""Version of the attributes; a study of another version is refused."""


class Head(msgspec.Struct):
    """What a study is; written once, when it begins."""

    format: int
    command: list[str]
    options: RunOptions
    knobs: list[StudyKnob]
    fixed: Settings
    question: Question
    seed: int
    created: str

    @property
    def metrics(self) -> list[Metric]:
        """The metrics, the deciding ones first."""
        return self.options.metrics

    @property
    def region_percent(self) -> float:
        """Half-width of the region of equivalence."""
        return self.question.region_percent


class Plan(msgspec.Struct):
    """What was decided from the first runs; written once, before the search."""

    noise: float
    """Standard deviation of one run on the log scale."""
    run_s: float
    """Seconds that a run takes, everything around it included."""
    timeout_s: float | None
    """Ends a candidate that is hopelessly slow; the request's own limit where it has one."""
    trials: int
    """Trials that the budget is expected to allow."""
    screen: int
    """Trials of the screening design among them."""
    width: int
    """Trials of one block, which share its baseline."""
    repeats: int
    """Runs of each arm in such a block."""


class Outcome(msgspec.Struct):
    """Where a study stands; rewritten as it goes on."""

    ending: Ending = "running"
    sentence: str = ""
    winner: Settings = {}
    promised: VerdictRecord | None = None
    confirmed: list[VerdictRecord] = []
    """One a deciding metric."""
    guards: list[GuardRecord] = []
    shown: list[Shown] = []
    """All other metrics."""
    pruning: list[Dropped] = []
    profile: str = ""
    warnings: list[str] = []
    front: list[FrontMember] = []
    """Where several metrics decide."""
    budget: dict[str, float] = {}
    """The ``trials`` or ``budget_s`` that it was ended with."""


class Origin(msgspec.Struct):
    """Places runs of one boot on the study's time axis."""

    boot_id: str
    boottime_s: float
    at_s: float


class Ledger:
    """One study's record, for writing and reading."""

    def __init__(self, study: optuna.Study) -> None:
        self.study = study
        self._attributes: dict[str, Any] = study.user_attrs
        self._blocks: dict[tuple[str, int], Block] | None = None
        self._trials: list[Tried] = []
        self._counted = 0
        """Blocks of the search that the trials are from."""

    @property
    def name(self) -> str:
        """The study's name."""
        return self.study.study_name

    def read(self, key: str, kind: type[T]) -> T | None:
        """An attribute as the type it was written as; None where there is none."""
        return _convert(self._attributes.get(key), kind)

    def write(self, key: str, value: object) -> None:
        """Set an attribute."""
        plain = msgspec.to_builtins(value)
        self.study.set_user_attr(key, plain)
        self._attributes[key] = plain

    @property
    def head(self) -> Head:
        """What the study is."""
        head = self.read("head", Head)
        if head is None or head.format != FORMAT:
            raise RequestError(f"study {self.name} was not made by this version of kilter tune")
        return head

    @property
    def machine(self) -> Fingerprint | None:
        """The machine, known after the first run."""
        return self.read("machine", Fingerprint)

    @property
    def outcome(self) -> Outcome:
        """Where the study stands."""
        return self.read("outcome", Outcome) or Outcome()

    def blocks(self) -> dict[tuple[str, int], Block]:
        """All blocks, by phase and number."""
        if self._blocks is None:
            self._blocks = {}
            for key, value in self._attributes.items():
                if key.startswith("block/"):
                    _, phase, index = key.split("/")
                    block = _convert(value, Block)
                    assert block is not None
                    self._blocks[phase, int(index)] = block
        return self._blocks

    def add_block(self, phase: Phase, index: int, block: Block) -> None:
        """Record a block; an earlier one of this phase and number is replaced."""
        self.blocks()[phase, index] = block
        self.write(f"block/{phase}/{index}", block)

    def seconds(self) -> float:
        """Seconds that the study has taken, all sittings together."""
        spent = [self.read("seconds", float) or 0.0, *(b.spent_s for b in self.blocks().values())]
        return max(spent)

    def trials(self) -> list[Tried]:
        """All trials by number, the baseline first; none before the search."""
        blocks = self.blocks()
        while (block := blocks.get(("search", self._counted))) is not None:
            if not self._trials:
                self._trials = [BASELINE]
            deciding = self.head.metrics[: self.head.question.objectives]
            self._trials += trials_of(self._counted, block, len(self._trials), deciding)
            self._counted += 1
        return self._trials

    def runs_of(self, *phases: Phase) -> int:
        """Runs on record of these phases."""
        return sum(len(b.runs) for (phase, _), b in self.blocks().items() if phase in phases)

    def begun(self) -> bool:
        """Whether anything was measured that is worth keeping."""
        return bool(self.blocks())

    def attempts(self) -> int:
        """Studies of the same command on the same machine in this storage, this one included."""
        command, machine = self.head.command, self.machine
        if machine is None:
            return 1
        storage, count = self.study._storage, 0
        for study in storage.get_all_studies():
            attrs = storage.get_study_user_attrs(study._study_id)
            same = attrs.get("head", {}).get("command") == command
            count += same and attrs.get("machine", {}).get("id") == machine.id
        return max(1, count)


def _convert(value: Any, kind: type[T]) -> T | None:
    return None if value is None else msgspec.convert(value, kind)


def quiet() -> None:
    """Keep Optuna's own log lines and experimental warnings off standard error."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def open_storage(url: str) -> BaseStorage:
    """The storage behind a URL; ``memory:`` is one that is gone with the process."""
    quiet()
    if url == "memory:":
        return InMemoryStorage()
    with storage_errors(url):
        return RDBStorage(url)


@contextmanager
def unhurried(storage: BaseStorage) -> Iterator[None]:
    """Commit to SQLite without waiting for the disk, which would keep the machine idle for long.

    Commits go to a write-ahead log: what was committed outlives the process that is killed, and a
    crash of the machine takes the last blocks at most and leaves the file whole. Afterwards it is
    one plain file again, so that whoever may read it need not be able to write beside it.
    """
    if not isinstance(storage, RDBStorage) or storage.engine.dialect.name != "sqlite":
        yield
        return
    engine = storage.engine
    _journal(engine, "WAL")
    event.listen(engine, "connect", _lazily)
    engine.dispose()
    try:
        yield
    finally:
        storage.remove_session()
        event.remove(engine, "connect", _lazily)
        engine.dispose()
        _journal(engine, "DELETE")


def _lazily(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous=NORMAL")


def _journal(engine: Engine, mode: str) -> None:
    # Another process that has the file open keeps it as it is, which is slower and nothing else.
    with suppress(OperationalError), engine.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA journal_mode={mode}")


@contextmanager
def storage_errors(url: str) -> Iterator[None]:
    """Tell errors of the storage as errors of the command."""
    try:
        yield
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise LabError(
            f"--storage {url}: {_first_line(error)}", "--storage sqlite:////path/to/studies.db"
        ) from error
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        cause = error.__cause__ or error
        raise LabError(f"the study's storage {url} failed: {_first_line(cause)}") from error


def _first_line(error: BaseException) -> str:
    origin = getattr(error, "orig", None) or error
    return (str(origin).splitlines() or [type(origin).__name__])[0]


def find(storage: BaseStorage, name: str) -> Ledger | None:
    """The study of this name, if it exists."""
    quiet()
    try:
        study = optuna.load_study(study_name=name, storage=storage)
    except KeyError:
        return None
    return Ledger(study)


def create(storage: BaseStorage, name: str, head: Head) -> Ledger:
    """A new study."""
    ledger = Ledger(optuna.create_study(storage=storage, study_name=name, direction="minimize"))
    ledger.write("head", head)
    return ledger
