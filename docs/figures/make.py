"""Draws the figures of docs/evidence.md; the same input gives the same bytes.

    python3 docs/figures/make.py                  draw all of them
    python3 docs/figures/make.py --studies 400    make new synthetic studies first (minutes)

The studies are kept in ``studies.csv``: each is a whole ``tune`` in process, on a machine whose
response is known, so that the truth stands beside what was promised and what was confirmed.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import random
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

HERE = Path(__file__).resolve().parent
LAB = HERE.parents[1] / "lab"
sys.path[:0] = [str(LAB), str(LAB / "tests")]

from kilter_lab import sequential  # noqa: E402
from kilter_lab.stats import t_quantile  # noqa: E402

Array = npt.NDArray[np.float64]

INK, SOFT, RULE, BAND, BASE, NEW, WARN = (
    "#1c2329", "#56616b", "#d9dee3", "#eceff2", "#6d7b88", "#0b6896", "#a85407",
)  # fmt: skip
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kilter",
    "font.family": ["DejaVu Sans"],
    "font.size": 10.5,
    "axes.unicode_minus": True,
    "axes.edgecolor": RULE,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "figure.facecolor": "white",
    "path.simplify": True,
}
FONTS = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
MINUS = "\u2212"

BLOCKS = 80
"""Most blocks of the comparisons of equal arms."""
COMPARISONS = 20_000
STUDIES = HERE / "studies.csv"
NOISE = 0.05
"""Of single runs, in the studies and in the example."""


def main() -> None:
    """Draws, and simulates first where asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, metavar="N", help="make N new studies")
    parser.add_argument("--seed", type=int, default=1, help="of the first study (default: 1)")
    args = parser.parse_args()
    if args.studies:
        simulate(args.studies, args.seed)
    with mpl.rc_context(SETTINGS):
        for name, draw in (("abba", abba), ("peeking", peeking), ("curse", curse)):
            save(draw(), HERE / f"{name}.svg")


