from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kilter_lab.blocks import dice, palindrome, passes


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


@given(st.integers(1, 8), st.integers(1, 4), st.integers())
def test_passes_are_whole_and_mirrored(arms: int, times: int, seed: int) -> None:
    order = passes(arms, random.Random(seed), times)
    assert Counter(order) == dict.fromkeys(range(arms), times)
    rounds = [order[i : i + arms] for i in range(0, len(order), arms)]
    assert all(one == other[::-1] for one, other in pairwise(rounds))


def test_the_same_names_give_the_same_draws() -> None:
    assert dice(1, "a", 2).random() == dice(1, "a", 2).random()
    assert dice(1, "a", 2).random() != dice(1, "a", 3).random()
    assert dice(1, "a", 2).random() != dice(2, "a", 2).random()
