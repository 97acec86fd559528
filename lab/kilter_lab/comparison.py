"""What a comparison comes to: printed by ``kilter compare --json``, and exported with its runs."""

from __future__ import annotations

import msgspec

from kilter_lab.messages import Fingerprint, RunRecord, Settings, VerdictRecord


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


class ArmResult(msgspec.Struct):
    """One arm; the base has no verdicts and no sentence."""

    label: str
    command: list[str]
    settings: Settings
    runs: int
    failed: int
    verdicts: list[VerdictRecord] = []
    """One a metric that has a ratio, the deciding metric first."""
    sentence: str = ""


class Comparison(msgspec.Struct):
    """A comparison, judged."""

    base: ArmResult
    arms: list[ArmResult]
    blocks: int
    region_percent: float
    seed: int
    machine: Fingerprint | None
    warnings: list[str]


class Export(msgspec.Struct):
    """The JSON export: the judged comparison and every raw run."""

    comparison: Comparison
    runs: list[RawRun]
