"""How a report writes numbers and foreign text.

Percentages come from ratios, minus signs are real ones, and what cannot be said is a dash. Text
that others wrote (commands, knob names, errors) keeps its letters but loses what would change
how its neighbours read: control characters and direction overrides are spelled out.
"""

from __future__ import annotations

import math
import re

from kilter_lab.messages import Direction

MISSING = "–"
MINUS = "−"
LONGEST_TEXT = 4000
"""Characters of one foreign text that a report shows; no value or reason needs more."""

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff"
    "\ud800-\udfff]"
)


def visible(text: str, longest: int = LONGEST_TEXT) -> str:
    """Foreign text with its unseen characters spelled out, cut after ``longest`` characters."""
    if len(text) > longest:
        text = f"{text[:longest]} … ({len(text) - longest} more characters)"
    return _UNSEEN.sub(_spelled, text)


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def short(text: str, longest: int) -> str:
    """One line of at most ``longest`` characters, for labels."""
    line = " ".join(visible(text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def usable(ratio: float | None) -> float | None:
    """The ratio, or ``None`` where it is not a positive number that a percentage can express."""
    if ratio is None or not math.isfinite(ratio) or not 1e-6 < ratio < 1e6:
        return None
    return ratio


def percent_of(ratio: float) -> float:
    """0.95 → −5."""
    return (ratio - 1.0) * 100.0


def percent(ratio: float | None, *, unit: bool = True) -> str:
    """A ratio as a signed change: ``−4.2 %``, ``+0.04 %``, ``× 12``."""
    ratio = usable(ratio)
    if ratio is None:
        return MISSING
    if ratio >= 10.0:
        return f"×\u00a0{ratio:,.0f}"
    return _signed(percent_of(ratio)) + ("\u00a0%" if unit else "")


def interval(low: float | None, high: float | None) -> str:
    """``−5.1 to −3.4 %``."""
    if usable(low) is None or usable(high) is None or low == high:
        return MISSING  # one block has no interval: both ends are then the estimate itself
    return f"{percent(low, unit=False)} to {percent(high)}"


def magnitude(points: float) -> str:
    """An unsigned percentage: ``2.6 %``."""
    return _signed(abs(points)).lstrip("+") + "\u00a0%"


def _signed(points: float) -> str:
    size = abs(points)
    digits = 0 if size >= 99.5 else 1 if size >= 0.095 else 2
    text = f"{size:,.{digits}f}"
    if float(text.replace(",", "")) == 0.0:
        return "0"
    return (MINUS if points < 0 else "+") + text


def quantity(value: float | None, unit: str = "") -> str:
    """A measured value in four significant digits with its unit: ``12.34 s``, ``45,120 µs``."""
    if value is None or not math.isfinite(value):
        return MISSING
    text = _four_digits(abs(value))
    sign = MINUS if value < 0 and text != "0" else ""
    return f"{sign}{text}\u00a0{visible(unit)}" if unit else f"{sign}{text}"


def _four_digits(size: float) -> str:
    if size == 0.0:
        return "0"
    if not 1e-4 <= size < 1e12:
        return f"{size:.3e}"
    digits = max(0, 3 - math.floor(math.log10(size)))
    return f"{size:,.{digits}f}"


_SCALES = {
    "ns": (("ns", 1e3), ("µs", 1e3), ("ms", 1e3), ("s", math.inf)),
    "us": (("µs", 1e3), ("ms", 1e3), ("s", math.inf)),
    "µs": (("µs", 1e3), ("ms", 1e3), ("s", math.inf)),
    "ms": (("ms", 1e3), ("s", math.inf)),
    "bytes": (("bytes", 1024.0), ("KiB", 1024.0), ("MiB", 1024.0), ("GiB", math.inf)),
    "KiB": (("KiB", 1024.0), ("MiB", 1024.0), ("GiB", math.inf)),
}


def rescaled(value: str, unit: str) -> str:
    """A setting in a unit that reads easily (``21400000`` in ns: ``21.4 ms``), or nothing."""
    steps = _SCALES.get(unit)
    if steps is None or not value.isascii() or not value.isdigit() or len(value) > 20:
        return ""
    size = float(value)
    for name, step in steps:
        if size < step:
            return "" if name == steps[0][0] else f"{size:.3g}\u00a0{name}"
        size /= step
    return ""


_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(Z|[+-]\d\d:\d\d)")


def moment(stamp: str) -> str:
    """``2025-03-02T09:41:07Z`` as ``2025-03-02 09:41 UTC``; other texts as they are."""
    found = _RFC3339.fullmatch(stamp)
    if found is None:
        return stamp
    day, clock, zone = found.groups()
    return f"{day} {clock} {'UTC' if zone in ('Z', '+00:00') else zone}"


def wanted(direction: Direction) -> str:
    """Which way a metric is better."""
    return "lower is better" if direction == "min" else "higher is better"


def tick_percent(value: float, _place: int | None = None) -> str:
    """A percentage at a chart's tick: ``−2.5 %``."""
    if abs(value) < 1e-9:
        return "0"
    return f"{MINUS if value < 0 else '+'}{abs(value):,g} %"


def tick_number(value: float, _place: int | None = None) -> str:
    """A number at a chart's tick: ``150,000``."""
    return f"{value:,.10g}".replace("-", MINUS)


def duration(seconds: float) -> str:
    """``48 s``, ``3 min 12 s``, ``2 h 5 min``."""
    if not math.isfinite(seconds) or seconds < 0:
        return MISSING
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f}\u00a0s" if seconds < 10 else f"{whole}\u00a0s"
    if whole < 3600:
        return f"{whole // 60}\u00a0min {whole % 60}\u00a0s"
    return f"{whole // 3600:,}\u00a0h {whole % 3600 // 60}\u00a0min"


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 block``, ``12 blocks``."""
    return f"{number:,}\u00a0{noun if number == 1 else plural or noun + 's'}"


def listed(words: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
