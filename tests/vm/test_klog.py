"""What counts as harm in a kernel log, and what does not."""

from __future__ import annotations

import pytest

from .klog import judge


@pytest.mark.parametrize(
    "line",
    [
        "Kernel panic - not syncing: Attempted to kill init!",
        "BUG: unable to handle page fault for address: ffffffffc0a8b010",
        "Oops: 0002 [#1] PREEMPT SMP NOPTI",
        "WARNING: CPU: 1 PID: 72 at kernel/sched/core.c:3313 set_task_cpu+0x1a0/0x1c0",
        "general protection fault, probably for non-canonical address 0xdead000000000122",
        "BUG: sleeping function called from invalid context at mm/slab.h:522",
        "Out of memory: Killed process 412 (python3) total-vm:98304kB",
    ],
)
def test_harm_is_found_with_what_follows(line: str) -> None:
    log = f"[    1.000000] fine\n[   12.345678] {line}\n[   12.345700] Call Trace:\n"
    assert judge(log).harm == f"[   12.345678] {line}\n[   12.345700] Call Trace:"


@pytest.mark.parametrize(
    "line",
    [
        "[    0.4] RCU CPU stall warnings timeout set to 60 (rcu_cpu_stall_timeout).",
        "[    0.5] MMIO Stale Data: Unknown: No mitigations",
        "[    3.1] audit: type=2000 audit(1.2:1): state=initialized audit_enabled=0 res=1",
        "virtme-ng-init: WARNING: a word of somebody else's",
        "E   AssertionError: Kernel panic in a test's own output",
    ],
)
def test_other_lines_do_no_harm(line: str) -> None:
    assert judge(line).harm == ""


def test_a_cpu_that_stood_still_is_counted_and_forgiven() -> None:
    log = (
        "[   90.1] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [swapper/1:0]\n"
        "[  120.2] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n"
    )
    verdict = judge(log)
    assert (verdict.harm, verdict.stalls) == ("", 2)
