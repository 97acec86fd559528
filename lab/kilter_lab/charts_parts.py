"""What charts share beyond axes: the region of equivalence, percentages, names, labels of rows."""

from __future__ import annotations

from matplotlib.axes import Axes

from kilter_lab.charts_svg import BAND, FONT, INK, SOFT, Key, ticks
from kilter_lab.messages import Metric
from kilter_lab.report_text import short, tick_percent
from kilter_lab.study import StudyData
from kilter_lab.wording import metric_label

THINNED = " Points are thinned; the lowest and highest of each stretch are kept."
"""Said of a chart that does not draw all of its points."""


def name_of(metric: Metric) -> str:
    """A metric's name, as long as a chart has room for."""
    return short(metric_label(metric), 40)


def region_key(data: StudyData) -> Key:
    """The legend's entry for the region of equivalence."""
    return Key("band", f"region of equivalence, ± {data.region_percent:g} %")


def no_change(made: Axes, which: str, region: float) -> None:
    """The line of no change across the axis ``which``, amid the region of ± ``region`` percent."""
    band, line = (made.axvspan, made.axvline) if which == "x" else (made.axhspan, made.axhline)
    if 0.0 < region < 1e6:
        band(-region, region, color=BAND, linewidth=0)
    line(0.0, color=INK, linewidth=1.2)


def row_label(made: Axes, height: float, words: str) -> None:
    """Words at the left end of a row."""
    made.annotate(
        words,
        (0.0, height),
        xycoords=("axes fraction", "data"),
        color=INK,
        fontsize=FONT + 0.5,
        va="center",
    )


def name_below(made: Axes, words: str) -> None:
    """What lies along the bottom."""
    made.set_xlabel(words, color=SOFT, labelpad=6)


def percent_over_count(made: Axes, most: int, counted: str) -> None:
    """Scales of a change in percent over what was counted, with at most so many numbers below."""
    ticks(made, "y", 6, tick_percent)
    ticks(made, "x", most, whole=True)
    made.xaxis.grid(False)
    name_below(made, counted)
