"""The figures that a report adds to a study: what could have been seen, how arms and time spread.

Everything here is computed from the runs and verdicts that the study holds; nothing is measured.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from kilter_lab import stats
from kilter_lab.comparison import Look
from kilter_lab.messages import Metric, Record, VerdictRecord
from kilter_lab.outcome import Conclusion, Shown, conclude
from kilter_lab.report_text import MISSING, usable
from kilter_lab.study import Phase, Run, StudyData

BASE = "base"
Point = tuple[float, float]
MOST_POINTS = 600
"""Points of one kind in a chart."""
PHASES: tuple[Phase, ...] = ("baseline", "search", "race", "prune", "confirm")
STEAL_MARK = 0.01
"""Share of the machine's CPU time that others took, above which a run is marked."""
LARGEST = 1e100
"""Values from here on are no measurements, and their squares would overflow."""
PLANNED_BLOCKS = 10
"""Blocks that a power figure assumes where nothing was confirmed."""


def deciding(data: StudyData) -> Metric:
    """The metric that decides; made up from the verdicts where the study names none."""
    if data.metrics:
        return data.metrics[0]
    known = data.confirmed[0] if data.confirmed else data.promised
    if known is None:
        return Metric(name=MISSING, source=Record(field=""))
    return Metric(name=known.metric, source=Record(field=""), direction=known.direction)


def objectives(data: StudyData) -> list[Metric]:
    """The metrics that decide, at least one."""
    return data.metrics[: max(1, data.question.objectives)] or [deciding(data)]


def deciding_verdicts(data: StudyData) -> list[VerdictRecord]:
    """The verdicts on deciding metrics, one each."""
    if not data.metrics:
        return data.confirmed[:1]
    found: dict[str, VerdictRecord] = {}
    for verdict in data.confirmed:
        found.setdefault(verdict.metric, verdict)
    return [found[metric.name] for metric in objectives(data) if metric.name in found]


def shown_metrics(data: StudyData) -> list[Shown]:
    """Metrics that decide nothing, with their intervals."""
    judged = {verdict.metric for verdict in deciding_verdicts(data)}
    judged |= {guard.guard.metric for guard in data.guards}
    found = {shown.metric: shown for shown in data.shown}
    for verdict in data.confirmed:
        if verdict.metric not in judged:
            found.setdefault(verdict.metric, without_verdict(verdict))
    return list(found.values())


def without_verdict(record: VerdictRecord) -> Shown:
    """The numbers of a metric that decides nothing."""
    return msgspec.convert(record, type=Shown, from_attributes=True)


def conclusion(data: StudyData) -> Conclusion:
    """What the verdicts and guards of the fresh blocks come to, whatever the ending says."""
    verdicts = [verdict.verdict for verdict in deciding_verdicts(data)]
    if not verdicts:
        return "inconclusive"
    return conclude(verdicts, [guard.outcome for guard in data.guards])


def usable_looks(data: StudyData, metric: str) -> list[Look]:
    """The looks that can be drawn and told."""
    looks = data.sequence.get(metric, [])
    return [
        look
        for look in looks
        if look.blocks > 0 and all(usable(x) for x in (look.ratio, look.low, look.high))
    ]


def claims(data: StudyData) -> bool:
    """Whether fresh blocks back a gain: only then may a report show one."""
    if data.ending != "better" or conclusion(data) != "better":
        return False
    return usable(data.confirmed[0].ratio) is not None


def blind(data: StudyData) -> bool:
    """Whether nothing that was tried gave a measurement, so that nothing is known of it."""
    return not data.confirmed and not any(usable(trial.ratio) for trial in data.trials)


def values(runs: Iterable[Run], metric: str) -> list[float]:
    """The metric of the runs that have it, in their order."""
    found = (run.metrics.get(metric) for run in runs)
    return [value for value in found if value is not None and plottable(value)]


def plottable(value: float) -> bool:
    """Whether a value can be summed and drawn: not NaN, not infinite, not near overflow."""
    return abs(value) < LARGEST


def base_runs(data: StudyData) -> list[Run]:
    """The baseline's runs, in time."""
    runs = [run for run in data.runs if run.arm == BASE and plottable(run.at_s)]
    return sorted(runs, key=lambda run: run.at_s)


def steal_share(run: Run, cpus: int) -> float:
    """CPU time that the host gave to others during a run, as a share of the machine's (0 to 1)."""
    capacity = run.wall_s * max(1, cpus)
    if not (math.isfinite(capacity) and math.isfinite(run.steal_s)) or capacity <= 0:
        return 0.0
    return min(1.0, max(0.0, run.steal_s / capacity))


