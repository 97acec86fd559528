"""`kilter reclaim once` on real processes: the right one, nothing but it, and the truth about it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .program import BINARY, children, finish, kilter, started, stat_fields, wait_until
from .reclaim import APP, MIB, Swap, app, end, once

pytestmark = [pytest.mark.real_kernel, pytest.mark.usefixtures("alone")]


def test_it_tells_the_truth_and_loses_nothing(swap: Swap) -> None:
    with app(64) as background:
        told = once(background.pid)
        assert told["ended"] == "whole"
        assert told["method"] == "process_madvise"
        assert told["reclaimed_bytes"] > 60 * MIB
        assert told["before"]["swapped_bytes"] == 0
        assert abs(told["after"]["swapped_bytes"] - background.swapped) < MIB
        assert 60 * MIB < told["after"]["swapped_bytes"] < 80 * MIB
        assert 10 * MIB < told["zram_grew_bytes"] < 40 * MIB, "it compresses to a third"
        grew = told["zram_grew_bytes"] + told["swap_cache_grew_bytes"]
        assert told["gained_bytes"] == told["reclaimed_bytes"] - grew
        assert told["swap_cache_grew_bytes"] < MIB
        assert told["calls"] >= 64 * MIB // told["call_bytes"]
        assert {"special"} <= {skip["reason"] for skip in told["skipped"]}
        again = once(background.pid)
        assert again["reclaimed_bytes"] < MIB
        assert again["walked_bytes"] > 60 * MIB, "the kernel counts what it walked"
        assert background.tell("touch") == "whole"
        assert background.swapped < 8 * MIB


def test_cold_takes_nothing_out(swap: Swap) -> None:
    with app(32) as background:
        told = once(background.pid, "--cold")
        assert (told["anon"], told["file"]) == ("cold", "cold")
        assert told["reclaimed_bytes"] < MIB
        assert background.swapped < MIB


def test_each_kind_of_memory_has_its_hint(swap: Swap) -> None:
    with app(32) as background:
        told = once(background.pid, "--file")
        assert (told["anon"], told["file"]) == ("leave", "pageout")
        # Pages of a program that were written to are its own.
        assert background.swapped < 4 * MIB
        assert "not asked for" in {skip["reason"] for skip in told["skipped"]}
        told = once(background.pid, "--anon=pageout", "--file=cold", "--workers", 2)
        assert (told["anon"], told["file"], told["workers"]) == ("pageout", "cold", 2)
        assert background.swapped > 30 * MIB
        assert background.tell("touch") == "whole"


def test_without_swap_it_says_so() -> None:
    if len(Path("/proc/swaps").read_text().splitlines()) > 1:
        pytest.skip("this machine swaps")
    with app(16) as background:
        told = once(background.pid)
        assert told["reclaimed_bytes"] < 8 * MIB
        assert "no swap" in " ".join(told["warnings"])


def test_memory_shared_with_a_child_stays_and_is_told(swap: Swap) -> None:
    with app(48, "share") as background:
        told = once(background.pid)
        assert told["walked_bytes"] > 45 * MIB
        assert told["reclaimed_bytes"] < 8 * MIB, "it is mapped twice"
        assert told["shared_bytes"] > 40 * MIB
        assert "copy-on-write" in " ".join(told["warnings"])


def test_locked_memory_is_left_out_and_told(swap: Swap) -> None:
    with app(32, "lock") as background:
        told = once(background.pid)
        locked = {skip["reason"]: skip["bytes"] for skip in told["skipped"]}
        assert locked["locked"] == 32 * MIB
        assert background.field("VmRSS") > 32 * MIB


def test_many_mappings_are_scanned(swap: Swap) -> None:
    with app(160, "mappings=20000") as background:
        told = once(background.pid)
        assert told["mappings"] > 1000
        assert told["scan"] == "pagemap_scan"
        assert told["reclaimed_bytes"] > 150 * MIB
        assert background.tell("touch") == "whole"


def test_a_hundred_thousand_mappings(swap: Swap) -> None:
    limit = Path("/proc/sys/vm/max_map_count")
    before = limit.read_text()
    limit.write_text("150000")
    try:
        with app(400, "mappings=100000") as background:
            told = once(background.pid)
            assert told["mappings"] > 1000
            assert told["reclaimed_bytes"] > 380 * MIB
            assert background.tell("touch") == "whole"
    finally:
        limit.write_text(before)


def test_locked_memory_among_many_mappings_is_left_out(swap: Swap) -> None:
    with app(80, "mappings=10000", "lock") as background:
        told = once(background.pid)
        skipped = {skip["reason"]: skip["bytes"] for skip in told["skipped"]}
        assert skipped["locked"] >= 80 * MIB
        assert background.field("VmRSS") > 80 * MIB


def test_a_signal_ends_it_between_two_calls(swap: Swap) -> None:
    with app(500) as background:
        with started("reclaim", "once", background.pid, "--json") as process:
            wait_until(lambda: background.swapped > 10 * MIB, "it has begun")
            done = end(process)
        assert done.returncode == 1, done.stderr
        told = json.loads(done.stdout)
        assert told["ended"] == "cancelled"
        assert 0 < told["reclaimed_bytes"] < 490 * MIB
        assert background.tell("touch") == "whole"


def test_a_process_that_is_killed_meanwhile_ends_it(swap: Swap) -> None:
    with app(500) as background:
        with started("reclaim", "once", background.pid, "--json") as process:
            wait_until(lambda: background.swapped > 10 * MIB, "it has begun")
            background.process.kill()
            done = finish(process)
        assert done.returncode == 1, done.stderr
        assert json.loads(done.stdout)["ended"] == "died"


def test_another_program_in_its_place_is_left_alone(swap: Swap) -> None:
    with app(400) as background:
        with started("reclaim", "once", background.pid, "--json") as process:
            wait_until(lambda: background.swapped > 10 * MIB, "it has begun")
            assert background.tell("exec") == "ready"
            done = finish(process)
        assert json.loads(done.stdout)["ended"] == "executed", done.stdout
        assert background.swapped < 8 * MIB, "none of the new program's memory"
        assert background.tell("touch") == "whole"


def test_what_cannot_be_a_target_is_refused() -> None:
    threads = [pid for pid in children(2) if stat_fields(pid)[:1] != ["Z"]]
    for target, said in [
        ("999999999", "there is none"),
        ("0", "there is none"),
        ("-5", "there is none"),
        (str(threads[0]), "kernel thread"),
        ("no-such-thing", "neither a process nor a cgroup"),
        ("../../etc", "neither a process nor a cgroup"),
    ]:
        done = kilter("reclaim", "once", "--json", "--", target)
        assert done.returncode == 2, (target, done)
        assert said in done.stderr, (target, done.stderr)
        assert done.stdout == ""
    assert kilter("reclaim", "once", os.getpid(), "--call-kib", 1000).returncode == 2
    assert kilter("reclaim", "once", os.getpid(), "--cold", "--pageout").returncode == 2
    done = kilter("reclaim", "once", 1, root=Path("/tmp"))
    assert done.returncode == 2
    assert "--root" in done.stderr


def test_a_zombie_is_told() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    try:
        wait_until(lambda: stat_fields(pid)[:1] == ["Z"], "it has ended")
        assert "only its parent" in kilter("reclaim", "once", pid).stderr
    finally:
        os.waitpid(pid, 0)


def test_without_the_right_nothing_is_done(swap: Swap) -> None:
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    with app(16) as background:
        done = kilter("reclaim", "once", background.pid, prefix=nobody)
        assert done.returncode == 2
        assert "not permitted" in done.stderr
        assert "hint: sudo kilter reclaim once" in done.stderr
        assert background.swapped == 0
    done = kilter("reclaim", "run", prefix=nobody)
    assert done.returncode == 2
    assert "needs root" in done.stderr


def test_it_works_in_a_container(swap: Swap) -> None:
    """In a namespace of processes the numbers are those of the namespace."""
    inside = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", sys.executable, "-c")
    script = (
        "import json, subprocess, sys\n"
        "app = subprocess.Popen(sys.argv[2:], stdin=-1, stdout=-1, text=True)\n"
        "app.stdout.readline()\n"
        "words = [sys.argv[1], 'reclaim', 'once', str(app.pid), '--json']\n"
        "print(json.dumps([app.pid, json.loads(subprocess.check_output(words))]))\n"
        "app.stdin.close()\n"
    )
    own = [sys.executable, "-S", str(APP), "32"]
    done = subprocess.run(
        [*inside, script, str(BINARY), *own], capture_output=True, text=True, check=True
    )
    pid, told = json.loads(done.stdout)
    assert told["pid"] == pid < 100
    assert told["reclaimed_bytes"] > 28 * MIB
