"""``kilter report``: a study as one self-contained page, as Markdown, or as JSON.

The page needs no network and no JavaScript, and stays within :data:`LARGEST_PAGE`: a study too
large for that loses rows of its trials table, which then says so.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import sys
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from kilter_lab import (
    charts,
    charts_front,
    charts_runs,
    charts_sequence,
    report_front,
    report_numbers,
    report_tables,
    report_text,
    report_verdict,
    report_view,
    wording,
)
from kilter_lab.errors import LabError
from kilter_lab.files import replace
from kilter_lab.messages import ReportRequest
from kilter_lab.report_numbers import objectives
from kilter_lab.study import StudyData
from kilter_lab.wording import metric_label

LARGEST_PAGE = 2 * 1024 * 1024
"""Bytes that a page may have."""
TRIAL_ROWS = (2000, 1000, 400, 100, 20, 0)
"""Rows of the trials table to try, until the page is small enough."""
MARKDOWN_TRIALS = 10
SUFFIXES = {"html": ".html", "md": ".md", "json": ".json"}


class ReportError(LabError):
    """The report cannot be written."""


def to_html(data: StudyData) -> str:
    """The study as one HTML page of at most :data:`LARGEST_PAGE` bytes."""
    facts = _facts(data)
    facts["charts"] = {
        "promise": charts.promise(data),
        "front": charts_front.front(data),
        "sequences": charts_sequence.sequences(data),
        "trials": charts.trials(data),
        "arms": charts_runs.arms(data),
        "drift": charts_runs.drift(data),
    }
    template = _pages().get_template("report.html.j2")
    page = ""
    for rows in TRIAL_ROWS:
        page = template.render(facts, trials=report_tables.trial_table(data, rows))
        if len(page.encode("utf-8", "replace")) <= LARGEST_PAGE:
            break
    return page


def to_markdown(data: StudyData) -> str:
    """The same facts, shorter, in GitHub's Markdown."""
    template = _notes().get_template("report.md.j2")
    return template.render(_facts(data), trials=report_tables.trial_table(data, MARKDOWN_TRIALS))


def to_json(data: StudyData) -> bytes:
    """All of the study, as :class:`StudyData` is encoded."""
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


def write(data: StudyData, path: Path) -> None:
    """Writes the page to ``path``, whole or not at all; raises :class:`ReportError`."""
    write_bytes(_encoded(to_html(data)), path)


def run(request: ReportRequest) -> int:
    """``kilter report``: the exit status, 0; raises :class:`LabError`."""
    from kilter_lab.studies import load_study  # Optuna takes a second to load

    data = load_study(request.storage, request.study)
    if request.format == "json":
        content = to_json(data)
    elif request.format == "md":
        content = _encoded(to_markdown(data))
    else:
        content = _encoded(to_html(data))
    if request.output is None:
        _print(content)
    else:
        write_bytes(content, Path(request.output))
    return 0


