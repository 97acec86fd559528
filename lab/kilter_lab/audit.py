"""``kilter audit``: what a profile does as a whole, and which of its lines carry it.

Three steps, each on fresh runs:

1. *The whole* profile beside the current settings, until there is a verdict.
2. *Halves*: a coin for each line splits the profile into two halves, which run side by side,
   again and again. Every run tells of every line, so all lines together take no more runs than
   one would.
3. *One by one*: each line that stood out is taken out of the profile, and so are all lines that
   did not, together; each of these runs beside the whole profile, until there is a verdict.

The first and the last step share the error equally; the halves only choose what is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from kilter_lab import wording
from kilter_lab.audit_text import show
from kilter_lab.binary import now_text, record_evidence
from kilter_lab.blocks import dice
from kilter_lab.compare import DEFAULT_RUNS, conclude, measure
from kilter_lab.comparison import ArmResult, Comparison
from kilter_lab.console import Console
from kilter_lab.errors import LabError
from kilter_lab.halves import Halves, Interaction, Split, estimate, interactions, split
from kilter_lab.measure import OK, Bench
from kilter_lab.messages import (
    Arm,
    AuditLine,
    AuditRequest,
    CompareRequest,
    Evidence,
    Fingerprint,
    Settings,
    VerdictRecord,
)
from kilter_lab.runner import Runner

WHOLE, HALVES, SINGLES = 0.3, 0.4, 0.3
"""Shares of the runs."""

FEW = 3
"""Lines up to which each is taken out without asking the halves."""

MOST_SINGLES = 6
"""Lines taken out one by one at most."""

STANDS_OUT = 2.0
"""Standard errors from 0 at which a line is looked at by itself."""

Role = Literal["carries", "harms", "nothing", "open"]
ROLES: dict[str, Role] = {"worse": "carries", "better": "harms", "no-difference": "nothing"}


class Line(msgspec.Struct):
    """One line of the profile with what it does."""

    line: AuditLine
    role: Role
    """*carries*: without it the profile is worse; *harms*: without it better; *nothing*: no
    difference within the region; *open*: not known after these runs."""
    verdict: VerdictRecord | None
    """The profile without this line against the whole; None where it was not taken out alone."""
    together: bool
    """Whether it went together with all others that did not stand out."""
    refused: str
    """Why the profile does not run without this line; else empty."""
    estimate: float | None
    """Log change that the halves saw, and its standard error."""
    error: float | None


class Audit(msgspec.Struct):
    """An audit, judged."""

    profile: str
    whole: ArmResult
    lines: list[Line]
    rest: ArmResult | None
    """The profile without all lines that did not stand out, against the whole."""
    interactions: list[Interaction]
    left_out: list[tuple[str, str]]
    runs: int
    seed: int
    machine: Fingerprint | None
    warnings: list[str]


@dataclass
class Auditor:
    """What all steps share."""

    request: AuditRequest
    bench: Bench
    console: Console
    begun: float

    def settings(self, lines: Sequence[AuditLine]) -> Settings:
        """The values of these lines."""
        return {line.knob: line.new for line in lines}

    def compare(self, base: Arm, arms: list[Arm], share: float, seed: int) -> Comparison:
        """A sequential comparison within this share of the runs that are left."""
        r = self.request
        asked = CompareRequest(
            context=msgspec.structs.replace(r.context, seed=seed),
            options=r.options,
            base=base,
            arms=arms,
            question=msgspec.structs.replace(r.question, alpha=r.question.alpha / 2),
            max_runs=max(4 * (1 + len(arms)), int(share * self.runs_left())),
        )
        judge, measured = measure(asked, self.bench, self.console)
        if measured.interrupted:
            raise KeyboardInterrupt
        return conclude(asked, self.bench, judge, measured)

    def runs_left(self) -> int:
        """Runs that may still be made."""
        limit = self.request.max_runs or 2 * DEFAULT_RUNS
        left = limit - self.bench.runs_made
        if self.request.budget_s is not None:
            spent = self.bench.runner.now() - self.begun
            run_s = self.bench.seconds_a_run() or 1e-3
            in_time = int((self.request.budget_s - spent) / run_s) if self.bench.runs_made else left
            left = in_time if self.request.max_runs is None else min(left, in_time)
        return max(0, left)


def audit(request: AuditRequest, runner: Runner, console: Console) -> int:
    """Measure, judge, print, record. Returns the exit status."""
    bench = Bench(runner, request.options)
    auditor = Auditor(request, bench, console, runner.now())
    found = measured_audit(auditor)
    for text in found.warnings:
        console.warn(text)
    if request.context.json:
        console.raw(msgspec.json.encode(found).decode())
    else:
        show(found, request, console)
    keep_evidence(request, found, console)
    if request.question.require_better and found.whole.conclusion != "better":
        return 1
    return 1 if found.whole.conclusion in ("worse", "trade-off") else 0


def measured_audit(auditor: Auditor) -> Audit:
    """All three steps."""
    request, seed = auditor.request, auditor.request.context.seed
    current = Arm("current", request.command)
    whole = Arm(request.profile, request.command, auditor.settings(request.lines))
    auditor.console.note(f"{request.profile} as a whole")
    first = auditor.compare(current, [whole], WHOLE, seed)
    seen = halves(auditor) if len(request.lines) > FEW else None
    alone, rest = to_take_out(request.lines, seen)
    second = None
    arms = [_without(auditor, whole, [line], f"without {line.knob}") for line in alone]
    if rest and len(rest) < len(request.lines):
        arms.append(_without(auditor, whole, rest, "without the rest"))
    refused: dict[str, str] = {}
    if arms and len(request.lines) > 1:
        refused = failing(auditor, arms)
        arms = [arm for arm in arms if arm.label not in refused]
    if arms and len(request.lines) > 1:
        auditor.console.note(f"{request.profile} without one line at a time")
        second = auditor.compare(whole, arms, 1.0, seed + 1)
    singles = dict(zip([a.label for a in arms], second.arms, strict=True)) if second else {}
    return Audit(
        profile=request.profile,
        whole=first.arms[0],
        lines=[_line(line, singles, rest, seen, first.arms[0], refused) for line in request.lines],
        rest=singles.get("without the rest"),
        interactions=seen.interactions if seen else [],
        left_out=request.left_out,
        runs=auditor.bench.runs_made,
        seed=seed,
        machine=auditor.bench.machine,
        warnings=list(dict.fromkeys([*first.warnings, *(second.warnings if second else [])])),
    )


def _without(auditor: Auditor, whole: Arm, lines: Sequence[AuditLine], label: str) -> Arm:
    gone = {line.knob for line in lines}
    return Arm(label, whole.command, {k: v for k, v in whole.settings.items() if k not in gone})


def failing(auditor: Auditor, arms: Sequence[Arm]) -> dict[str, str]:
    """Arms that do not even run, with the reason: some lines need each other."""
    auditor.bench.on_run = lambda _: None
    block = auditor.bench.block(arms, list(range(len(arms))))
    return {arms[o.arm].label: o.outcome for o in block if o.outcome != OK}


def halves(auditor: Auditor) -> Halves:
    """Run random halves side by side, and see what each line does on average."""
    request = auditor.request
    rng = dice(request.context.seed, "halves")
    pairs = int(HALVES / (HALVES + SINGLES) * auditor.runs_left()) // 2
    splits: list[Split] = []
    failed = 0
    auditor.console.note(f"{wording.count(pairs, 'pair')} of random halves")
    with auditor.console.progress("halves", pairs, "pairs") as bar:
        for index in range(pairs):
            auditor.bench.on_run = lambda _, done=index: bar.tick(done)  # type: ignore[misc]
            chosen = split(len(request.lines), rng)
            arms = [
                Arm(name, request.command, auditor.settings(lines))
                for name, lines in zip(
                    ("one half", "the other"), chosen.parts(request.lines), strict=True
                )
            ]
            order = rng.sample([0, 1], 2)
            block = auditor.bench.block(arms, order)
            metric = request.options.metrics[0]
            if all(o.outcome == OK for o in block):
                values = {o.arm: o.values[metric.name] for o in block}
                splits.append(chosen.measured(values[0], values[1], metric))
            else:
                failed += 1
            bar.at(index + 1)
    if failed > pairs / 2:
        raise LabError(
            f"the command failed in {failed} of {pairs} pairs of halves: lines of "
            f"{request.profile} that need each other cannot be audited one by one"
        )
    estimates = estimate(splits, len(request.lines))
    found = Halves([line.knob for line in request.lines], estimates, [])
    return msgspec.structs.replace(
        found, interactions=interactions(splits, found, request.question.alpha)
    )


def to_take_out(
    lines: Sequence[AuditLine], seen: Halves | None
) -> tuple[list[AuditLine], list[AuditLine]]:
    """Lines to look at one by one, strongest first, and all others."""
    if seen is None:
        return list(lines), []
    strength = {e.knob: e.strength for e in seen.estimates_by_knob()}
    order = sorted(lines, key=lambda line: -strength[line.knob])
    alone = [line for line in order if strength[line.knob] > STANDS_OUT][:MOST_SINGLES]
    return alone, [line for line in lines if line not in alone]


def _line(
    line: AuditLine,
    singles: dict[str, ArmResult],
    rest: Sequence[AuditLine],
    seen: Halves | None,
    whole: ArmResult,
    refused: dict[str, str],
) -> Line:
    own = singles.get(f"without {line.knob}")
    together = line in rest
    role: Role = "open"
    if own is not None:
        role = ROLES.get(own.conclusion, "open")
    elif together and "without the rest" in singles:
        joint = singles["without the rest"].conclusion
        role = "nothing" if joint == "no-difference" else "open"
    elif not singles:  # A profile of one line: the whole is the line.
        role = {"better": "carries", "worse": "harms", "no-difference": "nothing"}.get(
            whole.conclusion, "open"
        )  # type: ignore[assignment]
    known = seen.of(line.knob) if seen else None
    return Line(
        line=line,
        role=role,
        verdict=own.verdicts[0] if own else None,
        together=together,
        refused=refused.get(f"without {line.knob}", ""),
        estimate=known.log_change if known else None,
        error=known.error if known else None,
    )


def keep_evidence(request: AuditRequest, found: Audit, console: Console) -> None:
    """Record the verdict on the whole, and of each line that was taken out on its own."""
    machine = found.machine
    if machine is None:
        return
    old = {line.knob: line.old for line in request.lines}
    new = {line.knob: line.new for line in request.lines}

    def entry(base: Settings, verdict: VerdictRecord) -> Evidence:
        return Evidence(
            when=now_text(),
            machine=machine.id,
            kernel=machine.kernel,
            boot_id=machine.boot_id,
            command=request.command,
            base=base,
            arm=new,
            old=old,
            workload=request.workload,
            runs=4 * verdict.blocks,
            cpu=machine.cpu,
            verdict=verdict,
        )

    lines = [entry({}, v) for v in found.whole.verdicts]
    for line in found.lines:
        if line.verdict is not None:
            others = {k: v for k, v in new.items() if k != line.line.knob}
            lines.append(entry(others, turned(line.verdict)))
    try:
        record_evidence(request.context, lines)
    except LabError as error:
        console.warn(str(error))


def turned(v: VerdictRecord) -> VerdictRecord:
    """The same verdict with the arms' places exchanged: what putting the line in does."""
    opposite = {"better": "worse", "worse": "better"}
    return msgspec.structs.replace(
        v,
        verdict=opposite.get(v.verdict, v.verdict),
        ratio=1 / v.ratio,
        low=1 / v.high,
        high=1 / v.low,
        base_median=v.arm_median,
        arm_median=v.base_median,
    )
