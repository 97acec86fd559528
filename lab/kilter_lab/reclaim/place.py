"""Where an experiment takes place: a memory cgroup and swap on a zram device, both its own.

A caretaker, a process in a session of its own, takes everything back as soon as who made it is done
or dead, by whatever signal. What is changed is noted in a file first, so that if the caretaker is
killed as well, the next experiment takes it back (after a reboot there is nothing to take back).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from kilter_lab.errors import LabError
from kilter_lab.reclaim.apps import MIB

NAME = "kilter-reclaim-experiment"
"""Of the memory cgroup."""

NOTE = Path("/run/kilter/reclaim-experiment.json")
BLOCK = Path("/sys/block")
CONTROL = Path("/sys/class/zram-control")
PRIORITY = 32767
"""Of the swap: whoever swaps meanwhile swaps here, at the speed that is measured."""
PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
TEARDOWN_S = 20.0


class Note(msgspec.Struct):
    """What there is to take back."""

    boot: str
    caretaker: int = 0
    started: str = ""
    """When the caretaker started, in clock ticks since boot: pids are used again."""
    zram: str = ""
    """Device, ``zram0``."""
    added: bool = False
    """Whether the device is ours to remove."""
    group: str = ""
    controller: str = ""
    """The file in which the memory controller was switched on, if it was not."""


class Hierarchy(msgspec.Struct, frozen=True):
    """Where memory is limited."""

    root: Path
    version: Literal[1, 2]


def hierarchy(mountinfo: str | None = None) -> Hierarchy:
    """The memory controller's hierarchy. LabError where there is none."""
    found: dict[int, Path] = {}
    for line in (mountinfo or Path("/proc/self/mountinfo").read_text()).splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        place = Path(before.split(" ")[4])
        if kind == "cgroup" and "memory" in options.rsplit(" ", 1)[-1].split(","):
            found[1] = place
        elif kind == "cgroup2" and "memory" in _words(place / "cgroup.controllers"):
            found[2] = place
    if 2 in found:
        return Hierarchy(found[2], 2)
    if 1 in found:
        return Hierarchy(found[1], 1)
    raise LabError(
        "no memory cgroup: apps cannot be limited here",
        "boot without cgroup_disable=memory, or `mount -t cgroup2 none /sys/fs/cgroup`",
    )


def check() -> None:
    """Refuse what cannot work before anything is started. LabError says what is missing."""
    if os.geteuid() != 0:
        raise LabError("a memory cgroup and swap on zram take root", "sudo kilter reclaim …")
    if not CONTROL.exists() and not any(BLOCK.glob("zram*")):
        raise LabError(
            "no zram device: the kernel has none, or its module is not loaded", "modprobe zram"
        )
    if not Path("/proc/swaps").exists():
        raise LabError("this kernel has no swap (CONFIG_SWAP)")
    for tool in ("mkswap", "swapon", "swapoff"):
        if shutil.which(tool, path=PATH) is None:
            raise LabError(f"{tool} is missing", "apt-get install util-linux")
    if not _can_add() and _unused() is None:
        raise LabError(
            "every zram device is in use, and no other can be added", "zramctl shows who uses them"
        )


