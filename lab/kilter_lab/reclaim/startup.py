"""``kilter reclaim experiment startup``: what starting, reclaiming or killing an app costs.

Each way is an arm of one comparison, the cold start its base. ``python3 -I -m
kilter_lab.reclaim.startup JSON`` is one run: an app is started, brought into the state, and the
one step is timed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Literal, NoReturn

import msgspec
from rich.text import Text

from kilter_lab import compare, wording
from kilter_lab.compare_text import Row, metric_rows, ratio_table
from kilter_lab.comparison import Comparison
from kilter_lab.console import Console
from kilter_lab.errors import LabError
from kilter_lab.measure import Bench, arm_values
from kilter_lab.messages import (
    Arm,
    CompareRequest,
    Json,
    Metric,
    RunOptions,
    StartupRequest,
)
from kilter_lab.reclaim.apps import KINDS, App, EndedError
from kilter_lab.reclaim.place import check, compression, swap_on_zram
from kilter_lab.runner import Runner

State = Literal["cold", "hot", "resident", "pageout", "kill"]
STATES: tuple[State, ...] = ("cold", "hot", "resident", "pageout", "kill")
ABOUT = {
    "cold": "start from scratch",
    "hot": "back to the front after pageout",
    "resident": "back to the front, never left memory",
    "pageout": "kilter reclaim once --pageout",
    "kill": "killed, until its memory is free",
}
METRICS = (
    Metric("seconds", Json("/seconds"), unit="s"),
    Metric("cpu_s", Json("/cpu_s"), unit="s"),
    Metric("swapped_mib", Json("/swapped_mib"), "max", "MiB"),
)


class Step(msgspec.Struct):
    """What is timed."""

    state: State
    kind: str
    mib: int
    swap_mib: int
    kilter: list[str]


def run(step: Step) -> dict[str, float]:
    """Time the step."""
    with swap_on_zram(step.swap_mib, None):
        app = App(step.kind, step.mib, None)
        try:
            return _timed(step, app)
        finally:
            app.end()


def _timed(step: Step, app: App) -> dict[str, float]:
    if step.state == "cold":
        return {"seconds": app.started.seconds, "cpu_s": app.started.cpu_s, "swapped_mib": 0.0}
    if step.state == "kill":
        return {"seconds": app.end(), "cpu_s": 0.0, "swapped_mib": 0.0}
    app.front()
    begun, cpu_s, swapped = time.monotonic(), 0.0, 0.0
    if step.state in ("hot", "pageout"):
        cpu_s = _page_out(step.kilter, app.pid)
        swapped = _swapped_mib(app.pid)
        if swapped < step.mib / 2:
            raise LabError(f"only {swapped:.0f} MiB of {step.mib} went to swap")
    if step.state == "pageout":
        return {"seconds": time.monotonic() - begun, "cpu_s": cpu_s, "swapped_mib": swapped}
    launch = app.front()
    return {"seconds": launch.seconds, "cpu_s": launch.cpu_s, "swapped_mib": swapped}


def _page_out(kilter: list[str], pid: int) -> float:
    """Page an app out; CPU seconds that it took."""
    words = [*kilter, "reclaim", "once", str(pid), "--pageout", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"kilter reclaim once failed: {done.stderr.strip()}")
    return float(msgspec.json.decode(done.stdout)["cpu_s"])


def _swapped_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmSwap:")[1].split()[0]) / 1024


class KindTold(msgspec.Struct):
    """One kind of app."""

    kind: str
    rebuild_ms_per_mib: float
    """CPU time of a cold start for each MiB."""
    comparison: Comparison


class StartupTold(msgspec.Struct):
    """Printed by ``--json``."""

    app_mib: int
    zram: str
    kinds: list[KindTold]


def startup(request: StartupRequest, runner: Runner, console: Console) -> int:
    """Measure, judge, print. Returns the exit status."""
    check()
    unknown = [kind for kind in request.kinds if kind not in KINDS]
    if unknown or not request.kinds:
        raise LabError(f"kinds: one or more of {', '.join(KINDS)}")
    found = StartupTold(request.app_mib, compression(), [])
    interrupted = False
    for kind in request.kinds:
        console.note(f"{kind}: {request.app_mib} MiB")
        asked = as_comparison(request, kind)
        bench = Bench(runner, asked.options)
        judge, measured = compare.measure(asked, bench, console)
        comparison = compare.conclude(asked, bench, judge, measured)
        for text in comparison.warnings:
            console.warn(f"{kind}: {text}")
        cpu = arm_values(measured.runs(0), 0, "cpu_s")
        rebuild = wording.median_of(cpu) * 1e3 / request.app_mib
        found.kinds.append(KindTold(kind, rebuild, comparison))
        if not request.context.json:
            show(found.kinds[-1], measured, console)
        if measured.interrupted:
            interrupted = True
            break
    if request.context.json:
        console.raw(msgspec.json.encode(found).decode())
    return 130 if interrupted else 0


def as_comparison(request: StartupRequest, kind: str) -> CompareRequest:
    """The comparison for one kind of app."""
    base, *others = (Arm(state, _command(request, kind, state)) for state in STATES)
    return CompareRequest(
        context=msgspec.structs.replace(request.context, batch_options=["--as-root"]),
        options=RunOptions(list(METRICS)),
        base=base,
        arms=others,
        question=msgspec.structs.replace(request.question, objectives=1),
        blocks=request.blocks,
        budget_s=request.budget_s,
    )


def _command(request: StartupRequest, kind: str, state: State) -> list[str]:
    step = Step(state, kind, request.app_mib, request.swap_mib, request.context.kilter)
    words = [sys.executable, "-I", "-m", "kilter_lab.reclaim.startup"]
    return [*words, msgspec.json.encode(step).decode()]


def show(found: KindTold, measured: compare.Measured, console: Console) -> None:
    """Print the times of one kind, and how they compare with a cold start."""
    console.data(
        Text(f"{found.kind}: {found.rebuild_ms_per_mib:.1f} ms to rebuild each MiB", "bold")
    )
    for index, state in enumerate(STATES):
        seconds = arm_values(measured.runs(index), index, "seconds")
        middle = wording.median_of(seconds)
        ends = f"{wording.quantity(min(seconds), 's', middle)} … "
        ends += wording.quantity(max(seconds), "s", middle)
        console.data(
            f"  {state:<9}{wording.quantity(middle, 's'):>10}  ({ends}, "
            f"{wording.count(len(seconds), 'run')})  {ABOUT[state]}"
        )
    console.data()
    rows: list[tuple[str, list[Row]]] = [
        (arm.label, metric_rows(arm.verdicts, [], [], METRICS)) for arm in found.comparison.arms
    ]
    confidence = found.comparison.arms[0].verdicts[0].confidence
    for line in ratio_table(rows, confidence, "cold"):
        console.data(line)
    console.data()


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def main(text: str) -> int:
    """Be a run."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _end)
    try:
        found = run(msgspec.json.decode(text, type=Step))
    except (LabError, EndedError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
