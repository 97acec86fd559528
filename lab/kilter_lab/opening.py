"""Begins or reopens a study: its lock, its record, and whether the request fits it."""

from __future__ import annotations

import fcntl
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
from optuna.storages import BaseStorage

from kilter_lab.binary import now_text
from kilter_lab.errors import LabError, RequestError, StudyBusyError
from kilter_lab.ledger import FORMAT, Head, Ledger, create, find
from kilter_lab.messages import Present, Question, TuneRequest
from kilter_lab.space import Space
from kilter_lab.study import StudyKnob
from kilter_lab.wording import settings_text


@contextmanager
def locked(request: TuneRequest) -> Iterator[None]:
    """Hold the study's lock. StudyBusyError where another process holds it."""
    path = Path(request.state_dir) / f"{request.study}.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise LabError(f"cannot open the study's lock {path}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StudyBusyError(
                f"study {request.study} is being worked on by another kilter tune",
                "wait for it, or choose another name: kilter tune --study NAME …",
            ) from None
        yield
    finally:
        os.close(descriptor)


def make_head(request: TuneRequest, space: Space) -> Head:
    """The description of a new study."""
    return Head(
        format=FORMAT,
        command=request.command,
        options=request.options,
        knobs=_knobs(request, space),
        fixed=request.fixed,
        question=request.question,
        seed=request.context.seed,
        created=now_text(),
    )


def _knobs(request: TuneRequest, space: Space) -> list[StudyKnob]:
    known = {k.name: k for k in request.knobs}
    found = []
    for axis in space.axes:
        knob = known[axis.name]
        assert isinstance(knob.state, Present)
        found.append(
            StudyKnob(
                name=knob.name,
                before=knob.state.value,
                summary=knob.spec.summary,
                why=knob.spec.why,
                unit=knob.spec.unit,
                risk=knob.spec.risk,
                searched=axis.words(),
            )
        )
    return found


def open_study(storage: BaseStorage, request: TuneRequest, space: Space) -> Ledger:
    """The study that the request names, new or resumed.

    RequestError where a study of that name searches something else: its trials would not be
    comparable.
    """
    wanted = make_head(request, space)
    ledger = find(storage, request.study)
    if ledger is not None and not ledger.begun():  # Its command failed at once: a typo, perhaps.
        optuna.delete_study(study_name=request.study, storage=storage)
        ledger = None
    if ledger is None:
        return create(storage, request.study, wanted)
    differs = difference(ledger.head, wanted)
    if differs is not None:
        raise RequestError(
            f"study {request.study} exists and {differs}",
            "choose another name: kilter tune --study NAME …",
        )
    return ledger


def difference(old: Head, new: Head) -> str | None:
    """In what a request differs from a study, as the end of a sentence; None where it fits."""
    if old.command != new.command:
        return f"is about another command: {shlex.join(old.command)}"
    if old.options.metrics != new.options.metrics:
        return "measures other metrics: " + ", ".join(m.name for m in old.options.metrics)
    if old.options != new.options:
        return "makes its runs differently (--prepare, --cleanup, --timeout, --settle or --cpus)"
    if _deciding(old.question) != _deciding(new.question):
        return "asks another question (--metric, --guard, --alpha or --region)"
    if old.fixed != new.fixed:
        return f"holds other values fixed: {settings_text(old.fixed)}"
    return _knob_difference(old, new)


def _deciding(question: Question) -> tuple[object, ...]:
    """What of a question decides verdicts; the rest may change between sittings."""
    return question.alpha, question.region_percent, question.objectives, question.guards


def _knob_difference(old: Head, new: Head) -> str | None:
    before = {k.name: k for k in old.knobs}
    now = {k.name: k for k in new.knobs}
    if before.keys() != now.keys():
        other = sorted(before.keys() ^ now.keys())
        return f"searches other knobs (they differ in {', '.join(other[:4])})"
    for name, knob in before.items():
        if knob.searched != now[name].searched:
            return f"searches {name} in {knob.searched}, not in {now[name].searched}"
        if knob.before != now[name].before:
            return (
                f"was begun with {name} = {knob.before}, which is {now[name].before} now: "
                "its baseline is another one"
            )
    return None
