"""``kilter reclaim experiment appswitch``: arms of reclaim beside each other, and what they cost.

The launch times are judged as those of any comparison: interleaved blocks, intervals, verdicts.
Kills and starts are counts that may be 0; their ratios come with intervals of their own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
from rich.text import Text

from kilter_lab import compare, wording
from kilter_lab.compare_text import Row, metric_rows, ratio_table
from kilter_lab.comparison import Comparison
from kilter_lab.console import Console
from kilter_lab.errors import LabError
from kilter_lab.export import write_export
from kilter_lab.judging import Judge, fixed_judge
from kilter_lab.measure import Bench, arm_values
from kilter_lab.messages import (
    AppswitchRequest,
    Arm,
    CompareRequest,
    Json,
    Metric,
    Ran,
    RunOptions,
    Settings,
)
from kilter_lab.outcome import guard_alpha
from kilter_lab.reclaim import vmstat
from kilter_lab.reclaim.arms import ARMS
from kilter_lab.reclaim.counts import CountRatio, ratio
from kilter_lab.reclaim.killer import need_small_machine
from kilter_lab.reclaim.place import check, compression, hierarchy
from kilter_lab.reclaim.switching import Scene
from kilter_lab.runner import Runner

JUDGED = (
    Metric("launch_p90_s", Json("/launch_p90_s"), unit="s"),
    Metric("launch_mean_s", Json("/launch_mean_s"), unit="s"),
)
SHOWN = (
    Metric("launch_p50_s", Json("/launch_p50_s"), unit="s"),
    Metric("kills", Json("/kills")),
    Metric("cold_starts", Json("/cold_starts")),
    Metric("hot_starts", Json("/hot_starts"), "max"),
    Metric("cold_cpu_s", Json("/cold_cpu_s"), unit="s"),
    Metric("hot_cpu_s", Json("/hot_cpu_s"), unit="s"),
    Metric("reclaim_cpu_s", Json("/reclaim_cpu_s"), unit="s"),
    Metric("stalled_s", Json("/stalled_s"), unit="s"),
    Metric("limit_hits", Json("/limit_hits")),
    Metric("major_faults", Json("/major_faults")),
)
COUNTS = ("kills", "cold_starts")
VM = "vm."
"""Before the names of counters."""


class ArmTold(msgspec.Struct):
    """One arm: means over its runs."""

    arm: str
    about: str
    means: dict[str, float]
    counts: dict[str, CountRatio]
    """Kills and cold starts beside the base's; empty for the base."""
    cpu_saved_s: float | None
    """CPU seconds a run that the base needs for launches and this arm does not, less what this arm
    spends on reclaim: below 0 it costs more than it saves."""
    vmstat: dict[str, float]


class AppswitchTold(msgspec.Struct):
    """Printed by ``--json``."""

    request: AppswitchRequest
    zram: str
    """Its compression."""
    arms: list[ArmTold]
    """The base first."""
    comparison: Comparison
    notes: list[str]


def appswitch(request: AppswitchRequest, runner: Runner, console: Console) -> int:
    """Measure, judge, print. Returns the exit status."""
    check()
    if request.killer != "group":
        need_small_machine()
    if request.export is not None:
        compare.check_export(Path(request.export))
    asked = as_comparison(request)
    bench = Bench(runner, asked.options)
    judge, measured = compare.measure(asked, bench, console)
    judge = judge_of_what_is_left(asked, judge, measured)
    for text in why_runs_failed(measured):
        console.warn(text)
    comparison = compare.conclude(asked, bench, judge, measured)
    found = AppswitchTold(
        request, compression(), _arms(request, measured), comparison, list(vmstat.NOTES)
    )
    for text in comparison.warnings:
        console.warn(text)
    if request.context.json:
        console.raw(msgspec.json.encode(found).decode())
    else:
        show(found, console)
    if request.export is not None:
        write_export(Path(request.export), comparison, compare.raw_runs(measured))
    if measured.interrupted:
        return 130
    return compare.exit_status(comparison, request.question.require_better)


