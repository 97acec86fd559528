"""Input that means harm: names that are paths, links that lead out, a journal full of garbage."""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from .roots import Root

SECRET = "root:x:0:0"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file outside of every root."""
    path = tmp_path / "victim"
    path.write_text(SECRET + "\n")
    return path


def link(root: Root, file: str, target: str | Path) -> None:
    """Put a symbolic link in the place of a kernel file."""
    path = root.path / file
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


NAMES = [
    "../../../etc/passwd",
    "/etc/passwd",
    "vm.swappiness/../../x",
    "vm.swap\npiness",
    "vm.\x1b[31mswappiness",
    "block.../../../x.iostats",
    "block.a/b.iostats",
    "block..iostats",
    "block.<dev>.iostats",
    "sched.features.",
    "x" * 100_000,
    "vm.swappiness ",
    "ü.ü",
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_of_knobs_are_never_paths(root: Root, name: str) -> None:
    before = root.settings()
    setting = f"{name}=1" if name.strip() == name else f"{name}x=1"
    for args in (["run", "--set", setting, "--", "true"], ["knobs", "show", name + "x"]):
        done = root(*args)
        assert done.returncode in (2, 125), done
        assert done.stderr.startswith("error: ")
        assert "\x1b" not in done.stderr
    assert root.settings() == before
    assert root.layers() == []


PROFILES = [
    "../x",
    "/etc/passwd",
    "a/b",
    ".",
    "..",
    "a\nb",
    "a\x1b[31mb",
    "-x",
    "a b",
    "x" * 10_000,
]


@pytest.mark.parametrize("name", PROFILES, ids=range(len(PROFILES)))
def test_names_of_profiles_are_never_paths(root: Root, name: str) -> None:
    outside = root.put("etc/kilter/x.toml", 'name = "x"')
    for command in ("apply", "diff"):
        done = root(command, "--", name)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert "\x1b" not in done.stderr
    given = json.dumps({"name": name, "set": {}})
    assert root("profile", "save", input=given).returncode == 2
    assert outside.read_text() == 'name = "x"\n'
    assert sorted(os.listdir(root.path / "etc/kilter")) == ["x.toml"]


@pytest.mark.parametrize("how", ["absolute", "relative", "through a directory", "magic"])
def test_a_link_out_of_the_tree_is_neither_read_nor_written(
    root: Root, victim: Path, how: str
) -> None:
    file = "proc/sys/vm/swappiness"
    relative = os.path.relpath(victim, (root.path / file).parent)
    targets: dict[str, str | Path] = {
        "absolute": victim,
        "relative": relative,
        "through a directory": "outside/victim",
        "magic": "/proc/self/root" + str(victim),
    }
    if how == "through a directory":
        (root.path / "proc/sys/vm/outside").symlink_to(victim.parent)
    link(root, file, targets[how])
    knobs = {knob["name"]: knob for knob in root.json("knobs", "list", "--all")}
    assert knobs["vm.swappiness"]["state"]["state"] == "unavailable"
    assert SECRET not in json.dumps(knobs)
    done = root("run", "--set", "vm.swappiness=10", "--", "true")
    assert done.returncode == 125
    assert SECRET not in done.stderr
    root.profile("calm", {"vm.swappiness": "10", "vm.page-cluster": "0"})
    plan = root.json("apply", "calm")
    assert [change["knob"] for change in plan["changes"]] == ["vm.page-cluster"]
    assert root("revert").returncode == 0
    assert victim.read_text() == SECRET + "\n"


def test_a_link_inside_of_the_tree_works(root: Root) -> None:
    real = root.path / "sys/devices/virtio/vda"
    real.parent.mkdir(parents=True)
    (root.path / "sys/block/vda").rename(real)
    (root.path / "sys/block/vda").symlink_to("../devices/virtio/vda")
    done = root("run", "--set", "block.vda.nr_requests=64", "--", "cat", real / "queue/nr_requests")
    assert (done.returncode, done.stdout) == (0, "64\n")
    assert (real / "queue/nr_requests").read_text() == "256\n"


def test_a_link_that_appears_after_the_apply_is_not_followed_by_the_undo(
    root: Root, victim: Path
) -> None:
    root.profile("calm", {"vm.swappiness": "10", "vm.page-cluster": "0"})
    assert root("apply", "calm").returncode == 0
    link(root, "proc/sys/vm/swappiness", victim)
    done = root("revert")
    assert "panicked" not in done.stderr
    assert victim.read_text() == SECRET + "\n"
    assert root.get("vm.page-cluster") == "3"


@pytest.mark.parametrize("what", ["directory", "pipe", "device", "huge", "binary"])
def test_strange_things_in_the_place_of_a_kernel_file(root: Root, what: str) -> None:
    path = root.path / "proc/sys/vm/swappiness"
    path.unlink()
    make: dict[str, Callable[[], object]] = {
        "directory": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "device": lambda: path.symlink_to("/dev/zero"),
        "huge": lambda: path.write_bytes(b"7" * (8 << 20)),
        "binary": lambda: path.write_bytes(bytes(range(256))),
    }
    make[what]()
    for args in (["knobs", "list"], ["knobs", "show", "vm.swappiness"], ["doctor"]):
        done = root(*args)
        assert done.returncode == 0, done
        assert "\x1b" not in done.stdout
    done = root("run", "--set", "vm.swappiness=10", "--", "true")
    assert done.returncode == 125, done
    assert done.stderr.startswith("error: vm.swappiness")
    assert root.layers() == []


def whole_line(record: object) -> bytes:
    """A line of the journal whose checksum is right, whatever it says."""
    text = json.dumps(record).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def intent(root: Root, **changes: object) -> dict[str, object]:
    """A record as the journal begins with, changed."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    entry = {
        "knob": "vm.swappiness",
        "path": "/proc/sys/vm/swappiness",
        "format": "plain",
        "target": "10",
        "before": "60",
        "original": "60",
        "rebased": False,
        "excludes": None,
        "commit": None,
    }
    entry |= changes
    return {
        "record": "intent", "name": "forged", "since": "2026-01-01T00:00:00Z", "boot_id": boot,
        "owner": None, "entries": [entry],
    }  # fmt: skip


