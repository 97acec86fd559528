"""``kilter import script``: what a script would write, without letting it near the machine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .program import BINARY, ended, kilter
from .roots import Root, machine_alone
from .schemas import check

SCRIPTS = Path(__file__).parent / "scripts"

LIMIT_S = 45.0
"""Bound of a script that is given a second: making the sandbox and reading it may take the rest."""


def sandbox_works() -> str:
    """Why there is no sandbox here, or nothing."""
    words = ["unshare", "--user", "--mount", "--pid", "--fork", "--mount-proc", "true"]
    if os.geteuid() != 0:
        words.insert(1, "--map-root-user")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


pytestmark = pytest.mark.skipif(
    bool(sandbox_works()), reason=f"no namespaces for a sandbox: {sandbox_works()}"
)


def script(tmp_path: Path, text: str, name: str = "tweaks.sh") -> Path:
    file = tmp_path / name
    file.write_text(f"#!/bin/sh\n{text}")
    return file


def values(imported: Any) -> dict[str, str]:
    return {knob: entry["value"] for knob, entry in imported["profile"]["set"].items()}


def left_out(imported: Any) -> list[str]:
    return [left["what"] for left in imported["left_out"]]


@pytest.mark.parametrize("machine", ["cfs", "eevdf", "phone"])
def test_the_script_of_a_phone_is_the_profile_of_its_name(
    make_root: Callable[[str], Root], machine: str
) -> None:
    root = make_root(machine)
    before = root.settings()
    imported = root.json(
        "import", "script", SCRIPTS / "phone-tweaks.sh", "--every-kernel", "--name", "mine"
    )
    check("imported", imported)
    assert root.settings() == before, "the sandbox has copies"
    assert sorted(values(imported)) == sorted(
        root.json("profile", "show", "ktweak-script")["set"]
    ), "no knob is missing and none too many"
    plans = {
        name: {
            change["knob"]: change["new"]
            for change in root.json("apply", name, "--dry-run", "--allow", "security,durability")[
                "changes"
            ]
        }
        for name in ("mine", "ktweak-script")
    }
    assert plans["mine"] == plans["ktweak-script"]
    assert len(plans["mine"]) > 10


@pytest.mark.parametrize("machine", ["cfs", "eevdf", "phone"])
def test_the_profile_sets_every_file_that_the_script_sets(tmp_path: Path, machine: str) -> None:
    settings = {}
    for name in ("mine", "ktweak-script"):
        (tmp_path / name).mkdir()
        root = Root(tmp_path / name, machine)
        before = root.settings()
        found = root.json("import", "script", SCRIPTS / "phone-tweaks.sh", "--name", "mine")
        assert not [what for what in left_out(found) if "loop0" not in what]
        root.json("apply", name, "--allow", "security,durability")
        settings[name] = root.settings()
    changed = {file for file in before if settings["mine"][file] != before[file]}
    assert len(changed) > 5
    for file in changed:
        assert settings["ktweak-script"][file] == settings["mine"][file], file


GOLDEN = Path(__file__).parents[1] / "vm" / "golden"


def as_reported(path: Path, kind: str) -> Root:
    """A root with the files that a kernel in a guest has told of, and the words that they offer."""
    root = Root(path, "bare")
    reported: dict[str, str] = json.loads((GOLDEN / f"{kind}.json").read_text())
    features: dict[str, list[str]] = {}
    for knob, told in reported.items():
        if not told.startswith("/") or "(read-only)" in told:
            continue
        file, *words = told.removeprefix("/").replace("<dev>", "vda").split()
        if "<" in file:
            continue
        if knob.startswith("sched.features."):
            features.setdefault(file, []).append("NO_" + knob.rpartition(".")[2])
        else:
            root.put(file, f"[{words[0]}] {' '.join(words[1:])}" if words else "1")
    for file, names in features.items():
        root.put(file, " ".join(names))
    for name in ("tcp_ecn", "tcp_fastopen", "tcp_syncookies"):
        root.put(f"proc/sys/net/ipv4/{name}", "1")
    return root


@pytest.mark.parametrize("kind", ["sysctl", "cfs", "eevdf", "scx", "scx-defective"])
def test_on_kernels_as_they_are_the_profile_sets_what_the_script_sets(
    tmp_path: Path, kind: str
) -> None:
    settings, written = {}, set()
    for name in ("mine", "ktweak-script"):
        (tmp_path / name).mkdir()
        root = as_reported(tmp_path / name, kind)
        before = root.settings()
        found = root.json("import", "script", SCRIPTS / "phone-tweaks.sh", "--name", "mine")
        assert found["left_out"] == [], "a file that the script set is no knob"
        plan = root.json("apply", name, "--allow", "security,durability")
        if name == "mine":
            assert plan["skipped"] == []
            written = {change["path"].removeprefix("/") for change in plan["changes"]}
        assert all(skipped["because"]["detail"] for skipped in plan["skipped"])
        settings[name] = root.settings()
        if name == "ktweak-script":
            assert root("revert", name).returncode == 0
            after = root.settings()
            # A plain file shows the word that was written, not the choice in brackets.
            plain = {file for file in before if "[" not in before[file]}
            features = {file for file in plain if file.endswith("features")}
            for file in plain - features:
                assert after[file] == before[file], file
    assert len(written) > 15
    for file in written:
        assert settings["ktweak-script"][file] == settings["mine"][file], file


def test_every_way_of_writing_is_seen_in_its_order(root: Root, tmp_path: Path) -> None:
    file = script(
        tmp_path,
        """
        [ "$(id -u)" = 0 ] || exit 9
        echo 10 > /proc/sys/vm/swappiness
        printf 20 | tee /proc/sys/vm/swappiness > /dev/null
        sysctl -w vm.dirty_ratio=30
        echo vm.page-cluster=0 > /etc/sysctl.d/90-mine.conf
        sysctl -p /etc/sysctl.d/90-mine.conf
        sudo sh -c 'echo 5 > /proc/sys/vm/stat_interval'
        su -c 'echo 70 > /proc/sys/vm/vfs_cache_pressure'
        features=/sys/kernel/debug/sched/features
        echo NO_RUN_TO_PARITY > $features; echo NEXT_BUDDY > $features
        exec 3> /proc/sys/vm/min_free_kbytes; echo 1 >&3; echo 90000 >&3; exec 3>&-
        [ "$(cat /proc/sys/vm/swappiness)" = 20 ] && echo 1 > /proc/sys/vm/overcommit_memory
        echo 1 > /proc/sys/vm/nothing_of_the_kind
        (sleep 30; echo 40 > /proc/sys/vm/compaction_proactiveness) &
        exit 3
        """,
    )
    done = root("--json", "import", "script", file, "--dry-run")
    assert done.returncode == 0, done
    imported = json.loads(done.stdout)
    assert values(imported) == {
        "sched.features.NEXT_BUDDY": "1",
        "sched.features.RUN_TO_PARITY": "0",
        "vm.compaction_proactiveness": "40",
        "vm.dirty_ratio": "30",
        "vm.min_free_kbytes": "90000",
        "vm.overcommit_memory": "1",
        "vm.page-cluster": "0",
        "vm.stat_interval": "5",
        "vm.swappiness": "20",
        "vm.vfs_cache_pressure": "70",
    }
    assert left_out(imported) == ["/etc/sysctl.d/90-mine.conf"]
    assert "code 3" in done.stderr


def test_what_is_no_knob_is_told_with_its_value(root: Root, tmp_path: Path) -> None:
    root.put("proc/sys/kernel/sysrq", "176")
    file = script(tmp_path, "echo 1 > /proc/sys/kernel/sysrq\necho 900 > /proc/sys/vm/swappiness\n")
    imported = root.json("import", "script", file, "--dry-run")
    assert values(imported) == {}
    assert left_out(imported) == ["/proc/sys/kernel/sysrq = 1", "vm.swappiness = 900"]


@contextmanager
def machine_unchanged(tmp_path: Path) -> Iterator[None]:
    """Nothing outside the sandbox changes: settings, mounts, processes, files, the network."""
    with machine_alone():
        yield from unchanged(tmp_path)


def unchanged(tmp_path: Path) -> Iterator[None]:
    canary = tmp_path / "canary"
    canary.write_text("alive\n")
    bystander = subprocess.Popen(["sleep", "300"])

    def state() -> list[str]:
        settings = [
            f"{path} = {path.read_text()}"
            for path in sorted(Path("/proc/sys/vm").iterdir())
            if path.stat().st_mode & 0o444 and path.name != "stat_refresh"
        ]
        uptime = ["/proc/sys/kernel/hostname", "/proc/sys/kernel/sched_rt_runtime_us"]
        settings += [Path(file).read_text() for file in uptime if Path(file).exists()]
        mounts = sorted(Path("/proc/self/mounts").read_text().splitlines())
        files = sorted(
            str(file)
            for place in ("/", "/tmp", "/etc")
            for file in Path(place).iterdir()
            if "evil" in file.name
        )
        return settings + mounts + files + [canary.read_text()]

    before = state()
    try:
        yield
        assert state() == before
        assert bystander.poll() is None, "a process outside was ended"
        ours = [pid for pid in Path("/proc").iterdir() if pid.name.isdigit() and marked(pid)]
        assert not ours, "something outlived the sandbox"
    finally:
        bystander.kill()
        bystander.wait()


def marked(process: Path) -> bool:
    try:
        return b"EVIL_MARK" in (process / "cmdline").read_bytes()
    except OSError:
        return False


HOSTILE = {
    "links": """
        mkdir -p /tmp/evil; ln -s /proc/sys/vm/swappiness /tmp/evil/a; echo 11 > /tmp/evil/a
        chmod 755 /proc/sys/vm /sys/block 2> /dev/null
        rm -f /proc/sys/vm/dirty_ratio; ln -s {canary} /proc/sys/vm/dirty_ratio
        echo dead > /proc/sys/vm/dirty_ratio; echo dead > {canary}
        rm -rf /proc/sys/vm/stat_interval; mkfifo /proc/sys/vm/stat_interval
        rm -f /proc/sys/vm/page-cluster; mkdir /proc/sys/vm/page-cluster
        for up in .. ../.. ../../../../../..; do echo 12 > /proc/self/root/$up/proc/sys/vm/swappiness; done
        echo 13 > /proc/1/root/proc/sys/vm/swappiness; echo 14 > /proc/1/cwd/proc/sys/vm/swappiness
        for fd in 0 1 2 3 4 5 6 7 8 9; do echo 15 > /proc/1/fd/$fd/vm/swappiness; done
        touch /evil /etc/evil /usr/evil; rm -rf --no-preserve-root / 2> /dev/null
    """,
    "namespaces": """
        mount -t proc proc /mnt; mount -t sysfs sysfs /mnt; mount -t debugfs none /mnt
        mount --bind / /mnt; umount -l /proc/sys; umount -a -l; umount -R /proc
        nsenter -t 1 -a sh -c 'echo 16 > /proc/sys/vm/swappiness'
        unshare -r -m -p -f --mount-proc sh -c 'umount /proc/sys; echo 17 > /proc/sys/vm/swappiness'
        unshare -m true; chroot / true; hostname evil; mknod /tmp/d b 254 0; date -s 2001-01-01
        swapoff -a; sysctl -w kernel.hostname=evil; insmod /evil.ko; reboot -f; setpriv --reuid 0 true
        echo b > /proc/sysrq-trigger; echo -1000 > /proc/self/oom_score_adj
        echo 1 > /proc/sys/vm/overcommit_memory
    """,
    "network": """
        (exec 3<>/dev/tcp/127.0.0.1/22) 2> /dev/null; ip link set lo up; ip addr add 10.9.9.9/8 dev lo
        python3 - <<'END'