def write_bytes(content: bytes, path: Path) -> None:
    """Writes a file by renaming a finished one into its place; devices and pipes are written to.

    A symbolic link at ``path`` is replaced, not followed. Raises :class:`ReportError`.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        mode = None
    if mode is not None and stat.S_ISDIR(mode):
        raise ReportError(
            f"cannot write the report to {path}: it is a directory",
            hint=f"name a file in it, such as {path / 'report.html'}",
        )
    try:
        if mode is None or stat.S_ISREG(mode):
            replace(content, path)
        else:
            path.write_bytes(content)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ReportError(f"cannot write the report to {path}: {reason}") from error


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _print(content: bytes) -> None:
    try:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The reader has seen enough (`| head`): what is left in the buffer must not be tried again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _facts(data: StudyData) -> dict[str, Any]:
    """What both templates say, named as they use it."""
    won = report_verdict.headline(data)
    return {
        "data": data,
        "claims": report_numbers.claims(data),
        "label": wording.metric_label(report_numbers.deciding(data)),
        "sentence": report_verdict.sentence(data),
        "statement": report_verdict.statement(data),
        "trade_off": report_numbers.conclusion(data) == "trade-off",
        "note": report_verdict.statement_note(data),
        "headline": report_text.percent(won.ratio) if won else "",
        "headline_label": report_verdict.label_of(data, won.metric) if won else "",
        "side_effects": report_verdict.side_effects(data),
        "beside": report_verdict.beside(data),
        "front": report_front.rows(data),
        "metrics": report_verdict.metric_rows(data),
        "multiplicity": report_verdict.multiplicity(data),
        "values": report_view.value_rows(data),
        "power": report_view.power(data),
        "blind": report_numbers.blind(data),
        "comfort": report_view.comfort(data),
        "estimates": report_view.estimates(data),
        "curse": report_view.CURSE,
        "promise_sentence": report_view.promise_sentence(data),
        "looks": report_view.look_rows(data),
        "sequence_note": report_view.sequence_note(data),
        "pruning": report_view.prune_rows(data),
        "pruning_modelled": any(step.by_model for step in data.pruning),
        "objectives": [metric_label(m) for m in objectives(data)],
        "pruning_left_out": max(0, len(data.pruning) - report_view.PRUNING_ROWS),
        "importance": report_tables.importance_table(data),
        "arms": report_tables.arm_rows(data),
        "trend": report_numbers.trend(data),
        "phases": report_tables.phase_rows(data),
        "machine": report_tables.machine_rows(data),
        "method": report_view.method(data),
        "attempts": report_view.attempts(data),
        "command": shlex.join(data.command),
        "again": _again(data),
        "failed_runs": sum(run.outcome != "ok" for run in data.runs),
    }


def _again(data: StudyData) -> str:
    """The command that measures the candidate once more."""
    arm = ",".join(f"{knob}={value}" for knob, value in sorted(data.winner.items()))
    return f"kilter compare --with {shlex.quote(arm)} -- {shlex.join(data.command)}"


@lru_cache(maxsize=1)
def _pages() -> Environment:
    environment = _environment(_plain, autoescape=True)
    style = resources.files("kilter_lab") / "templates" / "report.css"
    environment.globals["style"] = style.read_text("utf-8")
    return environment


@lru_cache(maxsize=1)
def _notes() -> Environment:
    environment = _environment(_markdown, autoescape=False)
    environment.filters["fenced"] = _fenced
    environment.filters["code"] = _code
    environment.filters["cell"] = _cell
    return environment


def _environment(finalize: Any, *, autoescape: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("kilter_lab", "templates"),
        autoescape=autoescape,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=report_text.percent,
        interval=report_text.interval,
        duration=report_text.duration,
        count=report_text.count,
        short=report_text.short,
        quote=shlex.quote,
        moment=report_text.moment,
        label=wording.metric_label,
        unit=wording.unit,
        breakable=_breakable,
    )
    return environment


def _plain(value: Any) -> Any:
    """Spells out unseen characters in whatever a template prints; markup stays as it is."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return report_text.visible(value)
    return value


_JOINTS = re.compile(r"(?<=\w)([._/-]+)(?=\w)")


def _breakable(text: str) -> Markup:
    """A name whose lines may break after its dots and underscores."""
    parts = _JOINTS.split(report_text.visible(text))
    return Markup("").join(
        escape(part) + Markup("<wbr>") if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )


class _Raw(str):
    """Markdown that is finished."""


_SPECIAL = re.compile(r"[\\`*\[\]|~$]|(?<!\w)_|_(?!\w)|^[#+-](?=[\s#])|(?<=^\d)[.)](?=\s)")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def _markdown(value: Any) -> Any:
    """Foreign text as one line of Markdown that means nothing but itself."""
    if not isinstance(value, str) or isinstance(value, _Raw):
        return value
    line = " ".join(report_text.visible(value).split("\n")).replace("\t", " ")
    line = re.sub("[&<>]", lambda found: _ENTITIES[found[0]], line)
    return _SPECIAL.sub(lambda found: "\\" + found[0], line)


def _code(text: str) -> _Raw:
    """A code span."""
    line = " ".join(report_text.visible(text).split())
    fence = _fence(line, shortest=1)
    pad = " " if "`" in line or not line else ""
    return _Raw(f"{fence}{pad}{line}{pad}{fence}")


def _cell(text: str) -> _Raw:
    """A code span within a table, where a bar needs a backslash even in code."""
    return _Raw(_code(text).replace("|", "\\|"))


def _fenced(text: str) -> _Raw:
    """A code block."""
    shown = report_text.visible(text)
    fence = _fence(shown, shortest=3)
    return _Raw(f"{fence}\n{shown}\n{fence}")


def _fence(text: str, shortest: int) -> str:
    """Backticks that the text does not hold."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(shortest, longest + 1)
