"""The running kernel, as root: everything that was changed comes back, whatever happens."""

from __future__ import annotations

import html
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from . import faults, kills
from .kills import Machine, Tunes
from .program import BINARY, GUEST, SLOW, argv, finish, started, wait_until
from .roots import RealKernel, machine_alone, undisturbed

pytestmark = pytest.mark.real_kernel


@pytest.fixture
def real() -> Iterator[RealKernel]:
    """The running machine, for this test alone."""
    with machine_alone():
        yield from undisturbed(RealKernel())


# Plain ones, both kinds of the dirty pairs, a switch of words that recomputes min_free_kbytes, and
# one that only takes its value with a final newline.
WANTED = {
    "vm.swappiness": ("10", "20"),
    "vm.vfs_cache_pressure": ("50", "60"),
    "vm.dirty_bytes": ("268435456", "134217728"),
    "vm.dirty_background_bytes": ("67108864", "33554432"),
    "vm.page-cluster": ("0", "1"),
    "thp.enabled": ("always", "madvise"),
    "kernel.printk_devkmsg": ("on", "off"),
    "kernel.sched_autogroup_enabled": ("0", "1"),
}
OF_DISK = {"iostats": ("0", "1"), "read_ahead_kb": ("64", "256"), "nomerges": ("1", "2")}


def experiment(real: RealKernel) -> dict[str, str]:
    """Values for this machine, each another than it has now."""
    wanted = dict(WANTED)
    disk = real.disk()
    if disk:
        wanted |= {f"block.{disk}.{knob}": values for knob, values in OF_DISK.items()}
    now = real.settings()
    return {knob: values[now[knob] == values[0]] for knob, values in wanted.items() if knob in now}


def options(values: dict[str, str]) -> list[str]:
    """``--set`` for each."""
    return [word for knob, value in values.items() for word in ("--set", f"{knob}={value}")]


def sleeper(told: Path) -> list[str]:
    """A workload that tells its process number and then runs for a minute."""
    return ["sh", "-c", f"echo $$ > {told}; exec sleep 60"]


@contextmanager
def by_hand(file: Path, value: str) -> Iterator[None]:
    """Another value in a kernel file, meanwhile."""
    before = file.read_text()
    file.write_text(value + "\n")
    try:
        yield
    finally:
        file.write_text(before)


@contextmanager
def kept(file: Path) -> Iterator[None]:
    """A file that another one's write moves has its value back afterwards."""
    before = file.read_text() if file.exists() else None
    try:
        yield
    finally:
        if before is not None:
            file.write_text(before)


def test_a_run_sets_everything_and_puts_everything_back(real: RealKernel, tmp_path: Path) -> None:
    before = real.settings()
    values = experiment(real)
    assert len(values) >= 4, values
    told = tmp_path / "pid"
    script = f"echo $$ > {told}; until [ -e {told}.go ]; do sleep 0.01; done"
    args = ["--json", "run", *options(values), "--", "sh", "-c", script]
    with started(*args) as child:
        wait_until(lambda: kills.pid_in(told) is not None, "the workload runs")
        during = real.settings()
        Path(f"{told}.go").touch()
        done = finish(child)
    assert done.returncode == 0, done
    record = json.loads(done.stdout)
    assert record["settings"] == {knob: during[knob] for knob in values}
    assert {knob: during[knob] for knob in values} == values
    assert real.settings() == before


def test_a_profile_is_applied_verified_and_reverted(real: RealKernel) -> None:
    before = real.settings()
    plan = real.json("apply", "desktop")
    changed = {change["knob"]: change for change in plan["changes"]}
    try:
        during = real.settings()
        for knob, change in changed.items():
            assert during[knob] == change["effective"]
        assert real("verify").returncode == 0
        assert real("diff", "desktop").returncode == 0
        # An experiment on top of it sets the other member of a pair, and gives the pair back.
        done = real("run", "--set", "vm.dirty_ratio=30", "--", "cat", "/proc/sys/vm/dirty_bytes")
        assert (done.returncode, done.stdout) == (0, "0\n"), done
        assert real.settings() == during
    finally:
        assert real("revert", "desktop").returncode == 0
    assert real.settings() == before


