"""One run of app switching: apps in limited memory, brought to the front one after the other.

``python3 -I -m kilter_lab.reclaim.switching JSON`` prints what happened as JSON. Every app is
started once, then the front changes in a sequence that depends on the seed alone, so that all arms
go through the same. An app that was killed meanwhile is started from scratch: a cold start.
"""

from __future__ import annotations

import math
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec

from kilter_lab.errors import LabError
from kilter_lab.reclaim import vmstat
from kilter_lab.reclaim.apps import App, EndedError, Launch, mix
from kilter_lab.reclaim.arms import ARMS, CACHED_ADJ, KERNEL_SWAPPINESS, Reclaimer
from kilter_lab.reclaim.killer import Earlyoom
from kilter_lab.reclaim.peers import stalled
from kilter_lab.reclaim.place import Group, swap_on_zram

TRIES = 5
"""Starts of one app in a row that may be killed: beyond, not even one app fits."""

STEP_ADJ = 8
"""oom_score_adj between two cached apps: the longest unused is the first to go."""


class Scene(msgspec.Struct):
    """What is run."""

    arm: str
    kilter: list[str]
    """How to start it."""
    seed: int
    apps: int = 10
    switches: int = 30
    app_mib: int = 80
    limit_mib: int | None = 480
    """Of the memory cgroup; None where the machine itself is small."""
    zram_mib: int = 1024
    think_s: float = 0.5
    """From an app's answer to the next switch."""
    killer: str = "group"
    """``group``: the memory cgroup's own OOM killer; for all of the machine ``earlyoom``: Debian's,
    ``kernel``: the kernel's own."""
    waits: int | None = None
    """A process that waits for the run, where the machine itself is small: its memory must not be
    missing."""


def sequence(apps: int, switches: int, seed: int) -> list[int]:
    """Who comes to the front, one after the other: never the same twice in a row.

    The most used app comes twice as often as the fourth, three times as often as the ninth.
    """
    dice = random.Random(f"{seed}/switches")
    order: list[int] = []
    for _ in range(switches):
        others = [app for app in range(apps) if not order or app != order[-1]]
        order += dice.choices(others, [(1 + app) ** -0.5 for app in others])
    return order


class Stage:
    """The apps, and what has happened to them so far."""

    def __init__(self, scene: Scene, tasks: Path | None, reclaimer: Reclaimer) -> None:
        self.scene, self.tasks, self.reclaimer = scene, tasks, reclaimer
        self.kinds = mix(scene.apps)
        self.running: dict[int, App] = {}
        self.recent: list[int] = []
        """The apps in the order of their last use, the front one last; some may be dead."""
        self.kills = 0
        self.cold: list[Launch] = []
        self.hot: list[Launch] = []

    def switch(self, wanted: int) -> float:
        """Bring an app to the front; seconds until it has answered."""
        begun = time.monotonic()
        self._bury()
        # Its own standing first: it must not be the one that its launch kills.
        if wanted in self.running:
            self.running[wanted].rank(0)
        self._send_back(wanted)
        for _ in range(TRIES):
            try:
                self._launch(wanted)
            except EndedError:
                self._bury()
                continue
            return time.monotonic() - begun
        raise LabError(f"one app of {self.scene.app_mib} MiB alone does not fit into the limit")

    def _launch(self, wanted: int) -> None:
        app = self.running.get(wanted)
        if app is not None:
            self.hot.append(app.front())
            return
        try:
            app = App(self.kinds[wanted], self.scene.app_mib, self.tasks)
        except EndedError:
            self.kills += 1
            raise
        self.running[wanted] = app
        self.cold.append(app.started)

    def _send_back(self, wanted: int) -> None:
        """Who is in the front leaves it, and all others are one switch older."""
        before = self.recent[-1] if self.recent else None
        self.recent = [i for i in self.recent if i != wanted] + [wanted]
        cached = [i for i in self.recent[:-1] if i in self.running]
        for age, i in enumerate(reversed(cached)):
            self.running[i].rank(min(999, CACHED_ADJ + age * STEP_ADJ))
        if before is not None and before != wanted and before in self.running:
            self.reclaimer.cached(self.running[before].pid)

    def _bury(self) -> None:
        """Count and collect whoever was killed."""
        for i in [i for i, app in self.running.items() if not app.alive]:
            if not self.running[i].killed:
                raise LabError(f"an app ({self.kinds[i]}) failed")
            self.kills += 1
            self.running.pop(i).end()

    def close(self) -> None:
        """End all apps; who was killed until now counts."""
        self._bury()
        for app in self.running.values():
            app.end()