JUNK: dict[str, bytes] = {
    "empty": b"",
    "garbage": bytes(range(256)) * 50,
    "one line": b"x",
    "a checksum alone": b"00000000 \n",
    "a wrong checksum": b'00000000 {"record":"kept"}\n',
    "no intent": whole_line({"record": "kept"}),
    "another record": whole_line({"record": "nonsense"}),
    "huge": b"0" * (20 << 20),
    "many lines": b"\n" * 100_000,
}


@pytest.mark.parametrize("content", JUNK.values(), ids=JUNK.keys())
def test_junk_among_the_layers_is_ignored_and_swept(root: Root, content: bytes) -> None:
    root.profile("calm", {"vm.swappiness": "10"})
    before = root.settings()
    layers = root.path / "run/kilter/layers"
    layers.mkdir(parents=True)
    (layers / "00000007").write_bytes(content)
    assert root("status").returncode == 0
    assert root("apply", "calm").returncode == 0
    assert root.get("vm.swappiness") == "10"
    assert root("revert").returncode == 0
    assert root.settings() == before
    assert root.layers() == []


FOREIGN = ["README", "-1", "+1", "3", "000000003", "1.5", "0x1", "9" * 30, ".hidden", "1~", "ü"]


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_names_among_the_layers_are_left_alone(root: Root, name: str) -> None:
    root.profile("calm", {"vm.swappiness": "10"})
    layers = root.path / "run/kilter/layers"
    layers.mkdir(parents=True)
    (layers / name).write_text("not yours\n")
    for args in (["status"], ["apply", "calm"], ["verify"], ["revert"]):
        assert root(*args).returncode == 0
    assert (layers / name).read_text() == "not yours\n"
    assert root.get("vm.swappiness") == "60"


def test_the_highest_number_leaves_no_room_and_no_crash(root: Root) -> None:
    root.profile("calm", {"vm.swappiness": "10"})
    before = root.settings()
    layers = root.path / "run/kilter/layers"
    layers.mkdir(parents=True)
    held = {"record": "held", "values": ["60"]}
    (layers / str(2**64 - 1)).write_bytes(whole_line(intent(root)) + whole_line(held))
    done = root("apply", "calm")
    assert done.returncode == 2
    assert "nothing was changed" in done.stderr
    assert root("revert").returncode == 0
    assert root.settings() == before
    assert root("apply", "calm").returncode == 0


@pytest.mark.parametrize("name", ["00000003", "lock", "experiment", "layers"])
def test_a_directory_in_the_place_of_a_file_of_the_journal(root: Root, name: str) -> None:
    root.profile("calm", {"vm.swappiness": "10"})
    before = root.settings()
    state = root.path / "run/kilter"
    place = state / "layers" / name if name.isdigit() else state / name
    place.mkdir(parents=True)
    if name == "layers":
        place.rmdir()
        place.write_text("")
    for args in (["status"], ["apply", "calm"], ["run", "-s", "vm.swappiness=1", "--", "true"]):
        done = root(*args)
        assert done.returncode in (0, 2, 125), done
        if done.returncode:
            assert done.stderr.startswith("error: ")
            assert str(place) in done.stderr
    done = root("revert")
    assert done.returncode in (0, 2)
    assert root.settings() == before


