"""What Optuna's TPE sampler would try next.

One trial of each block is its choice once the balanced design has run. The model of effects finds
sums and pairs far sooner; TPE assumes neither, so that a landscape which is no such sum is still
looked at where it was good.
"""

from __future__ import annotations

import optuna
from optuna.samplers import TPESampler

from kilter_lab.blocks import dice
from kilter_lab.session import Session
from kilter_lab.space import Point


def suggestion(session: Session, number: int) -> Point:
    """The point for trial ``number``, by all trials that have ended."""
    seed = dice(session.head.seed, "tpe", number).getrandbits(31)
    study = optuna.create_study(sampler=TPESampler(seed=seed, multivariate=True))
    study.add_trials(session.ledger.finished())
    return session.space.repair(study.ask(session.space.distributions()).params)