@pytest.mark.parametrize(
    ("by_now", "asked"),
    [
        ("dirty_ratio", ("dirty_bytes", "268435456")),
        ("dirty_bytes", ("dirty_ratio", "30")),
        ("dirty_background_ratio", ("dirty_background_bytes", "67108864")),
        ("dirty_background_bytes", ("dirty_background_ratio", "5")),
    ],
)
def test_a_pair_that_zeroes_each_other_comes_back_either_way(
    real: RealKernel, by_now: str, asked: tuple[str, str]
) -> None:
    vm = Path("/proc/sys/vm")
    values = {"dirty_bytes": "536870912", "dirty_background_bytes": "134217728"}
    now = values.get(by_now, (vm / by_now).read_text().strip())
    if now == "0":
        pytest.skip(f"{by_now} is not in use here")
    unit, value = asked
    files = [vm / by_now, vm / unit]
    with by_hand_pair(files[0], files[1], now):
        before = [file.read_text() for file in files]
        done = real("run", "--set", f"vm.{unit}={value}", "--", "cat", *files)
        assert done.returncode == 0, done
        assert done.stdout == f"0\n{value}\n"
        assert [file.read_text() for file in files] == before


@contextmanager
def by_hand_pair(one: Path, other: Path, value: str) -> Iterator[None]:
    """A value for one of a pair; whichever was in use before is in use again afterwards."""
    used = one if one.read_text() != "0\n" else other
    text = used.read_text()
    one.write_text(value + "\n")
    try:
        yield
    finally:
        used.write_text(text)


def test_a_queue_limit_that_lifts_read_ahead_puts_it_back(real: RealKernel) -> None:
    disk = real.disk()
    if not disk:
        pytest.skip("this machine has no block device of its own")
    queue = Path("/sys/block") / disk / "queue"
    flipped = "1" if (queue / "iostats").read_text() == "0\n" else "0"
    with by_hand(queue / "read_ahead_kb", "64"):
        if (queue / "read_ahead_kb").read_text() != "64\n":
            pytest.skip("the device does not take a read-ahead of 64 KiB")
        done = real("run", "--set", f"block.{disk}.iostats={flipped}", "--", "true")
        assert done.returncode == 0, done
        assert (queue / "read_ahead_kb").read_text() == "64\n"


def test_another_io_scheduler_gives_back_what_it_reset(real: RealKernel) -> None:
    disk = real.disk()
    offered = real.json("knobs", "show", f"block.{disk}.scheduler")[0]["offered"] if disk else []
    queue = Path("/sys/block") / disk / "queue"
    now = real.settings().get(f"block.{disk}.scheduler")
    others = [word for word in offered if word != now]
    if not others:
        pytest.skip("no device here has a choice of I/O schedulers")
    with kept(queue / "iosched/async_depth"), by_hand(queue / "nr_requests", "32"):
        # Its write moves async_depth: only now is the state complete.
        iosched = {file.name: file.read_text() for file in (queue / "iosched").glob("*")}
        done = real("run", "--set", f"block.{disk}.scheduler={others[0]}", "--", "true")
        assert done.returncode == 0, done
        assert (queue / "nr_requests").read_text() == "32\n"
        assert {file.name: file.read_text() for file in (queue / "iosched").glob("*")} == iosched


def test_what_programs_may_choose_after_another_congestion_control_comes_back(
    real: RealKernel,
) -> None:
    """The kernel lets every program choose what root chose, also after root chooses another."""
    ipv4 = Path("/proc/sys/net/ipv4")
    allowed = ipv4 / "tcp_allowed_congestion_control"
    now = (ipv4 / "tcp_congestion_control").read_text().strip()
    available = (ipv4 / "tcp_available_congestion_control").read_text().split()
    others = [word for word in available if word != now]
    if not others:
        pytest.skip("this kernel offers one congestion control alone")
    with by_hand(allowed, now):
        setting = f"net.ipv4.tcp_congestion_control={others[0]}"
        done = real("run", "--set", setting, "--", "cat", str(allowed))
        assert done.returncode == 0, done
        assert set(done.stdout.split()) == {now, others[0]}
        assert allowed.read_text().split() == [now]


