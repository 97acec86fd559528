"""A tune is killed with SIGKILL, in any of its processes: no setting is left."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest

from . import kills
from .kills import Machine, Tunes
from .program import BINARY, finish, is_alive, kill_quietly, started, wait_until
from .roots import Root
from .workload import METRIC, Workload

pytestmark = pytest.mark.skipif(
    not (BINARY.parent / "python3").exists(),
    reason=f"there is no Python beside {BINARY}: tune is not installed",
)

KNOBS = ["vm.swappiness", "vm.page-cluster", "vm.stat_interval", "sched.nr_migrate"]
SEARCH = ["tune", "--knobs", ",".join(KNOBS)]


@pytest.mark.parametrize("choice", kills.VICTIMS)
def test_killed_at_random_moments(root: Root, tmp_path: Path, choice: str) -> None:
    workload = Workload(root, tmp_path, 0.2)
    (tmp_path / "slow").touch()
    words = [*SEARCH, *METRIC, "--trials", "500", "--", *workload.command]
    found = Tunes(Machine(root, KNOBS), words, 3.0).kill_at_random(choice)
    found.tell(f"fake root, tune, {choice} killed")


def test_the_lab_killed_during_a_long_run(root: Root, tmp_path: Path) -> None:
    """The run does not go on to its end, which may be hours away."""
    told = tmp_path / "pid"
    script = f"[ $(cat $1) = 60 ] || {{ echo $$ > {told}; exec sleep 60; }}"
    swappiness = root.path / "proc/sys/vm/swappiness"
    machine = Machine(root, KNOBS)
    words = ["tune", "--knobs", "vm.swappiness", "--", "sh", "-c", script, "sh", swappiness]
    with started(*words, root=root.path) as tune:
        wait_until(lambda: kills.pid_in(told) is not None, "a long run is under way", 60)
        assert machine.now() != machine.contents
        tune.kill()
        finish(tune)
        wait_until(machine.is_restored, "restored", kills.LOADED_S)
    pid = kills.pid_in(told)
    assert pid is not None
    assert not is_alive(pid)


def test_a_study_that_was_killed_goes_on_after_its_last_block(root: Root, tmp_path: Path) -> None:
    """SIGKILL loses the block under way, and nothing that was measured before it."""
    workload, file = Workload(root, tmp_path, 0.2), tmp_path / "studies.db"
    words = [
        *("tune", "--knobs", ",".join(KNOBS), *METRIC, "--trials", "28", "--study", "s"),
        *("--storage", f"sqlite:///{file}", "--", *workload.command),
    ]
    (tmp_path / "slow").touch()
    found: dict[str, str] = {}
    for wanted in (3, 5):
        with started(*words, root=root.path) as tune:
            wait_until(partial(has_blocks, file, wanted), f"{wanted} blocks", 60)
            for victim in kills.victims_of("all", tune.pid):
                kill_quietly(victim)
            finish(tune)
        before, found = found, blocks(file)
        assert found.items() >= before.items()
    (tmp_path / "slow").unlink()
    done = root(*words)
    assert done.returncode == 0, done.stderr
    assert blocks(file).items() >= found.items()
    assert any(key.startswith("block/confirm/") for key in blocks(file))


def has_blocks(file: Path, count: int) -> bool:
    return len(blocks(file)) >= count


def blocks(file: Path) -> dict[str, str]:
    """The blocks on record, by their keys; none where there is no record yet."""
    query = "SELECT key, value_json FROM study_user_attributes WHERE key LIKE 'block/%'"
    if not file.exists():
        return {}
    with closing(sqlite3.connect(file)) as record, suppress(sqlite3.OperationalError):
        return dict(record.execute(query).fetchall())
    return {}
