"""What the lab asks of the kilter binary besides runs: to keep evidence, to save a profile."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime

import msgspec

from kilter_lab.errors import LabError
from kilter_lab.messages import Evidence, LabContext, Profile


def now_text() -> str:
    """The time now, RFC 3339 in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def record_evidence(context: LabContext, evidence: list[Evidence]) -> None:
    """Append verdicts to the evidence file. LabError where the binary refuses."""
    if evidence:
        lines = b"".join(msgspec.json.encode(e) + b"\n" for e in evidence)
        _feed([*context.kilter, "evidence", "record"], lines, "the evidence was not recorded")


def save_profile(context: LabContext, profile: Profile) -> None:
    """Save a profile under its name. LabError where the binary refuses."""
    _feed(
        [*context.kilter, "profile", "save"],
        msgspec.json.encode(profile) + b"\n",
        f"profile {profile.name} was not saved",
    )


def _feed(argv: list[str], data: bytes, failed: str) -> None:
    try:
        done = subprocess.run(
            argv, input=data, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
        )
    except OSError as error:
        raise LabError(f"{failed}: cannot start {argv[0]}: {error.strerror}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().removeprefix("error: ")
        raise LabError(f"{failed}: {said or f'exit status {done.returncode}'}")
