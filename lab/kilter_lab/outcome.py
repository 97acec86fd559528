"""What several verdicts and guards come to; pure rules.

Deciding metrics share the error: each is judged at a level that, over all of them and all arms,
adds up to the error that was asked for (Bonferroni). Guards need no share of it: a setting is
called better only if *every* guard is kept, and the chance that all of several false claims come
true together is no greater than that of one (an intersection-union test).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from kilter_lab.messages import Direction, Guard, VerdictName
from kilter_lab.stats import Interval

GuardOutcome = Literal["held", "broken", "open"]
Conclusion = Literal["better", "worse", "trade-off", "no-difference", "inconclusive"]


class GuardRecord(msgspec.Struct):
    """A guard against the interval of its metric's ratio (arm over base)."""

    guard: Guard
    outcome: GuardOutcome
    """*held*: the interval's bad end is within the limit; *broken*: its good end is beyond it."""
    ratio: float
    low: float
    high: float


class Shown(msgspec.Struct):
    """A metric that was measured and decides nothing; its interval stands for itself alone."""

    metric: str
    direction: Direction
    ratio: float
    low: float
    high: float
    confidence: float
    base_median: float
    arm_median: float


def shared_alpha(alpha: float, objectives: int, arms: int) -> float:
    """The error left to each deciding metric of each arm."""
    return alpha / (objectives * arms)


def guard_alpha(alpha: float, arms: int) -> float:
    """The error left to each guard of each arm."""
    return alpha / arms


def judge_guard(guard: Guard, log_ratio: Interval) -> GuardRecord:
    """Whether the interval of log(arm / base) keeps within the guard's limit."""
    limit = math.log1p(guard.percent / 100)
    bad, good = log_ratio.high - limit, log_ratio.low - limit
    if guard.bound == "at-least":
        bad, good = limit - log_ratio.low, limit - log_ratio.high
    outcome: GuardOutcome = "held" if bad <= 0 else "broken" if good > 0 else "open"
    known = math.isfinite(log_ratio.low)
    return GuardRecord(
        guard,
        outcome if known else "open",
        math.exp(log_ratio.mean),
        math.exp(log_ratio.low if known else log_ratio.mean),
        math.exp(log_ratio.high if known else log_ratio.mean),
    )


def conclude(verdicts: Sequence[VerdictName], guards: Sequence[GuardOutcome]) -> Conclusion:
    """The verdicts on all deciding metrics and the guards, in one word.

    *better* takes a metric that is better, none that is worse or inconclusive, and every guard
    held; one that is better beside one that is worse, or beside a broken guard, is a *trade-off*.
    """
    wins = "better" in verdicts
    losses = "worse" in verdicts or "broken" in guards
    if wins and losses:
        return "trade-off"
    if losses:
        return "worse"
    if "inconclusive" in verdicts or (wins and "open" in guards):
        return "inconclusive"
    return "better" if wins else "no-difference"


def settled(verdicts: Sequence[VerdictName], guards: Sequence[GuardOutcome]) -> bool:
    """Whether more blocks could only repeat what is known."""
    return "inconclusive" not in verdicts and ("better" not in verdicts or "open" not in guards)
