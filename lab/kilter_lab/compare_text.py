"""The text of a comparison: each arm's numbers, the ratios, and one plain sentence an arm."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence

from rich.text import Text

from kilter_lab.comparison import ArmResult, Comparison
from kilter_lab.console import Console
from kilter_lab.measure import Observation, arm_values
from kilter_lab.messages import CompareRequest, Metric, Ran, VerdictRecord
from kilter_lab.wording import metric_label, quantity, unit

RANGE = "range (min … max):"
COLOURS = {"better": "green", "worse": "red", "no-difference": "", "inconclusive": "yellow"}


def show(
    comparison: Comparison,
    request: CompareRequest,
    blocks: Sequence[Sequence[Observation]],
    console: Console,
) -> None:
    """Print everything that a person wants to know."""
    runs = [o for block in blocks for o in block]
    metrics = request.options.metrics
    width = max(len(RANGE), *(len(_median_label(m)) for m in metrics))
    for index, arm in enumerate([comparison.base, *comparison.arms]):
        console.data(_heading(comparison, arm, index))
        own = [o for o in runs if o.arm == index]
        for metric in metrics:
            for line in _measured(own, index, metric, width, metric is metrics[0]):
                console.data(line)
        console.data()
    for line in ratio_table(
        [(arm.label, arm.verdicts) for arm in comparison.arms],
        request.options.metrics,
        comparison.base.label,
    ):
        console.data(line)
    console.data()
    for arm in comparison.arms:
        console.data(Text(arm.sentence, style=f"bold {COLOURS[arm.verdicts[0].verdict]}".strip()))


def _heading(comparison: Comparison, arm: ArmResult, index: int) -> Text:
    name = "Base" if index == 0 else f"Arm {index}"
    text = Text.assemble((name, "bold"), ": ", (arm.label, "cyan"))
    same = all(a.command == comparison.base.command for a in comparison.arms)
    if (index == 0 or not same) and shlex.join(arm.command) != arm.label:
        text.append(f"  ({shlex.join(arm.command)})", style="dim")
    return text


def _median_label(metric: Metric) -> str:
    return f"{metric_label(metric)} (median ± σ):"


def _measured(
    own: Sequence[Observation], index: int, metric: Metric, width: int, decides: bool
) -> list[Text]:
    found = arm_values(own, index, metric.name)
    if not found:
        return []
    of_unit, middle = unit(metric), statistics.median(found)
    spread = statistics.stdev(found) if len(found) > 1 else 0.0
    first = Text.assemble(
        f"  {_median_label(metric):<{width}}",
        (f"{quantity(middle, of_unit):>12}", "green bold"),
        " ± ",
        (f"{quantity(spread, of_unit, middle):>10}", "green"),
    )
    if not decides:
        return [first]
    first.append(f"    {_cpu_times(own)}", style="blue")
    second = Text.assemble(
        f"  {RANGE:<{width}}",
        (f"{quantity(min(found), of_unit, middle):>12}", "cyan"),
        " … ",
        (f"{quantity(max(found), of_unit, middle):>10}", "magenta"),
        (f"    {len(found)} runs", "dim"),
    )
    return [first, second]


def _cpu_times(own: Sequence[Observation]) -> str:
    records = [o.reply.record for o in own if isinstance(o.reply, Ran) and o.values]
    user = statistics.median(r.user_s for r in records)
    system = statistics.median(r.sys_s for r in records)
    return f"[user: {quantity(user, 's')}, sys: {quantity(system, 's')}]"


def ratio_table(
    arms: Sequence[tuple[str, Sequence[VerdictRecord]]], metrics: Sequence[Metric], base: str
) -> list[Text]:
    """Ratio, interval and verdict of every metric of every arm."""
    by_name = {m.name: m for m in metrics}
    rows = [(label, v) for label, verdicts in arms for v in verdicts]
    names = [metric_label(by_name[v.metric]) for _, v in rows]
    width = max([len(f"ratio to {base}"), *(len(n) + 2 for n in names)])
    interval = f"{100 * rows[0][1].confidence:.0f} % interval" if rows else ""
    lines = [Text(f"{f'ratio to {base}':<{width}}  {'':>7}  {interval:^17}".rstrip(), style="bold")]
    shown = ""
    for (label, v), name in zip(rows, names, strict=True):
        if len(arms) > 1 and label != shown:
            lines.append(Text(label, style="cyan"))
            shown = label
        lines.append(_ratio_row(name, v, width))
    return lines


def _ratio_row(name: str, v: VerdictRecord, width: int) -> Text:
    ends = f"{v.low:.3f} … {v.high:.3f}" if v.blocks > 1 else "–"
    text = Text(f"{f'  {name}':<{width}}  {v.ratio:>7.3f}  {ends:^17}  ")
    text.append(v.verdict.replace("-", " "), style=COLOURS[v.verdict] or "default")
    return text
