"""The chart of a Pareto set: every candidate's change of one metric against that of another."""

from __future__ import annotations

from matplotlib.figure import Figure

from kilter_lab import report_numbers as numbers
from kilter_lab.charts_parts import name_below, name_of
from kilter_lab.charts_svg import (
    BASE,
    INK,
    PAPER,
    WINNER,
    Chart,
    Key,
    Size,
    axes,
    chart,
    ticks,
)
from kilter_lab.messages import VerdictRecord
from kilter_lab.report_tables import arm_name
from kilter_lab.report_text import percent, percent_of, tick_percent, usable, wanted
from kilter_lab.study import FrontMember, StudyData

Pair = tuple[VerdictRecord, VerdictRecord]


def front(data: StudyData) -> Chart | None:
    """The first two deciding metrics; None unless several candidates have both."""
    metrics = numbers.objectives(data)[:2]
    if len(metrics) < 2:
        return None
    shown = [(m, p) for m in data.front if (p := _pair(m, [x.name for x in metrics])) is not None]
    if len(shown) < 2:
        return None
    across, up = (name_of(m) for m in metrics)

    def draw(figure: Figure, size: Size) -> None:
        made = axes(figure, size, left=60, right=24, top=14, bottom=46)
        made.axhline(0.0, color=INK, linewidth=1.0)
        made.axvline(0.0, color=INK, linewidth=1.0)
        for member, (x, y) in shown:
            better = member.conclusion == "better"
            colour = WINNER if better else BASE
            at = percent_of(x.ratio), percent_of(y.ratio)
            made.plot([percent_of(x.low), percent_of(x.high)], [at[1]] * 2, color=colour)
            made.plot([at[0]] * 2, [percent_of(y.low), percent_of(y.high)], color=colour)
            face = colour if better else PAPER
            made.plot(*at, "o", color=face, mec=colour, mew=2.0, markersize=8.0)
            words = arm_name(data, member.arm)
            made.annotate(words, at, (6, 6), textcoords="offset points", color=INK)
        made.margins(0.15)
        ticks(made, "x", 4 if size.narrow else 8, tick_percent)
        ticks(made, "y", 6, tick_percent)
        name_below(made, f"change of {across} ({wanted(metrics[0].direction)})")

    text = "; ".join(
        f"{arm_name(data, member.arm)}: {percent(x.ratio)} in {across}, {percent(y.ratio)} in {up}"
        for member, (x, y) in shown
    )
    keys = [Key("winner", "better"), Key("hollow", "anything else")]
    title = f"Change of {up} ({wanted(metrics[1].direction)}) over that of {across}"
    return chart("front", title, text, keys, 320.0, draw)


def _pair(member: FrontMember, names: list[str]) -> Pair | None:
    found = {v.metric: v for v in member.verdicts}
    x, y = found.get(names[0]), found.get(names[1])
    if x is None or y is None:
        return None
    ends = (x.ratio, x.low, x.high, y.ratio, y.low, y.high)
    return (x, y) if all(usable(end) for end in ends) else None
