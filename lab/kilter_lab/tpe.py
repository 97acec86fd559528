"""What Optuna's TPE sampler would try next.

One trial of each block is its choice once the balanced design has run. The model of effects finds
sums and pairs far sooner; TPE assumes neither, so that a landscape which is no such sum is still
looked at where it was good. Where several metrics decide, it is TPE for several objectives, whose
good trials are those that come first by non-domination.

The machine stands idle while the sampler thinks, and its time grows with every trial. So it sees
the best trials and the latest only; TPE itself gives the older ones less weight.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import optuna
from optuna.samplers import TPESampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from kilter_lab.blocks import dice
from kilter_lab.session import Session
from kilter_lab.space import Point
from kilter_lab.trials import Tried

GOOD = 15
"""Trials that the sampler sees because they came out best, by each metric."""

LATEST = 60
"""Trials that it sees because they are new."""


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
        self._domains = session.space.domains()
        self._trials: list[FrozenTrial] = []
        self._next = 0
        """The first trial of the record that is not among them."""

    def suggestion(self, number: int) -> Point:
        """The point for trial ``number``, by all trials that have ended."""
        self._take_in()
        seen = {t.number: t for t in [*self._trials[-LATEST:], *self._best()]}
        study = optuna.create_study(
            storage=_Shelf([seen[n] for n in sorted(seen)]),
            directions=["minimize"] * len(self._metrics),
        )
        seed = dice(self._session.head.seed, "tpe", number).getrandbits(31)
        sampler = TPESampler(seed=seed, multivariate=True, constant_liar=False)
        asked = create_trial(state=TrialState.RUNNING)
        found = sampler.sample_relative(study, asked, self._domains) or {  # Too few trials.
            name: sampler.sample_independent(study, asked, name, domain)
            for name, domain in self._domains.items()
        }
        return self._session.space.chosen(found)

    def _take_in(self) -> None:
        """Turn what is new on the record into Optuna's trials."""
        trials = self._session.ledger.trials()
        for tried in trials[self._next :]:
            if tried.state != "void":
                self._trials.append(self._frozen(tried))
        self._next = len(trials)

    def _frozen(self, tried: Tried) -> FrozenTrial:
        point, costs = tried.point, tried.costs
        if not point:  # The baseline.
            point, costs = self._session.space.baseline(), dict.fromkeys(self._metrics, 0.0)
        values = [costs[m] for m in self._metrics if m in costs]
        whole = len(values) == len(self._metrics)
        trial = create_trial(
            state=TrialState.COMPLETE if whole else TrialState.PRUNED,
            values=values if whole else None,
            params=self._session.space.coordinates(point),
            distributions=self._domains,
            constraints=None if whole else {"runs": 1.0},
        )
        trial.number = tried.number
        return trial

    def _best(self) -> list[FrozenTrial]:
        """The best trials by each metric."""
        ran = [t for t in self._trials if t.state == TrialState.COMPLETE]
        metrics = range(len(self._metrics))
        return [t for k in metrics for t in sorted(ran, key=lambda t: t.values[k])[:GOOD]]
