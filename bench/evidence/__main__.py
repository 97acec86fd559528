"""Do kilter's verdicts hold what they promise? Replays of simulated and recorded noise.

    python3 bench/evidence [--replays N] [--seed SEED] [--jobs N] [--only NAME]…

Each section prints its tables with targets, and whether they are met; the exit status is 1 where
one is missed. A section is a function that takes an ``Effort`` and yields ``Table``s.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # Tiny arrays: threads only get in each other's way.

HERE = Path(__file__).resolve().parent
LAB = HERE.parent.parent / "lab"
sys.path[:0] = [str(HERE), str(LAB), str(LAB / "tests")]

import detectors  # noqa: E402
import landscapes  # noqa: E402
import verdicts  # noqa: E402
from tables import Effort, Section, rendered  # noqa: E402

SECTIONS: dict[str, Section] = {
    "false-verdicts": verdicts.false_verdicts,
    "power": verdicts.power,
    "whole": verdicts.whole,
    "looks": verdicts.looks,
    "warm-up": detectors.warm_up,
    "noise": detectors.noise_estimate,
    "doubts": detectors.patterns,
    "pauses": landscapes.pauses,
    "landscapes": landscapes.landscapes,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replays", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", action="append", choices=SECTIONS, default=[])
    args = parser.parse_args()
    effort = Effort(args.replays, args.seed, max(1, args.jobs))
    print(f"{effort.replays} replays of each kind of noise, seed {effort.seed}", flush=True)
    missed = 0
    for name in args.only or SECTIONS:
        begun = time.monotonic()
        for table in SECTIONS[name](effort):
            print(f"\n{rendered(table)}", flush=True)
            missed += table.missed
        print(f"({name}: {time.monotonic() - begun:.0f} s)", flush=True)
    print(f"\n{missed} lines miss their target" if missed else "\nAll targets are met.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
