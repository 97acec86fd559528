"""``kilter selftest``: how often kilter tells two equal arms apart on this machine.

One unchanged command runs many times. Its runs are then dealt to two arms, as ``compare`` would
have done, thousands of times with fresh coins: whatever verdict *better* or *worse* comes of it
is false. The rate may be at most the error that was promised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from scipy.special import betaincinv

from kilter_lab import metrics, sequential, stats, wording
from kilter_lab.blocks import dice
from kilter_lab.console import Console
from kilter_lab.errors import LabError, WorkloadError
from kilter_lab.measure import Bench
from kilter_lab.messages import Arm, Fingerprint, SelftestRequest, VerdictName
from kilter_lab.runner import Runner

REPLAYS = 2000

PORTION = 20
"""Runs between two drawings of the progress bar."""

FEWEST_RUNS = 40


class SelfTest(msgspec.Struct):
    """What came of it."""

    runs: int
    replays: int
    false_verdicts: int
    """Replays that ended better or worse."""
    rate: float
    low: float
    high: float
    """Ends of the rate's 95 % interval (Clopper and Pearson)."""
    alpha: float
    """The rate that was promised at most."""
    most_blocks: int
    noise_percent: float
    """Standard deviation of a block's ratio."""
    detectable_percent: float
    """Effect that a comparison of so many blocks calls in nine cases of ten."""
    seed: int
    machine: Fingerprint | None

    @property
    def passed(self) -> bool:
        """Whether the promise may be true: the interval reaches down to it."""
        return self.low <= self.alpha


def selftest(request: SelftestRequest, runner: Runner, console: Console) -> int:
    """Run, replay, tell. Returns the exit status: 1 where the promise is broken."""
    bench = Bench(runner, request.options)
    logs = _runs(request, bench, console)
    found = replayed(request, logs, bench.machine, console)
    if request.context.json:
        console.raw(msgspec.json.encode(found).decode())
    else:
        for line in told(found):
            console.data(line)
    return 0 if found.passed else 1


def _runs(request: SelftestRequest, bench: Bench, console: Console) -> list[float]:
    begun, arm = bench.runner.now(), Arm("current", request.command)
    metric = request.options.metrics[0]
    with console.progress("check run", 1):
        (first,) = bench.block([arm], [0])
    metrics.check_baseline(first.reply, request.options.metrics)
    run_s = bench.seconds_a_run()
    if request.budget_s is not None and FEWEST_RUNS * run_s > request.budget_s:
        needed = math.ceil(1.2 * FEWEST_RUNS * run_s / 60)
        raise LabError(
            f"the budget is too small: a run takes {wording.duration(run_s)}, and a self-test "
            f"takes at least {FEWEST_RUNS} runs",
            f"--budget {needed}m",
        )
    values: list[float] = []
    made = 0
    with console.progress("self-test", request.runs, "runs") as bar:
        while made < request.runs:
            left = math.inf
            if request.budget_s is not None:
                left = request.budget_s - (bench.runner.now() - begun)
            portion = min(PORTION, request.runs - made, int(min(left / bench.seconds_a_run(), 1e6)))
            if portion < 1:
                break
            found = bench.block([arm], [0] * portion)
            made += portion
            values += [o.values[metric.name] for o in found if metric.name in o.values]
            bar.at(made)
    if len(values) < FEWEST_RUNS:
        raise WorkloadError(
            f"{wording.count(len(values), 'good run')} of the command: a self-test takes at least "
            f"{FEWEST_RUNS}"
        )
    return [stats.mean_log([v], metric.name) for v in values]


def replayed(
    request: SelftestRequest, logs: Sequence[float], machine: Fingerprint | None, console: Console
) -> SelfTest:
    """Deal the runs to two arms again and again, and judge each time."""
    question = request.question
    differences = contrasts(logs, 0)
    noise = stats.deviation(differences)
    most = sequential.blocks_for(
        math.log1p(question.detect_percent / 100), noise, question.alpha, len(logs) // 4
    )
    plan = sequential.design(question.alpha, most)
    wrong = 0
    with console.progress("replays", REPLAYS) as bar:
        for replay in range(REPLAYS):
            rng = dice(request.context.seed, "selftest", replay)
            found = contrasts(logs, rng.randrange(len(logs)))[:most]
            dealt = [d if rng.random() < 0.5 else -d for d in found]
            wrong += verdict(plan, dealt, question.region_percent) in ("better", "worse")
            bar.tick(replay + 1)
    low, high = proportion(wrong, REPLAYS)
    return SelfTest(
        runs=len(logs),
        replays=REPLAYS,
        false_verdicts=wrong,
        rate=wrong / REPLAYS,
        low=low,
        high=high,
        alpha=question.alpha,
        most_blocks=most,
        noise_percent=math.expm1(noise) * 100,
        detectable_percent=math.expm1(sequential.detectable(noise, question.alpha, most)) * 100,
        seed=request.context.seed,
        machine=machine,
    )


def contrasts(logs: Sequence[float], start: int) -> list[float]:
    """The log ratio of ABBA for each four consecutive runs from ``start`` on, going round."""
    turned = [*logs[start:], *logs[:start]]
    fours = (turned[i : i + 4] for i in range(0, len(turned) - 3, 4))
    return [(b + c - a - d) / 2 for a, b, c, d in fours]


def verdict(plan: sequential.Design, logs: Sequence[float], region_percent: float) -> VerdictName:
    """The verdict at the first look that has one."""
    name: VerdictName = "inconclusive"
    for blocks in plan.looks:
        name = stats.judge(plan.interval(logs[:blocks]), region_percent)
        if name != "inconclusive":
            break
    return name


def proportion(hits: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share, after Clopper and Pearson."""
    low = float(betaincinv(hits, of - hits + 1, 0.025)) if hits else 0.0
    high = float(betaincinv(hits + 1, of - hits, 0.975)) if hits < of else 1.0
    return low, high


def told(found: SelfTest) -> list[str]:
    """The result in plain sentences."""
    percent = wording.percent
    return [
        f"{found.runs} runs of one unchanged command, dealt to two arms {found.replays} times "
        f"(seed {found.seed}).",
        f"A block's ratio varies by {percent(found.noise_percent)} %; {found.most_blocks} blocks "
        f"show effects from {percent(found.detectable_percent)} % on.",
        "",
        f"False verdicts: {percent(found.rate * 100)} % "
        f"(95 % interval {wording.interval_text(found.low * 100, found.high * 100)}); "
        f"promised: at most {found.alpha * 100:g} %. "
        + ("The promise holds here." if found.passed else "The promise does NOT hold here."),
    ]
