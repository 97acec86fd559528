"""The text of a study's end: what changed, whether it is proven, and what to type next."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
from rich.text import Text

from kilter_lab.compare_text import COLOURS, metric_rows, ratio_table
from kilter_lab.console import Console
from kilter_lab.messages import TuneRequest, VerdictRecord
from kilter_lab.study import StudyData
from kilter_lab.wording import (
    change,
    count,
    duration,
    interval_text,
    metric_label,
    percent,
    settings_text,
)

STYLES = {"better": "bold green", "nothing-helps": "bold", "unconfirmed": "bold yellow"}


def show(request: TuneRequest, data: StudyData, console: Console) -> None:
    """Print the result: JSON for programs, or a screenful for people."""
    for warning in data.warnings:
        console.warn(warning)
    if request.context.json:
        console.raw(msgspec.json.encode(data).decode())
        return
    for line in lines(data):
        console.data(line)
    console.data()
    for step in next_steps(request, data):
        console.command(step)


def lines(data: StudyData) -> list[Text]:
    """What was found."""
    trials = max(0, len(data.trials) - 1)
    told = [
        Text.assemble(
            ("Study ", "bold"),
            (data.name, "bold cyan"),
            f": {count(trials, 'trial')}, {count(len(data.runs), 'run')}, {duration(data.seconds)}",
        ),
        Text(),
    ]
    if data.ending == "better":
        told += [*values(data), Text()]
    if data.confirmed:
        rows = metric_rows(data.confirmed, data.guards, data.shown, data.metrics)
        confidence = data.confirmed[0].confidence
        told += [*ratio_table([("confirmed", rows)], confidence, "baseline"), Text()]
    if len(data.front) > 1:
        told += [*front_table(data), Text()]
    told.append(Text(data.sentence, style=STYLES.get(data.ending, "bold")))
    gone = [knob for step in data.pruning if step.by_model and step.dropped for knob in step.knobs]
    if gone:
        told.append(Text(modelled_text(gone), style="dim"))
    if data.promised is not None and data.confirmed:
        told.append(Text(promised_text(data.promised), style="dim"))
    return told


def front_table(data: StudyData) -> list[Text]:
    """The Pareto set, a line a member: conclusion, change and interval of each metric, settings."""
    lines = [Text("Pareto set: change in percent and its interval", style="bold")]
    for member in data.front:
        line = Text("  ")
        line.append(f"{member.conclusion.replace('-', ' '):<13}", COLOURS[member.conclusion])
        for v in member.verdicts:
            ends = interval_text((v.low - 1) * 100, (v.high - 1) * 100)
            label = metric_label(next(m for m in data.metrics if m.name == v.metric))
            line.append(f"  {label} {percent((v.ratio - 1) * 100)} ({ends})")
        line.append(f"  {settings_text(member.settings)}")
        if member.profile:
            line.append(f"  [profile {member.profile}]", style="cyan")
        lines.append(line)
    return lines


def values(data: StudyData) -> list[Text]:
    """Old → new, a line a knob."""
    knobs = {k.name: k for k in data.knobs}
    rows = [(name, knobs[name].before, new) for name, new in sorted(data.winner.items())]
    rows += [(name, "", f"{value} (held)") for name, value in sorted(data.fixed.items())]
    name_width = max(len(name) for name, _, _ in rows)
    old_width = max(len(old) for _, old, _ in rows)
    return [
        Text.assemble(
            f"  {name:<{name_width}}  {old:>{old_width}} ", "→ " if old else "= ", (new, "green")
        )
        for name, old, new in rows
    ]


def modelled_text(gone: list[str]) -> str:
    """Which knobs went by the model's word alone."""
    return (
        f"Left out by the search's model, not measured, as runs vary too much: {', '.join(gone)}."
    )


def promised_text(v: VerdictRecord) -> str:
    """What the search promised, beside what was confirmed."""
    gain, low, high = change(v, True)
    ends = f" ({interval_text(low, high)})" if v.blocks > 1 else ""
    return f"The search had promised {percent(gain)} %{ends}; only fresh blocks count."


def next_steps(request: TuneRequest, data: StudyData) -> list[Text]:
    """Commands in full."""
    steps = []
    if data.profile:
        steps.append(("hold it", f"kilter apply {data.profile}"))
    elif data.ending == "unconfirmed" and data.winner:
        arm = settings_text({**data.fixed, **data.winner})
        base = f"--base {shlex.quote(settings_text(data.fixed))} " if data.fixed else ""
        steps.append(
            (
                "ask again",
                f"kilter compare {base}--with {shlex.quote(arm)} -- {shlex.join(data.command)}",
            )
        )
    usual = f"sqlite:///{Path(request.state_dir).parent / 'studies.db'}"
    where = "" if request.storage == usual else f" --storage {shlex.quote(request.storage)}"
    steps.append(("all of it", f"kilter report {data.name}{where}"))
    width = max(len(what) for what, _ in steps)
    return [Text.assemble((f"{what:<{width}}  ", "dim"), (step, "cyan")) for what, step in steps]
