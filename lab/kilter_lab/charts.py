"""The charts of a report: promise, trials, arms, drift.

Each returns ``None`` where the study holds nothing to draw. Points are thinned where a study is
too large for a page, and the chart's text then says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from kilter_lab import report_numbers as numbers
from kilter_lab.charts_svg import (
    BAND,
    BASE,
    FONT,
    INK,
    PAPER,
    RULE,
    SOFT,
    WARN,
    WINNER,
    Chart,
    Key,
    Size,
    axes,
    chart,
    ticks,
)
from kilter_lab.messages import Metric, VerdictRecord
from kilter_lab.report_tables import CONFIRM_METRICS, arm_name
from kilter_lab.report_text import (
    MINUS,
    duration,
    interval,
    percent,
    percent_of,
    quantity,
    short,
    usable,
)
from kilter_lab.study import Run, StudyData, better_is_lower

MOST_POINTS = 600
"""Points of one kind in a chart."""
MOST_INTERVALS = 150
"""Trials above which their intervals are not drawn."""
MOST_ARMS = 8

Point = tuple[float, float]


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """At most ``most`` points: the lowest and the highest of each stretch, so extremes stay."""
    if len(points) <= most:
        return list(points)
    stretches = max(1, most // 2)
    kept: list[Point] = []
    for number in range(stretches):
        start = number * len(points) // stretches
        stretch = points[start : (number + 1) * len(points) // stretches]
        ends = {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])}
        kept.extend(sorted(ends))
    return kept


def _signed(value: float, _place: int | None = None) -> str:
    if abs(value) < 1e-9:
        return "0"
    return f"{MINUS if value < 0 else '+'}{abs(value):,g} %"


def _plain(value: float, _place: int | None = None) -> str:
    return f"{value:,.10g}".replace("-", MINUS)


def _direction(metric: Metric) -> str:
    return "lower is better" if better_is_lower(metric.direction) else "higher is better"


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
    name = short(metric.name, 40)
    text = "; ".join(
        f"{label}: {percent(verdict.ratio)}, interval {interval(verdict.low, verdict.high)}"
        for label, verdict, _ in rows
    )
    keys = [
        Key("hollow", "estimate of the search"),
        Key("winner", "fresh blocks"),
        Key("band", f"region of equivalence, ± {data.region_percent:g} %"),
    ]

    def draw(figure: Figure, size: Size) -> None:
        made = axes(figure, size, left=18, right=18, top=8, bottom=46)
        _promise_axes(made, rows, data.region_percent, size)
        made.set_xlabel(f"change of {name} ({_direction(metric)})", color=SOFT, labelpad=6)

    title = f"Promised and confirmed change of {name}"
    return chart("promise", title, text, keys, 62.0 + 62.0 * len(rows), draw)


def _promise_axes(
    made: Axes, rows: list[tuple[str, VerdictRecord, bool]], region: float, size: Size
) -> None:
    made.set_ylim(len(rows) - 0.35, -0.75)
    made.set_yticks([])
    if 0.0 < region < 1e6:
        made.axvspan(-region, region, color=BAND, linewidth=0)
    made.axvline(0.0, color=INK, linewidth=1.2)
    reach = [percent_of(verdict.ratio) for _, verdict, _ in rows]
    for place, (label, verdict, fresh) in enumerate(rows):
        reach.extend(_estimate_row(made, place, verdict, fresh))
        words = f"{label}:  {percent(verdict.ratio)}"
        made.annotate(
            words,
            (0.0, place - 0.36),
            xycoords=("axes fraction", "data"),
            color=INK,
            fontsize=FONT + 0.5,
            va="center",
        )
    low, high = min(*reach, -1.5 * min(region, 100.0)), max(*reach, 1.5 * min(region, 100.0))
    margin = 0.06 * (high - low) or 1.0
    made.set_xlim(low - margin, high + margin)
    ticks(made, "x", 4 if size.narrow else 8)
    made.xaxis.set_major_formatter(FuncFormatter(_signed))


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
    bounds = _robust_bounds([value for _, value in points])
    beyond = sum(not bounds[0] <= value <= bounds[1] for _, value in points)
    fewest = min(trial.blocks for trial in known)
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
        made.axhspan(-data.region_percent, data.region_percent, color=BAND, linewidth=0)
        made.axhline(0.0, color=INK, linewidth=1.2)
        for number, low, high in bars:
            made.plot([number, number], [low, high], color=BASE, linewidth=1.0, alpha=0.4)
        _trial_points(made, points, longer, bounds)
        made.step(*zip(*best, strict=True), where="post", color=WINNER, linewidth=2.0)
        if failed:
            floor = [bounds[0]] * len(failed)
            made.plot(failed, floor, "x", color=WARN, markersize=6, mew=1.6, clip_on=False)
        made.set_ylim(*bounds)
        ticks(made, "y", 6)
        ticks(made, "x", 5 if size.narrow else 10, whole=True)
        made.yaxis.set_major_formatter(FuncFormatter(_signed))
        made.xaxis.grid(False)
        made.set_xlabel("trial", color=SOFT, labelpad=6)

    keys = [
        Key("hollow", "trial"),
        Key("base", "trial that was given more blocks"),
        Key("line", "best estimate so far"),
        Key("band", f"± {data.region_percent:g} %"),
    ]
    if failed:
        keys.append(Key("cross", "failed"))
    name = short(metric.name, 40)
    text = _trials_text(data, points, len(failed), beyond)
    title = f"Estimated change of {name} in each trial ({_direction(metric)})"
    return chart("trials", title, text, keys, 320.0, draw)


def _trials_text(data: StudyData, points: list[Point], failed: int, beyond: int) -> str:
    lower = better_is_lower(numbers.deciding(data).direction)
    best = min(value for _, value in points) if lower else max(value for _, value in points)
    text = (
        f"{len(points)} trials with an estimate, {failed} failed; the best estimate is "
        f"{percent(1.0 + best / 100.0)}."
    )
    if beyond:
        text += f" {beyond} beyond the scale are drawn as triangles at its edge."
    if len(points) > MOST_POINTS:
        text += " Points are thinned; the lowest and highest of each stretch are kept."
    elif len(points) > MOST_INTERVALS:
        text += " With so many trials, their intervals are left to the table."
    return text


def _best_so_far(points: list[Point], *, lower: bool) -> list[Point]:
    best: list[Point] = []
    for number, value in points:
        if not best or (value < best[-1][1] if lower else value > best[-1][1]):
            best.append((number, value))
    return [*best, (points[-1][0], best[-1][1])]


def _robust_bounds(sample: list[float]) -> tuple[float, float]:
    """A scale that a few extreme trials cannot stretch; it always shows no change."""
    ordered = sorted(sample)
    last = len(ordered) - 1
    low, high = ordered[round(0.05 * last)], ordered[round(0.95 * last)]
    room = max(high - low, 1.0)
    bottom = min(max(ordered[0], low - room), 0.0)
    top = max(min(ordered[-1], high + room), 0.0)
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


# Arms


def arms(data: StudyData) -> list[Chart]:
    """For each metric: every run of the confirmation, an arm a row, with its box."""
    made = [
        _arms_chart(data, metric, place)
        for place, metric in enumerate(data.metrics[:CONFIRM_METRICS])
    ]
    return [drawn for drawn in made if drawn is not None]


def _arms_chart(data: StudyData, metric: Metric, place: int) -> Chart | None:
    rows = [(arm, runs) for arm, runs in numbers.confirm_arms(data)[:MOST_ARMS]]
    rows = [(arm, runs) for arm, runs in rows if numbers.values(runs, metric.name)]
    if not rows:
        return None
    name = short(metric.name, 40)
    unit = f" ({short(metric.unit, 20)})" if metric.unit else ""

    def draw(figure: Figure, size: Size) -> None:
        made = axes(figure, size, left=12, right=14, top=4, bottom=46)
        made.set_ylim(len(rows) - 0.46, -0.6)
        made.set_yticks([])
        for row, (arm, runs) in enumerate(rows):
            _arm_row(made, row, arm, runs, metric)
        made.margins(x=0.05)
        ticks(made, "x", 4 if size.narrow else 9)
        made.xaxis.set_major_formatter(FuncFormatter(_plain))
        made.set_xlabel(f"{name}{unit}, {_direction(metric)}", color=SOFT, labelpad=6)

    text = "; ".join(_arm_words(arm, runs, metric) for arm, runs in rows)
    title = f"{name}: every run of the confirmation"
    keys = [Key("base", "a run"), Key("box", "middle half and median")]
    return chart(f"arms-{place}", title, text, keys, 52.0 + 76.0 * len(rows), draw)


def _arm_words(arm: str, runs: list[Run], metric: Metric) -> str:
    found = numbers.spread(runs, metric.name)
    if found is None:
        return ""
    return (
        f"{short(arm_name(arm), 40)}: {found.runs} runs, median "
        f"{quantity(found.median, metric.unit)}, from {quantity(found.least)} to "
        f"{quantity(found.most, metric.unit)}"
    )


def _arm_row(made: Axes, row: int, arm: str, runs: list[Run], metric: Metric) -> None:
    sample = numbers.values(runs, metric.name)
    found = numbers.spread(runs, metric.name)
    if found is None:
        return
    colour = BASE if arm == numbers.BASE else WINNER
    # From top to bottom in the order of the runs: a leaning cloud is a drift.
    step = 0.34 / max(1, len(sample) - 1)
    points = thinned([(row - 0.17 + place * step, value) for place, value in enumerate(sample)])
    made.plot(
        [value for _, value in points],
        [height for height, _ in points],
        "o",
        color=colour,
        mec=PAPER,
        mew=0.8,
        markersize=6.5,
        alpha=0.85,
    )
    _box(made, row + 0.31, found, colour)
    label = f"{short(arm_name(arm), 28)}  ·  median {quantity(found.median, metric.unit)}"
    made.annotate(
        label,
        (0.0, row - 0.4),
        xycoords=("axes fraction", "data"),
        color=INK,
        fontsize=FONT + 0.5,
        va="center",
    )


def _box(made: Axes, height: float, found: numbers.Spread, colour: str) -> None:
    made.plot([found.least, found.most], [height, height], color=colour, linewidth=1.2)
    made.plot(
        [found.lower, found.upper],
        [height, height],
        color=colour,
        linewidth=9.0,
        alpha=0.45,
        solid_capstyle="butt",
    )
    made.plot([found.median], [height], "|", color=INK, markersize=11, markeredgewidth=2.2)


# Drift


def drift(data: StudyData) -> Chart | None:
    """The baseline's runs over time, phases marked, steal time below."""
    metric = numbers.deciding(data)
    runs = [run for run in numbers.base_runs(data) if numbers.values([run], metric.name)]
    if not runs:
        return None
    scale, unit = _time_scale(runs[-1].at_s - runs[0].at_s)
    points = [(run.at_s / scale, run.metrics[metric.name]) for run in runs]
    cpus = data.machine.cpus
    steal = [(run.at_s / scale, 100.0 * numbers.steal_share(run, cpus)) for run in runs]
    marked = [
        point
        for point, (_, share) in zip(points, steal, strict=True)
        if share > 100.0 * numbers.STEAL_MARK
    ]
    name = short(metric.name, 40)
    label = f"{name} ({short(metric.unit, 20)})" if metric.unit else name
    below = 74.0 if any(share > 0.0 for _, share in steal) else 0.0

    def draw(figure: Figure, size: Size) -> None:
        made = axes(figure, size, left=56, right=10, top=24, bottom=46 + below)
        _drift_points(made, points, marked)
        ticks(made, "y", 5)
        made.yaxis.set_major_formatter(FuncFormatter(_plain))
        _phase_lines(made, runs, scale, size)
        last = made
        if below:
            made.tick_params(labelbottom=False)
            last = axes(figure, size, left=56, right=10, top=size.height - 46 - 58, bottom=46)
            _steal_bars(last, thinned(steal))
            last.set_xlim(made.get_xlim())
        ticks(last, "x", 4 if size.narrow else 10)
        last.xaxis.grid(False)
        last.set_xlabel(f"{unit} since the first run", color=SOFT, labelpad=6)

    keys = [Key("base", f"a run of the baseline: {label}"), Key("soft-line", "running median")]
    if marked:
        keys.append(Key("triangle", f"steal above {100.0 * numbers.STEAL_MARK:g} % of the CPUs"))
    text = _drift_text(runs, points, marked)
    return chart("drift", f"The baseline over time: {name}", text, keys, 280.0 + below, draw)