def play(scene: Scene, tell: Callable[[str], None] = lambda _: None) -> dict[str, object]:
    """Make the run."""
    with ExitStack() as stack:
        group, zram = stack.enter_context(swap_on_zram(scene.zram_mib, scene.limit_mib))
        if scene.waits is not None:
            page_out(scene.kilter, scene.waits)
        swaps = ARMS[scene.arm].swaps
        if group is not None:
            group.swappiness(KERNEL_SWAPPINESS if swaps else 0)
        killer = stack.enter_context(Earlyoom()) if scene.killer == "earlyoom" else None
        path, tasks = (group.path, group.tasks) if group else (None, None)
        reclaimer = Reclaimer(scene.arm, scene.kilter, path)
        stack.callback(reclaimer.end)
        stage = Stage(scene, tasks, reclaimer)
        stack.callback(stage.close)
        before, stall = vmstat.rows(vmstat.read()), stalled()
        for i in range(scene.apps):
            tell(f"first start {i + 1} of {scene.apps}")
            stage.switch(scene.apps - 1 - i)
            time.sleep(scene.think_s)
        first = len(stage.cold)
        launches: list[float] = []
        for number, wanted in enumerate(sequence(scene.apps, scene.switches, scene.seed)):
            tell(f"switch {number + 1} of {scene.switches}")
            launches.append(stage.switch(wanted))
            reclaimer.check()
            time.sleep(scene.think_s)
        counters = vmstat.grown(before, vmstat.rows(vmstat.read()))
        stage.close()
        stall = stalled() - stall
        found = told(stage, first, launches, counters) | _limits(group, zram)
        reclaimer.end()
        found |= {"stalled_s": stall, "reclaim_cpu_s": reclaimer.cpu_s}
        if killer:
            killer.check()
    return found


def page_out(kilter: Sequence[str], pid: int) -> None:
    """Page out all of a process. LabError where that fails."""
    words = [*kilter, "reclaim", "once", str(pid)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")


def told(
    stage: Stage, first: int, launches: Sequence[float], counters: dict[str, int]
) -> dict[str, object]:
    """The numbers of a run."""
    cold = stage.cold[first:]
    return {
        "kills": stage.kills,
        "cold_starts": len(cold),
        "hot_starts": len(stage.hot),
        "launch_mean_s": statistics.fmean(launches),
        "launch_p50_s": quantile(launches, 0.5),
        "launch_p90_s": quantile(launches, 0.9),
        "cold_cpu_s": sum(launch.cpu_s for launch in cold),
        "hot_cpu_s": sum(launch.cpu_s for launch in stage.hot),
        "major_faults": sum(launch.major_faults for launch in stage.hot),
        "vm": counters,
        "launches_s": list(launches),
    }


def _limits(group: Group | None, zram: Path) -> dict[str, object]:
    sizes = [int(field) for field in (zram / "mm_stat").read_text().split()]
    return {
        "limit_hits": group.limit_hits() if group else 0,
        "zram_peak_bytes": sizes[4],
    }


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that at least this part of all does not exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def main(text: str) -> int:
    """Be the run."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _end)
    try:
        scene = msgspec.json.decode(text, type=Scene)
        found = play(scene, lambda line: print(line, file=sys.stderr, flush=True))
    except (LabError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
