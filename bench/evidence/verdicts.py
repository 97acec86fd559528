"""Whether verdicts are right at the promised rate, and reached in few runs."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

import noise
import replay
from kilter_lab import compare, preflight, sequential, stats
from kilter_lab.judging import Judge, Values, judge_for
from kilter_lab.messages import Guard, Metric, Question, Record
from kilter_lab.selftest import proportion
from noise import Kind
from replay import Ended
from tables import Effort, Row, Table, each

ALPHA = 0.05


def planned(effect: float, limit: int = 10_000) -> int:
    """Most blocks of a comparison that asks for this effect, after a preflight of 12 base runs.

    The preflight is taken to have seen the true noise, which it plans with some prudence.
    """
    noisy = noise.CV * preflight.prudence(preflight.ENOUGH)
    return sequential.blocks_for(effect, noisy, ALPHA, limit)


EFFECT = math.log1p(0.05)

DEFAULT = planned(math.log1p(0.02), compare.DEFAULT_RUNS // 4)
"""Blocks of a comparison without options, at 5 % noise."""

SHORT, LONG = planned(EFFECT), 400
"""Blocks of a comparison that asks for 5 % (``--detect 5``), and of one that asks for much."""

PLANS = (SHORT, DEFAULT, LONG)

ALLOWED = 0.06
"""The promised 5 %, and a point of sampling error."""

WITHIN = 20
"""Blocks: 40 runs an arm."""

SHARE = 0.65
"""Of the runs of a fixed design."""

LONGEST = 80
"""Blocks of the largest fixed design that is tried."""

COVERED = 0.94

ESTIMATES = 4
"""One replay in so many has its estimate worked out."""

LOOK_S = 0.020

WRONG = ("better", "worse")
"""Verdicts that are false where nothing is true."""


def false_verdicts(effort: Effort) -> Iterator[Table]:
    """Base against base."""
    plans = [f"{most} blocks" for most in PLANS]
    wrong = Table(
        "False better/worse, base against base, a look after every block",
        f"at most {ALLOWED * 100:.0f} % for each plan",
        ["noise", *plans],
    )
    strict = Table(
        "Comparisons in which the interval of any look misses the truth (no stop at a verdict)",
        f"at most {ALLOWED * 100:.0f} % for each plan",
        ["noise", *plans],
    )
    for kind, counts in zip(
        noise.kinds(), each(effort, _wrong(effort), noise.kinds()), strict=True
    ):
        for table, of_plans in zip((wrong, strict), zip(*counts, strict=True), strict=True):
            cells = [_rate(n, effort.replays) for n in of_plans]
            met = all(n <= ALLOWED * effort.replays for n in of_plans)
            table.rows.append(Row([kind.name, *cells], met))
    yield wrong
    yield strict


def _wrong(effort: Effort) -> partial[list[tuple[int, int]]]:
    return partial(_count_wrong, effort)


def _count_wrong(effort: Effort, kind: Kind) -> list[tuple[int, int]]:
    """For each plan: false verdicts, and comparisons with a look that missed."""
    counts = []
    for most in PLANS:
        judge = replay.judge(most)
        ends = [
            replay.replay(judge, kind, effort.seed, r, 0.0, to_the_end=True)
            for r in range(effort.replays)
        ]
        counts.append((sum(e.verdict in WRONG for e in ends), sum(e.missed for e in ends)))
    return counts


def power(effort: Effort) -> Iterator[Table]:
    """A true effect of 5 % in 5 % noise."""
    kinds = list(noise.at_five_percent())
    found = each(effort, partial(_power_rows, effort), kinds)
    called = Table(
        "A true effect of 5 % in 5 % noise",
        f"within {WITHIN} blocks, {2 * WITHIN} runs an arm, 90 % are called, 80 % under tails, "
        "modes, drift and on recordings; the median takes at most "
        f"{SHARE * 100:.0f} % of the blocks of a single look with the same power",
        [
            "noise",
            "plan",
            f"called in {WITHIN}",
            "called",
            "wrong way",
            "median",
            "single look",
            "share",
        ],
    )
    honest = Table(
        "What is reported after an early stop: bias in points, and how often it is above the truth",
        f"the interval covers the truth in at least {COVERED * 100:.0f} %",
        ["noise", "plan", "covered", "estimate", "too high", "mean", "too high"],
    )
    for speed_rows, honest_rows in found:
        called.rows += speed_rows
        honest.rows += honest_rows
    yield called
    yield honest


def _power_rows(effort: Effort, kind: Kind) -> tuple[list[Row], list[Row]]:
    speed, honest = [], []
    for most in (SHORT, DEFAULT):
        judge = replay.judge(most)
        ends = [replay.replay(judge, kind, effort.seed, r, EFFECT) for r in range(effort.replays)]
        speed.append(_speed(effort, kind, most, ends))
        honest.append(_honest(kind, judge.deciding, ends))
    return speed, honest


def _speed(effort: Effort, kind: Kind, most: int, ends: Sequence[Ended]) -> Row:
    called = [e.blocks for e in ends if e.verdict == "worse"]
    power, in_time = len(called) / len(ends), sum(n <= WITHIN for n in called) / len(ends)
    median = statistics.median(e.blocks for e in ends)
    fixed = fixed_blocks(effort, kind, power)
    enough = in_time >= (0.8 if kind.hard else 0.9)
    cells = [
        kind.name,
        f"{most} blocks",
        f"{in_time * 100:.1f} %",
        f"{power * 100:.1f} %",
        f"{sum(e.verdict == 'better' for e in ends) / len(ends) * 100:.1f} %",
        f"{median:g}",
        f"{fixed}",
        f"{median / fixed * 100:.0f} %",
    ]
    return Row(cells, enough and median <= SHARE * fixed)


def whole(effort: Effort) -> Iterator[Table]:
    """Preflight and comparison one after the other, on the same stream."""
    table = Table(
        "`--detect 5` where 5 % is true, planned by a preflight of the same noise, 200 runs in all",
        "90 % of replays are called, 80 % under tails, modes, drift and on recordings",
        ["noise", "called", "blocks planned", "median", "false, where nothing is true"],
    )
    table.rows += each(effort, partial(_whole_row, effort), noise.at_five_percent())
    yield table


def _whole_row(effort: Effort, kind: Kind) -> Row:
    question = Question(detect_percent=5)
    ends, wrong, plans = [], 0, []
    for r in range(effort.replays):
        stream = kind.stream(effort.seed, r, compare.DEFAULT_RUNS)
        base = preflight.ENOUGH
        seen = preflight.assess(stream[:base].tolist(), 1.0, question, left_runs=len(stream) - base)
        judge = replay.judge(seen.blocks)
        rest = stream[base:]
        ends.append(replay.on_stream(judge, rest, effort.seed + r, EFFECT))
        wrong += replay.on_stream(judge, rest, effort.seed + r, 0.0).verdict in WRONG
        plans.append(seen.blocks)
    power = sum(e.verdict == "worse" for e in ends) / len(ends)
    low, middle, high = (int(q) for q in np.quantile(plans, [0.05, 0.5, 0.95]))
    cells = [
        kind.name,
        f"{power * 100:.1f} %",
        f"{middle} ({low}–{high})",
        f"{statistics.median(e.blocks for e in ends):g}",
        _rate(wrong, effort.replays),
    ]
    fine = wrong <= ALLOWED * effort.replays
    return Row(cells, fine and power >= (0.8 if kind.hard else 0.9))


def fixed_blocks(effort: Effort, kind: Kind, power: float) -> int:
    """Fewest blocks with which a design of a single look calls the effect so often."""
    fresh = range(effort.replays, effort.replays + min(effort.replays, 1000))
    streams = [list(_logs(kind, effort.seed, r, LONGEST)) for r in fresh]
    low, high = 2, LONGEST
    while low < high:
        n = (low + high) // 2
        design = sequential.fixed(ALPHA, n)
        called = sum(design.interval(logs[:n]).low > 0 for logs in streams) / len(streams)
        low, high = (low, n) if called >= power else (n + 1, high)
    return low


def _logs(kind: Kind, seed: int, number: int, blocks: int) -> Iterator[float]:
    stream = kind.stream(seed, number, 4 * blocks)
    for values in replay.blocks_of(stream, EFFECT, seed + number):
        yield stats.log_ratio(*values)


def _honest(kind: Kind, design: sequential.Design, ends: Sequence[Ended]) -> Row:
    covered = sum(e.covered for e in ends) / len(ends)
    some = ends[::ESTIMATES]
    true = math.exp(EFFECT)
    estimates = [(math.exp(design.estimate(e.logs)) - true) * 100 for e in some]
    means = [(math.exp(e.mean) - true) * 100 for e in ends]
    cells = [
        kind.name,
        f"{design.most} blocks",
        f"{covered * 100:.1f} %",
        _points(estimates),
        _above(estimates),
        _points(means),
        _above(means),
    ]
    return Row(cells, covered >= COVERED)


FIRST: list[Values] = [([1.0, 1.1], [1.0, 1.2])] * 4
"""Enough blocks for a look, which works out the design where that is not done yet."""


def looks(effort: Effort) -> Iterator[Table]:
    """Time that the statistics take between two blocks."""
    table = Table(
        "Time of a look: two metrics decide, one guard, all blocks so far",
        f"at most {LOOK_S * 1e3:.0f} ms",
        ["blocks", "median", "longest", "estimate at the end", "design beforehand"],
    )
    metrics = [replay.WALL, *(Metric(n, Record(n)) for n in ("user_s", "sys_s"))]
    question = Question(objectives=2, guards=[Guard("sys_s", "at-most", 5)])
    kind = noise.kinds()[2]
    for most in (*PLANS, 2_500):
        begun = time.perf_counter()
        judge = judge_for(question, metrics, 1, most)
        judge.look(lambda _: FIRST)
        beforehand = time.perf_counter() - begun
        stream = kind.stream(effort.seed, 0, 4 * most)
        blocks = list(replay.blocks_of(stream, 0.0, effort.seed))
        times, end = _times(judge, blocks)
        spans = [statistics.median(times), max(times), end, beforehand]
        row = [str(most), *(f"{s * 1e3:.1f} ms" for s in spans)]
        table.rows.append(Row(row, statistics.median(times) <= LOOK_S))
    yield table


def _times(judge: Judge, blocks: list[Values]) -> tuple[list[float], float]:
    """Seconds of some looks, and of the judgement at the end."""
    looks = [_took(lambda: judge.look(lambda _: blocks)) for _ in range(20)]
    return looks, _took(lambda: judge.judge(lambda _: blocks))


def _took(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _rate(n: int, of: int) -> str:
    low, high = proportion(n, of)
    return f"{n / of * 100:.1f} % ({low * 100:.1f}–{high * 100:.1f})"


def _points(values: Sequence[float]) -> str:
    error = statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.fmean(values):+.2f} ± {1.96 * error:.2f}"


def _above(values: Sequence[float]) -> str:
    return f"{statistics.fmean(v > 0 for v in values) * 100:.0f} %"
