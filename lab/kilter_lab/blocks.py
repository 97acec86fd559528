"""The order of runs within a block.

A block holds every arm twice: a random order, then its mirror. With two arms that is ABBA or
BAAB. Any linear drift within the block falls on all arms alike, and chance decides who follows
whom. A search, which cannot spend two runs on a candidate, makes single *passes* over many.
"""

from __future__ import annotations

import random


def dice(seed: int, *names: object) -> random.Random:
    """A generator for one purpose: the same seed and names give the same draws."""
    return random.Random("/".join([str(seed), *map(str, names)]))


def palindrome(arms: int, rng: random.Random) -> list[int]:
    """Order of a block of ``arms`` arms: each index twice, mirrored."""
    half = rng.sample(range(arms), arms)
    return half + half[::-1]


def passes(arms: int, rng: random.Random, times: int = 1) -> list[int]:
    """Order of ``times`` runs of each arm: a random pass, mirrored from one to the next."""
    once = rng.sample(range(arms), arms)
    order: list[int] = []
    for i in range(times):
        order += once if i % 2 == 0 else once[::-1]
    return order