import socket, os, ctypes
for family in (socket.AF_INET, socket.AF_NETLINK, socket.AF_VSOCK, socket.AF_ALG, socket.AF_PACKET):
    try:
        made = socket.socket(family, socket.SOCK_RAW if family in (16, 17) else socket.SOCK_STREAM)
        made.settimeout(1)
        made.connect(("127.0.0.1", {port}) if family == socket.AF_INET else (2, 22))
        open("/proc/sys/vm/overcommit_memory", "w").write("2")
    except OSError as error:
        print(family, error)
END
        true
    """,
    "signals": """
        kill -9 -1; kill -9 1; kill -STOP 1; kill -9 {pid}; kill -STOP -1; kill -9 0
    """,
    "children": """
        trap '' HUP TERM INT
        for n in 1 2 3; do (setsid sh -c 'trap "" HUP TERM; : EVIL_MARK; while :; do :; done' &) ; done
        nohup sh -c ': EVIL_MARK; while :; do /bin/sleep 1; done' > /dev/null 2>&1 &
        echo 21 > /proc/sys/vm/swappiness
    """,
    "bomb": """
        bomb() {{ bomb | bomb & }}
        echo 22 > /proc/sys/vm/swappiness
        bomb; : EVIL_MARK; while :; do (bomb) 2> /dev/null; done
    """,
    "loop": "echo 23 > /proc/sys/vm/swappiness\nwhile :; do :; done\n",
    "output": "echo 24 > /proc/sys/vm/swappiness\nyes EVIL_OUTPUT\n",
    "memory": """
        echo 25 > /proc/sys/vm/swappiness
        head -c 3000000000 /dev/zero | tail
        head -c 3000000000 /dev/zero > /dev/shm/evil; head -c 3000000000 /dev/zero > /tmp/evil
        python3 -c 'import mmap; held = [mmap.mmap(-1, 1 << 26) for _ in range(64)]
