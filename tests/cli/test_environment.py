"""A machine that does not let kilter work: no root, a full disk, a read-only /run."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .program import BINARY, Done, kilter
from .roots import Root

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and other users need root")
needs_setpriv = pytest.mark.skipif(
    shutil.which("setpriv") is None, reason="setpriv (util-linux) is not installed"
)

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
ARMS = ("--set", "vm.swappiness=10", "--", "true")


@contextmanager
def tmpfs(at: Path, options: str) -> Iterator[None]:
    """A file system of memory, mounted meanwhile."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "kilter-test", at], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", at], check=True)


def fill(directory: Path) -> None:
    """Leave no byte free."""
    with (directory / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


@pytest.fixture
def calm(root: Root) -> Root:
    """A machine with a profile."""
    root.profile("calm", {"vm.swappiness": "10", "vm.page-cluster": "0"})
    return root


def changes_nothing(root: Root, *args: str, code: int) -> Done:
    """The command fails and leaves no trace in the settings."""
    before = root.settings()
    done = root(*args)
    assert done.returncode == code, done
    assert done.stderr.startswith("error: ")
    assert root.settings() == before
    return done


def test_a_run_directory_that_is_a_file(calm: Root) -> None:
    (calm.path / "run").rmdir()
    calm.put("run", "not a directory")
    for args, code in ((("apply", "calm"), 2), (("revert",), 2), (("run", *ARMS), 125)):
        done = changes_nothing(calm, *args, code=code)
        assert "nothing was changed" in done.stderr
        assert f"{calm.path}/run/kilter" in done.stderr
    assert calm("run", "--", "true").returncode == 0
    assert calm("apply", "calm", "--dry-run").returncode == 0
    assert calm("knobs", "list").returncode == 0
    checks = {check["name"]: check for check in calm.json("doctor")["checks"]}
    assert checks["journal"]["state"] == "impossible"


@as_root
def test_a_read_only_run_directory(calm: Root) -> None:
    run = calm.path / "run"
    with tmpfs(run, "ro,size=64k"):
        for args, code in ((("apply", "calm"), 2), (("revert",), 2), (("run", *ARMS), 125)):
            done = changes_nothing(calm, *args, code=code)
            assert "Read-only file system" in done.stderr
            assert str(run) in done.stderr
        assert calm("status").returncode == 0
        assert calm("run", "--", "true").returncode == 0


@as_root
def test_a_full_disk_refuses_an_apply_before_anything_is_written(calm: Root) -> None:
    run = calm.path / "run"
    with tmpfs(run, "size=64k"):
        assert calm("revert").returncode == 0
        fill(run)
        done = changes_nothing(calm, "apply", "calm", code=2)
        assert "No space left on device" in done.stderr
        assert calm.layers() == []
        done = changes_nothing(calm, "run", *ARMS, code=125)
        assert "No space left on device" in done.stderr
        assert calm.layers() == []
        assert calm("run", "--", "true").returncode == 0


@as_root
def test_a_full_disk_does_not_keep_settings_from_coming_back(calm: Root) -> None:
    run = calm.path / "run"
    before = calm.settings()
    with tmpfs(run, "size=64k"):
        assert calm("apply", "calm").returncode == 0
        fill(run)
        assert calm("verify").returncode == 0
        done = calm("revert")
        assert done.returncode == 0, done
        assert calm.settings() == before
        assert calm.layers() == []


@as_root
def test_a_disk_that_fills_up_during_a_run(calm: Root) -> None:
    run = calm.path / "run"
    before = calm.settings()
    with tmpfs(run, "size=64k"):
        script = f"dd if=/dev/zero of={run}/filler bs=4k 2> /dev/null; exit 5"
        done = calm("run", "--set", "vm.swappiness=10", "--", "sh", "-c", script)
        assert done.returncode == 5, done
        assert (run / "filler").stat().st_size > 4096
        assert calm.settings() == before
        assert calm.layers() == []


@as_root
def test_no_inode_left_refuses_an_apply(calm: Root) -> None:
    run = calm.path / "run"
    with tmpfs(run, "size=64k,nr_inodes=5"):
        # The root directory, kilter, its layers and the lock: none is left for a layer.
        assert calm("revert").returncode == 0
        (run / "one").touch()
        done = changes_nothing(calm, "apply", "calm", code=2)
        assert "No space left on device" in done.stderr


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that everybody can reach, with a copy of the binary."""
    with tempfile.TemporaryDirectory(prefix="kilter-public-") as name:
        path = Path(name)
        path.chmod(0o755)
        shutil.copy2(BINARY, path / "kilter")
        (path / "kilter").chmod(0o755)
        yield path


def as_nobody(public: Path, *args: str, given: str | None = None) -> Done:
    """Run the copy of kilter as a user without any right."""
    done = subprocess.run(
        [*NOBODY, "env", "-i", "PATH=/usr/bin:/bin", f"HOME={public}", public / "kilter", *args],
        input=given,
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "panicked" not in done.stderr
    return done


REFUSED = {
    "apply": (["apply", "desktop"], 2, "sudo kilter apply desktop"),
    "apply --confirm": (["apply", "desktop", "--confirm", "9"], 2, "sudo kilter apply"),
    "revert": (["revert"], 2, "sudo kilter revert"),
    "run": (["run", *ARMS], 125, "sudo kilter run --set vm.swappiness=10 -- true"),
    "a quoted word": (
        ["run", "-s", "vm.swappiness=10", "--", "echo", "a b"],
        125,
        "sudo kilter run -s vm.swappiness=10 -- echo 'a b'",
    ),
    "compare": (["compare", "--with", "vm.swappiness=10", "--", "true"], 2, "sudo kilter compare"),
    "tune": (["tune", "--", "true"], 2, "sudo kilter tune -- true"),
}


@as_root
@needs_setpriv
@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_without_root_changes_are_refused_with_the_line_to_type(
    public: Path, case: tuple[list[str], int, str]
) -> None:
    args, code, hint = case
    before = Path("/proc/sys/vm/swappiness").read_text()
    done = as_nobody(public, *args)
    assert done.returncode == code, done
    assert "needs root" in done.stderr
    assert f"\nhint: {hint}" in done.stderr
    assert Path("/proc/sys/vm/swappiness").read_text() == before


ALLOWED = {
    "doctor": (["doctor"], {0}),
    "knobs list": (["knobs", "list"], {0}),
    "knobs show": (["knobs", "show", "vm.swappiness"], {0}),
    "dry run": (["apply", "desktop", "--dry-run"], {0}),
    "diff": (["diff", "desktop"], {0, 1}),
    "status": (["status"], {0}),
    "verify": (["verify"], {0, 1}),
    "profile list": (["profile", "list"], {0}),
    "run": (["run", "--", "true"], {0}),
    "bench --list": (["bench", "--list"], {0}),
    "evidence": (["evidence", "list"], {0}),
}


@as_root
@needs_setpriv
@pytest.mark.parametrize("case", ALLOWED.values(), ids=ALLOWED.keys())
def test_without_root_looking_and_measuring_work(
    public: Path, case: tuple[list[str], set[int]]
) -> None:
    args, codes = case
    done = as_nobody(public, *args)
    assert done.returncode in codes, done
    assert "error:" not in done.stderr


@as_root
@needs_setpriv
def test_without_root_a_batch_refuses_settings_and_goes_on(public: Path) -> None:
    lines = (
        '{"id": 1, "command": ["true"], "settings": {"vm.swappiness": "10"}}\n'
        '{"id": 2, "command": ["true"]}\n'
    )
    done = as_nobody(public, "run", "--batch", given=lines)
    assert done.returncode == 0, done
    first, second = done.stdout.splitlines()
    assert '"result":"not-run"' in first
    assert "needs root" in first
    assert '"result":"ran"' in second


@as_root
@needs_setpriv
def test_without_root_profiles_are_saved_at_home(public: Path) -> None:
    home = public / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    given = '{"name": "mine", "set": {"vm.swappiness": {"value": "5"}}}'
    done = subprocess.run(
        [*NOBODY, "env", "-i", f"HOME={home}", public / "kilter", "profile", "save"],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done
    assert (home / ".config/kilter/profiles/mine.toml").is_file()


@as_root
@needs_setpriv
def test_a_profile_that_may_not_be_read_is_named(public: Path) -> None:
    profiles = public / ".config/kilter/profiles"
    profiles.mkdir(parents=True)
    path = profiles / "secret.toml"
    path.write_text('name = "secret"\n')
    path.chmod(0)
    done = as_nobody(public, "profile", "show", "secret")
    assert done.returncode == 2
    assert f"error: {path}: Permission denied" in done.stderr


@as_root
@needs_setpriv
def test_a_fake_root_of_somebody_else_cannot_be_changed(public: Path) -> None:
    path = public / "root"
    path.mkdir()
    root = Root(path)
    before = root.settings()
    done = as_nobody(public, "--root", str(path), "run", *ARMS)
    assert done.returncode == 125
    assert "Permission denied" in done.stderr
    assert "\nhint: settings can be changed by root only" in done.stderr
    assert root.settings() == before


def test_the_root_may_come_from_the_environment(root: Root) -> None:
    root.set("vm.swappiness", "42")
    done = kilter("knobs", "show", "vm.swappiness", env={"KILTER_ROOT": str(root.path)})
    assert done.returncode == 0
    assert ["now", "42"] in [line.split() for line in done.stdout.splitlines()]
