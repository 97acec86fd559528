"""``kilter import``: other tools' files become profiles, and nothing is lost without a word."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .roots import Root
from .schemas import check

TUNED = Path("/usr/lib/tuned")

SYSCTL = """# tuned by hand
vm.swappiness = 10
-kernel.sched_migration_cost_ns = 5000000
vm.dirty_*_centisecs = 1000
-vm.dirty_expire_centisecs
net.ipv4.ip_forward = 1
"""


def values(imported: dict[str, object]) -> dict[str, str]:
    profile = imported["profile"]
    assert isinstance(profile, dict)
    return {knob: entry["value"] for knob, entry in profile["set"].items()}


def test_a_sysctl_file_becomes_a_profile(root: Root, tmp_path: Path) -> None:
    file = tmp_path / "90-Mine.conf"
    file.write_text(SYSCTL)
    imported = root.json("import", "sysctl", file)
    check("imported", imported)
    assert values(imported) == {
        "sched.migration_cost_ns": "5000000",
        "vm.dirty_writeback_centisecs": "1000",
        "vm.swappiness": "10",
    }
    assert [left["from"] for left in imported["left_out"]] == [f"{file}:6"]
    assert imported["saved"] == str(root.path / "etc/kilter/profiles/90-mine.toml")
    before = root.settings()
    assert root("apply", "90-mine", "--allow", "durability").returncode == 0
    assert root.get("sched.migration_cost_ns") == "5000000"
    assert root("revert").returncode == 0
    assert root.settings() == before


def test_nothing_is_written_over_unasked(root: Root, tmp_path: Path) -> None:
    file = tmp_path / "mine.conf"
    file.write_text("vm.swappiness = 10\n")
    assert root("import", "sysctl", file).returncode == 0
    again = root("import", "sysctl", file)
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert root("import", "sysctl", file, "--name", "desktop").returncode == 2, "a built-in one"
    assert root("import", "sysctl", file, "--force").returncode == 0


def test_a_dry_run_saves_nothing(root: Root, tmp_path: Path) -> None:
    file = tmp_path / "mine.conf"
    file.write_text(SYSCTL)
    done = root("import", "sysctl", file, "--dry-run")
    assert "Not imported" in done.stdout
    assert not (root.path / "etc/kilter").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [("a", None), ("b", b"\xff\xfe"), ("c", b"x" * (2 << 20))],
)
def test_bad_files(root: Root, tmp_path: Path, name: str, content: bytes | None) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    done = root("import", "sysctl", file)
    assert done.returncode == 2
    assert str(file) in done.stderr


def test_a_tuned_profile_with_its_includes(root: Root) -> None:
    root.put("usr/lib/tuned/base/tuned.conf", "[sysctl]\nvm.swappiness=10\nvm.dirty_ratio=40")
    root.put(
        "etc/tuned/mine/tuned.conf",
        "[main]\ninclude=base\n[variables]\nlow=5\n[sysctl]\nvm.swappiness=${low}\n"
        "vm.page-cluster=>5\n[disk]\nreadahead=>4096\nelevator=kyber\n[audio]\ntimeout=10",
    )
    imported = root.json("import", "tuned", "mine")
    assert [left["what"] for left in imported["left_out"]] == ["timeout=10"]
    assert "audio" in imported["left_out"][0]["reason"]
    assert root("apply", "mine").returncode == 0
    assert root.get("vm.swappiness") == "5"
    assert root.get("vm.dirty_ratio") == "40"
    assert root.get("vm.page-cluster") == "5", "it was 3"
    assert root.get("block.vda.read_ahead_kb") == "4096"
    assert root.get("block.vda.scheduler") == "kyber"


def test_an_unknown_tuned_profile(root: Root) -> None:
    done = root("import", "tuned", "nonesuch")
    assert done.returncode == 2
    assert "nonesuch" in done.stderr
    assert "/usr/lib/tuned" in done.stderr


@pytest.mark.skipif(not TUNED.is_dir(), reason="TuneD is not installed: no stock profiles to read")
def test_every_stock_profile_of_tuned(root: Root) -> None:
    shutil.copytree(TUNED, root.path / "usr/lib/tuned")
    profiles = [path.parent.name for path in sorted(TUNED.glob("*/tuned.conf"))]
    assert len(profiles) >= 30
    for name in profiles:
        imported = root.json("import", "tuned", name, "--name", f"t-{name}")
        for left in imported["left_out"]:
            assert left["reason"], (name, left)
            assert left["from"].startswith("TuneD "), (name, left)
        if imported["profile"]["set"]:
            plan = root("apply", f"t-{name}", "--dry-run", "--skip-risky")
            assert plan.returncode == 0, (name, plan.stderr)
