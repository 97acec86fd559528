"""What the budget allows: trials, races, pruning and confirmation, from the first few runs.

Shares of the time were chosen by the synthetic studies of ``bench/studies.py``: less search finds
less, less confirmation leaves what was found unproven.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kilter_lab import stats
from kilter_lab.errors import LabError
from kilter_lab.ledger import Plan
from kilter_lab.wording import count, duration, percent

DEFAULT_TRIALS = 60
"""Trials where neither trials nor time were asked for."""

MOST_TRIALS = 400
"""Trials after which a search within a time budget goes on to confirm what it has."""

SCREEN_SHARE = 0.5
"""Share of the trials that are a balanced design."""

SEARCH, RACE, PRUNE = 0.40, 0.13, 0.20
"""Shares of the time; what is left is for the confirmation."""

REPORT_S = 4.0
"""Seconds kept for the report, at most a twentieth of the budget."""

NOISE_RUNS = 6
"""Baseline runs from which the noise is estimated."""

FEWEST_TRIALS = 4
FEWEST_CONFIRM = 4
"""Blocks below which a confirmation says next to nothing."""
MOST_CONFIRM = 60

PAIR_S = 0.1
"""A trial's runs take at least this long together: asking the sampler takes half of it."""

MOST_PAIRS = 4

SLOWEST = 5.0
"""A candidate is ended after so many times the baseline's slowest run, and two seconds more."""


@dataclass(frozen=True)
class Sizes:
    """Runs that each phase may make."""

    race: int
    prune: int
    confirm: int


def noise_runs(run_s: float, budget_s: float | None) -> int:
    """Baseline runs to spend on the noise: at most a twentieth of the budget, at least 2."""
    if budget_s is None or run_s <= 0:
        return NOISE_RUNS
    return max(2, min(NOISE_RUNS, int(0.05 * budget_s / run_s)))


def make(
    noise: float,
    run_s: float,
    slowest_s: float,
    trials: int | None,
    left_s: float,
    timeout_s: float | None,
) -> Plan:
    """The plan for what is left of the budget. LabError where it allows no verdict."""
    pairs = max(1, min(MOST_PAIRS, math.ceil(PAIR_S / max(1e-6, 2 * run_s))))
    if math.isfinite(left_s):
        fitting = int(SEARCH * left_s / (2 * pairs * run_s))
        trials = min(MOST_TRIALS if trials is None else trials, fitting)
        if trials < FEWEST_TRIALS:
            raise LabError(
                f"the budget is too small: a run takes {duration(run_s)}, and the least that "
                f"leads to a verdict is {duration(least_s(run_s))}",
                f"--budget {math.ceil(least_s(run_s) * 2 / 60)}m",
            )
    elif trials is None:
        trials = DEFAULT_TRIALS
    return Plan(
        noise=noise,
        run_s=run_s,
        timeout_s=timeout_s or slowest_s * SLOWEST + 2.0,
        trials=trials,
        screen=math.ceil(SCREEN_SHARE * trials),
        pairs=pairs,
    )


def least_s(run_s: float) -> float:
    """Seconds of the smallest study that can end in a verdict."""
    return 2 * FEWEST_TRIALS * run_s / SEARCH + (1 + NOISE_RUNS) * run_s


def sizes(plan: Plan, left_s: float) -> Sizes:
    """Runs for race, pruning and confirmation after the search, within the time left."""
    searched = 2 * plan.pairs * plan.trials
    if math.isfinite(left_s):
        # Another run's time must fit the estimate's error and the slower arms.
        runs = int(0.95 * left_s / plan.run_s)
        rest = 1 - SEARCH
        return Sizes(int(runs * RACE / rest), int(runs * PRUNE / rest), runs)
    whole = searched / SEARCH
    return Sizes(
        max(20, round(RACE * whole)),
        max(16, round(PRUNE * whole)),
        4 * max(10, min(MOST_CONFIRM, round(0.25 * searched))),
    )


def told(plan: Plan, left_s: float, knobs: int, seed: int) -> list[str]:
    """The plan in two lines."""
    if math.isfinite(left_s):
        total = left_s
        confirm = int((1 - SEARCH - RACE - PRUNE) * left_s / plan.run_s) // 4
    else:
        total = 2 * plan.pairs * plan.trials * plan.run_s / SEARCH
        confirm = sizes(plan, left_s).confirm // 4
    confirm = max(FEWEST_CONFIRM, min(MOST_CONFIRM, confirm))
    effect = math.expm1(stats.detectable(plan.noise, confirm)) * 100
    return [
        f"A run takes {duration(plan.run_s)} and varies by {percent(plan.noise * 100)} % "
        f"(seed {seed}).",
        f"About {count(plan.trials, 'trial')} over {count(knobs, 'knob')}, up to {confirm} blocks "
        f"to confirm: effects from {percent(effect)} % on will show. About {duration(total)}.",
    ]
