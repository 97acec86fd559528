"""``kilter compare``: interleaved blocks of all arms until there is a verdict on each.

All arms may be looked at after every block, because the intervals are made for it (see
:mod:`kilter_lab.sequential`). An arm whose verdicts are in leaves the blocks; the rest go on.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from kilter_lab import doubts, metrics, preflight, stats, wording
from kilter_lab.binary import now_text, record_evidence
from kilter_lab.blocks import dice, palindrome
from kilter_lab.compare_text import show
from kilter_lab.comparison import ArmResult, Comparison, Look, RawRun
from kilter_lab.console import Bar, Console
from kilter_lab.errors import LabError, WorkloadError
from kilter_lab.export import write_export
from kilter_lab.judging import Judge, Judged, Values, fixed_judge, judge_for
from kilter_lab.measure import OK, Bench, Observation, block_values
from kilter_lab.messages import (
    Arm,
    CompareRequest,
    Evidence,
    Metric,
    Ran,
)
from kilter_lab.preflight import Preflight
from kilter_lab.runner import Runner

EXPORT_SUFFIXES = (".csv", ".json")

DEFAULT_RUNS = 200
"""Runs at most where neither runs nor time were limited."""

PATIENCE_S = 600.0
"""Where time is not limited, the noise is looked at as if it were limited to this."""


@dataclass
class Measured:
    """The blocks of a comparison, as far as they were made."""

    arms: list[Arm]
    blocks: list[list[Observation]]
    interrupted: bool = False
    """The user pressed Ctrl-C: the blocks made until then count."""

    def good_blocks(self, arm: int, metric: str) -> list[Values]:
        """(base values, arm values) of the blocks without a failed run of either."""
        own = (b for b in self.blocks if any(o.arm == arm for o in b))
        pairs = (block_values(b, 0, arm, metric) for b in own)
        return [p for p in pairs if p is not None]

    def failed(self, arm: int) -> list[Observation]:
        """The failed runs of one arm."""
        return [o for o in self.runs(arm) if o.outcome != OK]

    def runs(self, arm: int) -> list[Observation]:
        """All runs of one arm."""
        return [o for b in self.blocks for o in b if o.arm == arm]


def compare(request: CompareRequest, runner: Runner, console: Console) -> int:
    """Measure, judge, print, export, record. Returns the exit status."""
    if request.export is not None:
        check_export(Path(request.export))
    bench = Bench(runner, request.options)
    judge, measured = measure(request, bench, console)
    comparison = conclude(request, bench, judge, measured)
    for text in comparison.warnings:
        console.warn(text)
    if request.context.json:
        console.raw(msgspec.json.encode(comparison).decode())
    else:
        show(comparison, request, measured.blocks, console)
    if request.export is not None:
        write_export(Path(request.export), comparison, raw_runs(measured))
    keep_evidence(request, bench, comparison, console)
    return 130 if measured.interrupted else exit_status(comparison, request.question.require_better)


def check_export(path: Path) -> None:
    """Refuse a place that cannot be written before hours of runs are made."""
    if path.suffix not in EXPORT_SUFFIXES:
        raise LabError(f"--export {path}: the name must end in .csv or .json")
    if path.is_dir():
        raise LabError(f"--export {path}: is a directory")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise LabError(f"--export {path}: cannot be written")


def measure(request: CompareRequest, bench: Bench, console: Console) -> tuple[Judge, Measured]:
    """A check run of the base, a look at the noise, then blocks until all verdicts are in."""
    begun = bench.runner.now()
    bench.on_run = lambda _: None
    arms = [request.base, *request.arms]
    with console.progress("check run", 1):
        (first,) = bench.block(arms, [0])
    metrics.check_baseline(first.reply, request.options.metrics)
    judge = plan(request, bench, console)
    measured = Measured(arms, [])
    open_arms = list(range(1, len(arms)))
    with console.progress("compare", judge.most, "blocks") as bar:
        while open_arms and len(measured.blocks) < judge.most:
            if not _in_time(request, bench, measured, len(open_arms), begun):
                break
            try:
                measured.blocks.append(_block(request, bench, arms, open_arms, measured, bar))
            except KeyboardInterrupt:
                if len(measured.blocks) < judge.deciding.looks[0]:
                    raise
                measured.interrupted = True
                console.warn(
                    f"interrupted after {wording.count(len(measured.blocks), 'block')}: "
                    "the intervals hold for these"
                )
                break
            if len(measured.blocks) == 1:
                _stop_if_hopeless(measured, request.options.metrics[0])
            seen = _look(judge, measured, open_arms)
            open_arms = [i for i in open_arms if not seen[i].settled]
            left = bench.seconds_a_run() * 2 * (1 + len(open_arms))
            left *= judge.most - len(measured.blocks)
            bar.at(len(measured.blocks), _progress_text([seen[i] for i in open_arms], left))
    return judge, measured


def plan(request: CompareRequest, bench: Bench, console: Console) -> Judge:
    """How many blocks there may be: as asked, or as the noise makes necessary."""
    question, arms = request.question, len(request.arms)
    per_block = 2 * (1 + arms)
    if request.blocks is not None:
        console.note(
            f"{wording.count(request.blocks, 'block')} of {per_block} interleaved runs, "
            f"about {wording.duration(request.blocks * per_block * bench.seconds_a_run())} "
            f"(seed {request.context.seed})"
        )
        return fixed_judge(question, request.options.metrics, arms, request.blocks)
    found = look_at_noise(request, bench, console)
    for line in preflight.told(found, wording.metric_label(request.options.metrics[0]), question):
        console.note(line)
    return judge_for(question, request.options.metrics, arms, found.blocks)


def look_at_noise(request: CompareRequest, bench: Bench, console: Console) -> Preflight:
    """Runs of the base alone, until it has warmed up, and what they say of the noise."""
    begun, spent = bench.runner.now(), bench.seconds_a_run()
    left_s = request.budget_s
    left_runs = request.max_runs
    if left_s is None and left_runs is None:
        left_runs = DEFAULT_RUNS
    name = request.options.metrics[0].name
    logs: list[float] = []
    made = preflight.measure_needed(spent, left_s or PATIENCE_S)
    if left_runs is not None:
        made = min(made, max(2, left_runs // 10))
    with console.progress("noise of the base", 1):
        while made > 0 and (not logs or len(logs) < preflight.MOST):
            before = len(logs)
            found = bench.block([request.base], [0] * made)
            logs += [stats.mean_log([o.values[name]], name) for o in found if o.values]
            left_runs = None if left_runs is None else left_runs - made
            if len(logs) == before:
                break
            made = preflight.more_needed(logs, bench.seconds_a_run(), left_s or PATIENCE_S)
    if len(logs) < 2:
        raise WorkloadError(
            f"{request.base.label} fails again and again: there is nothing to compare"
        )
    return preflight.assess(
        logs,
        bench.seconds_a_run(),
        request.question,
        arms=len(request.arms),
        left_s=None if left_s is None else left_s - (bench.runner.now() - begun),
        left_runs=left_runs,
    )


def _in_time(
    request: CompareRequest, bench: Bench, measured: Measured, open_arms: int, begun: float
) -> bool:
    """Whether another block probably ends within the budget; two are always made."""
    if request.budget_s is None or len(measured.blocks) < 2:
        return True
    left = request.budget_s - (bench.runner.now() - begun)
    return left >= bench.seconds_a_run() * 2 * (1 + open_arms)


def _block(
    request: CompareRequest,
    bench: Bench,
    arms: list[Arm],
    open_arms: list[int],
    measured: Measured,
    bar: Bar,
) -> list[Observation]:
    index, present = len(measured.blocks), [0, *open_arms]
    bench.on_run = _ticker(bar, index, 2 * len(present))
    order = palindrome(len(present), dice(request.context.seed, "compare", index))
    return bench.block(arms, [present[i] for i in order])


def _ticker(bar: Bar, done: int, per_block: int) -> Callable[[Observation], None]:
    position = iter(range(1, per_block + 1))
    return lambda _: bar.tick(done + next(position) / per_block)


def _look(judge: Judge, measured: Measured, open_arms: list[int]) -> dict[int, Judged]:
    """What the blocks say of each arm that is still open."""
    return {i: judge.look(partial(measured.good_blocks, i)) for i in open_arms}


def _progress_text(seen: list[Judged], left: float) -> str:
    """The first open arm's interval, closing in, and the time left at most."""
    text = f"at most {wording.duration(left)} left"
    if not seen or not seen[0].verdicts or seen[0].verdicts[0].looks == 0:
        return text
    _, low, high = wording.change(seen[0].verdicts[0], True)
    return f"gain {wording.interval_text(low, high)}, {text}"


