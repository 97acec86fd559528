"""What earlier evidence suggests to try first. It never enters a verdict.

Settings that were *better* at some time, wherever that was, become the first trials; of this
machine, kernel and question before others, later ones before earlier ones.
"""

from __future__ import annotations

from kilter_lab.messages import Evidence
from kilter_lab.session import Session
from kilter_lab.space import Axis, NumberAxis, Point

MOST = 3
"""Combinations that are tried first."""


def points(session: Session) -> list[Point]:
    """The first trials; kept with the study, so that a resumed one goes the same way."""
    kept = session.ledger.read("prior", list[Point])
    if kept is None:
        kept = _chosen(session)
        session.ledger.write("prior", kept)
    return kept


def _chosen(session: Session) -> list[Point]:
    axes = {axis.name: axis for axis in session.space.axes}
    found: list[Point] = []
    for evidence in sorted(session.request.evidence, key=lambda e: _rank(session, e), reverse=True):
        if evidence.verdict.verdict != "better" or not _fits(evidence, axes):
            continue
        point = session.space.repair(session.space.point(evidence.arm))
        if point not in found and session.space.settings(point):
            found.append(point)
        if len(found) == MOST:
            break
    return found


def _rank(session: Session, evidence: Evidence) -> tuple[bool, bool, bool, str]:
    machine, request = session.bench.machine, session.request
    asked = evidence.command == request.command or bool(
        request.workload and evidence.workload == request.workload
    )
    return (
        asked,
        machine is not None and evidence.machine == machine.id,
        machine is not None and evidence.kernel == machine.kernel,
        evidence.when,
    )


def _fits(evidence: Evidence, axes: dict[str, Axis]) -> bool:
    """Whether every value lies in the range that is searched now."""
    return all(knob in axes and _allowed(axes[knob], value) for knob, value in evidence.arm.items())


def _allowed(axis: Axis, value: str) -> bool:
    if isinstance(axis, NumberAxis):
        if not value.removeprefix("-").isdecimal():
            return False
        return axis.low <= int(value) <= axis.high and (int(value) - axis.low) % axis.step == 0
    return value in axis.levels()
