"""Does ``kilter tune`` find what is there, and nothing else? Hundreds of synthetic studies.

A known effect is planted among twelve mixed knobs of a simulated machine with 3 % noise, or none
is; each study runs the whole of tune (search, race, pruning, confirmation) in process on a fresh
seed. Beside it, with as many runs, the method of tuning scripts: one run per setting, the best
one wins, compared with one run of the default. *Promise − truth* is what each method says of its
pick beyond what the pick really does, in points.

    python3 bench/studies.py [--studies N] [--seed SEED] [--jobs N]
"""

from __future__ import annotations

import argparse
import io
import math
import os
import random
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # Tiny matrices: threads only get in each other's way.

LAB = Path(__file__).resolve().parent.parent / "lab"
sys.path[:0] = [str(LAB), str(LAB / "tests")]

from planted import plant  # noqa: E402
from simulation import Study, run_study, seed_script  # noqa: E402
from synthetic import Noise, knobs  # noqa: E402

from kilter_lab.planning import DEFAULT_TRIALS  # noqa: E402


@dataclass(frozen=True)
class Case:
    """What is planted, and what a right program shows."""

    name: str
    gains: tuple[float, ...]
    noise: float = 0.03
    kind: str = "normal"
    autocorrelation: float = 0.0
    trials: int = DEFAULT_TRIALS
    share: float = 1.0
    """Part of the studies that this case gets."""


CASES = (
    Case("10 % in one knob", (0.10,), share=0.6),
    Case("10 % over two knobs", (0.05, 0.05), share=0.4),
    Case("nothing", ()),
    Case("nothing, heavy tails, autocorrelated", (), 0.09, "heavy", 0.3, share=0.3),
    Case("10 % in one knob, 9 % noise of that kind", (0.10,), 0.09, "heavy", 0.3, share=0.3),
)


def one(task: tuple[Case, int, bool]) -> tuple[Study, Study | None]:
    """The same planted effect by tune and, if asked, by the script's method at equal runs."""
    case, seed, beside = task
    rng = random.Random(f"{case.name} {seed}")
    response = plant(knobs(), list(case.gains), rng)
    noise = Noise(case.noise, case.kind, case.autocorrelation)
    ours = run_study(response, seed, noise, case.trials)
    if not beside:
        return ours, None
    noise = Noise(case.noise, case.kind, case.autocorrelation)
    return ours, seed_script(response, seed, noise, ours.runs)


def mean(values: list[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def row(case: Case, results: list[tuple[Study, Study | None]]) -> str:
    """One line of the table."""
    ours, theirs = [a for a, _ in results], [b for _, b in results if b is not None]
    claimed = [s for s in ours if s.ending == "better"]
    out = io.StringIO()
    found = len(claimed) / len(ours)
    error = 1.96 * math.sqrt(max(found * (1 - found), 0.25 / len(ours)) / len(ours))
    out.write(f"{case.name:<42}{len(ours):>7}{mean([s.runs for s in ours]):>6.0f}")
    out.write(f"{found * 100:>8.1f} ±{error * 100:4.1f}")
    out.write(f"{mean([s.true for s in ours]) * 100:>9.2f}")
    out.write(f"{mean([s.promised - s.true for s in claimed]) * 100:>10.2f}")
    out.write(f"{mean([s.confirmed - s.true for s in claimed]) * 100:>11.2f}")
    out.write(f"{mean([float(s.knobs) for s in claimed]):>7.1f}")
    claims = mean([float(s.confirmed > 0) for s in theirs])
    out.write(f" |{len(theirs):>7}{claims * 100:>9.1f}{mean([s.true for s in theirs]) * 100:>8.2f}")
    out.write(f"{mean([s.confirmed - s.true for s in theirs]) * 100:>10.2f}")
    return out.getvalue()


HEAD = (
    f"{'':<42}{'':>7}{'':>6}{'tune':>16}{'':>37}    | one run per setting, best wins\n"
    f"{'planted':<42}{'studies':>7}{'runs':>6}{'claims %':>14}{'truth %':>10}"
    f"{'promised−':>10}{'confirmed−':>11}{'knobs':>7}"
    f" |{'studies':>7}{'claims %':>9}{'truth %':>8}{'promised−':>10}"
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=500, help="studies of a full case")
    parser.add_argument(
        "--script", type=int, default=40, help="of these, also by the script's method"
    )
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--case", help="only cases whose name holds this")
    options = parser.parse_args()
    print(
        f"seed {options.seed}; truth: mean true gain of each one's pick; x−: x minus truth, points"
    )
    print(HEAD)
    begun = time.monotonic()
    with ProcessPoolExecutor(options.jobs) as pool:
        for case in CASES:
            if options.case and options.case not in case.name:
                continue
            count = max(1, round(options.studies * case.share))
            tasks = [(case, options.seed * 1_000_003 + i, i < options.script) for i in range(count)]
            print(row(case, list(pool.map(one, tasks, chunksize=2))), flush=True)
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