def _stop_if_hopeless(measured: Measured, deciding: Metric) -> None:
    for index, arm in enumerate(measured.arms):
        failed = measured.failed(index)
        if len(failed) == 2:
            raise metrics.failure(failed[0].reply, arm.label, deciding)


def conclude(request: CompareRequest, bench: Bench, judge: Judge, measured: Measured) -> Comparison:
    """Verdicts on all metrics of all arms, with the doubts."""
    results = [_arm_result(request, judge, measured, i) for i in range(len(measured.arms))]
    return Comparison(
        base=results[0],
        arms=results[1:],
        blocks=len(measured.blocks),
        most_blocks=judge.most,
        question=request.question,
        seed=request.context.seed,
        machine=bench.machine,
        warnings=_warnings(request, bench, measured),
    )


def _arm_result(request: CompareRequest, judge: Judge, measured: Measured, index: int) -> ArmResult:
    arm = measured.arms[index]
    result = ArmResult(
        label=arm.label,
        command=arm.command,
        settings=arm.settings,
        runs=len(measured.runs(index)),
        failed=len(measured.failed(index)),
    )
    if index == 0:
        return result
    deciding = request.options.metrics[0].name
    if not measured.good_blocks(index, deciding):
        raise WorkloadError(f"no block of {arm.label} came through without a failed run")
    judged = judge.judge(lambda metric: measured.good_blocks(index, metric))
    result.conclusion = judged.conclusion
    result.verdicts, result.guards, result.shown = judged.verdicts, judged.guards, judged.shown
    result.sequence = sequence(judge, measured.good_blocks(index, deciding), deciding)
    result.sentence = wording.conclusion_text(
        judged.conclusion,
        judged.verdicts,
        judged.guards,
        request.options.metrics,
        (result.label, request.base.label),
    )
    return result


