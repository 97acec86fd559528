"""Turns matplotlib figures into small inline SVG that takes the page's font and colours.

Charts draw with the placeholder colours below; here each becomes a CSS variable, so that one
drawing serves light and dark pages. The output is the same for the same study: no dates, no
random identifiers.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

INK, SOFT, RULE, BAND, BASE, WINNER, WARN, PAPER = (f"#0000f{digit}" for digit in range(8))
VARIABLES = {
    INK: "--ink",
    SOFT: "--soft",
    RULE: "--rule",
    BAND: "--band",
    BASE: "--base",
    WINNER: "--winner",
    WARN: "--warn",
    PAPER: "--paper",
}
FONT = 11.5
"""Size of a chart's text in the page's pixels."""
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kilter",
    "text.parse_math": False,
    "axes.unicode_minus": True,
    "font.size": FONT,
    "font.family": ["DejaVu Sans"],
    "path.simplify": True,
}


@dataclass(frozen=True)
class Size:
    """A drawing's size in the page's pixels."""

    width: float
    height: float
    narrow: bool


@dataclass(frozen=True)
class Key:
    """An entry of the legend: how it looks (a CSS class of the page), and what it is."""

    look: str
    label: str


@dataclass(frozen=True)
class Chart:
    """A chart in two widths, with the words that replace it for those who cannot see it."""

    name: str
    title: str
    text: str
    keys: list[Key]
    wide: Markup
    narrow: Markup


WIDE, NARROW = 840.0, 330.0
Draw = Callable[[Figure, Size], None]


def chart(name: str, title: str, text: str, keys: list[Key], height: float, draw: Draw) -> Chart:
    """Draws a chart for wide and for narrow windows; ``height`` in the page's pixels."""
    wide = render(name, Size(WIDE, height, narrow=False), draw)
    narrow = render(f"{name}-narrow", Size(NARROW, height, narrow=True), draw)
    return Chart(name, title, text, keys, wide, narrow)


def render(name: str, size: Size, draw: Draw) -> Markup:
    """One drawing as an ``<svg>`` element."""
    with mpl.rc_context(SETTINGS), warnings.catch_warnings():
        # Glyphs that matplotlib's own font lacks are drawn by the page's fonts.
        warnings.simplefilter("ignore")
        figure = Figure(figsize=(size.width / 72.0, size.height / 72.0))
        FigureCanvasSVG(figure)
        draw(figure, size)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return _inline(buffer.getvalue(), name, size)


def axes(
    figure: Figure, size: Size, *, left: float, right: float, top: float, bottom: float
) -> Axes:
    """Axes with margins in pixels, a light grid to come, and no frame but a base line."""
    box = (
        left / size.width,
        bottom / size.height,
        max(10.0, size.width - left - right) / size.width,
        max(10.0, size.height - top - bottom) / size.height,
    )
    made = figure.add_axes(box)
    made.patch.set_visible(False)
    for side in ("top", "right", "left"):
        made.spines[side].set_visible(False)
    made.spines["bottom"].set_color(RULE)
    made.tick_params(length=0, pad=5, colors=SOFT, labelcolor=SOFT)
    made.set_axisbelow(True)
    return made


Write = Callable[[float, int | None], str]
"""How a tick's number is written; the second is its place."""


def ticks(
    made: Axes, which: str, most: int, write: Write | None = None, *, whole: bool = False
) -> None:
    """At most ``most`` round ticks on an axis, with grid lines."""
    axis = made.xaxis if which == "x" else made.yaxis
    axis.set_major_locator(MaxNLocator(nbins=most, integer=whole, steps=[1, 2, 2.5, 5, 10]))
    axis.grid(True, color=RULE, linewidth=0.7)
    if write is not None:
        axis.set_major_formatter(FuncFormatter(write))


_TAG = re.compile(r"<[^>]*>")
_METADATA = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->", re.DOTALL)
_STYLE = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
_USED = re.compile(r'href="#([^"]+)"|url\(#([^)]+)\)')
_IDENTIFIER = re.compile(r'\sid="([^"]*)"')
_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_COLOUR = re.compile(r"#0000f[0-7]\b")
_NOISE = re.compile(
    r"""; font-family: [^;"]*|\s(?:xmlns|xmlns:xlink|version)="[^"]*"|"""
    r"""\stransform="rotate\(-0 [^)]*\)"|; stroke-linejoin: miter"""
)


def _inline(document: str, name: str, size: Size) -> Markup:
    body = document[document.index("<svg") :]
    body = _STYLE.sub("", _METADATA.sub("", body))
    used = {first or second for first, second in _USED.findall(body)}
    # matplotlib escapes "<" and ">" everywhere, so whatever lies between them is its own tag.
    body = _TAG.sub(lambda tag: _tag(tag[0], name, used), body)
    body = re.sub(r">\s+<", "><", body)
    body = re.sub(r"<g>(?=</g>)</g>", "", body)
    opening = (
        f'<svg class="{"narrow" if size.narrow else "wide"}" role="img" '
        f'viewBox="0 0 {size.width:g} {size.height:g}" '
        f'aria-labelledby="{escape(name.removesuffix("-narrow"))}-title" '
        f'aria-describedby="{escape(name.removesuffix("-narrow"))}-text"'
    )
    return Markup(opening + body[body.index(">") :].rstrip())


def _tag(tag: str, name: str, used: set[str]) -> str:
    tag = " ".join(tag.split())
    tag = _NOISE.sub("", tag)
    tag = _IDENTIFIER.sub(lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", tag)
    tag = tag.replace('xlink:href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    tag = _NUMBER.sub(lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), tag)
    return _COLOUR.sub(lambda found: f"var({VARIABLES[found[0]]})", tag)
