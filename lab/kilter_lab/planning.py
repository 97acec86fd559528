"""What the budget allows: trials, race, pruning and confirmation, from the first few runs.

Shares of the runs were chosen by the synthetic studies of ``bench/studies.py`` and
``bench/evidence/landscapes.py``: less search finds less, less confirmation leaves what was found
unproven.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kilter_lab import stats
from kilter_lab.errors import LabError
from kilter_lab.ledger import Plan
from kilter_lab.outcome import shared_alpha
from kilter_lab.wording import count, duration, percent

DEFAULT_TRIALS = 120
"""Trials where neither trials nor time were asked for."""

MOST_TRIALS = 600
"""Trials after which a search within a time budget goes on to confirm what it has."""

SCREEN_SHARE = 0.5
"""Share of the trials that are a balanced design."""

WIDTH = 7
"""Trials that share the baseline of one block; wider blocks follow drift less well."""

SEARCH, RACE, PRUNE = 0.60, 0.08, 0.12
"""Shares of the runs; pruning also has what the confirmation does not need."""

REPORT_S = 4.0
"""Seconds kept for the report, at most a twentieth of the budget."""

NOISE_RUNS = 6
"""Baseline runs from which the noise is estimated."""

CHECK_RUNS = 1

FEWEST_TRIALS = 4
FEWEST_CONFIRM = 4
"""Blocks below which a confirmation says next to nothing."""
MOST_CONFIRM = 60

MEMBERS = 3
"""Candidates that are confirmed where several metrics decide, at most: each one more takes runs
from the confirmation of all."""

LEAST_AFTER = 76
"""Runs that are made after a search at most, however short it was."""

LEAST_RACE = 12
"""Runs of the shortest race."""

ARM_S = 0.05
"""An arm's runs in a block take at least this long together: writing a trial takes some of it."""

MOST_REPEATS = 4

SLOWEST = 5.0
"""A candidate is ended after so many times the baseline's slowest run, and two seconds more."""


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
    repeats = max(1, min(MOST_REPEATS, math.ceil(ARM_S / max(1e-6, run_s))))
    if math.isfinite(left_s):
        fitting = trials_in(int(SEARCH * left_s / run_s), repeats)
        trials = min(MOST_TRIALS if trials is None else trials, fitting)
        if trials < FEWEST_TRIALS:
            raise LabError(
                f"the budget is too small: a run takes {duration(run_s)}, and the least that "
                f"leads to a verdict is {duration(least_s(run_s))}",
                f"--budget {math.ceil(least_s(run_s) * 2 / 60)}m",
            )
    else:
        trials = DEFAULT_TRIALS if trials is None else trials
    width = min(WIDTH, max(2, trials))
    return Plan(
        noise=noise,
        run_s=run_s,
        timeout_s=timeout_s or slowest_s * SLOWEST + 2.0,
        trials=trials,
        screen=max(width, math.ceil(SCREEN_SHARE * trials)),
        width=width,
        repeats=repeats,
    )


def search_runs(trials: int, repeats: int = 1) -> int:
    """Runs of a search, the blocks' baselines included."""
    return repeats * (trials + math.ceil(trials / WIDTH))


def trials_in(runs: int, repeats: int = 1) -> int:
    """Trials of a search of so many runs."""
    blocks, rest = divmod(runs // repeats, WIDTH + 1)
    return blocks * WIDTH + max(0, rest - 1)


def total_runs(trials: int, repeats: int = 1, objectives: int = 1) -> int:
    """Runs of a whole study of so many trials, at most.

    Several objectives take several candidates to the end, so what follows the search is longer.
    """
    searched = search_runs(trials, repeats)
    before = CHECK_RUNS + NOISE_RUNS + searched
    after = max(LEAST_AFTER, math.ceil(before / SEARCH) - before)
    return before + after * objectives


def race_runs(left: int) -> int:
    """Runs that the race may make of those left after the search."""
    return max(LEAST_RACE, int(RACE / (1 - SEARCH) * left))


def prune_runs(left: int, confirming: int, arms: int = 2) -> int:
    """Runs that pruning may make of those left after the race: what confirming leaves, or more.

    ``confirming``: blocks of the confirmation, each of two runs of so many arms.
    """
    return max(int(PRUNE / (1 - SEARCH - RACE) * left), left - 2 * arms * confirming)


def least_s(run_s: float) -> float:
    """Seconds of the smallest study that can end in a verdict."""
    return search_runs(FEWEST_TRIALS) * run_s / SEARCH + (1 + NOISE_RUNS) * run_s


def told(
    plan: Plan, left_s: float, knobs: int, seed: int, noises: Mapping[str, float], alpha: float
) -> list[str]:
    """The plan in two lines.

    ``noises``: standard deviation of one run by deciding metric, log units. Several metrics share
    ``alpha``, and each may bring a candidate of its own, up to three.
    """
    metrics = len(noises)
    total = left_s
    if not math.isfinite(total):
        total = total_runs(plan.trials, plan.repeats, metrics) * plan.run_s
    arms = 2 if metrics < 2 else 1 + MEMBERS
    confirm = int((1 - SEARCH - RACE - PRUNE) * total / plan.run_s) // (2 * arms)
    confirm = max(FEWEST_CONFIRM, min(MOST_CONFIRM, confirm))
    share = shared_alpha(alpha, metrics, arms - 1)
    varies, effects = [], []
    for label, noise in noises.items():
        where = f" in {label}" if metrics > 1 else ""
        effect = math.expm1(stats.detectable(noise, confirm, share)) * 100
        varies.append(f"{percent(noise * 100)} %{where}")
        effects.append(f"{percent(effect)} %{where}")
    several = "" if metrics < 2 else f" up to {MEMBERS} candidates side by side"
    return [
        f"A run takes {duration(plan.run_s)} and varies by {', '.join(varies)} (seed {seed}).",
        f"About {count(plan.trials, 'trial')} over {count(knobs, 'knob')}, up to {confirm} blocks "
        f"to confirm{several}: effects from {', '.join(effects)} on will show. "
        f"About {duration(total)}.",
    ]
