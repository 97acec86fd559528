"""The text of an audit: the profile printed back, a verdict beside every line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.text import Text

from kilter_lab.compare_text import arm_rows, ratio_table
from kilter_lab.messages import AuditRequest, VerdictRecord
from kilter_lab.wording import change, interval_text, percent

if TYPE_CHECKING:
    from kilter_lab.audit import Audit, Line
    from kilter_lab.console import Console

ADDS = "what it adds"
WORDS = {
    "carries": ("carries", "green"),
    "harms": ("harms", "red"),
    "nothing": ("does nothing", "dim"),
    "open": ("not shown", "yellow"),
}


def show(found: Audit, request: AuditRequest, console: Console) -> None:
    """Print everything that a person wants to know."""
    for row in ratio_table(
        [(found.profile, arm_rows(found.whole, request.options.metrics))],
        found.whole.verdicts[0].confidence,
        "current",
    ):
        console.data(row)
    console.data()
    for row in _table(found, console.columns):
        console.data(row)
    console.data()
    for sentence in summary(found):
        console.data(sentence)


def _table(found: Audit, columns: int | None) -> list[Text]:
    changes = [f"{x.line.knob}  {x.line.old} → {x.line.new}" for x in found.lines]
    told = [("line", "", "bold", ADDS, "bold")]
    told += [
        (text, *WORDS[line.role], _effect(line), "")
        for line, text in zip(found.lines, changes, strict=True)
    ]
    told += [(knob, "not here", "dim", reason, "dim") for knob, reason in found.left_out]
    width = max(len(name) for name, *_ in told)
    room = None if columns is None else columns - width - len("  does nothing  ")
    rows = []
    for name, word, word_style, effect, style in told:
        row = Text(f"{name:<{width}}  ", style=style)
        row.append(f"{word:<12}", style=word_style)
        if room is not None and len(effect) > room:
            row.rstrip()
            row.append("\n  ")
        row.append(f"  {effect}")
        row.rstrip()
        rows.append(row)
    return rows


def _effect(line: Line) -> str:
    if line.verdict is not None:
        return f"{gain_text(line.verdict)}, taken out alone"
    if line.refused:
        return f"cannot be taken out: {line.refused}"
    if line.estimate is None or line.error is None or not math.isfinite(line.error):
        return ""
    gain, error = -100 * math.expm1(line.estimate), 100 * line.error
    return f"about {percent(gain)} ± {percent(2 * error)} %, from the halves"


def gain_text(without: VerdictRecord) -> str:
    """What a line adds: the change that taking it out undoes."""
    gain, low, high = change(without, False)
    return f"{percent(gain)} % ({interval_text(low, high)})"


def summary(found: Audit) -> list[Text]:
    """The answer in plain sentences."""
    told = [Text(found.whole.sentence, style="bold")]
    rest = [line for line in found.lines if line.together]
    if found.rest is not None:
        v = found.rest.verdicts[0]
        what = f"The {len(rest)} lines that did not stand out add {gain_text(v)} together"
        if len(rest) == 1:
            what = f"The line that did not stand out adds {gain_text(v)}"
        told.append(Text(what + _rest_words(v, len(rest)) + "."))
    for pair in found.interactions:
        amount = math.expm1(-pair.log_change) * 100
        more = "more" if amount > 0 else "less"
        told.append(
            Text(
                f"{pair.knobs[0]} and {pair.knobs[1]} together do {percent(abs(amount))} % {more} "
                "than the sum of both."
            )
        )
    return told


def _rest_words(v: VerdictRecord, lines: int) -> str:
    they = "they" if lines > 1 else "it"
    if v.verdict == "no-difference":
        return f": nothing within ± {v.region_percent:g} %, {they} can go"
    if v.verdict == "better":
        return f": the profile is better without {'them' if lines > 1 else 'it'}"
    if v.verdict == "worse":
        return ": each too little to be seen alone" if lines > 1 else ""
    return ": not known from these runs"
