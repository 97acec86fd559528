"""``kilter export``: scripts that leave the machine as ``kilter apply`` does, in every shell that they
promise, and put everything back."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from .roots import Root

SHELLS = {
    "dash": ["dash"],
    "bash": ["bash", "--posix"],
    "busybox": ["busybox", "sh"],
    "mksh": ["mksh"],
    "android": ["mksh"],
}

ALL = ("--allow", "security,durability,hang")
FEATURES = "sys/kernel/debug/sched/features"


@dataclass(frozen=True)
class Shell:
    """A shell and where it finds its tools."""

    words: list[str]
    path: str = os.environ["PATH"]


def found(tool: str) -> str:
    """Where a tool is."""
    path = shutil.which(tool)
    if not path:
        pytest.skip(f"{tool} is not installed")
    return path


@pytest.fixture(scope="module")
def toybox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with toybox's tools and no others, as Android's /system/bin has them."""
    toybox, tools = found("toybox"), tmp_path_factory.mktemp("toybox")
    names = subprocess.run([toybox], capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        (tools / name).symlink_to(toybox)
    return tools


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> Shell:
    name, *options = SHELLS[request.param]
    words = [found(name), *options]
    if request.param != "android":
        return Shell(words)
    tools: Path = request.getfixturevalue("toybox")
    return Shell(words, str(tools))


MACHINES = ["cfs", "eevdf", "bare", "phone"]
# Android's shell and tools where Android is.
PAIRS = [(s, m) for s in SHELLS for m in MACHINES if s != "android" or m == "phone"]


@pytest.fixture
def machine(request: pytest.FixtureRequest, make_root: Callable[[str], Root]) -> Root:
    root = make_root(request.param)
    root.put("sys/class/net/eth0/queues/rx-0/rps_cpus", "0")
    return root


def script_of(root: Root, profile: str, path: Path) -> Path:
    done = root("export", profile, "--to", "script", "--output", path, *ALL)
    assert done.returncode == 0, done
    return path


def execute(shell: Shell, script: Path, root: Root, *args: str) -> str:
    env = {"PATH": shell.path, "KILTER_ROOT": str(root.path)}
    words = [*shell.words, str(script), *args]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    assert done.stderr == "", done
    assert done.returncode == 0, done
    return done.stdout


def ours(root: Root) -> dict[str, str]:
    # A plain file keeps the last feature that was written, where the kernel's keeps all.
    return {
        file: text.strip()
        for file, text in root.settings().items()
        if text != "directory" and file != FEATURES
    }


@pytest.mark.parametrize(("shell", "machine"), PAIRS, indirect=True)
@pytest.mark.parametrize("profile", ["ktweak", "ktweak-script", "desktop", "latency", "throughput"])
def test_a_script_leaves_what_apply_leaves(
    machine: Root, shell: Shell, profile: str, tmp_path: Path
) -> None:
    script = script_of(machine, profile, tmp_path / "script.sh")
    before = machine.settings()
    assert machine("apply", profile, *ALL).returncode == 0
    wanted = ours(machine)
    assert machine("revert").returncode == 0
    restored = ours(machine)
    # Plain files forget the words beside the value: the script begins with them too.
    for file, text in before.items():
        if (machine.path / file).is_file():
            (machine.path / file).write_text(text)
    execute(shell, script, machine)
    assert ours(machine) == wanted
    execute(shell, script, machine)
    assert ours(machine) == wanted, "a second time changes nothing"
    execute(shell, script, machine, "--revert")
    assert ours(machine) == restored


@pytest.mark.parametrize(("now", "then"), [("NO_NEXT_BUDDY", "NEXT_BUDDY"), ("NEXT_BUDDY", "")])
def test_features(root: Root, shell: Shell, tmp_path: Path, now: str, then: str) -> None:
    root.put(FEATURES, f"PLACE_LAG {now} HRTICK")
    root.profile("buddy", {"sched.features.NEXT_BUDDY": "1"})
    script = script_of(root, "buddy", tmp_path / "script.sh")
    execute(shell, script, root)
    shown = (root.path / FEATURES).read_text()
    assert shown == (f"{then}\n" if then else f"PLACE_LAG {now} HRTICK\n")
    execute(shell, script, root, "--revert")
    if then:
        assert (root.path / FEATURES).read_text() == "NO_NEXT_BUDDY\n"


def test_a_script_reads_all_forms(
    make_root: Callable[[str], Root], shell: Shell, tmp_path: Path
) -> None:
    root = make_root("bare")
    files = {
        "sys/kernel/mm/lru_gen/enabled": "0x0007",
        "sys/module/zswap/parameters/enabled": "N",
        "sys/class/net/eth0/queues/rx-0/rps_cpus": "00000000,00000001",
        "proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456",
        "sys/kernel/debug/sched/preempt": "full (lazy)",
        "proc/sys/net/core/somaxconn": "4096",
    }
    for file, text in files.items():
        root.put(file, text)
    values = {
        "mglru.enabled": "0",
        "zswap.enabled": "1",
        "net.*.rx-0.rps_cpus": "300000003",
        "net.ipv4.tcp_rmem": "4096 131072 16777216",
        "sched.preempt": "full",
        "net.core.somaxconn": "at-least:2048",
        "vm.swappiness": "at-most:10",
    }
    root.profile("forms", values)
    script = script_of(root, "forms", tmp_path / "script.sh")
    execute(shell, script, root)
    got = {file: (root.path / file).read_text().strip() for file in files}
    assert got == {
        "sys/kernel/mm/lru_gen/enabled": "0",
        "sys/module/zswap/parameters/enabled": "Y",
        "sys/class/net/eth0/queues/rx-0/rps_cpus": "3,00000003",
        "proc/sys/net/ipv4/tcp_rmem": "4096 131072 16777216",
        "sys/kernel/debug/sched/preempt": "full",
        "proc/sys/net/core/somaxconn": "4096",
    }
    execute(shell, script, root, "--revert")
    assert (root.path / "sys/kernel/mm/lru_gen/enabled").read_text().strip() == "7"
    assert (root.path / "sys/module/zswap/parameters/enabled").read_text().strip() == "N"
    assert root.get("vm.swappiness") == "60"


def test_what_is_not_there_is_told(make_root: Callable[[str], Root], tmp_path: Path) -> None:
    root = make_root("bare")
    script = script_of(root, "latency", tmp_path / "script.sh")
    told = execute(Shell(["sh"]), script, root)
    assert (
        "skipped  base_slice_ns: this kernel has no /sys/kernel/debug/sched/base_slice_ns" in told
    )
    assert (
        "skipped  governor: this kernel has no /sys/devices/system/cpu/cpufreq/*/scaling_governor"
        in told
    )


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
@pytest.mark.parametrize("profile", ["ktweak", "ktweak-script", "desktop", "battery"])
def test_scripts_are_clean(root: Root, profile: str, tmp_path: Path) -> None:
    script = script_of(root, profile, tmp_path / "script.sh")
    done = subprocess.run(["shellcheck", "-s", "sh", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_risks_need_a_yes(root: Root) -> None:
    done = root("export", "ktweak-script", "--to", "script")
    assert done.returncode == 2
    assert "security" in done.stderr
    done = root("export", "ktweak-script", "--to", "sysctl.d", "--skip-risky")
    assert "tcp_syncookies" not in done.stdout


def test_sysctl_files_and_tuned_profiles_come_back(root: Root, tmp_path: Path) -> None:
    conf = tmp_path / "out.conf"
    assert root("export", "ktweak", "--to", "sysctl.d", "--output", conf, *ALL).returncode == 0
    imported = root.json("import", "sysctl", conf, "--name", "back")
    assert imported["left_out"] == []
    assert imported["profile"]["set"]["vm.swappiness"]["value"] == "100"
    tuned = tmp_path / "mine" / "tuned.conf"
    tuned.parent.mkdir()
    assert root("export", "desktop", "--to", "tuned", "--output", tuned).returncode == 0
    imported = root.json("import", "tuned", tuned, "--name", "again")
    assert imported["left_out"] == []
    desktop = root.json("profile", "show", "desktop")["set"]
    back = imported["profile"]["set"]
    assert {k: v["value"] for k, v in back.items()} == {k: v["value"] for k, v in desktop.items()}


def test_a_module_is_a_zip_that_magisk_knows(root: Root, tmp_path: Path) -> None:
    assert root("export", "ktweak", "--to", "magisk", *ALL).returncode == 2, "a terminal"
    path = tmp_path / "module.zip"
    assert root("export", "ktweak", "--to", "magisk", "-o", path, *ALL).returncode == 0
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as module:
        assert module.testzip() is None
        assert set(module.namelist()) == {
            "META-INF/com/google/android/update-binary",
            "META-INF/com/google/android/updater-script",
            "module.prop",
            "service.sh",
            "uninstall.sh",
        }
        properties = dict(
            line.split("=", 1) for line in module.read("module.prop").decode().splitlines()
        )
        assert properties["id"] == "kilter_ktweak"
        assert properties["versionCode"].isdigit()
        service = module.read("service.sh").decode()
        assert service.startswith("#!/system/bin/sh\n")
        assert "sleep 90" in service
        assert b"--revert" in module.read("uninstall.sh")


def test_a_module_waits_for_the_boot_and_is_taken_back_by_toybox(
    root: Root, toybox: Path, tmp_path: Path
) -> None:
    """Under mksh with toybox's tools alone; Android's getprop says that the boot has ended."""
    mksh = found("mksh")
    path, module = tmp_path / "module.zip", tmp_path / "module"
    root.profile("calm", {"vm.swappiness": "10", "block.*.iostats": "0"})
    assert root("export", "calm", "--to", "magisk", "-o", path).returncode == 0
    with zipfile.ZipFile(path) as archive:
        archive.extractall(module)
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in toybox.iterdir():
        (tools / tool.name).symlink_to(tool.readlink())
    (tools / "sh").symlink_to(mksh)
    slept = tmp_path / "slept"
    (tools / "sleep").unlink()
    for name, does in (("getprop", "echo 1"), ("sleep", f'echo "$1" >>{slept}')):
        (tools / name).write_text(f"#!{mksh}\n{does}\n")
        (tools / name).chmod(0o755)
    before = ours(root)
    android = Shell([mksh], str(tools))
    execute(android, module / "service.sh", root)
    assert slept.read_text() == "90\n"
    assert root.get("vm.swappiness") == "10"
    assert ours(root) != before
    execute(android, module / "uninstall.sh", root)
    assert ours(root) == before
    assert "nothing to put back" in execute(android, module / "uninstall.sh", root)


def test_a_unit_runs_the_script(root: Root, tmp_path: Path) -> None:
    done = root("export", "desktop", "--to", "systemd")
    assert "ExecStop=/bin/sh /usr/local/sbin/kilter-desktop --revert" in done.stdout
    if shutil.which("systemd-analyze"):
        unit = tmp_path / "kilter-desktop.service"
        unit.write_text(done.stdout)
        checked = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True
        )
        assert "kilter-desktop.service:" not in checked.stderr
