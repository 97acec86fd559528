from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kilter_lab.blocks import dice, pair, palindrome


@given(st.integers(1, 8), st.integers())
def test_a_block_holds_every_arm_once_in_each_half(arms: int, seed: int) -> None:
    order = palindrome(arms, random.Random(seed))
    assert sorted(order[:arms]) == list(range(arms))
    assert order == order[::-1]


@given(st.integers(1, 6), st.integers())
def test_linear_drift_falls_on_all_arms_alike(arms: int, seed: int) -> None:
    order = palindrome(arms, random.Random(seed))
    places = {a: sum(i for i, b in enumerate(order) if a == b) for a in order}
    assert len(set(places.values())) == 1


def test_two_arms_make_abba_or_baab_at_even_odds() -> None:
    tally = Counter(tuple(palindrome(2, dice(11, i))) for i in range(400))
    assert set(tally) == {(0, 1, 1, 0), (1, 0, 0, 1)}
    assert 140 < tally[0, 1, 1, 0] < 260  # 6 standard deviations


@given(st.integers(1, 5), st.integers())
def test_pairs_are_balanced(pairs: int, seed: int) -> None:
    order = pair(random.Random(seed), pairs)
    assert Counter(order) == {0: pairs, 1: pairs}
    assert all(set(order[i : i + 2]) == {0, 1} for i in range(0, len(order), 2))


def test_the_same_names_give_the_same_draws() -> None:
    assert dice(1, "a", 2).random() == dice(1, "a", 2).random()
    assert dice(1, "a", 2).random() != dice(1, "a", 3).random()
    assert dice(1, "a", 2).random() != dice(2, "a", 2).random()
