"""Makes studies to report on: their machine, knobs and metrics, and runs of a known effect.

Everything is drawn from a seed, so that a study is the same in every test run.
"""

from __future__ import annotations

import math
import random

import msgspec

from kilter_lab import sequential, stats
from kilter_lab.messages import (
    Fingerprint,
    Guard,
    Metric,
    Record,
    Regex,
    Settings,
    VerdictRecord,
)
from kilter_lab.narrowing import block_logs, narrowing
from kilter_lab.outcome import GuardRecord, Shown, judge_guard
from kilter_lab.report_numbers import without_verdict
from kilter_lab.stats import verdict
from kilter_lab.study import Ending, Phase, Run, StudyData, StudyKnob, Trial

MACHINE = Fingerprint(
    id="9f31c2a07be4",
    kernel="6.12.107-amd64",
    arch="x86_64",
    os="Debian GNU/Linux 12 (bookworm)",
    cpu="AMD EPYC 7B13",
    cpus=2,
    memory_kib=8_142_336,
    cgroup="v2",
    virtualisation="kvm",
    cpufreq="none",
    sched_ext="",
    boot_id="3f6b1e0a-9a0c-4a53-8a0e-6f9b6f1d2c11",
)

KNOBS = [
    StudyKnob(
        "sched.base_slice_ns",
        "2800000",
        "Time that a task may run before others of its kind get a turn.",
        "Longer slices mean fewer switches and warmer caches, which helps throughput; shorter ones "
        "let waiting tasks in earlier, which helps latency. The kernel scales its default with "
        "the number of processors.",
        "ns",
        "safe",
        "100000 .. 100000000 (log)",
    ),
    StudyKnob(
        "sched.migration_cost_ns",
        "500000",
        "How long after it ran a task counts as cache-hot and is not moved.",
        "It is also the cutoff below which an idle processor does not look for work elsewhere: too "
        "much of it leaves processors idle beside full queues.",
        "ns",
        "safe",
        "0 .. 20000000",
    ),
    StudyKnob(
        "sched.features.NEXT_BUDDY",
        "0",
        "Prefer the task that was woken last.",
        "Keeps producer and consumer on a warm cache.",
        "",
        "safe",
        "0, 1",
    ),
    StudyKnob(
        "vm.swappiness",
        "60",
        "Weight of swapping against dropping page cache.",
        "",
        "",
        "safe",
        "0 .. 200",
    ),
    StudyKnob(
        "vm.dirty_ratio",
        "20",
        "Dirty memory at which writers must write back themselves.",
        "",
        "%",
        "safe",
        "5 .. 60",
    ),
    StudyKnob(
        "vm.compaction_proactiveness",
        "20",
        "How eagerly memory is compacted in advance.",
        "",
        "",
        "safe",
        "0 .. 100",
    ),
    StudyKnob(
        "kernel.sched_autogroup_enabled",
        "1",
        "Group tasks by session.",
        "Only tasks in the root group are affected.",
        "",
        "safe",
        "0, 1",
    ),
    StudyKnob(
        "block.vda.nr_requests",
        "256",
        "Requests that a queue takes.",
        "",
        "requests",
        "safe",
        "32 .. 1024 (log)",
    ),
]

WALL = Metric("wall_s", Record("wall_s"), "min", "s")
RATE = Metric("messages_per_s", Regex("rate: ([0-9.]+)"), "max", "1/s")
LATENCY = Metric("p99_us", Regex("p99 ([0-9.]+)"), "min", "µs")


