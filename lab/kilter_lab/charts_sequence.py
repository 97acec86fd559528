"""The chart of an interval that closes in: estimate and interval after each block."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kilter_lab.charts_parts import name_of, no_change, percent_over_count, region_key
from kilter_lab.charts_svg import (
    BASE,
    PAPER,
    WINNER,
    Chart,
    Key,
    Size,
    axes,
    chart,
)
from kilter_lab.comparison import Look
from kilter_lab.messages import VerdictRecord
from kilter_lab.narrowing import block_logs
from kilter_lab.report_numbers import (
    Point,
    deciding_verdicts,
    thinned,
    told_arms,
    usable_looks,
)
from kilter_lab.report_text import (
    count,
    interval,
    percent,
    percent_of,
    usable,
    wanted,
)
from kilter_lab.report_verdict import known_metric
from kilter_lab.study import StudyData

MOST_CHARTS = 4
SETTLED = 4
"""Blocks from which intervals set the scale: those of two or three are many times as wide."""
MOST_LOOKS = 300
"""Looks that are drawn; of more, evenly many."""


def sequences(data: StudyData) -> list[Chart]:
    """One chart for each deciding metric whose interval has a course."""
    made = [
        _chart(data, verdict, number)
        for number, verdict in enumerate(deciding_verdicts(data)[:MOST_CHARTS])
    ]
    return [drawn for drawn in made if drawn is not None]


def _chart(data: StudyData, verdict: VerdictRecord, number: int) -> Chart | None:
    looks = usable_looks(data, verdict.metric)
    if len(looks) < 2 or not usable(verdict.ratio):
        return None
    metric = known_metric(data, verdict.metric)
    name = name_of(metric)
    looks = [looks[i] for i in _spread_out(len(looks))]
    runs = [run for _, arm in told_arms(data) for run in arm]
    singles = [
        (float(place), math.expm1(log) * 100.0)
        for place, log in enumerate(block_logs(runs, verdict.metric), 1)
        if usable(math.exp(log))
    ]
    final = (verdict, float(looks[-1].blocks))
    repeated = verdict.looks > 1

    def draw(figure: Figure, size: Size) -> None:
        made = axes(figure, size, left=56, right=14, top=10, bottom=46)
        no_change(made, "y", data.region_percent)
        _course(made, looks, thinned(singles), repeated=repeated)
        _final(made, *final)
        made.set_ylim(*_bounds(looks, singles, verdict, data.region_percent))
        made.set_xlim(0.4, final[1] + 0.02 * final[1] + 0.5)
        percent_over_count(made, 6 if size.narrow else 12, "fresh blocks")

    keys = [
        Key("hollow", "a block by itself"),
        Key("line", "estimate after so many blocks"),
        Key("tint", _interval_key(verdict)),
        Key("winner", "what counts" if not repeated else "the last one, told above"),
        region_key(data),
    ]
    title = f"Change of {name} after each fresh block ({wanted(metric.direction)})"
    text = _text(looks, verdict)
    return chart(f"sequence-{number}", title, text, keys, 300.0, draw)


def _spread_out(length: int) -> list[int]:
    if length <= MOST_LOOKS:
        return list(range(length))
    return sorted({round(i * (length - 1) / (MOST_LOOKS - 1)) for i in range(MOST_LOOKS)})


def _interval_key(verdict: VerdictRecord) -> str:
    level = f"{verdict.confidence * 100:.4g} %"
    if verdict.looks > 1:
        return f"repeated {level} interval: holds for all looks together"
    return f"{level} interval of these blocks alone: decides nothing"


def _text(looks: list[Look], verdict: VerdictRecord) -> str:
    first, last = looks[0], looks[-1]
    return (
        f"After {count(first.blocks, 'block')} the interval was {interval(first.low, first.high)}, "
        f"after {count(last.blocks, 'block')} {interval(last.low, last.high)} "
        f"around {percent(verdict.ratio)}."
    )


def _course(made: Axes, looks: list[Look], singles: list[Point], *, repeated: bool) -> None:
    at = [float(look.blocks) for look in looks]
    low = [percent_of(look.low) for look in looks]
    high = [percent_of(look.high) for look in looks]
    made.fill_between(at, low, high, color=WINNER, alpha=0.2 if repeated else 0.1, linewidth=0)
    for edge in (low, high):
        made.plot(at, edge, color=WINNER, linewidth=1.2, alpha=0.9 if repeated else 0.35)
    if singles:
        made.plot(*zip(*singles, strict=True), "o", color=PAPER, mec=BASE, mew=1.1, markersize=5.0)
    made.plot(at, [percent_of(look.ratio) for look in looks], color=WINNER, linewidth=2.0)


def _final(made: Axes, verdict: VerdictRecord, at: float) -> None:
    centre = percent_of(verdict.ratio)
    low, high = usable(verdict.low), usable(verdict.high)
    if low and high:
        ends = [percent_of(low), percent_of(high)]
        made.plot([at, at], ends, color=WINNER, linewidth=2.6, solid_capstyle="butt", zorder=4)
        made.plot([at, at], ends, "_", color=WINNER, markersize=12, markeredgewidth=2.0, zorder=4)
    made.plot([at], [centre], "o", color=WINNER, mec=PAPER, mew=1.2, markersize=9.5, zorder=5)


def _bounds(
    looks: list[Look], singles: list[Point], verdict: VerdictRecord, region: float
) -> tuple[float, float]:
    """A scale on which the end can be read; it always shows no change."""
    room = 1.5 * min(max(region, 0.0), 100.0)
    settled = [look for look in looks if look.blocks >= SETTLED] or looks[-1:]
    last = looks[-1]
    width = max(percent_of(last.high) - percent_of(last.low), 0.1)
    reach = [percent_of(look.low) for look in settled]
    reach += [percent_of(look.high) for look in settled]
    reach += [value for _, value in singles]
    centre = percent_of(verdict.ratio)
    # Early intervals may be as wide as they like; what is far away is cut.
    low = max(min(reach), centre - 4.0 * width)
    high = min(max(reach), centre + 4.0 * width)
    low, high = min(low, -room), max(high, room)
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin
