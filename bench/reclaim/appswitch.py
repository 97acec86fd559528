"""App switching against its bars: natively in a memory cgroup, and in a small guest.

    python3 bench/reclaim/appswitch.py [KILTER] [--apps N]… [--only bars|peers|guest|swapping]…

Every table comes from ``kilter reclaim experiment appswitch``: arms interleaved in blocks, the
first one (nobody reclaims) the base of all. *bars* compares kilter alone with the base; *peers*
puts senpai's method, a plain page-out at every switch, and the kernel's own swapping into one table
with it, where ten verdicts share the error, so that few blocks call less. The exit status is 1
where a bar is missed.

In *guest* earlyoom kills, mostly before anybody waits in direct reclaim; in *swapping*, the same
guest without it, the kernel swaps before it kills, also in the base, and who waits is counted. The
guest boots a kernel that ``make test-vm`` has in its cache, with 768 MiB of memory; earlyoom is
unpacked from Debian's package, and never installed. Its swap is as large as natively. Its CPU is
emulated, many times slower than a real one, so apps stay in front ten times as long.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests"))

from vm import guest, kernels  # noqa: E402
from vm.kinds import kind  # noqa: E402
from vm.places import cache  # noqa: E402

Found = dict[str, Any]
KILLS, STALLS = 0.4, 0.1
"""Parts of the base's that kilter may come to."""
FEWEST_STALLS = 1
"""A base that seldom stalls says nothing of who stalls less."""
BARS = ("none", "kilter")
PEERS = ("none", "kilter", "on-cached", "senpai", "every-switch", "swap")
GUEST_MEMORY, GUEST_SWAP_MIB = "768M", 1024
GUEST_LIMIT_S, GUEST_SILENCE_S = 7200.0, 7200.0
MARK = '{"request":'


@dataclass(frozen=True)
class Bar:
    """A line; ``met`` is None where nothing could be said, or the interval holds the bar."""

    what: str
    bar: str
    found: str
    met: bool | None


def words(
    options: argparse.Namespace, apps: int, arms: Sequence[str], blocks: int, *more: object
) -> list[str]:
    asked = ["--apps", apps, "--arms", ",".join(arms), "--blocks", blocks]
    asked += ["--switches", options.switches, "--seed", options.seed, *more]
    binary = str(Path(options.kilter).absolute())
    return [str(word) for word in (binary, "reclaim", "experiment", "appswitch", *asked, "--json")]


def against_base(options: argparse.Namespace, apps: int) -> Found | None:
    """Kilter, in a memory cgroup on this machine."""
    return native(words(options, apps, BARS, options.blocks))


def with_peers(options: argparse.Namespace, apps: int) -> Found | None:
    """Everybody."""
    return native(words(options, apps, PEERS, options.peer_blocks))


def native(command: list[str]) -> Found | None:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            told, _ = child.communicate()
        except BaseException:
            # It puts back what it has changed.
            child.terminate()
            raise
    if child.returncode not in (0, 1):
        print(f"error: ended with {child.returncode}", file=sys.stderr)
        return None
    found: Found = json.loads(told)
    return found


def earlyoom() -> Path:
    """The directory of Debian's earlyoom, unpacked below the cache."""
    place = cache() / "bench" / "earlyoom"
    binaries = place / "usr" / "bin"
    if not (binaries / "earlyoom").exists():
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "--quiet", "earlyoom"], cwd=place, check=True)
        (package,) = place.glob("earlyoom_*.deb")
        subprocess.run(["dpkg-deb", "--extract", package, place], check=True)
    return binaries


def in_guest(options: argparse.Namespace, apps: int) -> Found | None:
    """In a guest that is small as a whole, where earlyoom kills."""
    return guest_run(options, apps, "earlyoom")


def swapping(options: argparse.Namespace, apps: int) -> Found | None:
    """In the same guest, where the kernel swaps and then kills."""
    return guest_run(options, apps, "kernel")


def guest_run(options: argparse.Namespace, apps: int, killer: str) -> Found | None:
    """In a guest that is small as a whole."""
    reason = guest.reason_not_to()
    kernel = kernels.remembered(kind(options.kernel))
    if reason or kernel.missing:
        print(f"skipped: no guest can be booted: {reason or kernel.missing}", file=sys.stderr)
        return None
    small = ["--swap-mib", GUEST_SWAP_MIB, "--think", options.think]
    asked = words(options, apps, BARS, options.guest_blocks, "--killer", killer, *small)
    variables = [f"PATH={earlyoom()}:/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONDONTWRITEBYTECODE=1"]
    ready = "mount -t tmpfs tmp /tmp && mkdir -p /run/kilter && modprobe zram num_devices=1"
    command = f"{ready} && exec {guest.quoted('env', *variables, *asked)}"
    place = cache() / "bench" / "logs" / f"appswitch-{killer}-{apps}"
    machine = guest.Guest(kernel, place, kvm=guest.kvm_works(kernel), cpus=1, memory=GUEST_MEMORY)
    told: list[str] = []

    def hear(line: str) -> None:
        if line.startswith(MARK):
            told.append(line)
        else:
            print(f"  {line}", file=sys.stderr, flush=True)

    print(f"Linux {kernel.release} in a guest with {GUEST_MEMORY}", file=sys.stderr, flush=True)
    with kernels.in_use():
        ending = machine.run(command, hear, GUEST_LIMIT_S, GUEST_SILENCE_S)
    if not told:
        print(f"error: {ending.why or ending.code} (log: {place})", file=sys.stderr)
        return None
    found: Found = json.loads(told[0])
    return found


