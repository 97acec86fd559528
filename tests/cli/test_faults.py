"""Killed at every system call that matters: the next command puts every file back."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import faults
from .program import kilter, wait_until
from .roots import Root, Tree

VALUES = {
    "vm.swappiness": "10",
    "vm.page-cluster": "0",
    "vm.dirty_ratio": "30",
    "block.vda.nr_requests": "64",
    "sched.nr_migrate": "8",
    "sched.base_slice_ns": "3000000",
}
RUN = ["run", *(word for knob, value in VALUES.items() for word in ("--set", f"{knob}={value}"))]


@pytest.fixture(autouse=True)
def _can_inject() -> None:
    if faults.reason_not_to():
        pytest.skip(faults.reason_not_to())


@pytest.fixture
def calm(root: Root) -> Root:
    """A machine with a profile of settings of several kinds."""
    root.profile("calm", VALUES)
    return root


def told(what: str, points: int, at_least: int) -> None:
    """Print the count, and fail if it is too low to be true."""
    print(f"\n{what}: {points} crash points, {points} restored")
    assert points >= at_least


def everything_is_back(root: Root, before: Tree, point: object) -> None:
    """Not a byte of a kernel file differs, and no layer is left."""
    assert root.settings() == before, f"after a kill at {point}"
    assert root.layers() == [], f"after a kill at {point}"


def with_profile(root: Root, before: Tree) -> Tree:
    """What the tree is with the profile in force."""
    assert root("apply", "calm").returncode == 0
    applied = root.settings()
    assert root("revert").returncode == 0
    assert root.settings() == before
    assert applied != before
    return applied


def test_an_apply_killed_at_every_call_is_whole_or_nothing(calm: Root, tmp_path: Path) -> None:
    before = calm.settings()
    applied = with_profile(calm, before)
    points = 0
    outcomes = set()
    for point in faults.each_killed(calm, ["apply", "calm"], tmp_path / "log"):
        # An empty batch does nothing but put back what the dead left.
        assert calm("run", "--batch").returncode == 0
        state = calm.settings()
        assert state in (before, applied), f"half applied after a kill at {point}"
        outcomes.add(state == applied)
        assert calm("revert").returncode == 0
        everything_is_back(calm, before, point)
        points += 1
    assert outcomes == {False, True}, "some kills come before the last record, some after"
    told("apply", points, 100)


def test_a_revert_killed_at_every_call_is_finished_by_the_next(calm: Root, tmp_path: Path) -> None:
    before = calm.settings()
    points = 0
    killed = faults.each_killed(calm, ["revert"], tmp_path / "log", prepare=["apply", "calm"])
    for point in killed:
        assert calm("revert").returncode == 0
        everything_is_back(calm, before, point)
        points += 1
    told("revert", points, 80)


def test_a_run_without_guardian_killed_at_every_call(calm: Root, tmp_path: Path) -> None:
    before = calm.settings()
    points = 0
    args = [*RUN, "--", "true"]
    for point in faults.each_killed(calm, args, tmp_path / "log", orphan=True):
        done = calm("revert")
        assert done.returncode == 0, done
        everything_is_back(calm, before, point)
        points += 1
    told("run, guardian dead", points, 200)


def test_a_run_killed_at_every_call_is_put_back_by_its_guardian(calm: Root, tmp_path: Path) -> None:
    before = calm.settings()
    points = 0
    args = [*RUN, "--", "true"]
    for point in faults.each_killed(calm, args, tmp_path / "log"):
        # No command comes to help: only files are looked at.
        wait_until(
            lambda: calm.settings() == before and not whole_layers(calm),
            f"the guardian restores after a kill at {point}",
        )
        points += 1
    told("run, guardian alive", points, 200)


def whole_layers(root: Root) -> list[str]:
    """Layers of which something was written; a kill may leave an empty file, which is none."""
    directory = root.path / "run/kilter/layers"
    return [name for name in root.layers() if (directory / name).read_bytes().endswith(b"\n")]


def test_a_guardian_killed_at_every_call_leaves_the_rest_to_the_next_command(
    calm: Root, tmp_path: Path
) -> None:
    before = calm.settings()
    trace = faults.guardian_killed(None, calm, RUN, tmp_path)
    everything_is_back(calm, before, "no call")
    points = faults.points_of(trace)
    assert points[-1].call == "exit_group"
    killed = 0
    for point in points:
        trace = faults.guardian_killed(point, calm, RUN, tmp_path)
        # How often it reads before its owner dies is a matter of timing: the last may not come.
        killed += point.call == "exit_group" or "exit_group" not in trace
        assert calm("revert").returncode == 0
        everything_is_back(calm, before, point)
    assert killed >= len(points) - 2
    told("guardian", killed, 60)


def test_the_reader_of_traces_counts_each_kind_by_itself() -> None:
    trace = 'read(3, "x") = 1\nopenat(4, "/j") = 5\nread(5) = 0\n+++ exited +++\nread(5) = 0\n'
    assert faults.points_of(trace, "/j") == [("openat", 1), ("read", 2), ("read", 3)]


def test_a_torn_record_is_skipped(calm: Root) -> None:
    """What a crash of the machine, not of the process, could leave: half a line."""
    before = calm.settings()
    for cut in (0.01, 0.5, 0.99):
        assert calm("apply", "calm").returncode == 0
        (name,) = calm.layers()
        file = calm.path / "run/kilter/layers" / name
        intent, held = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(intent + held[: int(len(held) * cut)])
        assert calm("revert").returncode == 0, cut
        everything_is_back(calm, before, cut)


@pytest.mark.parametrize("error", ["ENOSPC", "EIO", "EROFS", "EDQUOT"])
def test_a_journal_that_cannot_be_written_stops_before_the_first_setting(
    calm: Root, tmp_path: Path, error: str
) -> None:
    """The record of what will be done fails, whichever way: nothing is done."""
    before = calm.settings()
    inject = ("-e", "trace=write", "-e", f"inject=write:error={error}:when=1")
    log = tmp_path / "log"
    strace = (*faults.STRACE, "-o", str(log), *inject)
    done = kilter("apply", "calm", root=calm.path, prefix=strace)
    assert "(INJECTED)" in log.read_text()
    assert "intent" in log.read_text().splitlines()[0]
    assert done.returncode == 2, done
    assert "nothing was changed" in done.stderr
    everything_is_back(calm, before, error)


@pytest.mark.parametrize("error", ["EINVAL", "EACCES", "EBUSY", "EIO"])
@pytest.mark.parametrize("number", range(len(VALUES)))
def test_a_refused_setting_takes_the_whole_layer_back(
    calm: Root, tmp_path: Path, number: int, error: str
) -> None:
    """Whichever value the kernel refuses, nothing of the layer is left."""
    before = calm.settings()
    # The first write is the record of intent, then come the values. One that is refused as invalid
    # is tried again after the others, because some pairs have an order of their own.
    first, retry = 2 + number, 2 + len(VALUES)
    when = f"{first}..{retry}+{retry - first}" if error == "EINVAL" else f"{first}"
    log = tmp_path / "log"
    inject = ("-e", "trace=write", "-e", f"inject=write:error={error}:when={when}")
    strace = (*faults.STRACE, "-o", str(log), *inject)
    done = kilter("apply", "calm", root=calm.path, prefix=strace)
    assert log.read_text().count("(INJECTED)") == (2 if error == "EINVAL" else 1)
    assert done.returncode == 2, done
    assert "what had been written was put back" in done.stderr
    assert "hint: kilter knobs show" in done.stderr
    everything_is_back(calm, before, number)


def test_a_value_that_is_taken_at_the_second_try_is_in_force(calm: Root, tmp_path: Path) -> None:
    before = calm.settings()
    inject = ("-e", "trace=write", "-e", "inject=write:error=EINVAL:when=3")
    strace = (*faults.STRACE, "-o", str(tmp_path / "log"), *inject)
    done = kilter("apply", "calm", root=calm.path, prefix=strace)
    assert done.returncode == 0, done
    assert {knob: calm.get(knob) for knob in VALUES} == VALUES
    assert calm("revert").returncode == 0
    everything_is_back(calm, before, "the second try")
