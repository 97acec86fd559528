"""Whether warm-up, preflight and doubts see what is there, and nothing else."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

import noise
from kilter_lab import doubts, preflight, warmup
from kilter_lab.doubts import Point
from noise import Array, Kind
from tables import Effort, Row, Table, each

WARM_UP_RUNS = (8, 12, 24)
SLOW = math.log(1.3)
"""A first run 30 % slower."""

DECAY = 5
"""Runs over which a warm-up fades."""

FALSE, CAUGHT = 0.05, 0.8
GROUPS_FALSE = 0.02
DOUBT_RUNS = (20, 40, 80)


def warm_up(effort: Effort) -> Iterator[Table]:
    """Series without a warm-up, and with one."""
    columns = [f"{n} runs" for n in WARM_UP_RUNS]
    table = Table(
        "Told a warm-up where there is none",
        f"at most {FALSE * 100:.0f} % of replays of 12 runs and more; none where levels last, for "
        "one series cannot tell a mood from a warm-up",
        ["noise", *columns],
    )
    for kind, shares in zip(
        noise.kinds(), each(effort, partial(_told, effort), noise.kinds()), strict=True
    ):
        lasts = "that last" in kind.name or "16 runs" in kind.name
        met = None if lasts else all(s <= FALSE for s in shares[1:])
        table.rows.append(Row([kind.name, *_percents(shares)], met))
    yield table
    caught = Table(
        "A first run 30 % slower, or 30 % that fade over five runs: caught",
        f"at least {CAUGHT * 100:.0f} % at 24 runs",
        ["warm-up and noise", *columns],
    )
    for name, shape in (("first run", _first), ("fading", _fading)):
        for cv in (0.01, 0.03, 0.05):
            kind = Kind(f"{name}, {cv * 100:.0f} %", _with(shape, noise.normal(cv)))
            shares = _told(effort, kind)
            caught.rows.append(Row([kind.name, *_percents(shares)], shares[-1] >= CAUGHT))
    yield caught


def _told(effort: Effort, kind: Kind) -> list[float]:
    def told(runs: int) -> float:
        streams = (kind.stream(effort.seed, r, runs).tolist() for r in range(effort.replays))
        return statistics.fmean(warmup.detect(x).discard > 0 for x in streams)

    return [told(n) for n in WARM_UP_RUNS]


def _first(runs: int) -> Array:
    shape: Array = SLOW * (np.arange(runs) == 0)
    return shape


def _fading(runs: int) -> Array:
    index = np.arange(runs)
    shape: Array = SLOW * np.exp(-index / 2) * (index < DECAY)
    return shape


def _with(shape: Callable[[int], Array], draw: noise.Draw) -> noise.Draw:
    return lambda rng, n: draw(rng, n) + shape(n)


def noise_estimate(effort: Effort) -> Iterator[Table]:
    """The preflight's noise against that of real blocks."""
    table = Table(
        f"Noise of a block, from {preflight.ENOUGH} base runs",
        "",
        ["noise", "really", "median estimate", "middle 90 %", "mean of squares"],
    )
    for row in each(effort, partial(_noise_row, effort), noise.kinds()):
        table.rows.append(row)
    yield table


def _noise_row(effort: Effort, kind: Kind) -> Row:
    order = np.array([1, -1, -1, 1]) / 2
    blocks = [kind.stream(effort.seed, r, 200).reshape(-1, 4) @ order for r in range(200)]
    true = float(np.sqrt(np.mean(np.concatenate(blocks) ** 2)))
    estimates = np.array(
        [
            preflight.block_noise(kind.stream(effort.seed + 1, r, preflight.ENOUGH))
            for r in range(effort.replays)
        ]
    )
    low, middle, high = np.quantile(estimates / true, [0.05, 0.5, 0.95])
    return Row(
        [
            kind.name,
            f"{true * 100:.1f} %",
            f"{middle:.2f}",
            f"{low:.2f}–{high:.2f}",
            f"{float(np.mean(estimates**2)) / true**2:.2f}",
        ]
    )


def patterns(effort: Effort) -> Iterator[Table]:
    """Two groups, neighbours that are alike, drift."""
    table = Table(
        "Told of a series: two groups, neighbours alike, drift (percent of replays)",
        f"no more than {GROUPS_FALSE * 100:.0f} % told two groups where simulated noise has one",
        ["noise", *(f"{what}, {n}" for what in PATTERNS for n in DOUBT_RUNS)],
    )
    kinds = noise.kinds()
    for kind, shares in zip(kinds, each(effort, partial(_patterns, effort), kinds), strict=True):
        one = not kind.recorded and "modes" not in kind.name
        met = all(s <= GROUPS_FALSE for s in shares[: len(DOUBT_RUNS)]) if one else None
        table.rows.append(Row([kind.name, *_percents(shares)], met))
    yield table


Told = Callable[[Sequence[Point], str], list[str]]

PATTERNS: dict[str, Told] = {
    "groups": doubts.two_groups,
    "alike": doubts.alike,
    "drift": doubts.drift,
}


def _patterns(effort: Effort, kind: Kind) -> list[float]:
    shares = []
    for told in PATTERNS.values():
        for runs in DOUBT_RUNS:
            streams = (kind.stream(effort.seed, r, runs) for r in range(effort.replays))
            shares.append(statistics.fmean(bool(told(_points(x), "wall")) for x in streams))
    return shares


def _points(logs: Array) -> list[Point]:
    walls = np.exp(logs).tolist()
    return [Point("base", wall, wall, 0.0) for wall in walls]


def _percents(shares: Sequence[float]) -> list[str]:
    return [f"{s * 100:.1f} %" for s in shares]