def test_what_the_kernel_rounds_is_told(real: RealKernel) -> None:
    disk = real.disk()
    if not disk:
        pytest.skip("this machine has no block device of its own")
    knob = f"block.{disk}.read_ahead_kb"
    record = real.json("run", "--set", f"{knob}=130", "--", "true")
    kept = record["settings"][knob]
    if kept == "130":
        pytest.skip("this kernel keeps 130 KiB as they are")
    assert f"{knob}: asked 130, the kernel keeps {kept}" in record["warnings"]


def test_a_value_that_the_kernel_refuses_takes_all_back(real: RealKernel) -> None:
    """At most ``rt_period`` is checked by kilter too, so a refusal needs a value kilter takes."""
    knobs = real.json("knobs", "list", "block.*.scheduler")
    # Others that are not offered may be: their module is loaded when they are asked for.
    candidates = [knob for knob in knobs if "cfq" not in knob["offered"]]
    if not candidates:
        pytest.skip("no knob here whose catalog allows more than this kernel")
    knob, bad = candidates[0], "cfq"
    before = real.settings()
    args = ["--set", "vm.swappiness=11", "--set", f"{knob['name']}={bad}"]
    done = real("run", *args, "--", "true")
    assert done.returncode == 125, done
    assert knob["name"] in done.stderr
    assert real.settings() == before


