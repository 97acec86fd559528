"""The messages shared with the kilter binary (crates/kilter-api), as msgspec structs.

Samples in ``schema/samples`` are decoded by tests in both languages, so that neither side can
drift. A knob's value is always a string; a quantity carries its unit in its name.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Settings = dict[str, str]
Direction = Literal["min", "max"]
VerdictName = Literal["better", "worse", "no-difference", "inconclusive"]


class Record(msgspec.Struct, tag_field="from", tag="record"):
    """A field of the run record itself."""

    field: str


class Regex(msgspec.Struct, tag_field="from", tag="regex"):
    """The first group of a regular expression over the output."""

    pattern: str


class Json(msgspec.Struct, tag_field="from", tag="json"):
    """A number in JSON on standard output, by JSON pointer."""

    pointer: str


class Metric(msgspec.Struct, omit_defaults=True):
    """A number that a run yields."""

    name: str
    source: Record | Regex | Json
    direction: Direction = "min"
    unit: str = ""


class RunRequest(msgspec.Struct, omit_defaults=True):
    """One line that ``kilter run --batch`` reads."""

    id: int
    settings: Settings
    command: list[str]
    prepare: list[str] = []
    cleanup: list[str] = []
    timeout_s: float | None = None
    settle_s: float = 0.0
    cpus: str | None = None
    metrics: list[Metric] = []


class Exited(msgspec.Struct, tag_field="outcome", tag="exited"):
    """The command exited."""

    code: int


class Signalled(msgspec.Struct, tag_field="outcome", tag="signalled"):
    """A signal ended the command."""

    signal: int


class TimedOut(msgspec.Struct, tag_field="outcome", tag="timed-out"):
    """The run hit its time limit and was ended."""


class Interrupted(msgspec.Struct, tag_field="outcome", tag="interrupted"):
    """The user ended the run."""


Outcome = Exited | Signalled | TimedOut | Interrupted


class Pressure(msgspec.Struct):
    """Pressure-stall deltas over a run, in seconds."""

    cpu_some_s: float
    memory_some_s: float
    memory_full_s: float
    io_some_s: float
    io_full_s: float


class MachineDelta(msgspec.Struct):
    """What the whole machine went through during a run."""

    steal_s: float
    load_1m: float
    pressure: Pressure | None = None


class Counter(msgspec.Struct):
    """One perf counter."""

    value: float
    running: float


class Fingerprint(msgspec.Struct):
    """What a measurement depends on besides the settings."""

    id: str
    kernel: str
    arch: str
    os: str
    cpu: str
    cpus: int
    memory_kib: int
    cgroup: str
    virtualisation: str
    cpufreq: str
    sched_ext: str
    boot_id: str


class RunRecord(msgspec.Struct):
    """The measurements of one run."""

    command: list[str]
    settings: Settings
    started: str
    started_boottime_s: float
    outcome: Outcome
    wall_s: float
    user_s: float
    sys_s: float
    max_rss_kib: int
    voluntary_switches: int
    involuntary_switches: int
    minor_faults: int
    major_faults: int
    machine: MachineDelta
    counters: dict[str, Counter] = {}
    metrics: dict[str, float] = {}
    stdout_tail: str = ""
    stderr_tail: str = ""
    fingerprint: Fingerprint | None = None
    warnings: list[str] = []


class Ran(msgspec.Struct, tag_field="result", tag="ran"):
    """The workload ran."""

    id: int
    record: RunRecord


class NotRun(msgspec.Struct, tag_field="result", tag="not-run"):
    """The workload was not run."""

    id: int
    error: str
    hint: str | None = None


BatchReply = Ran | NotRun


class IntValue(msgspec.Struct, tag_field="type", tag="int"):
    """A whole number within a range."""

    min: int
    max: int


class BoolValue(msgspec.Struct, tag_field="type", tag="bool"):
    """``0`` or ``1``."""


class ChoiceValue(msgspec.Struct, tag_field="type", tag="choice"):
    """One of a list of words."""

    choices: list[str]


class ListValue(msgspec.Struct, tag_field="type", tag="list"):
    """Whole numbers, each within a range."""

    min: int
    max: int
    most: int


class MaskValue(msgspec.Struct, tag_field="type", tag="mask"):
    """A set of CPUs, in hexadecimal."""


class Linear(msgspec.Struct, tag_field="scale", tag="linear"):
    """Sample evenly, in steps."""

    min: int
    max: int
    step: int = 1


class Log(msgspec.Struct, tag_field="scale", tag="log"):
    """Sample evenly over the logarithm."""

    min: int
    max: int


class Values(msgspec.Struct, tag_field="scale", tag="values"):
    """Sample a list of values."""

    values: list[str]


class KnobSpec(msgspec.Struct):
    """A catalog entry, as far as the lab uses it."""

    name: str
    summary: str
    why: str
    value: IntValue | BoolValue | ChoiceValue | ListValue | MaskValue
    default: str
    risk: str
    unit: str = ""
    search: Linear | Log | Values | None = None
    blinds: list[str] = []
    sources: list[str] = []


class Present(msgspec.Struct, tag_field="state", tag="present"):
    """The knob is here."""

    value: str
    path: str
    writable: bool


class Unavailable(msgspec.Struct, tag_field="state", tag="unavailable"):
    """The knob cannot be used, for a reason."""

    reason: str
    detail: str


class Knob(msgspec.Struct):
    """One knob on this machine."""

    name: str
    state: Present | Unavailable
    virtual_device: bool
    spec: KnobSpec
    offered: list[str] = []


class VerdictRecord(msgspec.Struct):
    """A verdict with its numbers; ``ratio`` is the arm's metric over the baseline's."""

    verdict: VerdictName
    metric: str
    direction: Direction
    ratio: float
    low: float
    high: float
    confidence: float
    region_percent: float
    blocks: int
    base_median: float
    arm_median: float
    looks: int = 1
    more_blocks: int | None = None


class Evidence(msgspec.Struct, omit_defaults=True):
    """One line of the evidence file, recorded through ``kilter evidence record``."""

    when: str
    machine: str
    kernel: str
    boot_id: str
    command: list[str]
    arm: Settings
    verdict: VerdictRecord
    base: Settings = {}
    old: Settings = {}
    study: str = ""
    workload: str = ""
    runs: int = 0
    cpu: str = ""
    version: str = ""
    imported: bool = False


class ProfileValue(msgspec.Struct, omit_defaults=True):
    """A value in a profile, with its reason."""

    value: str
    why: str = ""


class ProfileEvidence(msgspec.Struct, omit_defaults=True):
    """The evidence that ``tune`` saves with a winner."""

    study: str
    command: list[str]
    kernel: str
    machine: str
    when: str
    verdict: VerdictRecord
    fixed: Settings = {}


class Profile(msgspec.Struct, omit_defaults=True):
    """A named set of knob values, saved through ``kilter profile save``."""

    name: str
    set: dict[str, ProfileValue]
    summary: str = ""
    include: list[str] = []
    evidence: ProfileEvidence | None = None


class LabContext(msgspec.Struct):
    """How to reach the binary, and how to speak."""

    kilter: list[str]
    seed: int
    batch_options: list[str] = []
    json: bool = False


class RunOptions(msgspec.Struct):
    """How runs are made; the first metrics decide, see :class:`Question`."""

    metrics: list[Metric]
    prepare: list[str] = []
    cleanup: list[str] = []
    timeout_s: float | None = None
    settle_s: float = 0.0
    cpus: str | None = None


class Arm(msgspec.Struct):
    """What is compared: values and a command."""

    label: str
    command: list[str]
    settings: Settings = {}


class Guard(msgspec.Struct, frozen=True):
    """A limit on a metric's change against the base: ``p99 <= +5%``."""

    metric: str
    bound: Literal["at-most", "at-least"]
    percent: float


