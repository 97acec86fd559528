"""Apply, status, verify, diff and revert: what is held, and that it comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .machines import MACHINES
from .program import Done
from .roots import Root

CALM = {"vm.swappiness": "10", "vm.page-cluster": "0", "sched.nr_migrate": "8"}
WILD = {"vm.swappiness": "150", "vm.stat_interval": "10"}


@pytest.fixture
def calm(root: Root) -> Root:
    """A machine with two profiles of its own that share a knob."""
    root.profile("calm", CALM, head='summary = "slow and steady"')
    root.profile("wild", WILD)
    return root


def ok(done: Done, code: int = 0) -> str:
    """The output of a command that ended with this code."""
    assert done.returncode == code, done
    return done.stdout


def test_apply_sets_and_revert_puts_back_every_byte(calm: Root) -> None:
    before = calm.settings()
    out = ok(calm("apply", "calm"))
    assert [line.split() for line in out.splitlines()] == [
        ["sched.nr_migrate", "32", "→", "8"],
        ["vm.page-cluster", "3", "→", "0"],
        ["vm.swappiness", "60", "→", "10"],
    ]
    assert {knob: calm.get(knob) for knob in CALM} == CALM
    assert calm.layers() == ["00000001"]
    assert "Taken back: calm." in ok(calm("revert"))
    assert calm.settings() == before
    assert calm.layers() == []


def test_dry_run_writes_nothing_at_all(calm: Root) -> None:
    before = calm.settings()
    out = ok(calm("apply", "calm", "--dry-run"))
    assert ["vm.swappiness", "60", "→", "10"] in [line.split() for line in out.splitlines()]
    assert calm.settings() == before
    assert not (calm.path / "run/kilter").exists()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("profile", ["desktop", "latency", "throughput", "battery", "ktweak"])
def test_the_profiles_of_the_catalog_on_every_kind_of_machine(
    make_root: Callable[[str], Root], machine: str, profile: str
) -> None:
    root = make_root(machine)
    before = root.settings()
    planned = root.json("apply", profile, "--dry-run", "--skip-risky")
    assert root.settings() == before
    done = root.json("apply", profile, "--skip-risky")
    assert [change["knob"] for change in done["changes"]] == [
        change["knob"] for change in planned["changes"]
    ]
    by_knob = {knob["name"]: knob["state"] for knob in root.json("knobs", "list")}
    for change in done["changes"]:
        # A plain file holds one feature only: the last that was written.
        if ".features." not in change["knob"]:
            assert change["effective"] == change["new"]
            assert by_knob[change["knob"]]["value"] == change["new"]
    for skipped in done["skipped"]:
        assert skipped["because"]["detail"]


def test_a_newer_layer_wins_and_what_is_left_holds(calm: Root) -> None:
    ok(calm("apply", "calm"))
    ok(calm("apply", "wild"))
    assert (calm.get("vm.swappiness"), calm.get("vm.page-cluster")) == ("150", "0")
    told = ok(calm("status"))
    assert "covered by a newer layer" in told
    ok(calm("revert", "wild"))
    assert (calm.get("vm.swappiness"), calm.get("vm.stat_interval")) == ("10", "1")
    ok(calm("revert", "calm"))
    assert calm.get("vm.swappiness") == "60"


def test_an_older_layer_can_go_first(calm: Root) -> None:
    before = calm.settings()
    ok(calm("apply", "calm"))
    ok(calm("apply", "wild"))
    out = ok(calm("revert", "calm"))
    assert "kept by a newer layer" in out
    assert (calm.get("vm.swappiness"), calm.get("vm.page-cluster")) == ("150", "3")
    ok(calm("revert", "wild"))
    assert calm.settings() == before


def test_revert_takes_all_layers_back(calm: Root) -> None:
    before = calm.settings()
    ok(calm("apply", "calm"))
    ok(calm("apply", "wild"))
    assert "Taken back: wild, calm." in ok(calm("revert"))
    assert calm.settings() == before
    assert "Nothing is in force." in ok(calm("revert"))


def test_applying_again_sets_what_has_drifted(calm: Root) -> None:
    before = calm.settings()
    ok(calm("apply", "calm"))
    calm.set("vm.swappiness", "77")
    ok(calm("apply", "calm"))
    assert calm.get("vm.swappiness") == "10"
    assert len(calm.layers()) == 1
    ok(calm("revert", "--force"))
    assert {k: v for k, v in calm.settings().items() if "swappiness" not in k} == {
        k: v for k, v in before.items() if "swappiness" not in k
    }


def test_drift_is_told_by_verify_and_status(calm: Root) -> None:
    assert "nothing to verify" in ok(calm("verify"))
    ok(calm("apply", "calm"))
    assert "All 3 values in force." in ok(calm("verify"))
    calm.set("vm.swappiness", "77")
    done = calm("verify")
    assert "1 of 3 values drifted." in ok(done, code=1)
    assert "hint: `kilter apply calm` sets them again" in done.stderr
    assert "drifted: now 77" in ok(calm("status"))
    (calm.path / "proc/sys/vm/swappiness").unlink()
    assert "gone" in ok(calm("verify"), code=1)


def test_what_somebody_else_changed_is_left_alone(calm: Root) -> None:
    ok(calm("apply", "calm"))
    calm.set("vm.swappiness", "77")
    done = calm("revert")
    assert done.returncode == 0
    assert (
        "warning: vm.swappiness: left at 77, which somebody else has set since (it was 60)"
        in done.stderr
    )
    assert (calm.get("vm.swappiness"), calm.get("vm.page-cluster")) == ("77", "3")
    assert calm.layers() == []


def test_force_overwrites_what_somebody_else_changed(calm: Root) -> None:
    before = calm.settings()
    ok(calm("apply", "calm"))
    calm.set("vm.swappiness", "77")
    ok(calm("revert", "--force"))
    assert calm.settings() == before


def test_a_strangers_value_under_a_newer_layer_comes_back(calm: Root) -> None:
    ok(calm("apply", "calm"))
    calm.set("vm.swappiness", "77")
    done = calm("apply", "wild")
    assert "warning: vm.swappiness: somebody else has changed it" in done.stderr
    ok(calm("revert", "wild"))
    assert calm.get("vm.swappiness") == "77"


def test_a_file_that_vanished_does_not_stop_the_others(calm: Root) -> None:
    ok(calm("apply", "calm"))
    (calm.path / "proc/sys/vm/swappiness").unlink()
    done = calm("revert")
    assert done.returncode == 0
    assert "warning: vm.swappiness: gone" in done.stderr
    assert calm.get("vm.page-cluster") == "3"
    assert calm.layers() == []


@pytest.mark.parametrize("after", ["absent", "read-only", "empty"])
def test_knobs_that_cannot_be_set_are_skipped_with_the_reason(calm: Root, after: str) -> None:
    path = calm.path / "proc/sys/vm/swappiness"
    if after == "absent":
        path.unlink()
    elif after == "read-only":
        path.chmod(0o444)
    else:
        path.write_text("\n")
    plan = calm.json("apply", "calm")
    assert [change["knob"] for change in plan["changes"]] == ["sched.nr_migrate", "vm.page-cluster"]
    (skipped,) = plan["skipped"]
    reason = "unsupported" if after == "empty" else after
    assert (skipped["knob"], skipped["because"]["reason"]) == ("vm.swappiness", reason)
    ok(calm("revert"))


def test_a_profile_that_changes_nothing_leaves_no_layer(calm: Root) -> None:
    calm.profile("none", {})
    assert "Nothing to change." in ok(calm("apply", "none"))
    assert calm.layers() == []


def test_risky_values_need_a_yes(calm: Root) -> None:
    calm.profile("risky", {"vm.overcommit_memory": "1", "vm.swappiness": "10"})
    before = calm.settings()
    done = calm("apply", "risky")
    assert done.returncode == 2
    assert "refused for their risk: vm.overcommit_memory (hang)" in done.stderr
    assert "--allow hang" in done.stderr
    assert calm.settings() == before
    ok(calm("apply", "risky", "--skip-risky"))
    assert (calm.get("vm.overcommit_memory"), calm.get("vm.swappiness")) == ("0", "10")
    ok(calm("apply", "risky", "--allow", "hang"))
    assert calm.get("vm.overcommit_memory") == "1"
    ok(calm("revert"))
    assert calm.settings() == before


def test_a_glob_sets_every_real_device(calm: Root) -> None:
    calm.put("sys/block/sdb/queue/read_ahead_kb", "128")
    calm.profile("disks", {"block.*.read_ahead_kb": "512", "block.sdb.read_ahead_kb": "64"})
    plan = calm.json("apply", "disks")
    assert {change["knob"]: change["new"] for change in plan["changes"]} == {
        "block.vda.read_ahead_kb": "512",
        "block.sdb.read_ahead_kb": "64",
    }
    assert (calm.path / "sys/block/loop0/queue/read_ahead_kb").read_text() == "128\n"
    ok(calm("revert"))


def test_diff_against_the_machine_and_against_a_profile(calm: Root) -> None:
    out = ok(calm("diff", "calm"), code=1)
    assert ["vm.swappiness", "60", "→", "10"] in [line.split() for line in out.splitlines()]
    ok(calm("apply", "calm"))
    assert "calm changes nothing here." in ok(calm("diff", "calm"))
    out = ok(calm("diff", "calm", "wild"), code=1)
    assert ["vm.swappiness", "10", "150"] in [line.split() for line in out.splitlines()]
    assert ["vm.stat_interval", "-", "10"] in [line.split() for line in out.splitlines()]
    assert "set the same values" in ok(calm("diff", "calm", "calm"))


def test_includes_come_first_and_own_values_win(calm: Root) -> None:
    calm.profile("both", {"vm.stat_interval": "5"}, head='include = ["calm", "wild"]')
    ok(calm("apply", "both"))
    assert calm.get("vm.swappiness") == "150"
    assert calm.get("vm.page-cluster") == "0"
    assert calm.get("vm.stat_interval") == "5"


def test_settings_of_an_earlier_boot_are_forgotten_without_a_write(calm: Root) -> None:
    boot = "proc/sys/kernel/random/boot_id"
    calm.put(boot, "11111111-1111-1111-1111-111111111111")
    ok(calm("apply", "calm"))
    calm.put(boot, "22222222-2222-2222-2222-222222222222")
    calm.set("vm.swappiness", "60")
    after_boot = calm.settings()
    assert "No layer is in force" in ok(calm("status"))
    assert "Nothing is in force." in ok(calm("revert"))
    assert calm.settings() == after_boot
    assert calm.layers() == []


def test_an_undo_needs_no_catalog(calm: Root) -> None:
    before = calm.settings()
    ok(calm("apply", "calm"))
    calm.put("etc/kilter/knobs/broken.toml", "][")
    (calm.path / "etc/kilter/profiles/calm.toml").unlink()
    assert calm("apply", "wild").returncode == 2
    ok(calm("status"))
    ok(calm("revert"))
    assert calm.settings() == before


def test_a_saved_profile_is_listed_shown_and_applied(calm: Root) -> None:
    given = '{"name": "mine", "summary": "s", "set": {"vm.swappiness": {"value": "5", "why": "w"}}}'
    path = Path(ok(calm("profile", "save", input=given)).strip())
    assert path == calm.path / "etc/kilter/profiles/mine.toml"
    assert "mine" in ok(calm("profile", "list"))
    shown = ok(calm("profile", "show", "mine"))
    assert "vm.swappiness = 5\n    w\n" in shown
    ok(calm("apply", "mine"))
    assert calm.get("vm.swappiness") == "5"
