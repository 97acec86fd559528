"""The charts of effects: promised against confirmed, and every trial.

Each returns ``None`` where the study holds nothing to draw. Points are thinned where a study is
too large for a page, and the chart's text then says so.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kilter_lab import report_numbers as numbers
from kilter_lab.charts_parts import (
    THINNED,
    name_below,
    name_of,
    no_change,
    percent_over_count,
    region_key,
    row_label,
)
from kilter_lab.charts_svg import (
    BASE,
    PAPER,
    WARN,
    WINNER,
    Chart,
    Key,
    Size,
    axes,
    chart,
    ticks,
)
from kilter_lab.messages import VerdictRecord
from kilter_lab.report_numbers import MOST_POINTS, Point, thinned
from kilter_lab.report_text import (
    count,
    interval,
    percent,
    percent_of,
    tick_percent,
    usable,
    wanted,
)
from kilter_lab.study import StudyData, better_is_lower

MOST_INTERVALS = 150
"""Trials above which their intervals are not drawn."""


# Promised against confirmed


def promise(data: StudyData) -> Chart | None:
    """The two estimates of the winner as dots with intervals, beside no change."""
    rows: list[tuple[str, VerdictRecord, bool]] = []
    if data.promised is not None and usable(data.promised.ratio):
        rows.append(("promised by the search", data.promised, False))
    if data.confirmed and usable(data.confirmed[0].ratio):
        rows.append(("measured on fresh blocks", data.confirmed[0], True))
    if not rows:
        return None
    metric = numbers.deciding(data)
    name = name_of(metric)
    text = "; ".join(
        f"{label}: {percent(verdict.ratio)}, interval {interval(verdict.low, verdict.high)}"
        for label, verdict, _ in rows
    )

    def draw(figure: Figure, size: Size) -> None:
        made = axes(figure, size, left=18, right=18, top=8, bottom=46)
        _promise_axes(made, rows, data.region_percent, size)
        name_below(made, f"change of {name} ({wanted(metric.direction)})")

    title = f"Promised and confirmed change of {name}"
    return chart("promise", title, text, [region_key(data)], 62.0 + 62.0 * len(rows), draw)


def _promise_axes(
    made: Axes, rows: list[tuple[str, VerdictRecord, bool]], region: float, size: Size
) -> None:
    made.set_ylim(len(rows) - 0.35, -0.75)
    made.set_yticks([])
    no_change(made, "x", region)
    reach = [percent_of(verdict.ratio) for _, verdict, _ in rows]
    for place, (label, verdict, fresh) in enumerate(rows):
        reach.extend(_estimate_row(made, place, verdict, fresh))
        row_label(made, place - 0.36, f"{label}:  {percent(verdict.ratio)}")
    low, high = min(*reach, -1.5 * min(region, 100.0)), max(*reach, 1.5 * min(region, 100.0))
    margin = 0.06 * (high - low) or 1.0
    made.set_xlim(low - margin, high + margin)
    ticks(made, "x", 4 if size.narrow else 8, tick_percent)


def _estimate_row(made: Axes, place: int, verdict: VerdictRecord, fresh: bool) -> list[float]:
    colour = WINNER if fresh else BASE
    centre = percent_of(verdict.ratio)
    low, high = usable(verdict.low), usable(verdict.high)
    ends = [percent_of(low), percent_of(high)] if low and high else []
    if ends:
        made.plot(ends, [place, place], color=colour, linewidth=2.4, solid_capstyle="butt")
        made.plot(ends, [place, place], "|", color=colour, markersize=11, markeredgewidth=1.8)
    face = WINNER if fresh else PAPER
    made.plot([centre], [place], "o", color=face, mec=colour, mew=2.0, markersize=9.5)
    return ends


# Trials


def trials(data: StudyData) -> Chart | None:
    """Every trial's estimate over its number, with the best so far."""
    known = sorted(
        (trial for trial in data.trials if usable(trial.ratio)), key=lambda trial: trial.number
    )
    if not known:
        return None
    points = [(float(trial.number), percent_of(trial.ratio or 1.0)) for trial in known]
    failed = [float(trial.number) for trial in data.trials if not usable(trial.ratio)]
    metric = numbers.deciding(data)
    best = _best_so_far(points, lower=better_is_lower(metric.direction))
    bounds = _robust_bounds([value for _, value in points], data.region_percent)
    beyond = sum(not bounds[0] <= value <= bounds[1] for _, value in points)
    # The baseline itself may be a trial, of no block.
    fewest = min((trial.blocks for trial in known if trial.blocks), default=0)
    longer = {float(trial.number) for trial in known if trial.blocks > fewest}
    bars = []
    if len(known) <= MOST_INTERVALS:
        bars = [
            (float(trial.number), percent_of(trial.low), percent_of(trial.high))
            for trial in known
            if trial.low and trial.high and usable(trial.low) and usable(trial.high)
        ]
        # A few blocks can give intervals many times as long as the scale: bars, but no picture.
        longest = 1.5 * (bounds[1] - bounds[0])
        bars = [bar for bar in bars if bar[2] - bar[1] <= longest]

    def draw(figure: Figure, size: Size) -> None:
        made = axes(figure, size, left=52, right=10, top=10, bottom=46)
        no_change(made, "y", data.region_percent)
        for number, low, high in bars:
            made.plot([number, number], [low, high], color=BASE, linewidth=1.0, alpha=0.4)
        _trial_points(made, points, longer, bounds)
        made.step(*zip(*best, strict=True), where="post", color=WINNER, linewidth=2.0)
        if failed:
            floor = [(number, bounds[0]) for number in failed]
            mark = 6.0 if len(failed) < 30 else 4.0
            made.plot(
                *zip(*thinned(floor), strict=True),
                "x",
                color=WARN,
                markersize=mark,
                mew=mark / 4.0,
                clip_on=False,
            )
        made.set_ylim(*bounds)
        percent_over_count(made, 5 if size.narrow else 10, "trial")

    keys = [
        Key("hollow", "trial"),
        *([Key("base", "trial that was given more blocks")] if longer else []),
        Key("line", "best estimate so far"),
        region_key(data),
    ]
    if failed:
        keys.append(Key("cross", "failed"))
    name = name_of(metric)
    text = _trials_text(data, points, len(failed), beyond)
    title = f"Estimated change of {name} in each trial ({wanted(metric.direction)})"
    return chart("trials", title, text, keys, 320.0, draw)