LINKS = ["run/kilter", "run/kilter/layers", "run/kilter/lock", "run/kilter/experiment"]


@pytest.mark.parametrize("file", LINKS)
def test_links_in_the_journal_lead_nowhere_or_are_harmless(
    root: Root, victim: Path, file: str
) -> None:
    root.profile("calm", {"vm.swappiness": "10"})
    before = root.settings()
    link(root, file, victim)
    for args in (["status"], ["apply", "calm"], ["run", "-s", "vm.swappiness=1", "--", "true"]):
        done = root(*args)
        assert done.returncode in (0, 2, 125), done
    root("revert")
    assert victim.read_text() == SECRET + "\n"
    assert root.settings() == before


FORGED: dict[str, dict[str, object]] = {
    "outside": {"path": "/etc/passwd"},
    "upwards": {"path": "/proc/sys/../../etc/passwd"},
    "another tree": {"path": "/proc/sysrq-trigger"},
    "excludes outside": {"excludes": "/etc/passwd"},
    "commit outside": {"commit": "/etc/passwd"},
}


@pytest.mark.parametrize("changes", FORGED.values(), ids=FORGED.keys())
def test_a_forged_record_cannot_make_an_undo_write_elsewhere(
    root: Root, changes: dict[str, object]
) -> None:
    target = root.put("etc/passwd", SECRET)
    sysrq = root.put("proc/sysrq-trigger", "")
    layers = root.path / "run/kilter/layers"
    layers.mkdir(parents=True)
    (layers / "00000001").write_bytes(whole_line(intent(root, **changes)))
    for args in (["status"], ["revert"], ["revert", "--force"]):
        assert root(*args).returncode in (0, 2)
    assert target.read_text() == SECRET + "\n"
    assert sysrq.read_text() == "\n"


def test_the_forger_of_records_can_forge(root: Root) -> None:
    """A good record does work, so those above are refused for what they say."""
    layers = root.path / "run/kilter/layers"
    layers.mkdir(parents=True)
    (layers / "00000001").write_bytes(whole_line(intent(root)))
    root.set("vm.swappiness", "10")
    assert root.json("status")["layers"][0]["name"] == "forged"
    assert root("revert").returncode == 0
    assert root.get("vm.swappiness") == "60"


def test_held_values_of_another_length_are_no_held_values(root: Root) -> None:
    layers = root.path / "run/kilter/layers"
    layers.mkdir(parents=True)
    records = [intent(root), {"record": "held", "values": ["10", "11", "12"]}]
    (layers / "00000001").write_bytes(b"".join(whole_line(record) for record in records))
    root.set("vm.swappiness", "10")
    assert root.json("status")["layers"][0]["alive"] is False
    assert root("revert").returncode == 0
    assert root.get("vm.swappiness") == "60"


def test_nobody_else_can_write_the_journal(root: Root) -> None:
    root.profile("calm", {"vm.swappiness": "10"})
    old = os.umask(0)
    try:
        assert root("apply", "calm").returncode == 0
    finally:
        os.umask(old)
    state = root.path / "run/kilter"
    for path in (state, *state.rglob("*")):
        mode = path.stat().st_mode
        assert not mode & stat.S_IWOTH, f"{path} can be written by everybody: {oct(mode)}"


def test_a_hostile_workload_cannot_stop_the_undo(root: Root) -> None:
    """Closes what it has, breaks out of its session, stops and kills itself: the settings return."""
    before = root.settings()
    scripts = [
        "exec <&- >&- 2>&-; kill -9 $$",
        "kill -STOP $$ & kill -KILL $$",
        "setsid sh -c 'sleep 0.1' & exit 0",
        "trap '' TERM; kill -TERM 0; exit 0",
    ]
    for script in scripts:
        done = root("run", "--set", "vm.swappiness=10", "--timeout", "5", "--", "sh", "-c", script)
        assert done.returncode in (0, 124, 137, 143), done
        assert root.settings() == before
        assert root.layers() == []


def test_a_workload_that_prints_without_end_is_cut(root: Root) -> None:
    before = root.settings()
    metric = ("--metric", "x=/([0-9]+)/")
    script = "yes 1234567890 | head -n 5000000"
    done = root("--json", "run", "-s", "vm.swappiness=10", *metric, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr[-1000:]
    record = json.loads(done.stdout)
    assert len(record["stdout_tail"]) <= 4096
    assert record["metrics"]["x"] == 1234567890, "no number that the cut has shortened"
    assert any("output" in warning for warning in record["warnings"])
    assert root.settings() == before