for part in held: part.write(b"x" * (1 << 26))' 2> /dev/null
    """,
    "files": """
        echo 26 > /proc/sys/vm/swappiness
        n=0; while :; do n=$((n + 1)); mkdir -p /mnt/$n/$n/$n; : > /mnt/$n/evil; done
    """,
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_script_changes_nothing_and_ends(tmp_path: Path, name: str) -> None:
    with machine_unchanged(tmp_path), socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        text = HOSTILE[name].format(
            canary=tmp_path / "canary", pid=os.getpid(), port=server.getsockname()[1]
        )
        begun = time.monotonic()
        done = kilter(
            "--json", "import", "script", script(tmp_path, text), "--dry-run", "--timeout", "1s"
        )
        took = time.monotonic() - begun
        assert took < LIMIT_S, f"{took:.1f} s"
        assert done.returncode == 0, done
        imported = json.loads(done.stdout)
        # What it wrote before its mischief is known.
        wrote = values(imported).get("vm.swappiness")
        expected = {"children": "21", "bomb": "22", "loop": "23", "output": "24", "memory": "25"}
        assert wrote == expected.get(name, {"files": "26", "links": wrote}.get(name)), done.stderr
        if name == "network":
            assert "vm.overcommit_memory" not in values(imported), "a connection came through"
        assert len(done.stdout) + len(done.stderr) < 200_000
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_what_kilter_was_started_with_stays_outside(root: Root, tmp_path: Path) -> None:
    """An open file, and a directory from which the way leads on, as a shell's ``7>>file`` has them."""
    outside = tmp_path / "outside"
    outside.write_text("clean\n")
    outside.chmod(0o666)
    tmp_path.chmod(0o777)
    text = "echo pwned >&7; echo pwned >/proc/self/fd/7; echo pwned >/proc/self/fd/8/made\n"
    text += "echo 10 >/proc/sys/vm/swappiness\n"
    inherit = 'exec 7>>"$1" 8<"$2"; shift 2; exec "$@"'
    done = root(
        *("--json", "import", "script", script(tmp_path, text), "--name", "mine"),
        prefix=("sh", "-c", inherit, "sh", str(outside), str(tmp_path)),
    )
    imported = json.loads(done.stdout)
    assert values(imported) == {"vm.swappiness": "10"}, "the script ran"
    assert outside.read_text() == "clean\n"
    assert not (tmp_path / "made").exists()