def _trials_text(data: StudyData, points: list[Point], failed: int, beyond: int) -> str:
    lower = better_is_lower(numbers.deciding(data).direction)
    best = min(value for _, value in points) if lower else max(value for _, value in points)
    text = (
        f"{count(len(points), 'trial')} with an estimate, {failed} failed; the best estimate is "
        f"{percent(1.0 + best / 100.0)}."
    )
    if beyond:
        text += f" Beyond the scale: {count(beyond, 'trial')}, drawn as triangles at its edge."
    if len(points) > MOST_POINTS:
        text += THINNED
    elif len(points) > MOST_INTERVALS:
        text += " With so many trials, their intervals are left to the table."
    return text


def _best_so_far(points: list[Point], *, lower: bool) -> list[Point]:
    best: list[Point] = []
    for number, value in points:
        if not best or (value < best[-1][1] if lower else value > best[-1][1]):
            best.append((number, value))
    return [*best, (points[-1][0], best[-1][1])]


def _robust_bounds(sample: list[float], region: float) -> tuple[float, float]:
    """A scale that a few extreme trials cannot stretch; it always shows no change."""
    room_around = 1.5 * min(max(region, 0.0), 100.0)
    ordered = sorted(sample)
    last = len(ordered) - 1
    low, high = ordered[round(0.05 * last)], ordered[round(0.95 * last)]
    room = max(high - low, 1.0)
    bottom = min(max(ordered[0], low - room), -room_around)
    top = max(min(ordered[-1], high + room), room_around)
    margin = 0.07 * (top - bottom) or 1.0
    return bottom - margin, top + margin


def _trial_points(
    made: Axes, points: list[Point], longer: set[float], bounds: tuple[float, float]
) -> None:
    low, high = bounds
    inside = [point for point in points if low <= point[1] <= high]
    first = thinned([point for point in inside if point[0] not in longer])
    more = thinned([point for point in inside if point[0] in longer])
    above = thinned([(number, high) for number, value in points if value > high])
    below = thinned([(number, low) for number, value in points if value < low])
    looks = [(first, "o", PAPER), (more, "o", BASE), (above, "^", PAPER), (below, "v", PAPER)]
    for group, marker, face in looks:
        if group:
            made.plot(
                *zip(*group, strict=True),
                marker,
                markersize=5.5,
                color=face,
                mec=BASE,
                mew=1.3,
                clip_on=False,
            )
