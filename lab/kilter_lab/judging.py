"""From blocks of one arm beside its base to verdicts, guards and shown metrics; pure.

``compare``, ``audit`` and ``selftest`` judge by this and by nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kilter_lab import sequential, stats
from kilter_lab.messages import Metric, Question, VerdictRecord
from kilter_lab.outcome import (
    Conclusion,
    GuardRecord,
    Shown,
    conclude,
    guard_alpha,
    judge_guard,
    settled,
    shared_alpha,
)
from kilter_lab.sequential import Design
from kilter_lab.wording import median_of

Values = tuple[list[float], list[float]]
"""One block's values of a metric: the base's, the arm's."""

Blocks = Callable[[str], Sequence[Values]]
"""The good blocks of an arm, by metric name."""


@dataclass(frozen=True)
class Judged:
    """What one arm's blocks say so far."""

    verdicts: list[VerdictRecord]
    """One a deciding metric that has a ratio, in order."""
    guards: list[GuardRecord]
    shown: list[Shown]

    @property
    def settled(self) -> bool:
        """Whether more blocks could only repeat this."""
        return settled([v.verdict for v in self.verdicts], [g.outcome for g in self.guards])

    @property
    def conclusion(self) -> Conclusion:
        """All of it in one word."""
        return conclude([v.verdict for v in self.verdicts], [g.outcome for g in self.guards])


@dataclass(frozen=True)
class Judge:
    """A question with the looks at its answer."""

    question: Question
    metrics: Sequence[Metric]
    deciding: Design
    """Looks and widths for each deciding metric of each arm."""
    guarding: Design

    def __post_init__(self) -> None:
        """Calibrate now rather than between two blocks."""
        _ = self.deciding.widths, self.guarding.widths

    @property
    def most(self) -> int:
        """Blocks at the last look."""
        return self.deciding.most

    def look(self, blocks: Blocks) -> Judged:
        """Verdicts and guards, for deciding whether to go on.

        NotPositiveError where the first metric has no logarithm.
        """
        objectives = self.metrics[: self.question.objectives]
        found = (self._verdict(m, blocks(m.name)) for m in objectives)
        return Judged([v for v in found if v is not None], self._guards(blocks), [])

    def judge(self, blocks: Blocks) -> Judged:
        """The same, with estimates freed from the stop's bias, and with all other metrics."""
        seen = self.look(blocks)
        verdicts = [self._final(v, blocks(v.metric)) for v in seen.verdicts]
        return replace(seen, verdicts=verdicts, shown=self._shown(blocks))

    def _verdict(self, metric: Metric, blocks: Sequence[Values]) -> VerdictRecord | None:
        try:
            logs = _logs(metric, blocks)
        except stats.NotPositiveError:
            if metric is self.metrics[0]:
                raise
            return None
        if not logs:
            return None
        interval = self.deciding.interval(logs)
        return stats.record(
            metric.name,
            metric.direction,
            interval,
            self.question.region_percent,
            *_medians(blocks),
            confidence=1 - self.deciding.alpha,
            looks=self.deciding.looks_until(len(logs)),
        )

    def _final(self, v: VerdictRecord, blocks: Sequence[Values]) -> VerdictRecord:
        logs = _logs(next(m for m in self.metrics if m.name == v.metric), blocks)
        v.ratio = math.exp(self.deciding.estimate(logs))
        if v.verdict == "inconclusive" and len(logs) > 1:
            width = self.deciding.widths[self.most]
            v.more_blocks = stats.blocks_to_tell(logs, v.region_percent, width)
        return v

    def _guards(self, blocks: Blocks) -> list[GuardRecord]:
        by_name = {m.name: m for m in self.metrics}
        found = []
        for guard in self.question.guards:
            try:
                logs = _logs(by_name[guard.metric], blocks(guard.metric))
            except stats.NotPositiveError:
                logs = []  # No ratio, no proof that it is kept.
            found.append(judge_guard(guard, self.guarding.interval(logs)))
        return found

    def _shown(self, blocks: Blocks) -> list[Shown]:
        guarded = {g.metric for g in self.question.guards}
        found = []
        for metric in self.metrics[self.question.objectives :]:
            try:
                logs = _logs(metric, blocks(metric.name))
            except stats.NotPositiveError:
                continue
            if not logs or metric.name in guarded:
                continue
            interval = self.guarding.interval(logs)
            if not math.isfinite(interval.low):
                continue
            found.append(
                Shown(
                    metric.name,
                    metric.direction,
                    math.exp(interval.mean),
                    math.exp(interval.low),
                    math.exp(interval.high),
                    1 - self.guarding.alpha,
                    *_medians(blocks(metric.name)),
                )
            )
        return found


def judge_for(question: Question, metrics: Sequence[Metric], arms: int, most: int) -> Judge:
    """Looks after every block, up to ``most``."""
    return _sharing(question, metrics, arms, lambda alpha: sequential.design(alpha, most))


def fixed_judge(question: Question, metrics: Sequence[Metric], arms: int, blocks: int) -> Judge:
    """One look, after exactly so many blocks."""
    return _sharing(question, metrics, arms, lambda alpha: sequential.fixed(alpha, blocks))


def _sharing(
    question: Question, metrics: Sequence[Metric], arms: int, looks: Callable[[float], Design]
) -> Judge:
    """A judge whose verdicts share the error."""
    deciding = looks(shared_alpha(question.alpha, question.objectives, arms))
    return Judge(question, metrics, deciding, looks(guard_alpha(question.alpha, arms)))


def _logs(metric: Metric, blocks: Sequence[Values]) -> list[float]:
    return stats.log_ratios(blocks, metric.name)


def _medians(blocks: Sequence[Values]) -> tuple[float, float]:
    return (
        median_of([v for base, _ in blocks for v in base]),
        median_of([v for _, arm in blocks for v in arm]),
    )
