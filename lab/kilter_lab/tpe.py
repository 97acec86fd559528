"""What Optuna's TPE sampler would try next.

One trial of each block is its choice once the balanced design has run. The model of effects finds
sums and pairs far sooner; TPE assumes neither, so that a landscape which is no such sum is still
looked at where it was good. Where several metrics decide, it is TPE for several objectives, whose
good trials are those that come first by non-domination.

The sampler sees the good trials and the latest others, because its time grows with every trial
and the machine stands idle meanwhile; TPE itself gives the older ones less weight.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

import optuna
from optuna.samplers import TPESampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from kilter_lab.blocks import dice
from kilter_lab.session import Session
from kilter_lab.space import Point
from kilter_lab.trials import Tried

GOOD, GOOD_SHARE = 25, 0.1
"""Trials that count as good: so many, or this share of all if fewer (TPE's own rule)."""

LATEST = 60
"""Other trials that the sampler sees."""


class _Shelf(InMemoryStorage):
    """A storage that shows these trials. Optuna's own would copy each of them deeply."""

    def __init__(self, shown: Sequence[FrozenTrial]) -> None:
        super().__init__()
        self._shown = shown

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """The trials themselves."""
        return [t for t in self._shown if states is None or t.state in states]


class Tpe:
    """The sampler over the trials of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        head = session.head
        self._metrics = [m.name for m in head.metrics[: head.question.objectives]]
        self._domains = session.space.distributions()
        self._trials: list[FrozenTrial] = []
        self._next = 0
        """The first trial of the record that is not among them."""

    def suggestion(self, number: int) -> Point:
        """The point for trial ``number``, by all trials that have ended."""
        self._take_in()
        count = sum(t.state == TrialState.COMPLETE for t in self._trials)
        good = min(math.ceil(GOOD_SHARE * count), GOOD)
        study = optuna.create_study(
            storage=_Shelf(self._seen(good)), directions=["minimize"] * len(self._metrics)
        )
        sampler = TPESampler(
            seed=dice(self._session.head.seed, "tpe", number).getrandbits(31),
            multivariate=True,
            constant_liar=False,
            gamma=lambda _: good,
        )
        asked = create_trial(state=TrialState.RUNNING)
        point = sampler.sample_relative(study, asked, self._domains)
        for name, domain in self._domains.items():  # All of them while there are few trials.
            if name not in point:
                point[name] = sampler.sample_independent(study, asked, name, domain)
        return self._session.space.repair(point)

    def _take_in(self) -> None:
        """Turn what is new on the record into Optuna's trials."""
        trials = self._session.ledger.trials()
        for tried in trials[self._next :]:
            if tried.point and tried.state != "void":
                self._trials.append(self._frozen(tried))
        self._next = len(trials)

    def _frozen(self, tried: Tried) -> FrozenTrial:
        values = [tried.costs[m] for m in self._metrics if m in tried.costs]
        whole = len(values) == len(self._metrics)
        trial = create_trial(
            state=TrialState.COMPLETE if whole else TrialState.PRUNED,
            values=values if whole else None,
            params=tried.point,
            distributions=self._domains,
            constraints=None if whole else {"runs": 1.0},
        )
        trial.number = tried.number
        return trial

    def _seen(self, good: int) -> list[FrozenTrial]:
        """The best by each metric and the latest, by number."""
        ran = [t for t in self._trials if t.state == TrialState.COMPLETE]
        chosen = {t.number: t for t in self._trials[-LATEST:]}
        for k in range(len(self._metrics)):
            best = sorted(ran, key=lambda t: t.values[k])[:good]
            chosen.update({t.number: t for t in best})
        return [chosen[number] for number in sorted(chosen)]