@dataclass(frozen=True)
class Detectable:
    """The smallest effect that a measurement finds as often as :data:`stats.POWER` says."""

    percent: float
    blocks: int
    measured: bool
    """From blocks that compared the candidate, else projected from the baseline's noise."""


def detectable(data: StudyData) -> Detectable | None:
    """What effect this study could have seen, from its best interval or else its baseline."""
    for verdict in [*data.confirmed[:1], *([data.promised] if data.promised else [])]:
        found = _from_interval(verdict)
        if found is not None:
            return found
    return _from_baseline(data)


def _from_interval(verdict: VerdictRecord) -> Detectable | None:
    low, high = usable(verdict.low), usable(verdict.high)
    if low is None or high is None or low >= high or not 2 <= verdict.blocks < 10**9:
        return None
    confidence = verdict.confidence if 0.5 <= verdict.confidence < 1.0 else stats.CONFIDENCE
    quantile = stats.t_quantile((1.0 + confidence) / 2.0, verdict.blocks - 1)
    error = math.log(high / low) / 2.0 / quantile
    return _detectable(error * math.sqrt(verdict.blocks), verdict.blocks, measured=True)


def _from_baseline(data: StudyData) -> Detectable | None:
    noise = variation(values(base_runs(data), deciding(data).name))
    if noise is None:
        return None
    # A block has two runs of each arm: the variance of its log ratio is about that of one run.
    return _detectable(noise, PLANNED_BLOCKS, measured=False)


def _detectable(block_deviation: float, blocks: int, *, measured: bool) -> Detectable | None:
    effect = stats.detectable(block_deviation, blocks)
    if not 0.0 < effect < 10.0:
        return None
    return Detectable(math.expm1(effect) * 100.0, blocks, measured)


def variation(sample: list[float]) -> float | None:
    """Coefficient of variation (0.05 is 5 %); ``None`` for fewer than three values."""
    if len(sample) < 3:
        return None
    mean = statistics.fmean(sample)
    if mean == 0.0 or not math.isfinite(mean):
        return None
    found = _deviation(sample, mean) / abs(mean)
    return found if math.isfinite(found) else None


def _deviation(sample: list[float], mean: float) -> float:
    # statistics.stdev is exact and therefore slow; math.hypot does not overflow.
    return math.hypot(*(value - mean for value in sample)) / math.sqrt(len(sample) - 1)


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """At most ``most`` points: the lowest and the highest of each stretch, so extremes stay."""
    if len(points) <= most:
        return list(points)
    stretches = max(1, most // 2)
    kept: list[Point] = []
    for number in range(stretches):
        start = number * len(points) // stretches
        stretch = points[start : (number + 1) * len(points) // stretches]
        ends = {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])}
        kept.extend(sorted(ends))
    return kept


@dataclass(frozen=True)
class Spread:
    """Order statistics of a sample."""

    runs: int
    failed: int
    least: float
    lower: float
    median: float
    upper: float
    most: float


def spread(runs: list[Run], metric: str) -> Spread | None:
    """How the metric spreads over runs; ``None`` where no run has it."""
    sample = sorted(values(runs, metric))
    if not sample:
        return None
    return Spread(
        runs=len(sample),
        failed=len(runs) - len(sample),
        least=sample[0],
        lower=_quantile(sample, 0.25),
        median=_quantile(sample, 0.5),
        upper=_quantile(sample, 0.75),
        most=sample[-1],
    )


def _quantile(ordered: list[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    left = math.floor(place)
    right = min(left + 1, len(ordered) - 1)
    weight = place - left
    return ordered[left] * (1.0 - weight) + ordered[right] * weight


def confirm_arms(data: StudyData) -> list[tuple[str, list[Run]]]:
    """The arms of the confirmation, the baseline first, each with its runs in time."""
    arms: dict[str, list[Run]] = {}
    for run in data.runs:
        if run.phase == "confirm":
            arms.setdefault(run.arm, []).append(run)
    ordered = sorted(arms.items(), key=lambda item: item[0] != BASE)
    return [(arm, sorted(runs, key=lambda run: run.at_s)) for arm, runs in ordered]


def told_arms(data: StudyData) -> list[tuple[str, list[Run]]]:
    """The baseline and the candidate that the verdicts are about, of all that were confirmed."""
    told = (BASE, data.front[0].arm) if data.front else None
    return [(arm, runs) for arm, runs in confirm_arms(data) if told is None or arm in told]


def trend(data: StudyData) -> float | None:
    """Baseline's median in its last third over that in its first; needs nine runs."""
    sample = values(base_runs(data), deciding(data).name)
    third = len(sample) // 3
    if third < 3:
        return None
    first = statistics.median(sample[:third])
    return usable(statistics.median(sample[-third:]) / first) if first else None
