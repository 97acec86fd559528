"""The catalog on fake machines: other names of knobs, values that depend on the machine, two places in a
name, and the profiles of KTweak."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .machines import POLICY
from .roots import Root


@pytest.fixture
def phone(make_root: Callable[[str], Root]) -> Root:
    return make_root("phone")


def text(root: Root, file: str) -> str:
    return (root.path / file).read_text().strip()


def test_the_readme_of_ktweak_on_a_phone(phone: Root) -> None:
    before = phone.settings()
    plan = phone.json("apply", "ktweak", "--allow", "durability")
    assert text(phone, f"{POLICY}/schedutil/hispeed_freq") == "1785600", "the highest"
    assert text(phone, f"{POLICY}/schedutil/hispeed_load") == "80"
    boost = text(phone, "sys/module/cpu_boost/parameters/input_boost_freq")
    assert boost == "0:1324800", "closest to 1.4 GHz, on the first cluster"
    assert text(phone, "proc/sys/kernel/sched_upmigrate") == "80 80"
    assert text(phone, "sys/block/vda/queue/scheduler") == "kyber"
    assert text(phone, "sys/block/loop0/queue/read_ahead_kb") == "128", "no loop devices"
    assert all(skip["because"]["detail"] for skip in plan["skipped"])
    assert phone("revert").returncode == 0
    after = phone.settings()
    for file in ("sys/block/vda/queue/scheduler", "sys/kernel/debug/sched/features"):
        before.pop(file), after.pop(file)  # files that show more than the value
    assert after == before


def test_the_script_of_ktweak_on_a_phone(phone: Root) -> None:
    phone.json("apply", "ktweak-script", "--allow", "security,durability")
    assert text(phone, f"{POLICY}/scaling_governor") == "schedutil", "the first that is offered"
    assert text(phone, f"{POLICY}/schedutil/hispeed_freq") == "4294967295"
    assert text(phone, "dev/stune/top-app/schedtune.boost") == "1"
    assert text(phone, "dev/stune/top-app/schedtune.prefer_idle") == "0"
    assert text(phone, "proc/sys/net/ipv4/tcp_syncookies") == "0"
    assert text(phone, "proc/sys/vm/dirty_writeback_centisecs") == "3000"
    assert text(phone, "sys/kernel/debug/sched/latency_ns") == "4000000"
    assert phone("revert").returncode == 0
    assert text(phone, "dev/stune/top-app/schedtune.boost") == "10"


def test_the_scripts_risks_are_named(phone: Root) -> None:
    done = phone("apply", "ktweak-script")
    assert done.returncode == 2
    assert "net.ipv4.tcp_syncookies (security)" in done.stderr
    assert "--allow durability,security" in done.stderr
    assert text(phone, "proc/sys/vm/swappiness") == "60", "nothing was written"


def test_a_wish_that_the_machine_cannot_grant_is_told(phone: Root) -> None:
    phone.profile("wishes", {"block.*.scheduler": "first:cfq,noop"})
    plan = phone.json("apply", "wishes", "--dry-run")
    assert plan["changes"] == []
    detail = plan["skipped"][0]["because"]["detail"]
    assert "offered are none, mq-deadline, kyber, bfq" in detail


@pytest.mark.parametrize(
    "setting",
    ["vm.swappiness=highest", "block.vda.scheduler=first:bfq,best", "vm.swappiness=nearest:60"],
)
def test_wishes_need_a_list_and_known_words(root: Root, setting: str) -> None:
    done = root("run", "--set", setting, "--", "true")
    assert done.returncode == 125
    assert "is not allowed" in done.stderr


def test_knobs_answer_to_sysctl_names_and_files(root: Root) -> None:
    root.profile("other-names", {"kernel.sched_migration_cost_ns": "700000"})
    assert root("apply", "other-names").returncode == 0
    assert root.get("sched.migration_cost_ns") == "700000"
    for name in ("kernel.sched_migration_cost_ns", "/proc/sys/kernel/sched_migration_cost_ns"):
        shown = root("knobs", "show", name)
        assert shown.stdout.startswith("sched.migration_cost_ns "), shown


def test_cachys_names_are_the_hrrn_knobs(root: Root) -> None:
    for name in ("max_lifetime_ms", "latency_us"):
        shown = root("knobs", "show", f"kernel.sched_hrrn_{name}")
        assert shown.stdout.startswith(f"hrrn.{name} "), shown


def test_a_knob_with_two_places_in_its_name(root: Root) -> None:
    for cpu in ("cpu0", "cpu1"):
        for state in ("state0", "state2"):
            root.put(f"sys/devices/system/cpu/{cpu}/cpuidle/{state}/disable", "0")
    (root.path / "sys/devices/system/cpu/cpuidle").mkdir()
    root.profile("shallow", {"cpuidle.*.state2.disable": "1"})
    plan = root.json("apply", "shallow")
    assert [change["knob"] for change in plan["changes"]] == [
        "cpuidle.cpu0.state2.disable",
        "cpuidle.cpu1.state2.disable",
    ]
    assert text(root, "sys/devices/system/cpu/cpu1/cpuidle/state2/disable") == "1"
    assert text(root, "sys/devices/system/cpu/cpu1/cpuidle/state0/disable") == "0"


def test_sets_of_cpus_and_lists_of_numbers(root: Root) -> None:
    root.put("sys/class/net/eth0/queues/rx-0/rps_cpus", "00000000,00000000")
    root.put("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456")
    values = {"net.*.rx-0.rps_cpus": "300000003", "net.ipv4.tcp_rmem": "4096 131072 16777216"}
    root.profile("net", values)
    before = {change["knob"]: change["old"] for change in root.json("apply", "net")["changes"]}
    assert before == {"net.eth0.rx-0.rps_cpus": "0", "net.ipv4.tcp_rmem": "4096 131072 6291456"}
    assert text(root, "sys/class/net/eth0/queues/rx-0/rps_cpus") == "3,00000003"
    assert root("verify").returncode == 0
    assert root("revert").returncode == 0
    assert text(root, "proc/sys/net/ipv4/tcp_rmem") == "4096 131072 6291456"
    for bad in ("net.ipv4.tcp_rmem=1 2 3 4", "net.ipv4.tcp_rmem=x", "net.eth0.rx-0.rps_cpus=0x3"):
        assert root("run", "--set", bad, "--", "true").returncode == 125, bad


def test_what_is_set_by_hand_is_explained_and_not_written(root: Root) -> None:
    shown = root("knobs", "show", "task.slice").stdout
    assert "sched_setattr" in shown
    assert "by hand" in shown
    root.profile("slice", {"task.slice": "3000000"})
    plan = root.json("apply", "slice", "--dry-run")
    assert plan["skipped"][0]["because"]["reason"] == "by-hand"


def test_show_tells_what_profiles_say_of_a_knob(root: Root) -> None:
    shown = root("knobs", "show", "vm.extfrag_threshold").stdout
    assert "ktweak = 750" in shown
    assert "The other way round" in shown