def test_killing_kilter_ends_the_sandbox(tmp_path: Path) -> None:
    file = script(tmp_path, ": EVIL_MARK\nsh -c ': EVIL_MARK; while :; do :; done'\n")
    child = subprocess.Popen(
        [str(BINARY), "import", "script", str(file), "--dry-run"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: any(marked(pid) for pid in processes()), "the script runs")
    finally:
        child.kill()
        child.wait()
    wait_for(lambda: not any(marked(pid) for pid in processes()), "nothing is left")


def processes() -> Iterator[Path]:
    return (pid for pid in Path("/proc").iterdir() if pid.name.isdigit())


def wait_for(condition: Callable[[], bool], what: str) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(what)


def test_files_that_are_no_scripts_are_refused(tmp_path: Path) -> None:
    assert kilter("import", "script", tmp_path / "none.sh").returncode == 2
    assert kilter("import", "script", tmp_path).returncode == 2
    large = tmp_path / "large.sh"
    large.write_bytes(b"#" * ((1 << 20) + 1))
    assert "1 MiB" in kilter("import", "script", large).stderr
    nothing = script(tmp_path, "true\n")
    assert kilter("import", "script", nothing, "--timeout", "0s").returncode == 2


def test_without_root_it_works_as_well() -> None:
    if os.geteuid() != 0:
        pytest.skip("this test already runs without root")
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        place.chmod(0o755)
        file = script(place, '[ "$(id -u)" = 0 ] && echo 31 > /proc/sys/vm/swappiness\n')
        shutil.copy(BINARY, place / "kilter")
        done = ended(
            [
                *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
                *(str(place / "kilter"), "--json", "import", "script", str(file), "--dry-run"),
            ],
            env={"HOME": directory},
        )
    if "no user namespaces without root" in done.stderr:
        pytest.skip("this system allows no user namespaces without root")
    assert values(json.loads(done.stdout)) == {"vm.swappiness": "31"}, done
