"""A machine whose response is known: a metric that is a function of settings, plus noise.

No time passes: the clock is advanced by the run times that the machine reports. Everything is
deterministic by seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kilter_lab.messages import (
    BatchReply,
    BoolValue,
    ChoiceValue,
    Exited,
    Fingerprint,
    IntValue,
    Knob,
    KnobSpec,
    Linear,
    Log,
    MachineDelta,
    Metric,
    NotRun,
    Outcome,
    Present,
    Ran,
    Record,
    RunOptions,
    RunRecord,
    RunRequest,
    Settings,
    TimedOut,
    Values,
)

WALL = Metric("wall", Record("wall_s"), "min", "s")

MACHINE = Fingerprint(
    id="synthetic",
    kernel="6.12.0",
    arch="x86_64",
    os="none",
    cpu="none",
    cpus=2,
    memory_kib=1 << 20,
    cgroup="v2",
    virtualisation="none",
    cpufreq="none",
    sched_ext="",
    boot_id="00000000-0000-0000-0000-000000000000",
)


@dataclass
class Noise:
    """Multiplicative noise of a run time, on the log scale."""

    cv: float = 0.03
    kind: str = "normal"
    """``normal``; ``heavy``: skewed, with a long upper tail, as builds and scripts show."""
    autocorrelation: float = 0.0
    """Of neighbouring runs."""
    spikes: float = 0.0
    """Chance that the hypervisor takes the CPUs away during a run."""
    _state: float = 0.0

    def draw(self, rng: random.Random) -> tuple[float, float]:
        """(log factor, share of the run that was stolen)."""
        shock = rng.gauss(0, 1)
        if self.kind == "heavy":
            # A standardised lognormal of log-deviation 0.8: skewness 3.7, kurtosis 31.
            s = 0.8
            mean, sd = math.exp(s * s / 2), math.sqrt(math.expm1(s * s) * math.exp(s * s))
            shock = (math.exp(s * shock) - mean) / sd
        rho = self.autocorrelation
        self._state = rho * self._state + math.sqrt(1 - rho * rho) * shock
        stolen = rng.uniform(0.2, 0.5) if rng.random() < self.spikes else 0.0
        return self.cv * self._state + math.log1p(stolen), stolen


@dataclass
class Machine:
    """An in-process runner."""

    effect: Callable[[Settings], float]
    """Log change of the run time under these settings; None for a run that fails."""
    seed: int = 0
    noise: Noise = field(default_factory=Noise)
    seconds: float = 0.5
    overhead_s: float = 0.002
    fails: Callable[[Settings], Outcome | None] = lambda _: None
    refuses: Callable[[Settings], str | None] = lambda _: None
    extra: Callable[[Settings, float], dict[str, float]] = lambda _s, _w: {}
    machine: Fingerprint = field(default_factory=lambda: MACHINE)
    stop_after: int | None = None
    """The user presses Ctrl-C after this many runs."""
    runs: int = 0
    log: list[RunRequest] = field(default_factory=list)
    keep_log: bool = False
    start: float = 1000.0
    """Seconds since boot at the start."""

    def __post_init__(self) -> None:
        self.rng = random.Random(f"machine {self.seed}")
        self.clock = self.start

    def now(self) -> float:
        return self.clock

    def run(self, requests: list[RunRequest]) -> Iterator[BatchReply]:
        for request in requests:
            if self.stop_after is not None and self.runs >= self.stop_after:
                raise KeyboardInterrupt
            self.runs += 1
            if self.keep_log:
                self.log.append(request)
            yield self._one(request)

    def _one(self, request: RunRequest) -> BatchReply:
        refusal = self.refuses(request.settings)
        if refusal is not None:
            return NotRun(request.id, refusal)
        log_factor, stolen = self.noise.draw(self.rng)
        wall = self.seconds * math.exp(self.effect(request.settings) + log_factor)
        outcome: Outcome = self.fails(request.settings) or Exited(0)
        if request.timeout_s is not None and wall > request.timeout_s:
            wall, outcome = request.timeout_s, TimedOut()
        begun = self.clock
        self.clock += wall + self.overhead_s
        return Ran(
            request.id,
            RunRecord(
                command=request.command,
                settings=request.settings,
                started="2025-01-01T00:00:00Z",
                started_boottime_s=begun,
                outcome=outcome,
                wall_s=wall,
                user_s=0.6 * wall,
                sys_s=0.3 * wall,
                max_rss_kib=1000,
                voluntary_switches=10,
                involuntary_switches=1,
                minor_faults=100,
                major_faults=0,
                machine=MachineDelta(steal_s=stolen * wall, load_1m=0.1),
                metrics=self.extra(request.settings, wall),
                fingerprint=self.machine,
            ),
        )


def knob(name: str, current: str, search: Linear | Log | Values) -> Knob:
    """A searchable knob."""
    value: IntValue | BoolValue | ChoiceValue
    if isinstance(search, Values):
        value = BoolValue() if search.values == ["0", "1"] else ChoiceValue(search.values)
    else:
        value = IntValue(0, search.max * 10)
    return Knob(
        name=name,
        state=Present(current, f"/proc/sys/{name.replace('.', '/')}", True),
        virtual_device=False,
        spec=KnobSpec(name, f"summary of {name}", "", value, current, "low", "", search),
    )


def knobs() -> list[Knob]:
    """Twelve mixed knobs, as a kernel has them."""
    return [
        knob("vm.swappiness", "60", Linear(0, 200)),
        knob("vm.dirty_ratio", "20", Linear(5, 80)),
        knob("vm.dirty_background_ratio", "10", Linear(1, 60)),
        knob("vm.vfs_cache_pressure", "100", Log(1, 1000)),
        knob("sched.base_slice_ns", "2800000", Log(100_000, 100_000_000)),
        knob("sched.migration_cost_ns", "500000", Log(10_000, 10_000_000)),
        knob("sched.nr_migrate", "32", Log(1, 128)),
        knob("sched.features.NEXT_BUDDY", "0", Values(["0", "1"])),
        knob("sched.features.WAKEUP_PREEMPTION", "1", Values(["0", "1"])),
        knob("kernel.sched_autogroup_enabled", "1", Values(["0", "1"])),
        knob("vm.transparent_hugepage", "madvise", Values(["always", "madvise", "never"])),
        knob("block.vda.scheduler", "none", Values(["none", "mq-deadline", "bfq", "kyber"])),
    ]


def options(**changes: object) -> RunOptions:
    """Options with the wall time as the deciding metric."""
    chosen: dict[str, object] = {"metrics": [WALL], **changes}
    return RunOptions(**chosen)  # type: ignore[arg-type]


def more_knobs() -> list[Knob]:
    """Twenty-eight knobs: the twelve, and as many others as a virtual machine's kernel offers."""
    others = [
        *(knob(f"other.switch{i}", "0", Values(["0", "1"])) for i in range(6)),
        *(knob(f"other.share{i}", str(10 * i), Linear(0, 100)) for i in range(5)),
        *(knob(f"other.size{i}", str(10 ** (i + 1)), Log(1, 1_000_000)) for i in range(5)),
    ]
    return [*knobs(), *others]