def _drift_text(runs: list[Run], points: list[Point], marked: list[Point]) -> str:
    ordered = sorted(value for _, value in points)
    text = (
        f"{len(points)} runs of the baseline over {duration(runs[-1].at_s - runs[0].at_s)}, from "
        f"{quantity(ordered[0])} to {quantity(ordered[-1])}, median "
        f"{quantity(statistics.median(ordered))}; {len(marked)} with steal time above "
        f"{100.0 * numbers.STEAL_MARK:g} % of the CPUs."
    )
    if len(points) > MOST_POINTS:
        text += " Points are thinned; the lowest and highest of each stretch are kept."
    return text


def _time_scale(seconds: float) -> tuple[float, str]:
    if seconds > 3 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if seconds > 180 else (1.0, "seconds")


def _drift_points(made: Axes, points: list[Point], marked: list[Point]) -> None:
    plain = thinned([point for point in points if point not in set(marked)])
    if plain:
        made.plot(
            *zip(*plain, strict=True), "o", color=BASE, mec=PAPER, mew=0.6, markersize=5, alpha=0.7
        )
    if marked:
        made.plot(*zip(*thinned(marked), strict=True), "^", color=WARN, mec=PAPER, markersize=7.5)
    if len(points) >= 9:
        made.plot(*zip(*_running_median(points), strict=True), color=INK, linewidth=1.5)


