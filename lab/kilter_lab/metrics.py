"""The numbers of a run: a metric's value, the outcome in words, and a failure explained."""

from __future__ import annotations

import shlex

from kilter_lab.errors import BatchError, LabError, RefusedError, WorkloadError
from kilter_lab.messages import (
    BatchReply,
    Exited,
    Interrupted,
    Metric,
    NotRun,
    Outcome,
    Ran,
    Record,
    RunRecord,
    Signalled,
)

TAIL_LINES = 8
"""Lines of a failing command's output that are shown."""


def value(record: RunRecord, metric: Metric) -> float | None:
    """The metric's value in this record; None where the output did not yield it."""
    if metric.name in record.metrics:
        return record.metrics[metric.name]
    if not isinstance(metric.source, Record):
        return None
    field = metric.source.field
    found = getattr(record, field, getattr(record.machine, field, None))
    if found is None and field in record.counters:
        found = record.counters[field].value
    return float(found) if isinstance(found, int | float) else None


def values(record: RunRecord, metrics: list[Metric]) -> dict[str, float]:
    """All values that this record yields, by metric name."""
    pairs = ((m.name, value(record, m)) for m in metrics)
    return {name: v for name, v in pairs if v is not None}


def outcome_text(outcome: Outcome) -> str:
    """``ok``, ``exit 1``, ``signal 9``, ``timed out`` or ``interrupted``."""
    if isinstance(outcome, Exited):
        return "ok" if outcome.code == 0 else f"exit {outcome.code}"
    if isinstance(outcome, Signalled):
        return f"signal {outcome.signal}"
    return "interrupted" if isinstance(outcome, Interrupted) else "timed out"


def reply_text(reply: BatchReply, deciding: Metric) -> str:
    """The outcome of a reply, also where the run went well and the deciding metric is missing."""
    if isinstance(reply, NotRun):
        return f"refused: {reply.error}"
    text = outcome_text(reply.record.outcome)
    if text == "ok" and value(reply.record, deciding) is None:
        return f"no {deciding.name} in the output"
    return text


def check_baseline(reply: BatchReply, metrics: list[Metric]) -> RunRecord:
    """The record of a good first run; an error that explains itself otherwise."""
    if isinstance(reply, NotRun):
        raise RefusedError(f"the first run was not made: {reply.error}", reply.hint)
    record = reply.record
    what = shlex.join(record.command)
    outcome = outcome_text(record.outcome)
    if outcome != "ok":
        raise WorkloadError(
            f"the command fails with the base's settings ({outcome}): {what}"
            + _tail("its standard error ends with", record.stderr_tail or record.stdout_tail),
            f"run it by itself first: {what}",
        )
    for metric in metrics:
        found = value(record, metric)
        if found is None:
            raise WorkloadError(
                f"metric {metric.name} was not found in the output of: {what}"
                + _tail("the output ends with", record.stdout_tail or record.stderr_tail)
            )
    first = value(record, metrics[0])
    if first is None or not first > 0:
        raise WorkloadError(
            f"metric {metrics[0].name} is {first:g} on the first run: ratios need positive numbers"
        )
    return record


def failure(reply: BatchReply, who: str, deciding: Metric) -> LabError:
    """The error for an arm that cannot be measured at all."""
    if isinstance(reply, NotRun):
        return RefusedError(f"{who} was not run: {reply.error}", reply.hint)
    record = reply.record
    return WorkloadError(
        f"the command fails under {who} ({reply_text(reply, deciding)})"
        + _tail("its output ends with", record.stderr_tail or record.stdout_tail)
    )


def expect_ran(reply: BatchReply) -> Ran:
    """The reply as a run that took place."""
    if isinstance(reply, NotRun):
        raise BatchError(reply.error, reply.hint)
    return reply


def _tail(label: str, text: str) -> str:
    lines = text.rstrip().splitlines()[-TAIL_LINES:]
    if not lines:
        return "\n  (it printed nothing)"
    return f"\n  {label}:\n" + "\n".join(f"    {line}" for line in lines)