MEASURES = {"bars": against_base, "peers": with_peers, "guest": in_guest, "swapping": swapping}


def table(found: Found) -> Iterator[str]:
    """A line an arm."""
    head = f"{'mean of a run':<14}{'kills':>7}{'cold':>7}{'hot':>7}{'mean s':>9}{'p50 s':>9}"
    yield (
        head + f"{'p90 s':>9}{'CPU s: cold':>13}{'hot':>8}{'reclaim':>9}{'saved':>8}{'stalled':>9}"
    )
    for arm in found["arms"]:
        means = arm["means"]
        counts = "".join(f"{means[key]:>7.1f}" for key in ("kills", "cold_starts", "hot_starts"))
        times = "".join(f"{means[f'launch_{key}_s']:>9.3f}" for key in ("mean", "p50", "p90"))
        saved = arm["cpu_saved_s"]
        told = "" if saved is None else f"{saved:.2f}"
        cpu = (
            f"{means['cold_cpu_s']:>13.2f}{means['hot_cpu_s']:>8.2f}{means['reclaim_cpu_s']:>9.2f}"
        )
        yield f"{arm['arm']:<14}{counts}{times}{cpu}{told:>8}{means['stalled_s']:>9.2f}"
    yield ""
    for arm in found["comparison"]["arms"]:
        yield arm["sentence"]


def bars(found: Found) -> Iterator[Bar]:
    """What kilter has to come to."""
    told = {entry["arm"]: entry for entry in found["arms"]}
    measure = found["where"]
    where = f"{measure}, {found['apps']} apps"
    if measure != "swapping":
        kills = told["kilter"]["counts"]["kills"]
        ends = "" if kills["high"] is None else f" ({kills['low']:.2f} … {kills['high']:.2f})"
        ratio = kills["ratio"]
        text = "the base has none" if ratio is None else f"{ratio:.2f}{ends}"
        met = None
        if kills["high"] is not None:
            met = True if kills["high"] <= KILLS else False if kills["low"] > KILLS else None
        yield Bar(f"{where}: kills over the base's", f"≤ {KILLS}", text, met)
    if measure != "bars":
        base, ours = (told[arm]["vmstat"]["allocstall_total"] for arm in BARS)
        yield Bar(
            f"{where}: direct reclaim stalls a run",
            f"≤ {STALLS:.0%}",
            f"{ours:.2f} of {base:.2f}",
            None if base < FEWEST_STALLS else ours <= STALLS * base,
        )
        return
    (result,) = found["comparison"]["arms"]
    for verdict in result["verdicts"]:
        p90 = verdict["metric"] == "launch_p90_s"
        text = f"{verdict['ratio']:.2f} ({verdict['low']:.2f} … {verdict['high']:.2f}), "
        text += str(verdict["verdict"])
        fine = verdict["verdict"] == "better"
        if not p90:
            fine = verdict["verdict"] != "worse" and verdict["ratio"] <= 1
        what = "p90 of launch times" if p90 else "mean of launch times"
        yield Bar(f"{where}: {what}", "better" if p90 else "no worse", text, fine)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    beside = Path(sys.executable).parent / "kilter"
    parser.add_argument("kilter", nargs="?", default=str(beside), help="the binary")
    parser.add_argument("--apps", type=int, action="append", default=[], help="repeatable: 10, 12")
    parser.add_argument("--blocks", type=int, default=5, help="of kilter and the base")
    parser.add_argument("--peer-blocks", type=int, default=2, help="of all arms")
    parser.add_argument("--guest-blocks", type=int, default=2, help="in the guest")
    parser.add_argument("--switches", type=int, default=30)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--think", default="5s", help="between two switches in the guest")
    parser.add_argument("--only", action="append", choices=MEASURES, default=[], help="repeatable")
    parser.add_argument("--kernel", default="eevdf", help="kind of the guest's kernel")
    parser.add_argument("--results", type=Path, help="keep what was measured in this JSON file")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    lines: list[Bar] = []
    kept: list[Found] = []
    for name in options.only or MEASURES:
        measure = MEASURES[name]
        for apps in options.apps or (10, 12):
            begun = time.monotonic()
            found = measure(options, apps)
            if found is None:
                lines.append(Bar(f"{name}, {apps} apps", "", "not measured", None))
                continue
            kept.append({"where": name, "apps": apps} | found)
            if options.results:
                options.results.write_text(json.dumps(kept))
            took = time.monotonic() - begun
            print(
                f"\n{name}, {apps} apps, seed {options.seed}, "
                f"{found['comparison']['blocks']} blocks, {took:.0f} s"
            )
            print("\n".join(table(found)), flush=True)
            if name != "peers":
                lines += bars(kept[-1])
    width = max((len(line.what) for line in lines), default=0)
    print()
    for line in lines:
        word = {True: "met", False: "MISSED", None: "not shown"}[line.met]
        print(f"{line.what:<{width}}  {line.bar:<9}  {line.found:<40}  {word}")
    return 1 if any(line.met is False for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
