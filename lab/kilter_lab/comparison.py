"""What a comparison comes to: printed by ``kilter compare --json``, and exported with its runs."""

from __future__ import annotations

import msgspec

from kilter_lab.messages import Fingerprint, Question, RunRecord, Settings, VerdictRecord
from kilter_lab.outcome import Conclusion, GuardRecord, Shown


class RawRun(msgspec.Struct):
    """One run as it was made."""

    block: int
    position: int
    """Place within the block, from 0."""
    arm: str
    outcome: str
    """``ok``, ``exit 1``, ``signal 9``, ``timed out``, ``refused: …``."""
    values: dict[str, float]
    """By metric name; empty where the run failed."""
    record: RunRecord | None


class Look(msgspec.Struct):
    """What one look saw: the mean ratio and the interval that holds for all looks."""

    blocks: int
    ratio: float
    low: float
    high: float


class ArmResult(msgspec.Struct):
    """One arm; the base has no verdicts and no sentence."""

    label: str
    command: list[str]
    settings: Settings
    runs: int
    failed: int
    conclusion: Conclusion = "inconclusive"
    """The verdicts and guards in one word."""
    verdicts: list[VerdictRecord] = []
    """One a deciding metric that has a ratio, in order."""
    guards: list[GuardRecord] = []
    shown: list[Shown] = []
    """All other metrics."""
    sequence: list[Look] = []
    """The first deciding metric's interval as it closed in."""
    sentence: str = ""


class Comparison(msgspec.Struct):
    """A comparison, judged."""

    base: ArmResult
    arms: list[ArmResult]
    blocks: int
    most_blocks: int
    """Blocks that would have been made at most."""
    question: Question
    seed: int
    machine: Fingerprint | None
    warnings: list[str]


class Export(msgspec.Struct):
    """The JSON export: the judged comparison and every raw run."""

    comparison: Comparison
    runs: list[RawRun]