def judge_of_what_is_left(asked: CompareRequest, judge: Judge, measured: compare.Measured) -> Judge:
    """With a fixed number of blocks the one look is at those without a failed run.

    A run takes half a minute: one that failed is no reason to say nothing of the others.
    """
    if asked.blocks is None or measured.interrupted:
        return judge
    arms = range(1, len(measured.arms))
    left = min(len(measured.good_blocks(arm, JUDGED[0].name)) for arm in arms)
    if not 2 <= left < asked.blocks:
        return judge
    return fixed_judge(asked.question, asked.options.metrics, len(asked.arms), left)


def why_runs_failed(measured: compare.Measured) -> list[str]:
    """The last words of the first failed run of each arm."""
    told = []
    for index, arm in enumerate(measured.arms):
        replies = [o.reply for o in measured.failed(index) if isinstance(o.reply, Ran)]
        words = replies[0].record.stderr_tail.strip().splitlines() if replies else []
        if words:
            told.append(f"{arm.label}: {words[-1].removeprefix('error: ')}")
    return told


def as_comparison(request: AppswitchRequest) -> CompareRequest:
    """The comparison that it comes to: an arm is the command of a run."""
    unknown = [arm for arm in request.arms if arm not in ARMS]
    if unknown or len(set(request.arms)) < 2 or len(set(request.arms)) < len(request.arms):
        raise LabError(f"arms: two or more different ones of {', '.join(ARMS)}")
    counters = (Metric(VM + row, Json(f"/vm/{row}")) for row in vmstat.rows(vmstat.read()))
    base, *others = (
        Arm(name, _command(request, name), _settings(request, name)) for name in request.arms
    )
    return CompareRequest(
        context=msgspec.structs.replace(request.context, batch_options=["--as-root"]),
        options=RunOptions([*JUDGED, *SHOWN, *counters]),
        base=base,
        arms=others,
        question=msgspec.structs.replace(request.question, objectives=len(JUDGED)),
        blocks=request.blocks,
        budget_s=request.budget_s,
        export=request.export,
    )


def _settings(request: AppswitchRequest, arm: str) -> Settings:
    """A group has a swappiness of its own on cgroup v1 alone; on v2 it is the machine's."""
    if request.killer == "group" and hierarchy().version == 2 and not ARMS[arm].swaps:
        return {"vm.swappiness": "0"}
    return {}


def _command(request: AppswitchRequest, arm: str) -> list[str]:
    is_all = request.killer != "group"
    scene = Scene(
        arm=arm,
        kilter=request.context.kilter,
        seed=request.context.seed,
        apps=request.apps,
        switches=request.switches,
        app_mib=request.app_mib,
        limit_mib=None if is_all else request.limit_mib,
        zram_mib=request.swap_mib,
        think_s=request.think_s,
        killer=request.killer,
        # This process is larger than a small app that is in zram.
        waits=os.getpid() if is_all else None,
    )
    words = [sys.executable, "-I", "-m", "kilter_lab.reclaim.switching"]
    return [*words, msgspec.json.encode(scene).decode()]


def _arms(request: AppswitchRequest, measured: compare.Measured) -> list[ArmTold]:
    alpha = guard_alpha(request.question.alpha, len(request.arms) - 1)
    told: list[ArmTold] = []
    for index, name in enumerate(request.arms):
        means = {metric: _mean(measured, index, metric) for metric in _names(measured, index)}
        counts = {}
        for metric in COUNTS if index else ():
            blocks = measured.good_blocks(index, metric)
            base, arm = zip(*((sum(b) / 2, sum(a) / 2) for b, a in blocks), strict=True)
            counts[metric] = ratio(base, arm, alpha, request.question.region_percent)
        told.append(
            ArmTold(
                arm=name,
                about=ARMS[name].about,
                means={k: v for k, v in means.items() if not k.startswith(VM)},
                counts=counts,
                cpu_saved_s=_launch_cpu(told[0].means) - _all_cpu(means) if told else None,
                vmstat={k.removeprefix(VM): v for k, v in means.items() if k.startswith(VM)},
            )
        )
    return told


def _names(measured: compare.Measured, index: int) -> list[str]:
    runs = [o for o in measured.runs(index) if o.values]
    if not runs:
        raise LabError(f"no run of {measured.arms[index].label} went well")
    return list(runs[0].values)


def _mean(measured: compare.Measured, index: int, metric: str) -> float:
    values = arm_values(measured.runs(index), index, metric)
    return sum(values) / len(values)


def _launch_cpu(means: dict[str, float]) -> float:
    return means["cold_cpu_s"] + means["hot_cpu_s"]


