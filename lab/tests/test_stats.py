"""Verdicts: their rules as properties, and the coverage of their intervals by simulation."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binom
from synthetic import Noise

from kilter_lab import stats
from kilter_lab.messages import VerdictRecord
from kilter_lab.stats import Interval, judge

Blocks = list[tuple[list[float], list[float]]]

values = st.floats(1e-6, 1e6)
two = st.lists(values, min_size=2, max_size=2)
blocks = st.lists(st.tuples(two, two), min_size=2, max_size=12)

OPPOSITE = {
    "better": "worse",
    "worse": "better",
    "no-difference": "no-difference",
    "inconclusive": "inconclusive",
}


def verdict(of: Blocks, region: float = 1.0, direction: str = "min") -> VerdictRecord:
    return stats.verdict("wall", direction, of, region)  # type: ignore[arg-type]


def near_an_edge(v: VerdictRecord) -> bool:
    """Rounding may tip the verdict where an end of the interval lies on a limit."""
    limits = (0.0, stats.region_log(v.region_percent))
    ends = (abs(math.log(v.low)), abs(math.log(v.high)))
    return any(abs(e - limit) < 1e-9 for e in ends for limit in limits)


@given(blocks)
def test_swapping_the_arms_mirrors_everything(of: Blocks) -> None:
    there, back = verdict(of), verdict([(b, a) for a, b in of])
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert back.low == pytest.approx(1 / there.high)
    assert back.high == pytest.approx(1 / there.low)
    assume(not near_an_edge(there))
    assert back.verdict == OPPOSITE[there.verdict]


@given(blocks, st.floats(1e-3, 1e3))
def test_the_unit_does_not_matter(of: Blocks, factor: float) -> None:
    plain = verdict(of)
    scaled = verdict([([x * factor for x in a], [x * factor for x in b]) for a, b in of])
    assert scaled.ratio == pytest.approx(plain.ratio)
    assert scaled.low == pytest.approx(plain.low)
    assert scaled.high == pytest.approx(plain.high)
    assume(not near_an_edge(plain))
    assert scaled.verdict == plain.verdict


@given(blocks)
def test_more_is_better_is_the_mirror_of_less_is_better(of: Blocks) -> None:
    less, more = verdict(of), verdict(of, direction="max")
    assert (more.ratio, more.low, more.high) == (less.ratio, less.low, less.high)
    assert more.verdict == OPPOSITE[less.verdict]


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0.01, 20))
def test_exactly_one_verdict_holds(mean: float, below: float, above: float, region: float) -> None:
    interval = Interval(mean, mean - below, mean + above, 5)
    limit = stats.region_log(region)
    inside = -limit <= interval.low and interval.high <= limit
    rules = {
        "no-difference": inside,
        "better": interval.high < 0 and not inside,
        "worse": interval.low > 0 and not inside,
        "inconclusive": interval.low <= 0 <= interval.high and not inside,
    }
    assert sum(rules.values()) == 1
    assert rules[judge(interval, region)]


def test_a_block_number_is_the_mean_of_logs() -> None:
    assert stats.log_ratio([2.0, 8.0], [2.0, 2.0]) == pytest.approx(math.log(2 / 4))


def test_the_interval_is_students() -> None:
    """Ten numbers with mean 0 and standard deviation 1: ± t(0.975, 9) / √10."""
    numbers = [-1.0] * 5 + [1.0] * 5
    sd = math.sqrt(10 / 9)
    interval = stats.t_interval(numbers)
    assert interval.high == pytest.approx(2.2621572 * sd / math.sqrt(10), rel=1e-6)
    assert interval.low == -interval.high


def test_one_block_has_no_interval() -> None:
    v = verdict([([1.0, 1.0], [0.5, 0.5])])
    assert (v.verdict, v.blocks) == ("inconclusive", 1)
    assert v.ratio == v.low == v.high == 0.5


@pytest.mark.parametrize(
    ("arm", "expected"), [(1.0, "no-difference"), (0.5, "better"), (2.0, "worse")]
)
def test_without_any_noise(arm: float, expected: str) -> None:
    v = verdict([([1.0, 1.0], [arm, arm])] * 5)
    assert v.verdict == expected
    assert v.low == v.high == v.ratio == arm


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_what_has_no_logarithm_is_told(bad: float) -> None:
    with pytest.raises(stats.NotPositiveError, match=r"faults.*positive"):
        stats.verdict("faults", "min", [([1.0], [bad]), ([1.0], [1.0])], 1.0)


def test_medians_are_of_all_runs() -> None:
    v = verdict([([1.0, 2.0], [4.0, 5.0]), ([3.0, 9.0], [6.0, 7.0])])
    assert (v.base_median, v.arm_median) == (2.5, 5.5)


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        ("normal", Noise(0.05)),
        ("heavy tails", Noise(0.09, "heavy")),
        ("autocorrelated", Noise(0.07, "normal", 0.33)),
        ("heavy and autocorrelated", Noise(0.11, "heavy", 0.45)),
    ],
)
def test_intervals_cover_the_truth(name: str, noise: Noise) -> None:
    """Ten ABBA/BAAB blocks, as the recorded workloads scatter: 95 % of intervals hold the truth.

    The t interval is exact for normal noise. Skewness cancels in differences of logs, which makes
    heavy tails, if anything, conservative: hence one-sided room above.
    """
    seed, studies = 20240613, 4000
    print(f"seed {seed}, {name}")
    rng = random.Random(f"{seed} {name}")
    truth = math.log(0.93)
    hits = 0
    for _ in range(studies):
        logs = []
        for _ in range(10):
            order = "ABBA" if rng.random() < 0.5 else "BAAB"
            drawn = [(arm, noise.draw(rng)[0] + (truth if arm == "B" else 0.0)) for arm in order]
            ours = [x for arm, x in drawn if arm == "B"]
            base = [x for arm, x in drawn if arm == "A"]
            logs.append(sum(ours) / 2 - sum(base) / 2)
        interval = stats.t_interval(logs)
        hits += interval.low <= truth <= interval.high
    low = binom.ppf(5e-6, studies, 0.95)
    high = binom.ppf(1 - 5e-6, studies, 0.95 if name == "normal" else 0.98)
    assert low <= hits <= high, hits / studies


def test_detectable_effects_are_detected_nine_times_in_ten() -> None:
    seed, studies, n = 7, 4000, 8
    print(f"seed {seed}")
    rng = random.Random(seed)
    effect = stats.detectable(0.03, n)
    found = sum(
        stats.t_interval([rng.gauss(effect, 0.03) for _ in range(n)]).low > 0
        for _ in range(studies)
    )
    # The planning formula takes quantiles of t for those of its noncentral kin: a little cautious.
    assert binom.ppf(5e-6, studies, 0.89) <= found <= binom.ppf(1 - 5e-6, studies, 0.93)


@given(st.floats(0.001, 0.5), st.floats(0.001, 0.5), st.integers(2, 200))
def test_blocks_to_detect_is_the_least_that_does(effect: float, sd: float, most: int) -> None:
    n = stats.blocks_to_detect(effect, sd, most)
    assert 2 <= n <= most
    if n < most:
        assert stats.detectable(sd, n) <= effect
    if n > 2:
        assert stats.detectable(sd, n - 1) > effect


def test_more_blocks_are_estimated_from_the_scatter() -> None:
    rng = random.Random(3)
    logs = [rng.gauss(0.02, 0.04) for _ in range(6)]
    more = stats.blocks_to_tell(logs, 1.0)
    assert more is not None
    n, sd = len(logs) + more, stats.deviation(logs)
    mean = abs(sum(logs) / len(logs))
    assert stats.t_quantile(0.975, n - 1) * sd / math.sqrt(n) < mean
    assert stats.t_quantile(0.975, n - 2) * sd / math.sqrt(n - 1) >= mean


def test_hopeless_comparisons_have_no_estimate() -> None:
    edge = stats.region_log(1.0) / 2
    assert stats.blocks_to_tell([edge - 3, edge + 3], 1.0) is None
    assert stats.blocks_to_tell([0.1], 1.0) is None


def test_outliers_are_found_and_noise_is_not() -> None:
    rng = random.Random(5)
    quiet = [math.exp(rng.gauss(0, 0.05)) for _ in range(40)]
    assert stats.outliers(quiet) == []
    assert stats.outliers([*quiet, 2.0]) == [40]
    assert stats.outliers([1.0] * 9 + [2.0]) == []  # No scatter to judge by.


def test_drift_is_found_and_noise_is_not() -> None:
    rng = random.Random(6)
    flat = [rng.gauss(0, 0.05) for _ in range(40)]
    rising = [x + 0.005 * i for i, x in enumerate(flat)]
    steady, drifting = stats.drift(range(40), flat), stats.drift(range(40), rising)
    assert steady is not None
    assert drifting is not None
    assert steady.p > 0.01
    assert drifting.p < 1e-4
    assert drifting.change == pytest.approx(0.2, abs=0.06)
