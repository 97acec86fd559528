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
import random
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

from vm import guest, kernels, kinds  # noqa: E402

LIMIT_S = 4 * 3600.0
SILENCE_S = 1800.0
BOOTS = 3
"""An emulated guest may die before it gets to work."""
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
    words = [
        "env",
        f"PYTHONPATH={REPOSITORY / 'lab'}",
        "PYTHONDONTWRITEBYTECODE=1",
        sys.executable,
        HERE / "searches.py",
        options.kilter,
        *(options.trials, options.retry, options.max_runs, options.seed),
    ]
    # In the guest these belong to nobody yet; what is written there is gone with it.
    ready = " && ".join(f"mkdir -p {tree} && mount -t tmpfs tmp {tree}" for tree in TREES)
    command = f"{ready} && exec {guest.quoted(*words)}"
    begun = time.monotonic()
    for _ in range(BOOTS):
        ending, lines = boot(kernel, command)
        if lines:
            break
    print(f"({time.monotonic() - begun:.0f} s)")
    if ending.code != 0:
        print(f"error: {ending.why or f'it ended with {ending.code}'}", file=sys.stderr)
    return 1 if ending.code is None else ending.code


def boot(kernel: kernels.Kernel, command: str) -> tuple[guest.Ending, int]:
    """How it ended, and how many lines it said: none where the kernel died on its way up."""
    heard = 0

    def hear(line: str) -> None:
        nonlocal heard
        heard += 1
        print(line, flush=True)

    with tempfile.TemporaryDirectory() as place:
        machine = guest.Guest(kernel, Path(place), kvm=guest.kvm_works(kernel))
        return machine.run(command, hear, LIMIT_S, SILENCE_S), heard


if __name__ == "__main__":
    sys.exit(main())
