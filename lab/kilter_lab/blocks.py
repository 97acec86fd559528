"""The order of runs within a block.

A block holds every arm twice: a random order, then its mirror. With two arms that is ABBA or
BAAB. Any linear drift within the block falls on all arms alike, and chance decides who follows
whom. A *pair* is one half of it, for searches that cannot spend four runs on a candidate.
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


def pair(rng: random.Random, pairs: int = 1) -> list[int]:
    """Order of ``pairs`` runs of each of two arms: AB or BA, mirrored from one to the next."""
    half = rng.sample(range(2), 2)
    order: list[int] = []
    for i in range(pairs):
        order += half if i % 2 == 0 else half[::-1]
    return order