class Question(msgspec.Struct):
    """What is asked of the numbers."""

    alpha: float = 0.05
    detect_percent: float = 2.0
    region_percent: float = 1.0
    objectives: int = 1
    guards: list[Guard] = []
    require_better: bool = False


class CompareRequest(msgspec.Struct, tag_field="ask", tag="compare"):
    """``kilter compare``."""

    context: LabContext
    options: RunOptions
    base: Arm
    arms: list[Arm]
    question: Question
    old: Settings = {}
    workload: str = ""
    blocks: int | None = None
    max_runs: int | None = None
    budget_s: float | None = None
    export: str | None = None


class TuneRequest(msgspec.Struct, tag_field="ask", tag="tune"):
    """``kilter tune``."""

    context: LabContext
    options: RunOptions
    study: str
    storage: str
    state_dir: str
    command: list[str]
    knobs: list[Knob]
    question: Question
    workload: str = ""
    evidence: list[Evidence] = []
    fixed: Settings = {}
    at_most: list[tuple[str, str]] = []
    known: dict[str, str] = {}
    trials: int | None = None
    budget_s: float | None = None
    report: str | None = None


class AuditLine(msgspec.Struct):
    """One line of an audited profile."""

    knob: str
    old: str
    new: str
    why: str = ""


class AuditRequest(msgspec.Struct, tag_field="ask", tag="audit"):
    """``kilter audit``."""

    context: LabContext
    options: RunOptions
    profile: str
    lines: list[AuditLine]
    command: list[str]
    question: Question
    left_out: list[tuple[str, str]] = []
    workload: str = ""
    max_runs: int | None = None
    budget_s: float | None = None


class SelftestRequest(msgspec.Struct, tag_field="ask", tag="selftest"):
    """``kilter selftest``."""

    context: LabContext
    options: RunOptions
    command: list[str]
    question: Question
    runs: int
    budget_s: float | None = None


class ReportRequest(msgspec.Struct, tag_field="ask", tag="report"):
    """``kilter report``."""

    context: LabContext
    study: str
    storage: str
    format: Literal["html", "md", "json"] = "html"
    output: str | None = None


class AppswitchRequest(msgspec.Struct, tag_field="ask", tag="appswitch"):
    """``kilter reclaim experiment appswitch``."""

    context: LabContext
    question: Question
    arms: list[str]
    apps: int
    switches: int
    app_mib: int
    limit_mib: int
    swap_mib: int
    think_s: float
    killer: Literal["group", "earlyoom", "kernel"] = "group"
    blocks: int | None = None
    budget_s: float | None = None
    export: str | None = None


class StartupRequest(msgspec.Struct, tag_field="ask", tag="startup"):
    """``kilter reclaim experiment startup``."""

    context: LabContext
    question: Question
    kinds: list[str]
    app_mib: int
    swap_mib: int
    blocks: int | None = None
    budget_s: float | None = None


LabRequest = (
    CompareRequest
    | TuneRequest
    | AuditRequest
    | SelftestRequest
    | ReportRequest
    | AppswitchRequest
    | StartupRequest
)
