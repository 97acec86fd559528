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
)
from kilter_lab.session import Session
from kilter_lab.studies import study_data


def publish(session: Session, outcome: Outcome) -> None:
    """Save the profile, record the evidence, write the report."""
    machine = session.bench.machine
    if machine is not None and outcome.confirmed:
        _evidence(session, outcome, machine)
        if outcome.ending == "better":
            _profile(session, outcome, machine)
            session.ledger.write("outcome", outcome)
    _report(session)


def _evidence(session: Session, outcome: Outcome, machine: Fingerprint) -> None:
    when, arm = binary.now_text(), tested(session, outcome)
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
        for verdict in outcome.confirmed
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


def _profile(session: Session, outcome: Outcome, machine: Fingerprint) -> None:
    head = session.head
    knobs = {k.name: k for k in head.knobs}
    values = {
        name: ProfileValue(value, "held in every run of the study")
        for name, value in head.fixed.items()
    }
    for name, value in outcome.winner.items():
        knob = knobs[name]
        values[name] = ProfileValue(value, f"was {knob.before}: {knob.summary}")
    verdict = outcome.confirmed[0]
    profile = Profile(
        name=session.ledger.name,
        summary=f"found by kilter tune for: {shlex.join(head.command)}",
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
        outcome.profile = profile.name
    except LabError as error:
        session.console.warn(str(error))


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
