"""What a study holds once it has run: the one model that reports are made from.

``kilter tune`` fills it, the Optuna storage keeps it, ``kilter report --format json`` prints it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from kilter_lab.comparison import Look
from kilter_lab.messages import (
    Direction,
    Fingerprint,
    Metric,
    Question,
    Settings,
    VerdictRecord,
)
from kilter_lab.outcome import Conclusion, GuardRecord, Shown

BASE = "base"
"""What the runs call the baseline's arm."""

Phase = Literal["baseline", "search", "race", "prune", "confirm"]
Ending = Literal["better", "nothing-helps", "unconfirmed", "interrupted", "running"]


class StudyKnob(msgspec.Struct):
    """A knob that was searched, with what a reader needs to know of it."""

    name: str
    before: str
    summary: str
    why: str
    unit: str
    risk: str
    searched: str
    """The range in words: ``0 .. 200``, ``100000 .. 100000000 (log)``, ``0, 1``."""


class Run(msgspec.Struct):
    """One run, in the order in which it was made."""

    phase: Phase
    block: int
    arm: str
    """``base``, ``trial N``, ``winner``, ``without KNOB`` …"""
    at_s: float
    """Seconds since the first run of the study (boot time clock; a resumed study has gaps)."""
    wall_s: float
    steal_s: float
    metrics: dict[str, float]
    """By metric name; empty where the run failed."""
    outcome: str
    """``ok``, ``exit 1``, ``signal 9``, ``timed out``, ``refused: …``."""
    figures: dict[str, float] = {}
    """What may have made it slower, see :func:`kilter_lab.causes.figures`."""


class Block(msgspec.Struct):
    """One block: which values each arm had, and the runs in order."""

    arms: dict[str, Settings]
    runs: list[Run]
    spent_s: float = 0.0
    """Seconds that the study had taken when the block was made."""
    points: list[dict[str, int | str]] = []
    """Of the search: what its trials are, in order, as the sampler's parameters."""


class Trial(msgspec.Struct):
    """One point of the search."""

    number: int
    settings: Settings
    ratio: float | None
    """Metric over the interleaved baseline's; ``None`` where the trial failed."""
    low: float | None
    high: float | None
    blocks: int
    error: str = ""


class Loss(msgspec.Struct):
    """What one metric is without some knobs, over what it is with them."""

    metric: str
    ratio: float
    low: float
    high: float


class Dropped(msgspec.Struct):
    """A decision of the pruning: what happens when these knobs go back to their old values."""

    knobs: list[str]
    dropped: bool
    ratio: float
    """First deciding metric without these knobs over the same with them."""
    low: float
    high: float
    blocks: int
    """0 where nothing was measured: then the search's model decided, and the ratio is its own."""
    others: list[Loss] = []
    """The same of the other deciding metrics."""

    @property
    def by_model(self) -> bool:
        """Whether the model of the search decided alone."""
        return self.blocks == 0


class FrontMember(msgspec.Struct):
    """A candidate that no other one beat on every objective, as the confirmation judged it."""

    arm: str
    """What the runs call it: ``winner``, ``winner 2``, …"""
    settings: Settings
    """After pruning."""
    conclusion: Conclusion
    promised: list[VerdictRecord]
    """By the runs that searched, one a deciding metric."""
    verdicts: list[VerdictRecord]
    """From fresh blocks, one a deciding metric; the error is shared among all members."""
    guards: list[GuardRecord] = []
    shown: list[Shown] = []
    pruning: list[Dropped] = []
    pruned: bool = True
    """Whether runs sufficed to try it without its knobs."""
    failed: int = 0
    """Its runs that failed; it is then *worse*, whatever the others say."""
    profile: str = ""
    """Name of the saved profile, or empty."""

    @property
    def belongs(self) -> bool:
        """Whether it is in the confirmed Pareto set: *better*, or a *trade-off*."""
        return self.conclusion in ("better", "trade-off")


class StudyData(msgspec.Struct):
    """A study, whole."""

    name: str
    command: list[str]
    metrics: list[Metric]
    """The first ``question.objectives`` decide."""
    knobs: list[StudyKnob]
    fixed: Settings
    region_percent: float
    seed: int
    created: str
    machine: Fingerprint
    ending: Ending
    sentence: str
    """The verdict in one plain sentence."""
    attempts: int
    """Studies of this command on this machine so far, this one included."""
    runs: list[Run]
    trials: list[Trial]
    importance: dict[str, float]
    """Each knob's share in the spread of the first deciding metric over the trials."""
    pruning: list[Dropped]
    winner: Settings
    """What is left after pruning; empty where nothing helps."""
    promised: VerdictRecord | None
    """The winner's effect as estimated by the runs that searched."""
    confirmed: list[VerdictRecord]
    """One a deciding metric, from fresh blocks only, in the order of the metrics."""
    profile: str
    """Name of the saved profile, or empty."""
    seconds: float
    """Time spent in all."""
    warnings: list[str]
    question: Question = msgspec.field(default_factory=Question)
    guards: list[GuardRecord] = []
    """From the same fresh blocks."""
    shown: list[Shown] = []
    """All other metrics on these blocks."""
    planned_blocks: int = 0
    """Blocks that the confirmation was planned to have at most; 0 where nothing was planned."""
    front: list[FrontMember] = []
    """Where several metrics decide: all candidates of the confirmation, the one that ``winner``
    and ``confirmed`` tell of first."""
    importances: dict[str, dict[str, float]] = {}
    """The same of the other deciding metrics, by their names."""
    sequence: dict[str, list[Look]] = {}
    """By deciding metric: estimate and interval after each block of the confirmation. Where the
    verdict says one look, only the last one counts; the others are t intervals of their blocks."""


def better_is_lower(direction: Direction) -> bool:
    """Whether a ratio below 1 is an improvement."""
    return direction == "min"