def save(figure: Figure, path: Path) -> None:
    """Writes a small SVG without dates, random names or needless digits."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<[^>]*>", lambda tag: _shorter(tag[0]), text)
    text = re.sub(r"[ \t]*\n\s*", "\n", text)
    path.write_text(DOTS.sub(_one_style, text))
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


DOTS = re.compile(r'<g (clip-path="[^"]*")>\n((?:<use [^>]* style="[^"]*"/>\n)+)</g>')


def _shorter(tag: str) -> str:
    tag = re.sub(r"-?\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", tag)
    return tag.replace("'DejaVu Sans'", FONTS)


def _one_style(group: re.Match[str]) -> str:
    """The dots of a scatter have one style, which their group can hold."""
    styles = set(re.findall(r' style="[^"]*"', group[2]))
    if len(styles) != 1:
        return group[0]
    (style,) = styles
    return f"<g {group[1]}{style}>\n{group[2].replace(style, '')}</g>"


def panel(made: Axes, title: str) -> Axes:
    """Axes in the manner of the reports."""
    for side in ("top", "right", "left"):
        made.spines[side].set_visible(False)
    made.tick_params(length=0)
    made.grid(True, color=RULE, linewidth=0.7)
    made.set_axisbelow(True)
    made.set_title(title, loc="left", fontsize=11, color=INK, pad=10)
    return made


def signed(value: float, _place: int | None = None) -> str:
    """``+2 %``."""
    if abs(value) < 1e-9:
        return "0"
    return f"{MINUS if value < 0 else '+'}{abs(value):g} %"


# Why blocks


def abba() -> Figure:
    """Equal arms on a machine that slows down by a fifth, in three orders."""
    orders = {
        "one arm after the other": "AAAAAAAABBBBBBBB",
        "one by one": "ABABABABABABABAB",
        "blocks: ABBA or BAAB": "ABBABAABBAABABBA",
    }
    figure = Figure(figsize=(10.2, 3.5))
    axes = figure.subplots(1, 3, sharey=True)
    # Runs are drawn without noise: only the order differs.
    times: Array = np.linspace(100.0, 120.0, 16)
    for made, (title, order) in zip(axes, orders.items(), strict=True):
        panel(made, title)
        made.xaxis.grid(False)
        first, second = _means(order, times)
        for arm, colour, marker in (("A", BASE, "o"), ("B", NEW, "s")):
            places = [place for place, which in enumerate(order) if which == arm]
            made.plot([p + 1 for p in places], times[places], marker, color=colour, markersize=6.5)
        for mean, colour in ((first, BASE), (second, NEW)):
            made.axhline(mean, color=colour, linewidth=1.3, linestyle=(0, (4, 3)))
        effect = (second / first - 1.0) * 100.0
        told = "no difference" if abs(effect) < 0.05 else f"+{effect:.1f} %, of the order alone"
        made.text(1, 123, f"B over A: {told}", color=WARN if abs(effect) >= 0.05 else INK)
        if "blocks" in title:
            for start in range(0, 16, 4):
                made.axvspan(start + 0.55, start + 4.45, color=BAND, linewidth=0, zorder=0)
        made.set_xticks(range(1, 17), order)
        made.set_xlabel("runs in time")
        made.set_ylim(98, 126)
    axes[0].set_ylabel("time of a run (start = 100)")
    figure.subplots_adjust(left=0.065, right=0.99, top=0.88, bottom=0.16, wspace=0.08)
    return figure


def _means(order: str, times: Array) -> tuple[float, float]:
    which = np.array(list(order))
    return (
        float(np.exp(np.log(times[which == "A"]).mean())),
        float(np.exp(np.log(times[which == "B"]).mean())),
    )


# Looking after every block


def peeking() -> Figure:
    """Equal arms: one comparison that fools who peeks, and how often that happens."""
    design = sequential.design(0.05, BLOCKS)
    logs = np.random.default_rng(4).standard_normal((COMPARISONS, BLOCKS)) * NOISE
    looks = np.array(design.looks)
    means, errors = _course(logs, looks)
    ordinary = np.array([t_quantile(0.975, int(n) - 1) for n in looks])
    repeated = np.array([design.widths[int(n)] for n in looks])
    fooled = np.abs(means) > ordinary * errors
    missed = np.abs(means) > repeated * errors
    figure = Figure(figsize=(10.2, 3.9))
    left, right = figure.subplots(1, 2)
    _example(left, looks, means, errors, ordinary, repeated, _fooling(fooled, missed))
    panel(right, "comparisons called different, by number of looks")
    count = np.arange(1, len(looks) + 1)
    for crossed, colour, below, label in (
        (fooled, WARN, 6.5, "ordinary t intervals"),
        (missed, NEW, 4.0, "repeated intervals (kilter)"),
    ):
        rate = 100.0 * np.maximum.accumulate(crossed, axis=1).mean(axis=0)
        right.plot(count, rate, color=colour, linewidth=2.2)
        right.text(
            count[-1], rate[-1] - below, f"{label}: {rate[-1]:.1f} %", color=colour, ha="right"
        )
    right.axhline(5.0, color=INK, linewidth=1.0, linestyle=(0, (4, 3)))
    right.text(14, 5.7, "promised: 5 %", color=INK)
    right.set_ylim(0, 36)
    right.set_xlabel(f"looks, one a block, over {COMPARISONS:,} comparisons of equal arms")
    right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    figure.subplots_adjust(left=0.06, right=0.985, top=0.89, bottom=0.15, wspace=0.16)
    return figure


def _course(logs: Array, looks: npt.NDArray[np.int64]) -> tuple[Array, Array]:
    """Mean and standard error at each look, a comparison a row."""
    sums, squares = np.cumsum(logs, axis=1), np.cumsum(logs**2, axis=1)
    n = looks.astype(float)
    means = sums[:, looks - 1] / n
    variances = (squares[:, looks - 1] - n * means**2) / (n - 1)
    return means, np.sqrt(variances / n)


def _fooling(fooled: npt.NDArray[np.bool_], missed: npt.NDArray[np.bool_]) -> int:
    """The first comparison that ordinary intervals call different for a while, and no others."""
    from_the_start, late = fooled[:, :8].any(axis=1), fooled[:, 40:].any(axis=1)
    enough = fooled.sum(axis=1) >= 4
    return int(np.flatnonzero(enough & ~from_the_start & ~late & ~missed.any(axis=1))[0])


def _example(
    made: Axes,
    looks: npt.NDArray[np.int64],
    means: Array,
    errors: Array,
    ordinary: Array,
    repeated: Array,
    row: int,
) -> None:
    panel(made, "one comparison of equal arms")
    mean, error = means[row], errors[row]

    def ends(width: Array) -> tuple[Array, Array]:
        return tuple(np.expm1(mean + sign * width * error) * 100.0 for sign in (-1, 1))

    low, high = ends(repeated)
    made.fill_between(looks, low, high, color=NEW, alpha=0.16, linewidth=0)
    for edge in (low, high):
        made.plot(looks, edge, color=NEW, linewidth=1.3)
    inner = ends(ordinary)
    for edge in inner:
        made.plot(looks, edge, color=WARN, linewidth=1.3, linestyle=(0, (4, 2)))
    made.plot(looks, np.expm1(mean) * 100.0, color=INK, linewidth=1.6)
    made.axhline(0.0, color=INK, linewidth=1.0)
    wrong = (inner[0] > 0.0) | (inner[1] < 0.0)
    first = int(np.flatnonzero(wrong)[0])
    made.plot(looks[wrong], np.zeros(wrong.sum()), "x", color=WARN, markersize=6, mew=1.6)
    made.annotate(
        "who stops here finds\nwhat is not there",
        (float(looks[first]), 0.0),
        (float(looks[first]) + 14.0, -5.6 if inner[0][first] > 0 else 4.6),
        color=WARN,
        arrowprops={"arrowstyle": "-", "color": WARN, "linewidth": 1.0},
    )
    made.set_ylim(-8, 8)
    made.yaxis.set_major_formatter(FuncFormatter(signed))
    made.set_xlabel("blocks")


# Promised and confirmed


def curse() -> Figure:
    """Synthetic studies: promised and confirmed gains over the true gain of what was picked."""
    rows = _read()
    figure = Figure(figsize=(10.2, 4.3))
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    looks = (
        (left, "promised", "promised by the search", WARN),
        (right, "confirmed", "confirmed on fresh blocks", NEW),
    )
    true = np.array([row["true"] for row in rows]) * 100.0
    for made, key, title, colour in looks:
        panel(made, title)
        told = np.array([row[key] for row in rows]) * 100.0
        made.plot([-2, 13], [-2, 13], color=INK, linewidth=1.1)
        made.plot(true, told, "o", color=colour, markersize=3.4, alpha=0.5, mew=0)
        bias = float((told - true).mean())
        sign = MINUS if bias < 0 else "+"
        made.text(
            12.7, -2.6, f"on average {sign}{abs(bias):.2f} points from the truth", color=colour,
            ha="right",
        )  # fmt: skip
        made.set_xlabel("true gain of the settings that were picked")
        for axis in (made.xaxis, made.yaxis):
            axis.set_major_formatter(FuncFormatter(signed))
            axis.set_major_locator(MultipleLocator(4))
    left.set_ylabel("gain that was told")
    left.set_xlim(-2, 13)
    left.set_ylim(-3.4, 17)
    figure.text(0.985, 0.955, f"{len(rows)} studies, one dot each", color=SOFT, ha="right")
    figure.subplots_adjust(left=0.075, right=0.985, top=0.88, bottom=0.13, wspace=0.06)
    return figure


def _read() -> list[dict[str, float]]:
    with STUDIES.open(newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(lines)]


def simulate(studies: int, seed: int) -> None:
    """Whole tunes of as many trials as by default; up to three of twelve knobs gain something."""
    rows = []
    for number in range(studies):
        row = _study(seed + number)
        if row is not None:
            rows.append(row)
        print(f"\r{number + 1} of {studies} studies", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    with STUDIES.open("w", newline="") as file:
        file.write(
            f"# docs/figures/make.py --studies {studies} --seed {seed}: those of them that came to "
            f"a confirmation;\n# noise {NOISE:g}, gains as shares of the run time\n"
        )
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["seed", "true", "promised", "confirmed"])
        writer.writerows(rows)


def _study(seed: int) -> tuple[int, str, str, str] | None:
    """Seed, true gain of what was tested on fresh blocks, promise, confirmation."""
    import simulation
    import synthetic
    from planted import plant

    from kilter_lab.ledger import open_storage
    from kilter_lab.opening import open_study
    from kilter_lab.publish import tested
    from kilter_lab.space import build
    from kilter_lab.tune import conclude, open_session

    rng = random.Random(f"figure {seed}")
    gains = [rng.uniform(0.005, 0.05) for _ in range(rng.randint(0, 3))]
    response = plant(synthetic.knobs(), gains, rng)
    asked = simulation.request(seed, trials=None)
    machine = synthetic.Machine(response, seed, synthetic.Noise(NOISE))
    space, _ = build(asked)
    ledger = open_study(open_storage(asked.storage), asked, space)
    session = open_session(asked, space, ledger, machine, simulation.silent())
    outcome = conclude(session)
    if outcome.promised is None or not outcome.confirmed:
        return None
    true = -math.expm1(response(tested(session, outcome)))
    told = [1.0 - outcome.promised.ratio, 1.0 - outcome.confirmed[0].ratio]
    return seed, f"{true:.5f}", f"{told[0]:.5f}", f"{told[1]:.5f}"


if __name__ == "__main__":
    main()
