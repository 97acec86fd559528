"""Numbers and verdicts in plain words: durations, percents, and the one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kilter_lab.messages import Guard, Metric, Record, Settings, VerdictRecord
from kilter_lab.outcome import Conclusion, GuardRecord

MOST_PERCENT = 9999
"""Beyond it a number says only that nothing is known."""
FIELD_NAMES = {"wall_s": "wall", "user_s": "user", "sys_s": "sys", "max_rss_kib": "max RSS"}


def metric_label(metric: Metric) -> str:
    """The name that people read: ``wall``, ``max RSS``, or the metric's own."""
    if isinstance(metric.source, Record) and metric.name == metric.source.field:
        return FIELD_NAMES.get(metric.name, metric.name.replace("_", " "))
    return metric.name


def is_duration(metric: Metric) -> bool:
    """Whether the metric is the command's own running time: then less is *faster*."""
    return isinstance(metric.source, Record) and metric.source.field == "wall_s"


def unit(metric: Metric) -> str:
    """The unit, also of the record's own fields."""
    if metric.unit:
        return metric.unit
    if isinstance(metric.source, Record):
        for suffix, name in (("_s", "s"), ("_kib", "KiB")):
            if metric.source.field.endswith(suffix):
                return name
    return ""


def quantity(value: float, of_unit: str, like: float | None = None) -> str:
    """A value with its unit in four significant digits; seconds and KiB scale to the reader.

    ``like`` picks the scale by another value, so that a spread has its median's unit.
    """
    scale = abs(value if like is None else like)
    if of_unit == "s":
        for limit, factor, name in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
            if 0 < scale < limit:
                return f"{value * factor:.1f} {name}"
        return f"{value:.3f} s"
    if of_unit == "KiB":
        for limit, factor, name in ((1 << 10, 1, "KiB"), (1 << 20, 1 << 10, "MiB")):
            if scale < limit:
                return f"{value / factor:.1f} {name}"
        return f"{value / (1 << 20):.2f} GiB"
    return f"{_digits(value, scale)} {of_unit}".rstrip()


def _digits(value: float, scale: float) -> str:
    if scale == 0 or not math.isfinite(scale):
        return f"{value:g}"
    places = max(0, 3 - math.floor(math.log10(scale)))
    return f"{value:,.{min(places, 6)}f}".replace(",", " ")


def percent(value: float, digits: int = 1) -> str:
    """A percentage with a true minus sign, more digits where it is small; absurd ones are cut."""
    if abs(value) > MOST_PERCENT:
        return f"> {MOST_PERCENT}" if value > 0 else f"< −{MOST_PERCENT}"
    if abs(value) >= 100:
        digits = 0
    elif 0 < abs(value) < 0.1 and digits == 1:
        digits = 2
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


def duration(seconds: float) -> str:
    """A span for people: ``13 ms``, ``0.4 s``, ``58 s``, ``2 min 5 s``, ``1 h 3 min``."""
    if 0 < seconds < 0.0995:
        return f"{seconds * 1e3:.2g} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"


def count(n: int, thing: str) -> str:
    """``1 block``, ``10 blocks``."""
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def settings_text(settings: Settings) -> str:
    """``KNOB=VALUE,…``, or ``current``."""
    return ",".join(f"{k}={v}" for k, v in sorted(settings.items())) or "current"


def interval_text(low: float, high: float, digits: int = 1) -> str:
    """``1.9 … 4.2 %``."""
    return f"{percent(low, digits)} … {percent(high, digits)} %"


def proof(v: VerdictRecord, low: float, high: float) -> str:
    """What stands behind a number: ``(95 % interval 1.9 … 4.2 %, 10 blocks)``."""
    blocks = count(v.blocks, "block")
    if v.looks == 0:
        return f"({blocks}: no interval)"
    return f"({v.confidence * 100:.3g} % interval {interval_text(low, high)}, {blocks})"


def change(v: VerdictRecord, gain: bool) -> tuple[float, float, float]:
    """(change, lower end, upper end) in percent of the base's metric.

    As a gain (positive is better) or a loss (positive is worse).
    """
    ends = [(r - 1) * 100 for r in (v.ratio, v.low, v.high)]
    if gain == (v.direction == "min"):
        ends = [-e for e in ends]
    return ends[0], min(ends[1:]), max(ends[1:])


