"""Knobs whose files come with another knob's value: an I/O scheduler and its tunables in one layer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import faults
from .program import SLOW
from .roots import RealKernel, Root, machine_alone, undisturbed

# Of each scheduler a tunable with a value that is nobody's default, and the range it moves in.
TUNABLES = {
    "bfq": ("slice_idle", "3"),
    "kyber": ("read_lat_nsec", "3000000"),
    "mq-deadline": ("read_expire", "321"),
}


@dataclass(frozen=True)
class Choice:
    """Another I/O scheduler of a disk, with one of its tunables."""

    disk: str
    scheduler: str

    @property
    def knob(self) -> str:
        """The tunable's name."""
        return f"block.{self.disk}.{self.scheduler}.{TUNABLES[self.scheduler][0]}"

    @property
    def value(self) -> str:
        """What it is set to."""
        return TUNABLES[self.scheduler][1]

    @property
    def file(self) -> Path:
        """Where it is while its scheduler is in charge."""
        name = TUNABLES[self.scheduler][0]
        return Path("/sys/block") / self.disk / "queue/iosched" / name

    def options(self) -> list[str]:
        """Both settings, the tunable first: the order is kilter's to find."""
        switch = f"block.{self.disk}.scheduler={self.scheduler}"
        return ["--set", f"{self.knob}={self.value}", "--set", switch]


@pytest.fixture
def real() -> Iterator[RealKernel]:
    """The running machine, for this test alone."""
    with machine_alone():
        yield from undisturbed(RealKernel())


@pytest.fixture
def choice(real: RealKernel) -> Choice:
    """A scheduler that this machine's disk does not use now."""
    disk = real.disk()
    if not disk:
        pytest.skip("this machine has no block device of its own")
    (knob,) = real.json("knobs", "show", f"block.{disk}.scheduler")
    now = knob["state"]["value"]
    others = [word for word in TUNABLES if word in knob["offered"] and word != now]
    if not others:
        pytest.skip("no device here has a choice of I/O schedulers with tunables")
    return Choice(disk, others[0])


@pytest.mark.real_kernel
def test_a_run_sets_what_its_scheduler_brings(real: RealKernel, choice: Choice) -> None:
    assert not choice.file.exists()
    done = real("run", *choice.options(), "--", "cat", str(choice.file))
    assert done.returncode == 0, done
    assert done.stdout == f"{choice.value}\n"
    assert "gone" not in done.stderr
    assert not choice.file.exists()


@pytest.mark.real_kernel
def test_a_batch_sets_it_in_every_run(real: RealKernel, choice: Choice) -> None:
    settings = dict(word.split("=") for word in choice.options()[1::2])
    commands = ["cat", str(choice.file)]
    lines = [
        {"id": 1, "command": commands, "settings": settings},
        {"id": 2, "command": ["true"], "settings": {}},
        {"id": 3, "command": commands, "settings": settings},
    ]
    done = real("run", "--batch", input="".join(json.dumps(line) + "\n" for line in lines))
    assert done.returncode == 0, done
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    kept = [reply["record"]["settings"].get(choice.knob) for reply in replies]
    assert kept == [choice.value, None, choice.value]


@pytest.mark.real_kernel
def test_killed_at_every_write_it_goes_as_it_came(
    real: RealKernel, choice: Choice, tmp_path: Path
) -> None:
    if faults.reason_not_to():
        pytest.skip(faults.reason_not_to())
    before = real.settings()
    args = ["run", *choice.options(), "--", "true"]
    points = [
        point
        for point in faults.crash_points(real, args, tmp_path / "log")
        if point.call in ("write", "unlink")
    ]
    points = points[:: max(1, len(points) // 6)] + points[-1:] if SLOW else points
    killed = 0
    for point in points:
        killed += faults.killed(point, real, args, orphan=True)
        assert real("revert").returncode == 0
        assert real.settings() == before, point
        assert not choice.file.exists(), point
    print(f"\na scheduler and its tunable, guardian dead: {killed} crash points, all restored")
    # The intent, the scheduler, what came with it, the tunable, what is held; and the way back.
    assert killed >= (4 if SLOW else 8)


@pytest.mark.real_kernel
def test_without_its_scheduler_it_is_refused_with_what_brings_it(
    real: RealKernel, choice: Choice
) -> None:
    done = real("run", "--set", f"{choice.knob}={choice.value}", "--", "true")
    assert done.returncode != 0
    brings = f"appears with block.{choice.disk}.scheduler={choice.scheduler}"
    assert brings in done.stderr
    assert brings in real("why", choice.knob).stdout


def values(root: Root) -> dict[str, str]:
    """What the disk's knobs show: a fake choice loses its brackets with the first write."""
    knobs = root.json("knobs", "list", "block.vda.*")
    return {knob["name"]: knob["state"].get("value", "-") for knob in knobs}


@pytest.fixture
def idle_disk(root: Root) -> Root:
    """A fake disk. Its files stay as they are: no tunable comes with another scheduler."""
    root.put("sys/block/vda/queue/scheduler", "[none] mq-deadline kyber bfq")
    for file in (root.path / "sys/block/vda/queue/iosched").iterdir():
        file.unlink()
    root.profile(
        "deadline",
        {"block.*.scheduler": "mq-deadline", "block.vda.mq-deadline.read_expire": "321"},
    )
    return root


def test_a_plan_tells_what_appears_and_an_apply_what_did_not(idle_disk: Root) -> None:
    before = values(idle_disk)
    knob, brings = "block.vda.mq-deadline.read_expire", "block.vda.scheduler=mq-deadline"
    for code, command in enumerate((["apply", "--dry-run", "deadline"], ["diff", "deadline"])):
        plan = idle_disk.json(*command, code=code)
        (late,) = [change for change in plan["changes"] if change["knob"] == knob]
        assert (late["old"], late["new"], late["appears_with"]) == ("", "321", brings)
        assert f"appears with {brings}" in idle_disk(*command).stdout
    done = idle_disk.json("apply", "deadline")
    assert [change["knob"] for change in done["changes"]] == ["block.vda.scheduler"]
    (skipped,) = done["skipped"]
    assert skipped["knob"] == knob
    assert f"did not appear with {brings}" in skipped["because"]["detail"]
    assert idle_disk("verify").returncode == 0
    assert idle_disk("revert").returncode == 0
    assert values(idle_disk) == before


def test_an_experiment_refuses_to_go_without_it(idle_disk: Root) -> None:
    before = values(idle_disk)
    words = ["block.vda.scheduler=mq-deadline", "block.vda.mq-deadline.read_expire=321"]
    options = [part for word in words for part in ("--set", word)]
    done = idle_disk("run", *options, "--", "echo", "ran")
    assert done.returncode != 0
    assert "ran" not in done.stdout
    assert "did not appear" in done.stderr
    assert values(idle_disk) == before
    assert idle_disk.layers() == []


def test_another_apply_of_the_same_profile_sets_it_again(idle_disk: Root) -> None:
    """Taking the older layer back may take the file away; here it is there all the time."""
    idle_disk.put("sys/block/vda/queue/iosched/read_expire", "500")
    before = values(idle_disk)
    for _ in range(2):
        done = idle_disk.json("apply", "deadline")
        assert {change["effective"] for change in done["changes"]} == {"mq-deadline", "321"}
        assert done["skipped"] == []
    assert idle_disk("revert").returncode == 0
    assert values(idle_disk) == before