class Group:
    """The memory cgroup that holds the apps."""

    def __init__(self, where: Hierarchy, path: Path) -> None:
        self.version, self.path = where.version, path

    @property
    def tasks(self) -> Path:
        """What an app writes ``0`` to, to join."""
        return self.path / "cgroup.procs"

    def limit(self, mib: int) -> None:
        """Limit its memory. OSError where it has more that cannot be reclaimed."""
        name = "memory.limit_in_bytes" if self.version == 1 else "memory.max"
        (self.path / name).write_text(str(mib * MIB))

    def swappiness(self, value: int) -> None:
        """How readily the kernel swaps by itself within the group; the machine's on cgroup v2."""
        if self.version == 1:
            (self.path / "memory.swappiness").write_text(str(value))

    def used(self) -> int:
        """Bytes in use."""
        name = "memory.usage_in_bytes" if self.version == 1 else "memory.current"
        return int((self.path / name).read_text())

    def limit_hits(self) -> int:
        """How often an allocation met the limit and had to reclaim first."""
        if self.version == 1:
            return int((self.path / "memory.failcnt").read_text())
        return counters(self.path / "memory.events").get("max", 0)

    def oom_kills(self) -> int:
        """Processes that the group's own OOM killer has ended."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        return counters(self.path / name).get("oom_kill", 0)


@contextmanager
def swap_on_zram(mib: int, group_limit: int | None) -> Iterator[tuple[Group | None, Path]]:
    """Swap on zram, and a memory cgroup if it has a limit (MiB); both are gone afterwards."""
    check()
    recover()
    note = Note(boot=_boot())
    done, alive = os.pipe()
    note.caretaker = _caretaker(done, alive)
    os.close(done)
    note.started = _started(note.caretaker)
    try:
        zram = _add_zram(note, mib)
        group = None if group_limit is None else _add_group(note, group_limit)
        yield group, BLOCK / zram
    finally:
        os.close(alive)
        _, status = os.waitpid(note.caretaker, 0)
        if status and not recover():
            raise LabError(f"the experiment's group or swap could not be taken back: see {NOTE}")


def recover() -> bool:
    """Take back what a killed experiment has left. Whether nothing is left."""
    note = _read_note()
    if note is None:
        return True
    if note.caretaker and _started(note.caretaker) == note.started != "":
        raise LabError(f"another experiment on reclaim is running (process {note.caretaker})")
    if note.boot == _boot():
        take_back(note)
    NOTE.unlink(missing_ok=True)
    return True


def take_back(note: Note) -> None:
    """Kill what is in the group, switch the swap off, free the zram, remove the group."""
    group = Path(note.group) if note.group else None
    if group and group.exists():
        _empty(group)
    if note.zram:
        _free_zram(note)
    if group and group.exists():
        _until_works(group.rmdir)
    if note.controller:
        with suppress(OSError):
            Path(note.controller).write_text("-memory")


def _empty(group: Path) -> None:
    until = time.monotonic() + TEARDOWN_S
    while pids := _words(group / "cgroup.procs"):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        if time.monotonic() > until:
            raise LabError(f"processes of {group} do not end: {' '.join(pids)}")
        time.sleep(0.01)


def _free_zram(note: Note) -> None:
    device = BLOCK / note.zram
    if not device.exists():
        return
    if any(line.startswith(f"/dev/{note.zram} ") for line in _lines(Path("/proc/swaps"))):
        _tool("swapoff", f"/dev/{note.zram}")
    if (device / "disksize").read_text().strip() != "0":
        _until_works(lambda: (device / "reset").write_text("1"))
    if note.added:
        number = note.zram.removeprefix("zram")
        _until_works(lambda: (CONTROL / "hot_remove").write_text(number))


def _add_zram(note: Note, mib: int) -> str:
    if _can_add():
        # Reading adds a device; that it is ours is noted at once.
        note.zram, note.added = "zram" + (CONTROL / "hot_add").read_text().strip(), True
    else:
        note.zram = _unused() or ""
    _write_note(note)
    if not note.zram:
        raise LabError("every zram device is in use")
    (BLOCK / note.zram / "disksize").write_text(f"{mib}M")
    node = Path("/dev") / note.zram
    until = time.monotonic() + 5
    while not node.exists() and time.monotonic() < until:
        time.sleep(0.01)
    _tool("mkswap", str(node))
    _tool("swapon", "--priority", str(PRIORITY), str(node))
    return note.zram


def _add_group(note: Note, limit: int) -> Group:
    where = hierarchy()
    path = where.root / NAME
    control = where.root / "cgroup.subtree_control"
    if where.version == 2 and "memory" not in _words(control):
        note.controller = str(control)
        _write_note(note)
        control.write_text("+memory")
    note.group = str(path)
    _write_note(note)
    path.mkdir()
    group = Group(where, path)
    group.limit(limit)
    return group


def _caretaker(done: int, alive: int) -> int:
    """A process that waits until nobody holds ``alive`` any more."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.close(alive)
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        # Who reads our output must not wait for this process.
        null = os.open("/dev/null", os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os.read(done, 1)
        note = _read_note()
        if note is not None:
            take_back(note)
            NOTE.unlink()
        os._exit(0)
    except BaseException:
        os._exit(1)


def _can_add() -> bool:
    return (CONTROL / "hot_add").exists()


def _unused() -> str | None:
    for device in sorted(BLOCK.glob("zram*")):
        if (device / "disksize").read_text().strip() == "0":
            return device.name
    return None


def _tool(*words: str) -> None:
    done = subprocess.run(
        words, capture_output=True, text=True, env={"PATH": PATH, "LC_ALL": "C"}, check=False
    )
    if done.returncode:
        raise LabError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")


def _until_works(change: Callable[[], object]) -> None:
    """A dying process, or somebody's probe of the block device, may hold things for a moment."""
    until = time.monotonic() + 5
    while True:
        try:
            change()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


def _read_note() -> Note | None:
    with suppress(FileNotFoundError, msgspec.MsgspecError):
        return msgspec.json.decode(NOTE.read_bytes(), type=Note)
    return None


def _write_note(note: Note) -> None:
    NOTE.parent.mkdir(mode=0o755, exist_ok=True)
    whole = NOTE.with_suffix(".new")
    whole.write_bytes(msgspec.json.encode(note))
    whole.replace(NOTE)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _started(pid: int) -> str:
    """Empty where it has ended, whether or not somebody has taken note."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    return ""


def counters(path: Path) -> dict[str, int]:
    """A file of lines ``name number``."""
    pairs = (line.split() for line in _lines(path))
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _lines(path: Path) -> list[str]:
    with suppress(OSError):
        return path.read_text().splitlines()
    return []


def compression() -> str:
    """What a zram device compresses with unless told otherwise; empty where there is none yet."""
    for device in sorted(BLOCK.glob("zram*")):
        text = (device / "comp_algorithm").read_text()
        return text.partition("[")[2].partition("]")[0]
    return ""