def sequence(judge: Judge, blocks: list[Values], metric: str) -> list[Look]:
    """The interval closing in: what each look saw of the first deciding metric."""
    logs = stats.log_ratios(blocks, metric)
    intervals = [judge.deciding.interval(logs[:n]) for n in judge.deciding.looks if n <= len(logs)]
    return [
        Look(i.n, *(math.exp(x) for x in (i.mean, i.low, i.high)))
        for i in intervals
        if math.isfinite(i.low)
    ]


def _warnings(request: CompareRequest, bench: Bench, measured: Measured) -> list[str]:
    deciding = request.options.metrics[0]
    good = [o for b in measured.blocks for o in b if deciding.name in o.values]
    points = [doubts.point(measured.arms[o.arm].label, o, deciding.name) for o in good]
    name, unit = wording.metric_label(deciding), wording.unit(deciding)
    return [
        *bench.run_warnings(),
        *doubts.misread(bench.misread),
        *_failures(measured),
        *doubts.about_all(points, name, unit),
        *doubts.steal(points, bench.machine.cpus if bench.machine else 1),
    ]


def _failures(measured: Measured) -> list[str]:
    told = []
    for index, arm in enumerate(measured.arms):
        failed = measured.failed(index)
        if failed:
            told.append(
                f"{arm.label} failed in {len(failed)} of {len(measured.runs(index))} runs "
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
            old={knob: v for knob, v in request.old.items() if knob in arm.settings},
            workload=request.workload,
            runs=4 * verdict.blocks,
            cpu=machine.cpu,
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
    names = {arm.conclusion for arm in comparison.arms}
    fails = any(arm.failed > comparison.base.failed for arm in comparison.arms)
    if names & {"worse", "trade-off"} or fails or (require_better and names != {"better"}):
        return 1
    return 0
