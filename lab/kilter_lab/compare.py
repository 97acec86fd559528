"""``kilter compare``: interleaved blocks of all arms, and a verdict on each.

The number of blocks is fixed beforehand, so that looking at results cannot stop a comparison at a
lucky moment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kilter_lab import doubts, metrics, stats, wording
from kilter_lab.binary import now_text, record_evidence
from kilter_lab.blocks import dice, palindrome
from kilter_lab.compare_text import show
from kilter_lab.comparison import ArmResult, Comparison, RawRun
from kilter_lab.console import Bar, Console
from kilter_lab.errors import LabError, WorkloadError
from kilter_lab.export import write_export
from kilter_lab.measure import OK, Bench, Observation, arm_values, block_values
from kilter_lab.messages import (
    Arm,
    CompareRequest,
    Evidence,
    Metric,
    Ran,
    VerdictRecord,
)
from kilter_lab.runner import Runner

EXPORT_SUFFIXES = (".csv", ".json")


@dataclass
class Measured:
    """The blocks of a comparison, as far as they were made."""

    arms: list[Arm]
    blocks: list[list[Observation]]

    def good_blocks(self, arm: int, metric: str) -> list[tuple[list[float], list[float]]]:
        """(base values, arm values) of the blocks without a failed run of either."""
        pairs = (block_values(b, 0, arm, metric) for b in self.blocks)
        return [p for p in pairs if p is not None]

    def values(self, arm: int, metric: str) -> list[float]:
        """All values of one arm."""
        return [v for b in self.blocks for v in arm_values(b, arm, metric)]

    def failed(self, arm: int) -> list[Observation]:
        """The failed runs of one arm."""
        return [o for b in self.blocks for o in b if o.arm == arm and o.outcome != OK]


def compare(request: CompareRequest, runner: Runner, console: Console) -> int:
    """Measure, judge, print, export, record. Returns the exit status."""
    if request.export is not None:
        check_export(Path(request.export))
    bench = Bench(runner, request.options)
    measured = measure(request, bench, console)
    comparison = judge(request, bench, measured)
    for text in comparison.warnings:
        console.warn(text)
    if request.context.json:
        console.raw(msgspec.json.encode(comparison).decode())
    else:
        show(comparison, request, measured.blocks, console)
    if request.export is not None:
        write_export(Path(request.export), comparison, raw_runs(measured))
    keep_evidence(request, bench, comparison, console)
    return exit_status(comparison, request.question.require_better)


def check_export(path: Path) -> None:
    """Refuse a place that cannot be written before hours of runs are made."""
    if path.suffix not in EXPORT_SUFFIXES:
        raise LabError(f"--export {path}: the name must end in .csv or .json")
    if path.is_dir():
        raise LabError(f"--export {path}: is a directory")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise LabError(f"--export {path}: cannot be written")


def measure(request: CompareRequest, bench: Bench, console: Console) -> Measured:
    """One check run of the base, then all blocks."""
    arms = [request.base, *request.arms]
    per_block = 2 * len(arms)
    with console.progress("check run", 1):
        (first,) = bench.block(arms, [0])
    metrics.check_baseline(first.reply, request.options.metrics)
    seconds = bench.seconds_a_run() * per_block
    console.note(
        f"{wording.count(request.blocks, 'block')} of {per_block} interleaved runs, "
        f"about {wording.duration(request.blocks * seconds)} (seed {request.context.seed})"
    )
    measured = Measured(arms, [])
    with console.progress("compare", request.blocks, "blocks") as bar:
        for index in range(request.blocks):
            bench.on_run = _ticker(bar, index, per_block)
            order = palindrome(len(arms), dice(request.context.seed, "compare", index))
            measured.blocks.append(bench.block(arms, order))
            if index == 0:
                _stop_if_hopeless(measured, request.options.metrics[0])
            left = bench.seconds_a_run() * per_block * (request.blocks - index - 1)
            bar.at(index + 1, f"{wording.duration(left)} left")
    return measured


def _ticker(bar: Bar, done: int, per_block: int) -> Callable[[Observation], None]:
    position = iter(range(1, per_block + 1))
    return lambda _: bar.tick(done + next(position) / per_block)


def _stop_if_hopeless(measured: Measured, deciding: Metric) -> None:
    for index, arm in enumerate(measured.arms):
        failed = measured.failed(index)
        if len(failed) == 2:
            raise metrics.failure(failed[0].reply, arm.label, deciding)


def judge(request: CompareRequest, bench: Bench, measured: Measured) -> Comparison:
    """Verdicts on all metrics of all arms, with the doubts."""
    results = [_arm_result(request, measured, i) for i in range(len(measured.arms))]
    return Comparison(
        base=results[0],
        arms=results[1:],
        blocks=request.blocks,
        region_percent=request.question.region_percent,
        seed=request.context.seed,
        machine=bench.machine,
        warnings=_warnings(request, bench, measured),
    )


def _arm_result(request: CompareRequest, measured: Measured, index: int) -> ArmResult:
    arm = measured.arms[index]
    result = ArmResult(
        label=arm.label,
        command=arm.command,
        settings=arm.settings,
        runs=2 * len(measured.blocks),
        failed=len(measured.failed(index)),
    )
    if index == 0:
        return result
    for metric in request.options.metrics:
        found = _verdict(request, measured, index, metric)
        if found is not None:
            result.verdicts.append(found)
    result.sentence = _sentence(request, measured, index, result)
    return result


def _verdict(
    request: CompareRequest, measured: Measured, index: int, metric: Metric
) -> VerdictRecord | None:
    decides = metric is request.options.metrics[0]
    blocks = measured.good_blocks(index, metric.name)
    if not blocks:
        if decides:
            label = measured.arms[index].label
            raise WorkloadError(f"no block of {label} came through without a failed run")
        return None
    try:
        return stats.verdict(metric.name, metric.direction, blocks, request.question.region_percent)
    except stats.NotPositiveError:
        if decides:
            raise
        return None  # A count of zero (major faults) has no ratio; the medians are still shown.


def _sentence(request: CompareRequest, measured: Measured, index: int, result: ArmResult) -> str:
    deciding = request.options.metrics[0]
    logs = [
        stats.log_ratio(b, a, deciding.name) for b, a in measured.good_blocks(index, deciding.name)
    ]
    more = stats.blocks_to_tell(logs, request.question.region_percent)
    return wording.sentence(result.verdicts[0], deciding, result.label, request.base.label, more)


def _warnings(request: CompareRequest, bench: Bench, measured: Measured) -> list[str]:
    deciding = request.options.metrics[0]
    good = [o for b in measured.blocks for o in b if deciding.name in o.values]
    points = [
        doubts.Point(measured.arms[o.arm].label, o.values[deciding.name], o.wall_s, o.steal_s)
        for o in good
    ]
    name = wording.metric_label(deciding)
    return [
        *bench.run_warnings(),
        *doubts.misread(bench.misread),
        *_failures(measured),
        *doubts.outliers(points, name),
        *doubts.drift(points, name),
        *doubts.steal(points, bench.machine.cpus if bench.machine else 1),
    ]


def _failures(measured: Measured) -> list[str]:
    told = []
    for index, arm in enumerate(measured.arms):
        failed = measured.failed(index)
        if failed:
            told.append(
                f"{arm.label} failed in {len(failed)} of {2 * len(measured.blocks)} runs "
                f"({failed[0].outcome}); their blocks are left out, which flatters it"
            )
    return told


def raw_runs(measured: Measured) -> list[RawRun]:
    """Every run, in the order in which they were made."""
    return [
        RawRun(
            block=index,
            position=position,
            arm=measured.arms[o.arm].label,
            outcome=o.outcome,
            values=o.values,
            record=o.reply.record if isinstance(o.reply, Ran) else None,
        )
        for index, block in enumerate(measured.blocks)
        for position, o in enumerate(block)
    ]


def keep_evidence(
    request: CompareRequest, bench: Bench, comparison: Comparison, console: Console
) -> None:
    """Record the verdicts of arms that differ from the base by settings alone."""
    machine = bench.machine
    if machine is None:
        return
    evidence = [
        Evidence(
            when=now_text(),
            machine=machine.id,
            kernel=machine.kernel,
            boot_id=machine.boot_id,
            command=arm.command,
            base=request.base.settings,
            arm=arm.settings,
            verdict=verdict,
        )
        for arm in comparison.arms
        if arm.settings != request.base.settings and arm.command == request.base.command
        for verdict in arm.verdicts
    ]
    try:
        record_evidence(request.context, evidence)
    except LabError as error:
        console.warn(str(error))


def exit_status(comparison: Comparison, require_better: bool) -> int:
    """1 where any arm is worse or fails more often than the base, or is not better as required."""
    names: Sequence[str] = [arm.verdicts[0].verdict for arm in comparison.arms]
    fails = any(arm.failed > comparison.base.failed for arm in comparison.arms)
    if "worse" in names or fails or (require_better and set(names) != {"better"}):
        return 1
    return 0
