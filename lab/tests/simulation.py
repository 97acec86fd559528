"""Whole studies in process on a synthetic machine, and the tuning script's method beside them."""

from __future__ import annotations

import io
import math
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

import optuna
import synthetic
from optuna.samplers import TPESampler
from planted import Planted

from kilter_lab.console import Console
from kilter_lab.ledger import Outcome, open_storage, quiet
from kilter_lab.messages import LabContext, Question, Settings, TuneRequest
from kilter_lab.opening import open_study
from kilter_lab.publish import tested
from kilter_lab.session import Session
from kilter_lab.space import build
from kilter_lab.tune import conclude, open_session


@dataclass(frozen=True)
class Fresh:
    """The confirmation of a study beside the truth of the profile that it ran, as gains."""

    true: float
    told: float
    low: float
    high: float
    """The 95 % interval's ends."""

    @property
    def covers(self) -> bool:
        """Whether the interval contains the truth."""
        return self.low <= self.true <= self.high


@dataclass(frozen=True)
class Study:
    """What a study came to; gains are shares of the run time (0.1: 10 % less)."""

    ending: str
    runs: int
    true: float
    """True gain of what was picked (nothing picked: 0)."""
    promised: float
    confirmed: float
    """What the method says in the end."""
    knobs: int
    fresh: Fresh | None = None
    """None where nothing came to a confirmation."""


def request(seed: int, trials: int | None = 60, **changes: object) -> TuneRequest:
    """A request for the twelve knobs of ``synthetic``, on a storage that is gone afterwards."""
    chosen: dict[str, object] = {
        "context": LabContext(kilter=["false"], seed=seed),
        "options": synthetic.options(),
        "study": "s",
        "storage": "memory:",
        "state_dir": str(Path(tempfile.gettempdir())),
        "command": ["work"],
        "knobs": synthetic.knobs(),
        "question": Question(),
        "at_most": [("vm.dirty_background_ratio", "vm.dirty_ratio")],
        "trials": trials,
        **changes,
    }
    return TuneRequest(**chosen)  # type: ignore[arg-type]


def silent() -> Console:
    """A console that nobody sees."""
    return Console(io.StringIO(), io.StringIO())


def run_study(
    response: Planted, seed: int, noise: synthetic.Noise, trials: int, **changes: object
) -> Study:
    """One whole tune."""
    asked = request(seed, trials, **changes)
    machine = synthetic.Machine(response, seed, noise)
    space, _ = build(asked)
    ledger = open_study(open_storage(asked.storage), asked, space)
    session = open_session(asked, space, ledger, machine, silent())
    outcome = conclude(session)
    confirmed = outcome.confirmed[0].ratio if outcome.confirmed else 1.0
    picked: Settings = outcome.winner if outcome.ending == "better" else {}
    return Study(
        ending=outcome.ending,
        runs=machine.runs,
        true=-math.expm1(response(picked)),
        promised=1 - outcome.promised.ratio if outcome.promised else 0.0,
        confirmed=1 - confirmed,
        knobs=len(picked),
        fresh=_fresh(response, session, outcome),
    )


def _fresh(response: Planted, session: Session, outcome: Outcome) -> Fresh | None:
    if not outcome.confirmed:
        return None
    v = outcome.confirmed[0]
    true = -math.expm1(response(tested(session, outcome)))
    return Fresh(true, 1 - v.ratio, 1 - v.high, 1 - v.low)


def seed_script(
    response: Planted, seed: int, noise: synthetic.Noise, runs: int, **changes: object
) -> Study:
    """One run per setting that Optuna's sampler proposes, one of the default; the best run wins.

    The sampler is what ``create_study()`` gave when such scripts were written: univariate TPE.
    """
    rng = random.Random(f"script {seed}")
    space, _ = build(request(seed, **changes))  # type: ignore[arg-type]
    quiet()
    study = optuna.create_study(sampler=TPESampler(seed=rng.getrandbits(31), multivariate=False))
    default = math.exp(noise.draw(rng)[0])
    best, settings, domains = default, Settings(), space.domains()
    for _ in range(runs - 1):
        trial = study.ask(domains)
        tried = space.settings(space.chosen(trial.params))
        wall = math.exp(response(tried) + noise.draw(rng)[0])
        study.tell(trial, wall)
        if wall < best:
            best, settings = wall, tried
    gain = 1 - best / default
    return Study("better", runs, -math.expm1(response(settings)), gain, gain, len(settings))