def _all_cpu(means: dict[str, float]) -> float:
    return _launch_cpu(means) + means["reclaim_cpu_s"]


def show(found: AppswitchTold, console: Console) -> None:
    """Print everything that a person wants to know."""
    base, *others = found.arms
    asked = found.request
    console.data(
        f"{asked.apps} apps of {asked.app_mib} MiB, half of them dear to rebuild, "
        f"{asked.switches} switches; {_memory(asked)}, swap {asked.swap_mib} MiB on zram "
        f"({found.zram}); {wording.count(found.comparison.blocks, 'block')}, "
        f"seed {asked.context.seed}"
    )
    console.data()
    for line in _means_table(found.arms):
        console.data(line)
    console.data()
    by_name = {arm.arm: arm for arm in others}
    rows = [
        (arm.label, [*metric_rows(arm.verdicts, [], [], JUDGED), *_count_rows(by_name[arm.label])])
        for arm in found.comparison.arms
    ]
    confidence = found.comparison.arms[0].verdicts[0].confidence
    for line in ratio_table(rows, confidence, base.arm):
        console.data(line)
    console.data()
    shown = by_name.get("kilter", others[0])
    for line in counters_table(base, shown):
        console.data(line)
    console.data()
    for note in found.notes:
        console.data(Text(note, style="dim"))
    console.data()
    for arm in found.comparison.arms:
        console.data(Text(arm.sentence, style="bold"))


def _memory(asked: AppswitchRequest) -> str:
    if asked.killer == "group":
        return f"limit {asked.limit_mib} MiB, killer: the group's own"
    killer = "the kernel's own" if asked.killer == "kernel" else asked.killer
    return f"the whole machine, killer: {killer}"


COLUMNS = (
    ("kills", "kills", 1),
    ("cold", "cold_starts", 1),
    ("hot", "hot_starts", 1),
    ("mean s", "launch_mean_s", 3),
    ("p50 s", "launch_p50_s", 3),
    ("p90 s", "launch_p90_s", 3),
    ("CPU cold s", "cold_cpu_s", 2),
    ("CPU hot s", "hot_cpu_s", 2),
    ("CPU reclaim s", "reclaim_cpu_s", 2),
    ("stalled s", "stalled_s", 2),
    ("limit hits", "limit_hits", 0),
)


def _means_table(arms: list[ArmTold]) -> list[Text]:
    """A line an arm: means of its runs."""
    width = max(len("mean of a run"), *(len(arm.arm) for arm in arms))
    titles = [(title, max(len(title), 7)) for title, _, _ in COLUMNS]
    head = "".join(f"  {title:>{w}}" for title, w in titles) + "  CPU saved s"
    lines = [Text(f"{'mean of a run':<{width}}{head}", style="bold")]
    for arm in arms:
        cells = "".join(
            f"  {arm.means[name]:>{w}.{places}f}"
            for (_, name, places), (_, w) in zip(COLUMNS, titles, strict=True)
        )
        saved = "" if arm.cpu_saved_s is None else f"{arm.cpu_saved_s:.2f}"
        lines.append(Text(f"{arm.arm:<{width}}{cells}  {saved:>11}".rstrip()))
    return lines


def _count_rows(arm: ArmTold) -> list[Row]:
    return [
        Row(
            name.replace("_", " "),
            count.ratio if count.ratio is not None else float("nan"),
            count.low or 0.0,
            count.high or 0.0,
            count.high is not None,
            count.verdict,
        )
        for name, count in arm.counts.items()
    ]


def counters_table(base: ArmTold, arm: ArmTold) -> list[Text]:
    """The table of the patch set: counters of A and B, what B has more, and in percent of A."""
    name_width = max(len(name) for name in base.vmstat)
    head = f"{'A: ' + base.arm + ', B: ' + arm.arm:<{name_width}}"
    head += f"{'A':>14}{'B':>14}{'delta':>14}{'ratio(%)':>12}"
    lines = [Text(head, style="bold")]
    for name, a, b, delta, percent in vmstat.table(base.vmstat, arm.vmstat, base.vmstat):
        told = f"{percent:.2f}" if a else "0.00" if b == 0 else "–"
        lines.append(Text(f"{name:<{name_width}}{a:>14.0f}{b:>14.0f}{delta:>14.0f}{told:>12}"))
    return lines