def comparative(v: VerdictRecord, metric: Metric, gain: bool) -> str:
    """``3.1 % faster``, or ``3.1 % more requests/s`` for a metric that is no duration."""
    amount = f"{percent(abs(change(v, gain)[0]))} %"
    if is_duration(metric):
        return f"{amount} {'faster' if gain else 'slower'}"
    higher = gain == (v.direction == "max")
    return f"{amount} {'higher' if higher else 'lower'} in {metric_label(metric)}"


def sentence(v: VerdictRecord, metric: Metric, arm: str, base: str) -> str:
    """The verdict in one plain sentence."""
    if v.verdict in ("better", "worse"):
        gain = v.verdict == "better"
        _, low, high = change(v, gain)
        return f"{arm} is {comparative(v, metric, gain)} than {base} {proof(v, low, high)}."
    if v.verdict == "no-difference":
        _, low, high = change(v, True)
        return (
            f"No difference found within ± {v.region_percent:g} % between {arm} and {base} "
            f"{proof(v, low, high)}."
        )
    gain = change(v, True)[0] >= 0
    _, low, high = change(v, gain)
    return (
        f"Inconclusive: {arm} came out {comparative(v, metric, gain)} than {base} "
        f"{proof(v, low, high)}; {more_text(v)}."
    )


def conclusion_text(
    conclusion: Conclusion,
    verdicts: Sequence[VerdictRecord],
    guards: Sequence[GuardRecord],
    metrics: Sequence[Metric],
    names: tuple[str, str],
) -> str:
    """All verdicts and guards of an arm in one sentence; ``names`` of the arm and the base."""
    by_name = {m.name: m for m in metrics}
    if len(verdicts) == 1 and not guards:
        return sentence(verdicts[0], by_name[verdicts[0].metric], *names)
    parts = [_clause(v, by_name[v.metric]) for v in verdicts]
    parts += [_guard_clause(g, by_name[g.guard.metric]) for g in guards]
    word = {"trade-off": "a trade-off", "no-difference": "no difference"}.get(
        conclusion, conclusion
    )
    return f"{names[0]} against {names[1]}: {word}; {'; '.join(parts)}."


def _clause(v: VerdictRecord, metric: Metric) -> str:
    if v.verdict == "no-difference":
        _, low, high = change(v, True)
        name, within = metric_label(metric), f"± {v.region_percent:g} %"
        return f"no difference in {name} within {within} {proof(v, low, high)}"
    gain = change(v, True)[0] >= 0
    _, low, high = change(v, gain)
    told = f"{comparative(v, metric, gain)} {proof(v, low, high)}"
    return f"came out {told}; {more_text(v)}" if v.verdict == "inconclusive" else told


def guard_text(guard: Guard) -> str:
    """``<= +5 %``."""
    sign = "<=" if guard.bound == "at-most" else ">="
    return f"{sign} {guard.percent:+g} %".replace("-", "−")


def _guard_clause(g: GuardRecord, metric: Metric) -> str:
    what = f"guard {metric_label(metric)} {guard_text(g.guard)}"
    if g.low == g.high and g.outcome == "open":
        return f"{what} is open: too few blocks"
    ends = interval_text((g.low - 1) * 100, (g.high - 1) * 100)
    return f"{what} {'is open' if g.outcome == 'open' else g.outcome} ({ends})"


def more_text(v: VerdictRecord) -> str:
    """What it would take to end an inconclusive comparison."""
    if v.looks == 0:
        return f"{count(v.blocks, 'block')} {'is' if v.blocks == 1 else 'are'} not enough to tell"
    if v.more_blocks is None:
        return "no practical number of blocks would tell"
    return f"about {count(rounded(v.more_blocks), 'more block')} would tell"


def rounded(n: int) -> int:
    """An estimate without false precision: two significant digits, rounded up."""
    if n < 20:
        return n
    step = int(10 ** (len(str(n)) - 2))
    return -(-n // step) * step


def median_of(values: Sequence[float]) -> float:
    """The median; values must not be empty."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