class Factory:
    """Makes the runs of a study whose settings have a known effect."""

    def __init__(self, seed: int, noise: float = 0.03) -> None:
        self.chance = random.Random(seed)
        self.noise = noise
        self.clock = 0.0
        self.runs: list[Run] = []

    def run(self, phase: Phase, block: int, arm: str, factor: float) -> float:
        """Adds a run; ``factor`` is the arm's true time over the baseline's."""
        drift = 1.0 + 0.02 * math.sin(self.clock / 90.0)
        stolen = self.chance.random() < 0.06
        wall = 2.41 * factor * drift * math.exp(self.chance.gauss(0.0, self.noise))
        wall *= 1.07 if stolen else 1.0
        metrics = {
            "wall_s": wall,
            "messages_per_s": 400_000.0 / wall,
            "p99_us": 9100.0 * factor**-0.9 * math.exp(self.chance.gauss(0.0, 0.06)),
        }
        steal = wall * self.chance.uniform(0.04, 0.3) if stolen else 0.0
        self.runs.append(Run(phase, block, arm, self.clock, wall, steal, metrics, "ok"))
        self.clock += wall + 0.05
        return wall

    def block(self, phase: Phase, block: int, arm: str, factor: float) -> None:
        """Adds ABBA or BAAB."""
        order = ["base", arm, arm, "base"]
        if self.chance.random() < 0.5:
            order = [arm, "base", "base", arm]
        for name in order:
            self.run(phase, block, name, 1.0 if name == "base" else factor)

    def blocks(self, phase: Phase, count: int, arm: str, factor: float) -> None:
        """Adds so many blocks."""
        for block in range(count):
            self.block(phase, block, arm, factor)

    def fail(self, phase: Phase, block: int, arm: str, outcome: str) -> None:
        """Adds a run without a measurement."""
        self.runs.append(Run(phase, block, arm, self.clock, 0.02, 0.0, {}, outcome))
        self.clock += 0.1

    def verdict(self, phase: Phase, arm: str, metric: Metric) -> VerdictRecord:
        """The verdict that the phase's runs of this arm give."""
        blocks: dict[int, tuple[list[float], list[float]]] = {}
        for run in self.runs:
            if run.phase == phase and run.arm in ("base", arm) and metric.name in run.metrics:
                pair = blocks.setdefault(run.block, ([], []))
                pair[run.arm != "base"].append(run.metrics[metric.name])
        full = [pair for pair in blocks.values() if pair[0] and pair[1]]
        return verdict(metric.name, metric.direction, full, 1.0)

    def shown(self, metric: Metric) -> Shown:
        """What the confirmation says of a metric that decides nothing."""
        return without_verdict(self.verdict("confirm", "winner", metric))

    def guard(self, metric: Metric, bound: str, percent: float) -> GuardRecord:
        """What the confirmation says of a guard."""
        guard = msgspec.convert(
            {"metric": metric.name, "bound": bound, "percent": percent}, type=Guard
        )
        runs = [run for run in self.runs if run.phase == "confirm"]
        return judge_guard(guard, stats.t_interval(block_logs(runs, metric.name)))

    def judged(self, metric: Metric, alpha: float, most: int | None = None) -> VerdictRecord:
        """The verdict at this error; of blocks that were looked at as they came, given ``most``."""
        runs = [run for run in self.runs if run.phase == "confirm"]
        logs = block_logs(runs, metric.name)
        design = sequential.fixed(alpha, len(logs))
        if most is not None:
            design = sequential.design(alpha, most)
        made = self.verdict("confirm", "winner", metric)
        return stats.record(
            metric.name,
            metric.direction,
            design.interval(logs),
            1.0,
            made.base_median,
            made.arm_median,
            confidence=1.0 - alpha,
            looks=design.looks_until(len(logs)),
        )


def begun(seed: int, noise: float = 0.03) -> Factory:
    """A study whose baseline is measured."""
    make = Factory(seed, noise)
    for number in range(6):
        make.run("baseline", number, "base", 1.0)
    return make


def settings_of(chance: random.Random, knobs: list[StudyKnob]) -> Settings:
    """A random point of the search, some of it as it was."""
    found: Settings = {}
    for knob in knobs:
        value = _sampled(chance, knob.searched)
        found[knob.name] = knob.before if chance.random() < 0.3 else value
    return found


def _sampled(chance: random.Random, searched: str) -> str:
    if ".." not in searched:
        return chance.choice(searched.split(", "))
    low, high = (float(end) for end in searched.removesuffix(" (log)").split(" .. "))
    if searched.endswith("(log)"):
        return str(round(math.exp(chance.uniform(math.log(low), math.log(high)))))
    return str(chance.randint(round(low), round(high)))


def search(make: Factory, trials: int, knobs: list[StudyKnob], best: float) -> list[Trial]:
    """Trials whose true effects lie between ``best`` and 15 % worse; one in fourteen fails."""
    made = []
    for number in range(trials):
        point = settings_of(make.chance, knobs) if number else {}
        if number % 14 == 9:
            make.fail("search", number, f"trial {number}", "exit 1")
            error = "sched.base_slice_ns=97: exit 1: Cannot create worker: Resource unavailable"
            made.append(Trial(number, point, None, None, None, 0, error))
            continue
        eased = 1.0 - math.exp(-number / (0.4 * trials))
        true = (
            make.chance.uniform(best, 1.15) * (1 - eased) + make.chance.uniform(best, 1.02) * eased
        )
        true = true if number else 1.0
        blocks = 2 if number % 6 else 5
        for block in range(blocks):
            make.block("search", number * 10 + block, f"trial {number}", true)
        seen = make.verdict("search", f"trial {number}", WALL)
        made.append(Trial(number, point, seen.ratio, seen.low, seen.high, blocks))
    return made


def study(
    ending: Ending,
    sentence: str,
    make: Factory,
    *,
    metrics: list[Metric],
    trials: list[Trial],
    **more: object,
) -> StudyData:
    """A study with the usual rest."""
    made = StudyData(
        name="hackbench-1",
        command=["hackbench", "-pTl", "400", "-g", "5"],
        metrics=metrics,
        knobs=KNOBS,
        fixed={"kernel.sched_schedstats": "0"},
        region_percent=1.0,
        seed=4711,
        created="2025-03-02T09:41:07Z",
        machine=MACHINE,
        ending=ending,
        sentence=sentence,
        attempts=1,
        runs=make.runs,
        trials=trials,
        importance={},
        pruning=[],
        winner={},
        promised=None,
        confirmed=[],
        profile="",
        seconds=make.clock * 1.04,
        warnings=[],
    )
    made = msgspec.structs.replace(made, **more)
    runs = [run for run in made.runs if run.phase == "confirm"]
    for found in made.confirmed:
        made.planned_blocks = made.planned_blocks or found.blocks
        logs = block_logs(runs, found.metric)
        made.sequence[found.metric] = narrowing(logs, found, made.planned_blocks)
    return made
