"""Kinds of noise: streams of log noise of consecutive runs, simulated and recorded.

A stream is what the logarithms of an unchanged command's run times do from run to run. Its
standard deviation is the kind's own: simulated kinds have 5 % unless their name says otherwise,
and recordings what was recorded; ``scaled`` gives a recording the 5 % at which power is asked for.
"""

from __future__ import annotations

import csv
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Array]

RECORDED = Path(__file__).resolve().parent.parent / "noise"

CV = 0.05
"""Standard deviation of simulated kinds, on the log scale."""

TAIL = 0.8
"""Log deviation of the log-normal whose tail is used: skewness 3.7, kurtosis 31."""

SLOW_SHARE, MODE_WIDTH, STAY = 0.4, 0.015, 0.9
"""Runs in the slower mode, spread within a mode, chance that a lasting mode goes on."""

DRIFT = math.log(1.2)
"""From the first run to the last."""

SHORT = 16
"""Runs of the shortest comparison: four blocks."""


@dataclass(frozen=True)
class Kind:
    """One kind of noise."""

    name: str
    draw: Draw
    """(generator, number of runs) → log noise."""
    hard: bool = False
    """Tails, modes and drift, where a power of 80 % is asked for instead of 90 %."""
    recorded: bool = False

    def __str__(self) -> str:
        return self.name

    def stream(self, seed: int, replay: int, runs: int) -> Array:
        """The log noise of consecutive runs; the same seed and replay give the same."""
        rng = np.random.default_rng([seed, zlib.crc32(self.name.encode()), replay])
        return self.draw(rng, runs)


def normal(cv: float) -> Draw:
    return partial(_normal, cv)


def _normal(cv: float, rng: np.random.Generator, n: int) -> Array:
    return cv * rng.standard_normal(n)


def autoregressive(rho: float) -> Draw:
    """Neighbouring runs resemble each other with this correlation."""
    return partial(_autoregressive, rho)


def _autoregressive(rho: float, rng: np.random.Generator, n: int) -> Array:
    shocks = rng.standard_normal(n)
    shocks[1:] *= math.sqrt(1 - rho * rho)
    for i in range(1, n):
        shocks[i] += rho * shocks[i - 1]
    return CV * shocks


def tails(rng: np.random.Generator, n: int) -> Array:
    """Standardised log-normal numbers: most runs close together, some very slow."""
    square = TAIL * TAIL
    mean = math.exp(square / 2)
    deviation = math.sqrt(math.expm1(square)) * mean
    return CV * (np.exp(TAIL * rng.standard_normal(n)) - mean) / deviation


def _modes(slow: npt.NDArray[np.bool_], rng: np.random.Generator) -> Array:
    p = SLOW_SHARE
    apart = math.sqrt((CV * CV - MODE_WIDTH**2) / (p * (1 - p)))
    return apart * (slow - p) + MODE_WIDTH * rng.standard_normal(len(slow))


def two_modes(rng: np.random.Generator, n: int) -> Array:
    """Each run falls into one of two groups, as chance has it."""
    return _modes(rng.random(n) < SLOW_SHARE, rng)


def lasting_modes(rng: np.random.Generator, n: int) -> Array:
    """The two groups, and neighbouring runs mostly fall into the same one."""
    redrawn = rng.random(n) >= STAY
    redrawn[0] = True
    fresh = rng.random(n) < SLOW_SHARE
    return _modes(fresh[np.maximum.accumulate(np.where(redrawn, np.arange(n), 0))], rng)


def drift(over: int | None) -> Draw:
    """Slower by 20 % from the first run to the last, or to run ``over``, and level after it."""
    return partial(_drift, over)


def _drift(over: int | None, rng: np.random.Generator, n: int) -> Array:
    span = max(1, min(n, over or n) - 1)
    return CV * rng.standard_normal(n) + DRIFT * np.minimum(np.arange(n) / span, 1.0)


@lru_cache(maxsize=32)
def logs_of(path: Path) -> Array:
    """The recorded run times as logarithms relative to their median."""
    with path.open() as file:
        walls = np.array([float(row["wall_s"]) for row in csv.DictReader(file)])
    logs: Array = np.log(walls / np.median(walls))
    return logs


@dataclass(frozen=True)
class Replay:
    """A recording from a random run on, beginning anew at its end."""

    path: Path
    cv: float | None = None
    """Scaled to this deviation."""

    def __call__(self, rng: np.random.Generator, n: int) -> Array:
        """The recording's log noise for consecutive runs."""
        logs = logs_of(self.path)
        taken: Array = logs[(rng.integers(len(logs)) + np.arange(n)) % len(logs)]
        return taken if self.cv is None else taken * float(self.cv / logs.std())


def simulated() -> list[Kind]:
    return [
        *(Kind(f"normal, {cv} %", normal(cv / 100)) for cv in (1, 3, 5, 7)),
        *(Kind(f"AR(1), rho {rho}", autoregressive(rho)) for rho in (0.2, 0.4)),
        Kind("log-normal tails", tails, hard=True),
        Kind("two modes", two_modes, hard=True),
        Kind("two modes that last", lasting_modes, hard=True),
        Kind("drift 20 %, whole plan", drift(None), hard=True),
        Kind(f"drift 20 %, {SHORT} runs", drift(SHORT), hard=True),
    ]


def recorded() -> list[Kind]:
    return [
        Kind(f"recorded: {path.stem}", Replay(path), hard=True, recorded=True)
        for path in sorted(RECORDED.glob("*.csv"))
    ]


def kinds() -> list[Kind]:
    """Every kind."""
    return [*simulated(), *recorded()]


def at_five_percent() -> Iterator[Kind]:
    """Every kind at 5 %: recordings scaled, the other strengths of normal noise left out."""
    for kind in kinds():
        if isinstance(kind.draw, Replay):
            yield replace(kind, draw=replace(kind.draw, cv=CV))
        elif not kind.name.startswith("normal") or "5 %" in kind.name:
            yield kind
