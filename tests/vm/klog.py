"""What a kernel log tells: whether the kernel came to harm.

Under software emulation on a busy machine a guest's CPUs stand still for seconds, so reports of
stalls are told and do not count; whatever says that the kernel itself is wrong does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HARM = re.compile(
    r"Kernel panic|\bBUG: (?!soft lockup|workqueue lockup)|\bOops\b|\bWARNING: |general protection"
    r"|unable to handle|kernel NULL pointer|UBSAN:|KASAN:|KCSAN:|possible recursive locking"
    r"|circular locking|sleeping function called|bad: scheduling|scheduling while atomic"
    r"|refcount_t:|list_(add|del) corruption|corrupted|Out of memory: Killed"
)
STALL = re.compile(
    r"soft lockup|workqueue lockup|detected stalls|self-detected stall|blocked for more than"
    r"|clocksource .* unstable|rcu_.*kthread starved"
)
HARMLESS = re.compile(r"WARNING: .*(mitigation|Spectre|MDS|MMIO|L1TF|unprivileged eBPF)")
LINE = re.compile(r"^\[ *(\d+\.\d+)\]")
AROUND = 25
"""Lines shown after the first sign of harm."""


@dataclass(frozen=True)
class Verdict:
    """What was found in a log."""

    harm: str
    """The lines around the first sign of harm; empty if there is none."""
    stalls: int
    """Reports of CPUs that stood still."""


def judge(log: str) -> Verdict:
    """Look through a kernel log. Lines without the kernel's time stamp are somebody else's."""
    lines = [line for line in log.splitlines() if LINE.match(line)]
    stalls = sum(1 for line in lines if STALL.search(line))
    for number, line in enumerate(lines):
        if HARM.search(line) and not STALL.search(line) and not HARMLESS.search(line):
            return Verdict("\n".join(lines[number : number + AROUND]), stalls)
    return Verdict("", stalls)
