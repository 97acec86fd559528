"""Which packages are a kernel, which is the newest, and what is said where there is none."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest

from . import kernels
from .apt import Package, Suite, SuiteError, shown
from .btf import Has, ImageError, inspect, vmlinux
from .kinds import KINDS, Kind, kind


class FakeSuite(Suite):
    """A suite whose packages are given."""

    def __init__(self, name: str, packages: list[Package]) -> None:
        super().__init__(name, Path("/nonexistent"), "http://mirror.example/debian")
        self.given = packages

    def packages(self, pattern: str) -> list[Package]:  # type: ignore[override]
        return [p for p in self.given if re.fullmatch(pattern, p.name)]


SPLIT = (
    "linux-base-7.2.13+deb14-amd64 (= 7.2.13-1), linux-binary-7.2.13+deb14-amd64 (= 7.2.13-1), "
    "linux-modules-7.2.13+deb14-amd64 (= 7.2.13-1)"
)


def test_ordinary_kernels_are_candidates_and_others_are_not() -> None:
    suite = FakeSuite(
        "sid",
        [
            Package("linux-image-6.12.107+deb13-amd64", "6.12.107-1", "kmod, linux-base"),
            Package("linux-image-6.12.107+deb13-cloud-amd64", "6.12.107-1", ""),
            Package("linux-image-6.12.107+deb13-rt-amd64", "6.12.107-1", ""),
            Package("linux-image-6.12.107+deb13-amd64-dbg", "6.12.107-1", ""),
            Package("linux-image-7.2.13+deb14-amd64", "7.2.13-1", SPLIT),
            Package("linux-image-amd64", "7.2.13-1", ""),
        ],
    )
    found = {c.release: c.packages for c in kernels.candidates(suite)}
    assert found == {
        "6.12.107+deb13-amd64": ("linux-image-6.12.107+deb13-amd64=6.12.107-1",),
        "7.2.13+deb14-amd64": (
            "linux-binary-7.2.13+deb14-amd64=7.2.13-1",
            "linux-modules-7.2.13+deb14-amd64=7.2.13-1",
            "linux-base-7.2.13+deb14-amd64=7.2.13-1",
        ),
    }


def test_newest_is_by_debians_order() -> None:
    suite = FakeSuite("sid", [])
    versions = ["7.3~rc7-1~exp1", "7.2.9-1~bpo13+1", "7.2.13-1", "7.3.4-1~bpo13+1"]
    sorted_ = kernels.newest_first([kernels.Candidate(suite, v, v, ()) for v in versions])
    assert [c.version for c in sorted_] == [versions[i] for i in (3, 0, 2, 1)]


OLD = Has(eevdf=False, sysctls=True, sched_ext=False, lost_halves=[])
CFS = Has(eevdf=False, sysctls=False, sched_ext=False, lost_halves=[])
EEVDF = Has(eevdf=True, sysctls=False, sched_ext=False, lost_halves=[])
SCX = Has(eevdf=True, sysctls=False, sched_ext=True, lost_halves=[])
DEFECTIVE = Has(eevdf=True, sysctls=False, sched_ext=True, lost_halves=["scx_bpf_kick_cpu"])


@pytest.mark.parametrize(
    ("has", "name"),
    [(OLD, "sysctl"), (CFS, "cfs"), (EEVDF, "eevdf"), (SCX, "scx"), (DEFECTIVE, "scx-defective")],
)
def test_each_kernel_is_of_one_kind(has: Has, name: str) -> None:
    assert [kind.name for kind in KINDS if kind.fits(has)] == [name]


class Unreachable(kernels.Fetcher):
    """No suite can be reached."""

    def _candidates(self, name: str) -> list[kernels.Candidate] | SuiteError:
        return SuiteError(f"suite {name} of http://mirror.example/debian: E: no route")


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KILTER_VM_CACHE", str(tmp_path))
    return tmp_path


def test_without_its_suite_a_kernel_is_missing_with_the_reason(empty_cache: Path) -> None:
    kernel = Unreachable().fetch(kind("sysctl"))
    assert "suite bullseye of http://mirror.example/debian: E: no route" in kernel.missing
    assert kernels.remembered(kind("sysctl")).missing == kernel.missing


def test_without_its_suite_the_kernel_in_the_cache_is_kept(empty_cache: Path) -> None:
    old = kernels.Kernel("sysctl", "5.10.0-32-amd64", "5.10.223-1", "bullseye")
    (old.place / "boot").mkdir(parents=True)
    (old.place / "boot" / f"vmlinuz-{old.release}").touch()
    (empty_cache / "kinds").mkdir()
    (empty_cache / "kinds/sysctl.json").write_text(json.dumps(old.__dict__))
    assert Unreachable().fetch(kind("sysctl")) == old


def test_kernels_that_no_kind_needs_are_removed(empty_cache: Path) -> None:
    kept = kernels.Kernel("cfs", "6.1.0-50-amd64", "6.1.176-1", "bookworm")
    gone = empty_cache / "kernels/6.1.0-47-amd64_6.1.170-3"
    for place in (kept.place, gone):
        place.mkdir(parents=True)
    with kernels.in_use():
        kernels.remove_old([kept])
        assert gone.exists(), "a guest may be running it"
    kernels.remove_old([kept, kernels.Kernel("scx", missing="none")])
    assert not gone.exists()
    assert kept.place.exists()


def test_credentials_of_a_mirror_are_not_shown() -> None:
    assert (
        shown("http://user:word@mirror.example:8080/debian") == "http://mirror.example:8080/debian"
    )


def test_what_is_no_kernel_image_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "vmlinuz"
    file.write_bytes(b"\0" * 1024)
    with pytest.raises(ImageError, match="no bzImage"):
        vmlinux(file)
    header = bytearray(2048)
    header[0x1F1] = 1
    header[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", header, 0x248, 16, 64)
    file.write_bytes(header)
    with pytest.raises(ImageError, match="unknown"):
        vmlinux(file)


@pytest.mark.parametrize("wanted", KINDS, ids=lambda kind: kind.name)
def test_the_kernel_in_the_cache_has_what_its_kind_says(wanted: Kind) -> None:
    kernel = kernels.remembered(wanted)
    if kernel.missing:
        pytest.skip(kernel.missing)
    assert wanted.fits(inspect(kernel.image))
