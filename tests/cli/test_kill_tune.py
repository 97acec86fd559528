"""A tune is killed with SIGKILL, in any of its processes: no setting is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import kills
from .kills import Machine, Tunes
from .program import BINARY, finish, is_alive, started, wait_until
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
