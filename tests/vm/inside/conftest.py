"""Fixtures of the guest's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .machine import Batch, Machine


@pytest.fixture(scope="session")
def machine() -> Machine:
    """The guest."""
    return Machine()


@pytest.fixture(scope="module")
def batch() -> Iterator[Batch]:
    """A batch of runs for the tests of a module."""
    batch = Batch()
    yield batch
    batch.close()
