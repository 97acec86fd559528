"""Fixtures: a fake root of any kind, and the guard of the real kernel's tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .reclaim import Swap, zram_device
from .roots import Root, machine_alone


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of this folder."""
    config.addinivalue_line(
        "markers", "real_kernel: changes settings of the running kernel, and puts them back (root)"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests on the real kernel need root, and run one after the other also under xdist."""
    spread = config.pluginmanager.hasplugin("xdist")
    for item in items:
        if item.get_closest_marker("real_kernel"):
            if spread:
                item.add_marker(pytest.mark.xdist_group("real-kernel"))
            if os.geteuid() != 0:
                item.add_marker(pytest.mark.skip(reason="changing the real kernel needs root"))


@pytest.fixture
def make_root(tmp_path: Path) -> Callable[[str], Root]:
    """Makes a fake root of a kind: ``cfs``, ``eevdf`` or ``bare``."""

    def make(machine: str) -> Root:
        path = tmp_path / machine
        path.mkdir()
        return Root(path, machine)

    return make


@pytest.fixture
def root(make_root: Callable[[str], Root]) -> Root:
    """A machine of the EEVDF era."""
    return make_root("eevdf")


@pytest.fixture
def alone() -> Iterator[None]:
    """The machine, for one test at a time."""
    with machine_alone():
        yield


@pytest.fixture
def swap(alone: None) -> Iterator[Swap]:
    """1 GiB of swap on zram."""
    with zram_device() as swap:
        swap.on(1024)
        yield swap