def test_killed_at_random_moments(real: RealKernel, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    machine = Machine(real, options(experiment(real)))
    began = time.monotonic()
    assert real("run", *machine.options, "--", "true").returncode == 0
    whole_s = time.monotonic() - began
    # Few kills where everything is slow: half of them come when all is set.
    until_s = 2 * whole_s if SLOW else max(0.2, whole_s)
    found = kills.kill_at_random(machine, sleeper(told), told, until_s)
    found.tell("real kernel")
    assert len(found.seconds) >= kills.KILLS // 4, "the kills must hit settings in force"


# Studies and profiles of these tests are gone with them.
OWN_STATE = (
    "unshare",
    "--mount",
    "sh",
    "-c",
    "for d in /var/lib/kilter /etc/kilter; do if [ -d $d ]; then mount -t tmpfs test $d; fi; done; "
    'exec "$@"',
    "sh",
)


@pytest.fixture
def own_state() -> Iterator[tuple[str, ...]]:
    """What to put before a tune, so that it keeps nothing on this machine."""
    made = [place for place in (Path("/var/lib/kilter"), Path("/etc/kilter")) if not place.exists()]
    for place in made:
        place.mkdir()
    yield OWN_STATE
    for place in made:
        place.rmdir()


LOOPS = "2" if SLOW else "100"
MESSAGING = [str(BINARY), "load", "messaging", "--groups", "1", "--loops", LOOPS]


def searchable(real: RealKernel) -> list[str]:
    """The knobs that ``tune`` can search here."""
    still = real.settings()
    return [
        knob["name"]
        for knob in real.json("knobs", "list")
        if knob["name"] in still and knob["spec"].get("search") and not knob["virtual_device"]
    ]


@pytest.mark.skipif(SLOW, reason="the lab takes a minute to start in a guest without KVM")
@pytest.mark.parametrize("choice", kills.VICTIMS)
def test_a_tune_killed_at_random_moments(
    real: RealKernel, own_state: tuple[str, ...], choice: str
) -> None:
    machine = Machine(real, searchable(real))
    words = ["tune", "--trials", "500", "--", *MESSAGING]
    found = Tunes(machine, words, 3.0, own_state).kill_at_random(choice)
    found.tell(f"real kernel, tune of {len(machine.files)} knobs, {choice} killed")


@pytest.mark.skipif(SLOW and GUEST != "eevdf", reason="one kernel without KVM is enough for it")
def test_a_whole_tune_of_all_knobs(
    real: RealKernel, own_state: tuple[str, ...], tmp_path: Path
) -> None:
    before = real.settings()
    page = tmp_path / "report.html"
    budget = "3m" if SLOW else "10s"
    words = ["tune", "--budget", budget, "--report", page, "--", *MESSAGING]
    done = real("--json", *words, prefix=own_state)
    assert done.returncode == 0, done
    assert real.settings() == before
    study = json.loads(done.stdout)
    assert study["ending"] in ("better", "nothing-helps", "unconfirmed")
    assert study["sentence"] in html.unescape(page.read_text())


@pytest.mark.parametrize(
    "command",
    [["revert"], ["run", "--set", "vm.swappiness=12", "--", "true"], ["run", "--batch"]],
    ids=["revert", "run", "batch"],
)
def test_with_the_guardian_killed_too_the_next_command_restores(
    real: RealKernel, tmp_path: Path, command: list[str]
) -> None:
    told = tmp_path / "pid"
    machine = Machine(real, options(experiment(real)))
    kills.kill_with_guardian(machine, sleeper(told), told)
    told_of = real("status")
    assert "still in force" in told_of.stderr
    assert "hint: kilter revert" in told_of.stderr
    assert real(*command).returncode == 0
    assert machine.is_restored()


def test_killed_at_every_write_with_its_guardian_dead(real: RealKernel, tmp_path: Path) -> None:
    """Every state that a crash can leave behind in the kernel, and the next command."""
    if faults.reason_not_to():
        pytest.skip(faults.reason_not_to())
    before = real.settings()
    values = experiment(real)
    if SLOW:
        values = dict(list(values.items())[:4])
    args = ["run", *options(values), "--", "true"]
    points = [
        point
        for point in faults.crash_points(real, args, tmp_path / "log")
        if point.call in ("write", "unlink")
    ]
    # In a slow guest every third or so, always the first and the last.
    points = points[:: max(1, len(points) // 8)] + points[-1:] if SLOW else points
    killed = 0
    for point in points:
        killed += faults.killed(point, real, args, orphan=True)
        assert real("revert").returncode == 0
        assert real.settings() == before, point
    print(f"\nreal kernel, guardian dead: {killed} crash points, {killed} restored")
    # The intent, each value, what is held; the undo, each value, the end.
    assert killed >= (6 if SLOW else 2 * len(values))


def test_a_batch_restores_when_its_input_ends(real: RealKernel) -> None:
    before = real.settings()
    values = experiment(real)
    lines = [
        {"id": 1, "command": ["true"], "settings": values},
        {"id": 2, "command": ["true"], "settings": {}},
        {"id": 3, "command": ["true"], "settings": dict(list(values.items())[:2])},
    ]
    done = real("run", "--batch", input="".join(json.dumps(line) + "\n" for line in lines))
    assert done.returncode == 0, done
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    assert [reply["result"] for reply in replies] == ["ran"] * 3
    assert real.settings() == before


def test_sudo_measures_as_the_caller(real: RealKernel) -> None:
    """As sudo leaves it: root, with the caller's number in the environment."""
    env = {"SUDO_UID": "65534", "SUDO_GID": "65534"}
    done = real("run", "--set", "vm.swappiness=13", "--", "id", "-u", env=env)
    assert (done.returncode, done.stdout) == (0, "65534\n"), done
    if shutil.which("sudo") is None:
        pytest.skip("sudo is not installed: only its environment was tried")
    # root calls sudo here, so the caller is root.
    words = ["sudo", "-n", *argv("run", "--set", "vm.swappiness=13", "--", "id", "-u")]
    sudo = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (sudo.returncode, sudo.stdout) == (0, "0\n"), sudo


def test_the_demo_workload_of_the_catalog_runs(real: RealKernel) -> None:
    done = real("--json", "bench", "messaging", "--runs", "1", "--set", "vm.swappiness=14")
    assert done.returncode == 0, done
    (record,) = json.loads(done.stdout)
    assert record["settings"] == {"vm.swappiness": "14"}
    assert record["metrics"]
