"""The HRRN scheduler against its bars, in a guest with sched_ext and good type information.

    python3 bench/sched/hrrn.py [KILTER] [--only NAME]… [--boots N] [--blocks N] [--no-peer]

Boots a kernel of Debian's (in the tests' own guests: ``make test-vm`` fetches it), measures, and
prints each figure beside its bar; the exit status is 1 where one is missed. Comparisons with the
kernel's own scheduler are made by ``kilter compare`` in several boots, and judged together.
scx_bpfland runs beside, built from its published crate.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path[:0] = [str(HERE), str(REPOSITORY / "tests"), str(REPOSITORY / "lab")]

import inside  # noqa: E402
import materials  # noqa: E402
import rows  # noqa: E402
import work  # noqa: E402
from peer import peer  # noqa: E402

from vm import guest, kernels  # noqa: E402
from vm.kinds import kind  # noqa: E402
from vm.places import cache  # noqa: E402

LIMIT_S, SILENCE_S = 7200.0, 1200.0
NAMES = [*inside.DIRECT, *work.LOADS]
ON_TWO = {"pinned", "sleepers", "growth", "messaging", "hackbench", "stress"}
"""What is measured on two CPUs. The rest has one: where CPUs are emulated they take turns of up to
100 ms, behind which no latency can be seen."""
TRIES = 4
"""Guests for the measurements of one boot: an emulator may bring a kernel down."""
Found = dict[str, Any]
Step = tuple[str, str]
"""What is measured, and of which scheduler."""


class Results:
    """What the guests told."""

    def __init__(self) -> None:
        self.found: dict[Step, Found] = {}
        self.steps: list[Step] = []
        """What is still to be told in this boot."""

    def hear(self, line: str) -> None:
        """A line of a guest: blocks of several boots are put together."""
        _, marked, text = line.partition(inside.SEPARATOR)
        if not marked:
            print(f"  {line}", file=sys.stderr, flush=True)
            return
        told = json.loads(text)
        key = told["name"], told["rival"]
        self.steps.remove(key)
        # As it came: a bench that is ended early has not measured for nothing.
        print(f"{' '.join(key)}: {json.dumps(told['found'])}", file=sys.stderr, flush=True)
        if key in self.found and "blocks" in told["found"]:
            for metric, blocks in told["found"]["blocks"].items():
                self.found[key]["blocks"][metric] += blocks
        else:
            self.found[key] = told["found"]

    def rows(self, names: list[str]) -> list[rows.Row]:
        """The table's lines."""
        lines: list[rows.Row] = []
        for name in names:
            found = self.found.get((name, "hrrn"))
            if found is None:
                lines.append(rows.Row(name, "", "not measured", met=False))
            elif name in rows.DIRECT:
                lines += rows.DIRECT[name](found)
            else:
                lines += rows.compared(name, found, self.found.get((name, "peer")))
        return lines


def boot(kernel: kernels.Kernel, number: str, cpus: int, told: Found, results: Results) -> bool:
    """Boot, and measure what is left; whether the guest lived to the end."""
    place = cache() / "bench" / "logs" / f"boot-{number}"
    machine = guest.Guest(kernel, place, kvm=guest.kvm_works(kernel), cpus=cpus)
    variables = [f"PYTHONPATH={REPOSITORY / 'tests'}", "PYTHONDONTWRITEBYTECODE=1"]
    words = [
        *variables,
        sys.executable,
        HERE / "inside.py",
        json.dumps(told | {"steps": results.steps}),
    ]
    # In the guest some directories belong to nobody yet; scx_bpfland looks in /boot for how the
    # kernel was built.
    ready = "mount -t tmpfs tmp /tmp && mount -t tmpfs boot /boot && mkdir -p /run/kilter"
    config = guest.quoted("cp", kernel.config, f"/boot/config-{kernel.release}")
    command = f"{ready} && {config} && exec {guest.quoted('env', *words)}"
    begun = time.monotonic()
    ending = machine.run(command, results.hear, LIMIT_S, SILENCE_S)
    took = time.monotonic() - begun
    print(f"boot {number}: {took:.0f} s", file=sys.stderr, flush=True)
    if ending.code != 0:
        reason = ending.why or f"the measurements ended with {ending.code}"
        print(f"error: boot {number}: {reason} (log: {place})", file=sys.stderr, flush=True)
    if ending.log.harm:
        print(f"error: boot {number}: {ending.log.harm}", file=sys.stderr, flush=True)
    return ending.code is not None


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    beside = Path(sys.executable).parent / "kilter"
    parser.add_argument("kilter", nargs="?", default=str(beside), help="the binary")
    parser.add_argument("--only", action="append", choices=NAMES, default=[], help="repeatable")
    parser.add_argument("--boots", type=int, default=4, help="of the comparisons")
    parser.add_argument("--blocks", type=int, default=5, help="of each comparison in each boot")
    parser.add_argument("--peer-blocks", type=int, default=2, help="the same for scx_bpfland")
    parser.add_argument("--no-peer", action="store_true", help="without scx_bpfland")
    parser.add_argument("--results", type=Path, help="keep what was measured in this JSON file")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    reason = guest.reason_not_to()
    kernel = kernels.remembered(kind("scx"))
    if reason or kernel.missing:
        raise SystemExit(f"error: no guest can be booted: {reason or kernel.missing}")
    names = options.only or NAMES
    place = cache() / "bench" / "work"
    materials.prepare(place)
    told = {
        "kilter": str(Path(options.kilter).absolute()),
        "peer": "" if options.no_peer else peer(cache()),
        "place": str(place),
        "blocks": options.blocks,
        "peer_blocks": options.peer_blocks,
    }
    rivals = ["hrrn"] if options.no_peer else ["hrrn", "peer"]
    compared = [(name, rival) for name in names if name in work.LOADS for rival in rivals]
    direct = [(name, "hrrn") for name in names if name in inside.DIRECT]
    results = Results()
    with kernels.in_use():
        for number in range(1, options.boots + 1 if compared else 2):
            steps = [*(direct if number == 1 else []), *compared]
            for cpus in (1, guest.CPUS):
                results.steps = [step for step in steps if (step[0] in ON_TWO) == (cpus > 1)]
                for _ in range(TRIES if results.steps else 0):
                    if boot(kernel, f"{number}-{cpus}", cpus, told, results):
                        break
    if options.results:
        entries = [{"name": n, "rival": r, "found": f} for (n, r), f in results.found.items()]
        options.results.write_text(json.dumps(entries, indent=1))
    lines = results.rows(names)
    how = "KVM" if guest.kvm_works(kernel) else "emulated"
    print(f"Linux {kernel.release}, {guest.CPUS} CPUs (1 for latencies), {how}")
    print(rows.rendered(lines))
    missed = sum(line.met is False for line in lines)
    print(f"\n{missed} of {len(lines)} lines miss their bar" if missed else "\nAll bars are met.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
