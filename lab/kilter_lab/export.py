"""Raw runs as CSV (one line a run) or JSON (with the verdicts), written whole or not at all."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec

from kilter_lab.comparison import Comparison, Export, RawRun
from kilter_lab.errors import LabError
from kilter_lab.files import replace

FIELDS = (
    "started",
    "started_boottime_s",
    "wall_s",
    "user_s",
    "sys_s",
    "max_rss_kib",
    "voluntary_switches",
    "involuntary_switches",
    "minor_faults",
    "major_faults",
)


def write_export(path: Path, comparison: Comparison, runs: list[RawRun]) -> None:
    """Write ``runs`` in the form that the suffix names. LabError where the place refuses."""
    text = (
        as_csv(runs)
        if path.suffix == ".csv"
        else msgspec.json.format(msgspec.json.encode(Export(comparison, runs)), indent=2).decode()
    )
    try:
        replace(text.encode(), path)
    except OSError as error:
        raise LabError(f"--export {path}: {error.strerror}") from error


def as_csv(runs: list[RawRun]) -> str:
    """A header, then one line a run; fields that a run did not yield are empty."""
    names = sorted({name for run in runs for name in run.values} - set(FIELDS))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["block", "position", "arm", "outcome", *FIELDS, "steal_s", "load_1m", *names])
    for run in runs:
        record = run.record
        measured: list[object] = (
            [*(getattr(record, f) for f in FIELDS), record.machine.steal_s, record.machine.load_1m]
            if record
            else [""] * (len(FIELDS) + 2)
        )
        writer.writerow(
            [run.block, run.position, run.arm, run.outcome]
            + measured
            + [run.values.get(name, "") for name in names]
        )
    return stream.getvalue()
