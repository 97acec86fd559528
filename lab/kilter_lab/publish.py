"""What a study leaves behind: a profile of the winner, evidence, and the report.

None of it is worth losing a result over: what cannot be kept is warned of.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from kilter_lab import binary
from kilter_lab.errors import LabError
from kilter_lab.ledger import Outcome
from kilter_lab.messages import (
    Evidence,
    Fingerprint,
    Profile,
    ProfileEvidence,
    ProfileValue,
    Settings,
    VerdictRecord,
)
from kilter_lab.session import Session
from kilter_lab.studies import study_data
from kilter_lab.study import FrontMember
from kilter_lab.wording import change, comparative, guard_text, metric_label


def publish(session: Session, outcome: Outcome) -> None:
    """Save the profile, record the evidence, write the report."""
    machine = session.bench.machine
    if machine is not None and outcome.confirmed:
        _evidence(session, outcome, machine)
        if outcome.front:
            _profiles(session, outcome, machine)
        elif outcome.ending == "better":
            told = f"found by kilter tune for: {shlex.join(session.head.command)}"
            name, verdict = session.ledger.name, outcome.confirmed[0]
            outcome.profile = _profile(session, machine, name, outcome.winner, verdict, told)
        session.ledger.write("outcome", outcome)
    _report(session)


def _evidence(session: Session, outcome: Outcome, machine: Fingerprint) -> None:
    when, fixed = binary.now_text(), session.head.fixed
    judged = [({**fixed, **m.settings}, m.verdicts) for m in outcome.front]
    evidence = [
        Evidence(
            when=when,
            machine=machine.id,
            kernel=machine.kernel,
            boot_id=machine.boot_id,
            command=session.head.command,
            base=session.head.fixed,
            arm=arm,
            old={k.name: k.before for k in session.head.knobs if k.name in arm},
            workload=session.request.workload,
            runs=4 * verdict.blocks,
            cpu=machine.cpu,
            verdict=verdict,
            study=session.ledger.name,
        )
        for arm, verdicts in judged or [(tested(session, outcome), outcome.confirmed)]
        for verdict in verdicts
    ]
    try:
        binary.record_evidence(session.request.context, evidence)
    except LabError as error:
        session.console.warn(str(error))


def tested(session: Session, outcome: Outcome) -> Settings:
    """What the confirmation ran, held values included; also where nothing was found to help."""
    blocks = session.ledger.blocks()
    winner = outcome.winner or blocks["confirm", 0].arms["winner"]
    return {**session.head.fixed, **winner}


def _profiles(session: Session, outcome: Outcome, machine: Fingerprint) -> None:
    """The first better member under the study's name, other ones and trade-offs numbered."""
    study, number = session.ledger.name, 2
    for member in outcome.front:
        if not member.belongs:
            continue
        name = study
        if outcome.profile or member.conclusion != "better":
            name, number = f"{study}-{number}", number + 1
        verdict = next(v for v in member.verdicts if v.verdict == "better")
        told = member_summary(session, member)
        member.profile = _profile(session, machine, name, member.settings, verdict, told)
        if name == study:
            outcome.profile = member.profile


def member_summary(session: Session, member: FrontMember) -> str:
    """A profile's line: what it was found for, and of a trade-off at what price."""
    command = shlex.join(session.head.command)
    if member.conclusion != "trade-off":
        return f"found by kilter tune for: {command}"
    metrics = {m.name: m for m in session.head.metrics}
    parts = [
        comparative(v, metrics[v.metric], change(v, True)[0] >= 0)
        for v in member.verdicts
        if v.verdict in ("better", "worse")
    ]
    parts += [
        f"guard {metric_label(metrics[g.guard.metric])} {guard_text(g.guard)} broken"
        for g in member.guards
        if g.outcome == "broken"
    ]
    return f"a trade-off found by kilter tune ({', '.join(parts)}) for: {command}"


def _profile(
    session: Session,
    machine: Fingerprint,
    name: str,
    settings: Settings,
    verdict: VerdictRecord,
    summary: str,
) -> str:
    """Save a profile. Returns its name; empty where it could not be saved."""
    head = session.head
    knobs = {k.name: k for k in head.knobs}
    values = {
        held: ProfileValue(value, "held in every run of the study")
        for held, value in head.fixed.items()
    }
    for knob_name, value in settings.items():
        knob = knobs[knob_name]
        values[knob_name] = ProfileValue(value, f"was {knob.before}: {knob.summary}")
    profile = Profile(
        name=name,
        summary=summary,
        set=values,
        evidence=ProfileEvidence(
            study=session.ledger.name,
            command=head.command,
            fixed=head.fixed,
            kernel=machine.kernel,
            machine=machine.id,
            when=binary.now_text(),
            verdict=verdict,
        ),
    )
    try:
        binary.save_profile(session.request.context, profile)
    except LabError as error:
        session.console.warn(str(error))
        return ""
    return name


def report_path(session: Session) -> Path:
    """Where the report goes: as asked, or beside the study."""
    asked = session.request.report
    state = Path(session.request.state_dir)
    return Path(asked) if asked is not None else state / f"{session.ledger.name}.html"


def _report(session: Session) -> None:
    from kilter_lab import report  # Charts take long to import.

    path = report_path(session)
    try:
        report.write(study_data(session.ledger), path)
        session.ledger.write("report", str(path))
    except LabError as error:
        session.console.warn(str(error))
