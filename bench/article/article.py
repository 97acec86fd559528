"""An article's search of CFS's parameters, replayed on a kernel with CFS, and kilter beside it.

The article (LinuxのスケジューラをOptunaで最適化してみた, 2019) let Optuna choose 31 parameters
of the scheduler for a build of Linux: each trial was one build, the fastest trial was the result,
compared with one build under the defaults; then the same again with the three parameters that
seemed most likely to matter. Here both searches, with its ranges and its fixed values, and
``kilter tune`` with the same knobs, ranges and time, work on a smaller build in a guest. At the end
all results are compared with the defaults in interleaved blocks.

    python3 bench/article/article.py [--trials N] [--retry N] [--max-runs N] [--seed N]

It boots the newest kernel with CFS that ``make test-vm`` has in its cache.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path[:0] = [str(HERE), str(REPOSITORY / "tests")]

from parameters import ALL  # noqa: E402
from searches import SEPARATOR  # noqa: E402

from vm import guest, kernels, kinds  # noqa: E402
from vm.places import cache  # noqa: E402

LIMIT_S = 4 * 3600.0
SILENCE_S = 1800.0
BOOTS = 4
"""Guests for a step."""
TREES = ("/tmp", "/run/kilter", "/var/lib/kilter")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    beside = Path(sys.executable).parent / "kilter"
    parser.add_argument("kilter", nargs="?", default=str(beside), help="the binary")
    parser.add_argument("--trials", type=int, default=256, help="of the search in everything")
    parser.add_argument("--retry", type=int, default=100, help="trials of the search in three")
    parser.add_argument("--max-runs", type=int, default=400, help="of the comparison at the end")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    return parser.parse_args()


def main() -> int:
    options = parsed()
    kernel = kernels.remembered(kinds.kind("cfs"))
    reason = guest.reason_not_to() or kernel.missing
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 0
    print(f"Linux {kernel.release} in a guest, seed {options.seed}", flush=True)
    begun = time.monotonic()
    step = partial(stepped, kernel, {"kilter": options.kilter, "seed": options.seed})
    found = step({"who": "here", "about": "all"})
    lacking = [name for name in ALL if name not in found["here"]]
    print(f"{len(found['here'])} of {len(ALL)} parameters are here; not here: {', '.join(lacking)}")
    print(f"never searched by kilter, since they can hang the machine: {', '.join(found['risky'])}")
    claims = []
    for about, trials in (("all", options.trials), ("three", options.retry)):
        claims.append(step({"who": "article", "about": about, "trials": trials}))
        show(claims[-1])
        claims.append(step({"who": "kilter", "about": about, "seconds": claims[-1]["seconds"]}))
        show(claims[-1])
    wanted = [claim for claim in claims if claim["settings"]]
    most = {"most": options.max_runs, "claims": wanted}
    worth = step({"who": "truth", "about": "all", **most})
    print("\nOf the time of a build under the defaults (95 % interval over all arms):")
    for claim in claims:
        print(f"  {claim['who']:14} {worth.get(claim['who'], 'changes nothing')}")
    print(f"({time.monotonic() - begun:.0f} s)")
    return 0


def show(claim: dict[str, Any]) -> None:
    """A search's own words."""
    print(f"\n{claim['who']}: {claim['builds']} builds, {claim['seconds']:.0f} s.", end=" ")
    print(f"It says: {claim['says']}")
    for name, value in claim["settings"].items():
        print(f"  {name} = {value}")
    sys.stdout.flush()


def stepped(kernel: kernels.Kernel, common: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    """What a step found, in a guest of its own: the programs in an emulated one may die."""
    # Not in the command, which is part of the kernel's own: that takes 2 KiB.
    told = cache() / "bench" / "article.json"
    told.parent.mkdir(exist_ok=True)
    told.write_text(json.dumps(common | step))
    words = [
        "env",
        f"PYTHONPATH={REPOSITORY / 'lab'}",
        "PYTHONDONTWRITEBYTECODE=1",
        sys.executable,
        HERE / "searches.py",
        told,
    ]
    # In the guest these belong to nobody yet; what is written there is gone with it.
    ready = " && ".join(f"mkdir -p {tree} && mount -t tmpfs tmp {tree}" for tree in TREES)
    command = f"{ready} && exec {guest.quoted(*words)}"
    for _ in range(BOOTS):
        ending, found = boot(kernel, command)
        if found is not None:
            return found
        why = ending.why or f"it ended with {ending.code}"
        print(f"once more ({step['who']} {step['about']}): {why}", file=sys.stderr, flush=True)
    raise SystemExit(f"error: no guest came to the end of it in {BOOTS} boots")


def boot(kernel: kernels.Kernel, command: str) -> tuple[guest.Ending, dict[str, Any] | None]:
    """How it ended, and what it told."""
    found: dict[str, Any] | None = None

    def hear(line: str) -> None:
        nonlocal found
        _, marked, text = line.partition(SEPARATOR)
        if marked:
            found = json.loads(text)
        else:
            print(line, flush=True)

    with tempfile.TemporaryDirectory() as place:
        machine = guest.Guest(kernel, Path(place), kvm=guest.kvm_works(kernel))
        return machine.run(command, hear, LIMIT_S, SILENCE_S), found


if __name__ == "__main__":
    sys.exit(main())
