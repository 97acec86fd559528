"""The text of a comparison: each arm's numbers, the ratios, and one plain sentence an arm."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from kilter_lab.comparison import ArmResult, Comparison
from kilter_lab.console import Console
from kilter_lab.measure import Observation, arm_values
from kilter_lab.messages import CompareRequest, Metric, Ran, VerdictRecord
from kilter_lab.outcome import GuardRecord, Shown
from kilter_lab.wording import guard_text, metric_label, quantity, unit

RANGE = "range (min … max):"
COLOURS = {
    "better": "green",
    "worse": "red",
    "trade-off": "magenta",
    "no-difference": "",
    "inconclusive": "yellow",
    "held": "green",
    "broken": "red",
    "open": "yellow",
}


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
        [(arm.label, arm_rows(arm, metrics)) for arm in comparison.arms],
        comparison.arms[0].verdicts[0].confidence,
        comparison.base.label,
    ):
        console.data(line)
    console.data()
    for arm in comparison.arms:
        console.data(Text(arm.sentence, style=f"bold {COLOURS[arm.conclusion]}".strip()))


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


@dataclass(frozen=True)
class Row:
    """One line of the table of ratios."""

    name: str
    ratio: float
    low: float
    high: float
    known: bool
    """Whether there is an interval."""
    word: str = ""
    """Verdict or a guard's outcome; empty for a metric that is only shown."""
    detail: str = ""


def arm_rows(arm: ArmResult, metrics: Sequence[Metric]) -> list[Row]:
    """The lines of an arm."""
    return metric_rows(arm.verdicts, arm.guards, arm.shown, metrics)


def metric_rows(
    verdicts: Sequence[VerdictRecord],
    guards: Sequence[GuardRecord],
    shown: Sequence[Shown],
    metrics: Sequence[Metric],
) -> list[Row]:
    """Lines of verdicts, guards, and all other metrics."""
    return [
        *(
            Row(_name(v.metric, metrics), v.ratio, v.low, v.high, v.looks > 0, v.verdict)
            for v in verdicts
        ),
        *(
            Row(
                _name(g.guard.metric, metrics), g.ratio, g.low, g.high, g.low < g.high,
                g.outcome, guard_text(g.guard),
            )
            for g in guards
        ),
        *(Row(_name(s.metric, metrics), s.ratio, s.low, s.high, True) for s in shown),
    ]  # fmt: skip


def _name(metric: str, metrics: Sequence[Metric]) -> str:
    return metric_label(next(m for m in metrics if m.name == metric))


def ratio_table(
    arms: Sequence[tuple[str, Sequence[Row]]], confidence: float, base: str
) -> list[Text]:
    """Ratio, interval and verdict of every metric of every arm."""
    width = max([len(f"ratio to {base}"), *(len(r.name) + 2 for _, rows in arms for r in rows)])
    interval = f"{100 * confidence:.3g} % interval"
    lines = [Text(f"{f'ratio to {base}':<{width}}  {'':>7}  {interval:^17}".rstrip(), style="bold")]
    for label, rows in arms:
        if len(arms) > 1:
            lines.append(Text(label, style="cyan"))
        lines += [_ratio_row(row, width) for row in rows]
    return lines


def _ratio_row(row: Row, width: int) -> Text:
    ends = f"{row.low:.3f} … {row.high:.3f}" if row.known else "–"
    text = Text(f"{f'  {row.name}':<{width}}  {row.ratio:>7.3f}  {ends:^17}")
    if row.word:
        text.append("  ")
        text.append(row.word.replace("-", " "), style=COLOURS[row.word] or "default")
    if row.detail:
        text.append(f"  ({row.detail})", style="dim")
    text.rstrip()
    return text
