"""Studies to report on: one for each kind of ending, realistic enough to look at.

Everything is drawn from a seed, so that a sample is the same in every test run.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import msgspec
import pytest

from kilter_lab import sequential, stats
from kilter_lab.messages import (
    Fingerprint,
    Guard,
    Metric,
    Question,
    Record,
    Regex,
    Settings,
    VerdictRecord,
)
from kilter_lab.narrowing import block_logs, narrowing
from kilter_lab.outcome import GuardRecord, Shown, judge_guard
from kilter_lab.stats import verdict
from kilter_lab.study import Dropped, Ending, Phase, Run, StudyData, StudyKnob, Trial

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
        v = self.verdict("confirm", "winner", metric)
        return Shown(
            v.metric,
            v.direction,
            v.ratio,
            v.low,
            v.high,
            v.confidence,
            v.base_median,
            v.arm_median,
        )

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


WINNER: Settings = {
    "sched.base_slice_ns": "21400000",
    "sched.features.NEXT_BUDDY": "1",
    "sched.migration_cost_ns": "180000",
}
IMPORTANCE = {knob.name: 0.58 / (place + 1) ** 1.6 for place, knob in enumerate(KNOBS)}


def _baseline(make: Factory) -> None:
    for number in range(6):
        make.run("baseline", number, "base", 1.0)


def better() -> StudyData:
    """A gain that fresh blocks confirm, beside a metric that got worse and was not asked about."""
    make = Factory(1)
    _baseline(make)
    trials = search(make, 64, KNOBS, 0.90)
    for block in range(6):
        make.block("race", block, "trial 41", 0.915)
    for block in range(8):
        make.block("prune", block, "without vm.swappiness", 0.92)
    for block in range(14):
        make.block("confirm", block, "winner", 0.935)
    confirmed = [make.verdict("confirm", "winner", WALL)]
    return study(
        "better",
        f"wall is {(1 - confirmed[0].ratio) * 100:.1f} % lower with 3 changed settings, "
        "confirmed on 14 fresh blocks.",
        make,
        metrics=[WALL, RATE, LATENCY],
        shown=[make.shown(RATE), make.shown(LATENCY)],
        trials=trials,
        importance=IMPORTANCE,
        pruning=[
            Dropped(
                ["vm.dirty_ratio", "vm.compaction_proactiveness", "block.vda.nr_requests"],
                True,
                1.002,
                0.993,
                1.011,
                4,
            ),
            Dropped(
                ["vm.swappiness", "kernel.sched_autogroup_enabled"], True, 0.999, 0.99, 1.008, 4
            ),
            Dropped(["sched.base_slice_ns"], False, 1.054, 1.038, 1.07, 4),
            Dropped(["sched.features.NEXT_BUDDY"], False, 1.008, 0.996, 1.02, 4),
        ],
        winner=WINNER,
        promised=make.verdict("race", "trial 41", WALL),
        confirmed=confirmed,
        profile="hackbench-1",
        attempts=3,
        warnings=[
            "steal time was seen in 6 % of the runs: this machine shares its processors",
            "TuneD is active and may change settings; stop it with: systemctl stop tuned",
        ],
    )


def guarded() -> StudyData:
    """Two deciding metrics and two guards that are held, looked at block by block."""
    make = Factory(11)
    _baseline(make)
    trials = search(make, 30, KNOBS, 0.93)
    for block in range(16):
        make.block("confirm", block, "winner", 0.95)
    confirmed = [make.judged(metric, 0.025, 40) for metric in (WALL, RATE)]
    return study(
        "better",
        "With these settings, hackbench is 5 % faster, and all guards are held.",
        make,
        metrics=[WALL, RATE, LATENCY],
        question=Question(
            objectives=2,
            guards=[Guard("p99_us", "at-most", 15.0), Guard("wall_s", "at-most", 0.0)],
        ),
        guards=[make.guard(LATENCY, "at-most", 15.0), make.guard(WALL, "at-most", 0.0)],
        trials=trials,
        winner=WINNER,
        promised=make.verdict("confirm", "winner", WALL),
        confirmed=confirmed,
        planned_blocks=40,
        profile="hackbench-1",
    )


def traded() -> StudyData:
    """A gain in one deciding metric, a loss in another, and a guard that is broken."""
    make = Factory(12)
    _baseline(make)
    trials = search(make, 20, KNOBS, 0.93)
    for block in range(12):
        make.block("confirm", block, "winner", 0.90)
    confirmed = [make.judged(metric, 0.025) for metric in (WALL, LATENCY)]
    return study(
        "unconfirmed",
        "A trade-off: hackbench is 10 % faster, and p99_us is 10 % higher.",
        make,
        metrics=[WALL, LATENCY, RATE],
        question=Question(objectives=2, guards=[Guard("p99_us", "at-most", 2.0)]),
        guards=[make.guard(LATENCY, "at-most", 2.0)],
        shown=[make.shown(RATE)],
        trials=trials,
        winner=WINNER,
        promised=make.verdict("confirm", "winner", WALL),
        confirmed=confirmed,
        planned_blocks=14,
    )


def nothing_helps() -> StudyData:
    """A candidate that fresh blocks find without effect."""
    make = Factory(2, noise=0.012)
    _baseline(make)
    trials = search(make, 40, KNOBS, 0.995)
    for block in range(6):
        make.block("race", block, "trial 17", 0.985)
    for block in range(20):
        make.block("confirm", block, "winner", 1.001)
    return study(
        "nothing-helps",
        "No setting that was tried makes wall reliably better on this machine.",
        make,
        metrics=[WALL],
        trials=trials,
        importance=IMPORTANCE,
        promised=make.verdict("race", "trial 17", WALL),
        confirmed=[make.verdict("confirm", "winner", WALL)],
    )


def nothing_promised() -> StudyData:
    """No point of the search promised enough to be confirmed."""
    make = Factory(3)
    _baseline(make)
    return study(
        "nothing-helps",
        "No setting that was tried looked better than what this machine has now.",
        make,
        metrics=[WALL],
        trials=search(make, 30, KNOBS, 1.0),
    )


def unconfirmed() -> StudyData:
    """The budget ended before fresh blocks could tell."""
    make = Factory(4, noise=0.06)
    _baseline(make)
    trials = search(make, 24, KNOBS, 0.96)
    for block in range(4):
        make.block("race", block, "trial 5", 0.93)
    for block in range(5):
        make.block("confirm", block, "winner", 0.985)
    return study(
        "unconfirmed",
        "Settings that looked 7 % better while searching are not confirmed: 5 fresh blocks cannot "
        "tell them from the values of now.",
        make,
        metrics=[WALL],
        trials=trials,
        winner=WINNER,
        importance=IMPORTANCE,
        promised=make.verdict("race", "trial 5", WALL),
        confirmed=[make.verdict("confirm", "winner", WALL)],
        attempts=2,
    )


def interrupted() -> StudyData:
    """Stopped while it searched, with a candidate in sight."""
    make = Factory(5)
    _baseline(make)
    trials = search(make, 11, KNOBS, 0.92)
    for block in range(3):
        make.block("race", block, "trial 3", 0.94)
    return study(
        "interrupted",
        "The study was interrupted after 11 trials; nothing is confirmed.",
        make,
        metrics=[WALL],
        trials=trials,
        winner=WINNER,
        promised=make.verdict("race", "trial 3", WALL),
    )


def empty() -> StudyData:
    """A study that has not made a run."""
    return study(
        "running",
        "",
        Factory(6),
        metrics=[],
        trials=[],
        knobs=[],
        fixed={},
        command=[],
        machine=Fingerprint("", "", "", "", "", 0, 0, "", "", "", "", ""),
    )


def one_run() -> StudyData:
    """A single run of the baseline."""
    make = Factory(7)
    make.run("baseline", 0, "base", 1.0)
    return study("running", "One run has been made.", make, metrics=[WALL], trials=[])


def all_failed() -> StudyData:
    """Every trial failed."""
    make = Factory(8)
    _baseline(make)
    trials = []
    for number in range(12):
        make.fail("search", number, f"trial {number}", "timed out")
        point = settings_of(make.chance, KNOBS)
        trials.append(Trial(number, point, None, None, None, 0, "timed out after 60 s"))
    return study("nothing-helps", "Every trial failed.", make, metrics=[WALL], trials=trials)


def large(trials: int = 1000, knobs: int = 30) -> StudyData:
    """A study as large as they get."""
    make = Factory(9)
    many = [
        msgspec.structs.replace(
            KNOBS[number % 2], name=f"sched.features.A_RATHER_LONG_NAME_OF_A_KNOB_{number}"
        )
        for number in range(knobs)
    ]
    _baseline(make)
    made = search(make, trials, many, 0.9)
    for block in range(60):
        make.block("confirm", block, "winner", 0.95)
    metrics = [WALL, RATE, LATENCY]
    return study(
        "better",
        "wall is 5 % lower with 30 changed settings, confirmed on 60 fresh blocks.",
        make,
        metrics=metrics,
        question=Question(objectives=3),
        trials=made,
        knobs=many,
        importance={knob.name: 1.0 / (place + 1) for place, knob in enumerate(many)},
        winner={knob.name: "12345678" for knob in many},
        promised=make.verdict("confirm", "winner", WALL),
        confirmed=[make.verdict("confirm", "winner", metric) for metric in metrics],
        profile="large",
    )


EVIL = (
    "<script>alert(\"1\")</script> 'q' | `x` \n## no **heading** $x$ \u202eevil\u202c 🐧 \x1b[31m"
)


def hostile() -> StudyData:
    """Names and texts that try to be more than text, everywhere that text can be."""
    made = better()
    metric = msgspec.structs.replace(WALL, name=EVIL, unit="<b>s|</b>")
    for run in made.runs:
        run.metrics = {EVIL: run.metrics["wall_s"]} if run.metrics else {}
        if run.arm not in ("base", "winner"):
            run.arm = EVIL
    for verdict_of in made.confirmed:
        verdict_of.metric = EVIL
    made.shown[0].metric = EVIL + "2"
    evil = {EVIL: EVIL}
    return msgspec.structs.replace(
        made,
        name=EVIL,
        command=["sh", "-c", EVIL],
        metrics=[metric],
        knobs=[StudyKnob(EVIL, EVIL, EVIL, EVIL, EVIL, EVIL, EVIL)],
        fixed=evil,
        machine=msgspec.structs.replace(MACHINE, cpu=EVIL, os=EVIL, kernel=EVIL),
        sentence=EVIL,
        trials=[
            Trial(0, evil, 0.99, 0.98, 1.0, 4, EVIL),
            Trial(1, evil, None, None, None, 0, EVIL),
        ],
        importance={EVIL: 1.0},
        pruning=[Dropped([EVIL, EVIL], True, 1.0, 0.9, 1.1, 4)],
        winner=evil,
        confirmed=made.confirmed[:1],
        question=Question(guards=[Guard(EVIL, "at-most", 5.0)]),
        guards=[GuardRecord(Guard(EVIL, "at-most", 5.0), "held", 0.99, 0.98, 1.0)],
        shown=made.shown[:1],
        sequence={EVIL: made.sequence["wall_s"]},
        profile=EVIL,
        created=EVIL,
        warnings=[EVIL],
    )


SAMPLES: dict[str, Callable[[], StudyData]] = {
    "better": better,
    "guarded": guarded,
    "traded": traded,
    "nothing-helps": nothing_helps,
    "nothing-promised": nothing_promised,
    "unconfirmed": unconfirmed,
    "interrupted": interrupted,
    "empty": empty,
    "one-run": one_run,
    "all-failed": all_failed,
    "hostile": hostile,
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_a_study_that_survives_its_encoding(name: str) -> None:
    data = SAMPLES[name]()
    assert msgspec.json.decode(msgspec.json.encode(data), type=StudyData) == data
