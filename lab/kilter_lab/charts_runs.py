"""The charts of runs: the arms of the confirmation, and the baseline over time."""

from __future__ import annotations

import statistics

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kilter_lab import report_numbers as numbers
from kilter_lab.charts_parts import THINNED, name_below, name_of, row_label
from kilter_lab.charts_svg import (
    BASE,
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
from kilter_lab.messages import Metric
from kilter_lab.report_numbers import MOST_POINTS, Point, thinned
from kilter_lab.report_tables import CONFIRM_METRICS, arm_name
from kilter_lab.report_text import count, duration, quantity, short, tick_number, wanted
from kilter_lab.study import Run, StudyData
from kilter_lab.wording import unit

MOST_ARMS = 8
FEWEST_RUNS = 3
"""Runs of the baseline that make a course over time."""


# Arms


def arms(data: StudyData) -> list[Chart]:
    """For each metric: every run of the confirmation, an arm a row, with its box."""
    made = [
        _arms_chart(data, metric, place)
        for place, metric in enumerate(data.metrics[:CONFIRM_METRICS])
    ]
    return [drawn for drawn in made if drawn is not None]


def _arms_chart(data: StudyData, metric: Metric, number: int) -> Chart | None:
    rows = [
        (arm_name(data, arm), BASE if arm == numbers.BASE else WINNER, runs)
        for arm, runs in numbers.confirm_arms(data)[:MOST_ARMS]
        if numbers.values(runs, metric.name)
    ]
    if not rows:
        return None
    name = name_of(metric)
    in_unit = f" ({short(unit(metric), 20)})" if unit(metric) else ""

    def draw(figure: Figure, size: Size) -> None:
        made = axes(figure, size, left=12, right=14, top=4, bottom=46)
        made.set_ylim(len(rows) - 0.46, -0.6)
        made.set_yticks([])
        for place, (name_of_arm, colour, runs) in enumerate(rows):
            _arm_row(made, place, colour, runs, metric)
            _arm_label(made, place, name_of_arm, runs, metric)
        made.margins(x=0.05)
        ticks(made, "x", 4 if size.narrow else 9, tick_number)
        name_below(made, f"{name}{in_unit}, {wanted(metric.direction)}")

    text = "; ".join(_arm_words(arm, runs, metric) for arm, _, runs in rows)
    title = f"{name}: every run of the confirmation"
    keys = [Key("base", "a run"), Key("box", "middle half and median")]
    return chart(f"arms-{number}", title, text, keys, 52.0 + 76.0 * len(rows), draw)


def _arm_words(arm: str, runs: list[Run], metric: Metric) -> str:
    found = numbers.spread(runs, metric.name)
    if found is None:
        return ""
    return (
        f"{short(arm, 40)}: {count(found.runs, 'run')}, median "
        f"{quantity(found.median, unit(metric))}, from {quantity(found.least)} to "
        f"{quantity(found.most, unit(metric))}"
    )


def _arm_row(made: Axes, row: int, colour: str, runs: list[Run], metric: Metric) -> None:
    sample = numbers.values(runs, metric.name)
    found = numbers.spread(runs, metric.name)
    if found is None:
        return
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


def _arm_label(made: Axes, row: int, arm: str, runs: list[Run], metric: Metric) -> None:
    found = numbers.spread(runs, metric.name)
    if found is None:
        return
    middle = quantity(found.median, unit(metric))
    row_label(made, row - 0.4, f"{short(arm, 28)}  ·  median {middle}")


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
    if len(runs) < FEWEST_RUNS:
        return None
    scale, time_unit = _time_scale(runs[-1].at_s - runs[0].at_s)
    points = [(run.at_s / scale, run.metrics[metric.name]) for run in runs]
    cpus = data.machine.cpus
    steal = [(run.at_s / scale, 100.0 * numbers.steal_share(run, cpus)) for run in runs]
    marked = [
        point
        for point, (_, share) in zip(points, steal, strict=True)
        if share > 100.0 * numbers.STEAL_MARK
    ]
    name = name_of(metric)
    label = f"{name} ({short(unit(metric), 20)})" if unit(metric) else name
    below = 74.0 if any(share > 0.0 for _, share in steal) else 0.0

    def draw(figure: Figure, size: Size) -> None:
        made = axes(figure, size, left=56, right=10, top=24, bottom=46 + below)
        _drift_points(made, points, marked)
        ticks(made, "y", 5, tick_number)
        _phase_lines(made, runs, scale, size)
        last = made
        if below:
            made.tick_params(labelbottom=False)
            last = axes(figure, size, left=56, right=10, top=size.height - 46 - 58, bottom=46)
            _steal_bars(last, thinned(steal))
            last.set_xlim(made.get_xlim())
        ticks(last, "x", 4 if size.narrow else 10)
        last.xaxis.grid(False)
        name_below(last, f"{time_unit} since the first run")

    keys = [Key("base", f"a run of the baseline: {label}"), Key("soft-line", "running median")]
    if marked:
        keys.append(Key("triangle", f"steal above {100.0 * numbers.STEAL_MARK:g} % of the CPUs"))
    text = _drift_text(runs, points, marked)
    return chart("drift", f"The baseline over time: {name}", text, keys, 280.0 + below, draw)


def _drift_text(runs: list[Run], points: list[Point], marked: list[Point]) -> str:
    ordered = sorted(value for _, value in points)
    took = duration(runs[-1].at_s - runs[0].at_s)
    text = (
        f"{count(len(points), 'run')} of the baseline over {took}, from "
        f"{quantity(ordered[0])} to {quantity(ordered[-1])}, median "
        f"{quantity(statistics.median(ordered))}; {len(marked)} with steal time above "
        f"{100.0 * numbers.STEAL_MARK:g} % of the CPUs."
    )
    if len(points) > MOST_POINTS:
        text += THINNED
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
    ticks(made, "y", 2, lambda value, _: f"{value:g} %")
    made.annotate("steal", (0.0, 1.06), xycoords="axes fraction", color=SOFT, annotation_clip=False)
