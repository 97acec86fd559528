"""Studies to report on: one for each kind of ending, realistic enough to look at."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from report_makers import (
    KNOBS,
    LATENCY,
    MACHINE,
    RATE,
    WALL,
    Factory,
    begun,
    search,
    settings_of,
    study,
)

from kilter_lab.messages import Fingerprint, Guard, Question, Settings
from kilter_lab.outcome import GuardRecord
from kilter_lab.study import Dropped, StudyData, StudyKnob, Trial

WINNER: Settings = {
    "sched.base_slice_ns": "21400000",
    "sched.features.NEXT_BUDDY": "1",
    "sched.migration_cost_ns": "180000",
}
IMPORTANCE = {knob.name: 0.58 / (place + 1) ** 1.6 for place, knob in enumerate(KNOBS)}


def better() -> StudyData:
    """A gain that fresh blocks confirm, beside a metric that got worse and was not asked about."""
    make = begun(1)
    trials = search(make, 64, KNOBS, 0.90)
    make.blocks("race", 6, "trial 41", 0.915)
    make.blocks("prune", 8, "without vm.swappiness", 0.92)
    make.blocks("confirm", 14, "winner", 0.935)
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
    make = begun(11)
    trials = search(make, 30, KNOBS, 0.93)
    make.blocks("confirm", 16, "winner", 0.95)
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
    make = begun(12)
    trials = search(make, 20, KNOBS, 0.93)
    make.blocks("confirm", 12, "winner", 0.90)
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
    make = begun(2, noise=0.012)
    trials = search(make, 40, KNOBS, 0.995)
    make.blocks("race", 6, "trial 17", 0.985)
    make.blocks("confirm", 20, "winner", 1.001)
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
    make = begun(3)
    return study(
        "nothing-helps",
        "No setting that was tried looked better than what this machine has now.",
        make,
        metrics=[WALL],
        trials=search(make, 30, KNOBS, 1.0),
    )


def unconfirmed() -> StudyData:
    """The budget ended before fresh blocks could tell."""
    make = begun(4, noise=0.06)
    trials = search(make, 24, KNOBS, 0.96)
    make.blocks("race", 4, "trial 5", 0.93)
    make.blocks("confirm", 5, "winner", 0.985)
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
    make = begun(5)
    trials = search(make, 11, KNOBS, 0.92)
    make.blocks("race", 3, "trial 3", 0.94)
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
    make = begun(8)
    trials = []
    for number in range(12):
        make.fail("search", number, f"trial {number}", "timed out")
        point = settings_of(make.chance, KNOBS)
        trials.append(Trial(number, point, None, None, None, 0, "timed out after 60 s"))
    return study("nothing-helps", "Every trial failed.", make, metrics=[WALL], trials=trials)


def large(trials: int = 1000, knobs: int = 30) -> StudyData:
    """A study as large as they get."""
    make = begun(9)
    many = [
        msgspec.structs.replace(
            KNOBS[number % 2], name=f"sched.features.A_RATHER_LONG_NAME_OF_A_KNOB_{number}"
        )
        for number in range(knobs)
    ]
    made = search(make, trials, many, 0.9)
    make.blocks("confirm", 60, "winner", 0.95)
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
