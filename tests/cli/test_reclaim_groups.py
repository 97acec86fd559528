"""`kilter reclaim` and cgroups: v1 or v2, whichever this kernel has."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from .program import SLOW, kilter, wait_until
from .reclaim import (
    MIB,
    PARAMETERS,
    SCORE,
    Swap,
    app,
    daemon,
    end,
    followed,
    freezer,
    memory_group,
    once,
    remove,
    status,
)

pytestmark = [pytest.mark.real_kernel, pytest.mark.usefixtures("alone")]


def test_a_cgroup_is_all_of_its_processes(swap: Swap) -> None:
    with memory_group("kilter-test-once", 500) as group, ExitStack() as stack:
        apps = [stack.enter_context(app(24, group=group)) for _ in range(2)]
        told = once("kilter-test-once")
        assert told["cgroup"] == "/kilter-test-once"
        assert told["processes"] == 2
        assert all(background.swapped > 20 * MIB for background in apps)
        assert [background.tell("touch") for background in apps] == ["whole"] * 2


def test_the_longest_cached_goes_first_and_the_active_stays(swap: Swap, tmp_path: Path) -> None:
    with memory_group("kilter-test-run", 400) as group, ExitStack() as stack:
        process = stack.enter_context(daemon(tmp_path, SCORE, "--within", group))
        first = stack.enter_context(app(90, group=group))
        first.score(900)
        wait_until(lambda: followed(first.pid).get("state") == "cold", "the first is cold")
        assert first.swapped == 0, "memory is not scarce"
        second = stack.enter_context(app(90, group=group))
        second.score(905)
        if not SLOW:  # Where a sweep is dear, the next is minutes away while there is enough.
            wait_until(lambda: followed(second.pid).get("state") == "cold", "the second is cold")
        active = stack.enter_context(app(130, group=group))
        wait_until(lambda: first.swapped > 80 * MIB, "the first is out")
        assert active.swapped < 8 * MIB
        wait_until(lambda: followed(first.pid)["state"] == "paged-out", "it is told")
        assert followed(second.pid)["state"] != "paged-out", "no more than needed"
        assert second.swapped < 8 * MIB
        told = status()
        assert told["policy"] == "pressure"
        assert told["within"] == "/kilter-test-run"
        assert told["total"]["pageouts"] == 1
        explained = kilter("reclaim", "explain", first.pid)
        assert "oom_score_adj" in explained.stdout
        assert "last: pageout" in explained.stdout
        assert kilter("reclaim", "explain", os.getpid()).returncode == 2
        assert [one.tell("touch") for one in (first, second, active)] == ["whole"] * 3
        assert end(process).returncode == 0
    assert not PARAMETERS.exists(), "nothing is left"


def test_on_cached_pages_out_at_once_and_reads_back(swap: Swap, tmp_path: Path) -> None:
    with memory_group("kilter-test-eager", 900) as group, ExitStack() as stack:
        options = ("--policy", "on-cached", "--within", group)
        stack.enter_context(daemon(tmp_path, SCORE, *options))
        background = stack.enter_context(app(60, group=group))
        time.sleep(1.5)
        assert background.swapped == 0
        background.score(950)
        wait_until(lambda: background.swapped > 50 * MIB, "it is out")
        wait_until(lambda: status()["total"]["pageouts"] == 1, "it is told")
        background.score(0)
        wait_until(lambda: status()["total"]["prefetches"] == 1, "it is read back")
        assert background.tell("touch") == "whole"


def test_a_frozen_app_is_cached(swap: Swap, tmp_path: Path) -> None:
    with memory_group("kilter-test-freeze", 900) as group, ExitStack() as stack:
        frozen, freeze, thaw = stack.enter_context(freezer("kilter-test-frozen", group))
        options = ("--policy", "on-cached", "--within", group)
        stack.enter_context(daemon(tmp_path, SCORE, *options))
        background = stack.enter_context(app(40, group=group))
        (frozen / "cgroup.procs").write_text(str(background.pid))
        (frozen / freeze[0]).write_text(freeze[1])
        stack.callback(lambda: (frozen / thaw[0]).write_text(thaw[1]))
        wait_until(lambda: background.swapped > 30 * MIB, "it is out")
        assert followed(background.pid)["why"] == "it is frozen"
        (frozen / thaw[0]).write_text(thaw[1])
        wait_until(lambda: followed(background.pid)["state"] == "active", "it is back")
        assert background.tell("touch") == "whole"


def test_an_app_out_of_focus_is_cached(swap: Swap, tmp_path: Path) -> None:
    """The desktop says when a group lost the focus, in an attribute of its directory."""
    with memory_group("kilter-test-focus", 900) as group, ExitStack() as stack:
        if not (group / "cgroup.freeze").exists():
            pytest.skip("directories of cgroup v1 have no attributes of users")
        options = ("--policy", "on-cached", "--within", group)
        # As systemd names them; with memory.reclaim of its own.
        own = group
        for name in ("app.slice", "app-test.scope"):
            (own / "cgroup.subtree_control").write_text("+memory")
            own /= name
            own.mkdir()
            stack.callback(remove, own)
        os.setxattr(own, "user.inactive-since", b"0")
        stack.enter_context(daemon(tmp_path, SCORE, *options))
        background = stack.enter_context(app(40, group=own))
        # Whoever has the focus is not cached, whatever its score says.
        background.score(950)
        wait_until(lambda: followed(background.pid).get("state") == "active", "it is followed")
        os.setxattr(own, "user.inactive-since", str(time.monotonic_ns() // 1000).encode())
        wait_until(lambda: background.swapped > 30 * MIB, "it is out")
        assert followed(background.pid)["why"].startswith("in focus: not for")
        os.setxattr(own, "user.inactive-since", b"0")
        wait_until(lambda: followed(background.pid)["state"] == "active", "it is back")
        assert background.tell("touch") == "whole"