def _running_median(points: list[Point]) -> list[Point]:
    half = max(2, len(points) // 16)
    line = []
    for place in range(0, len(points), max(1, len(points) // 200)):
        window = points[max(0, place - half) : place + half + 1]
        line.append((points[place][0], statistics.median(value for _, value in window)))
    return line


def _phase_lines(made: Axes, runs: list[Run], scale: float, size: Size) -> None:
    """A line where each phase starts, and the names of those that have the room, longest first."""
    starts: dict[str, float] = {}
    for run in runs:
        starts.setdefault(run.phase, run.at_s / scale)
    left, right = made.get_xlim()
    ends = [*list(starts.values())[1:], right]
    spans = [
        (end - start, start, phase)
        for (phase, start), end in zip(starts.items(), ends, strict=True)
    ]
    room = 50.0 * (right - left) / max(1.0, size.width - 66.0)
    taken: list[float] = []
    for length, start, phase in sorted(spans, reverse=True):
        made.axvline(start, color=RULE, linewidth=1.0)
        centre = min(max(start + length / 2.0, left + room / 2.0), right - room / 2.0)
        if all(abs(centre - other) >= room for other in taken):
            taken.append(centre)
            made.annotate(
                phase,
                (centre, 1.03),
                xycoords=("data", "axes fraction"),
                color=SOFT,
                ha="center",
                annotation_clip=False,
            )


def _steal_bars(made: Axes, steal: list[Point]) -> None:
    shown = [point for point in steal if point[1] > 0.0]
    for moment, share in shown:
        made.plot([moment, moment], [0.0, share], color=WARN, linewidth=1.6)
    made.set_ylim(0.0, max(2.0 * 100.0 * numbers.STEAL_MARK, *(share for _, share in shown)))
    ticks(made, "y", 2)
    made.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    made.annotate(
        "steal", (0.0, 1.06), xycoords="axes fraction", color=SOFT, annotation_clip=False
    )
