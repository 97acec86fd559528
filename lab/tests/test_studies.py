"""A study as the reports see it, from its record."""

from __future__ import annotations

import random

import pytest
import simulation
import synthetic
from planted import plant

from kilter_lab.ledger import Ledger, open_storage
from kilter_lab.opening import open_study
from kilter_lab.space import build
from kilter_lab.studies import study_data
from kilter_lab.study import Block, Run
from kilter_lab.tune import conclude, open_session


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    """The record of a study that confirmed a gain of 10 %."""
    asked = simulation.request(5)
    response = plant(synthetic.knobs(), [0.1], random.Random(5))
    machine = synthetic.Machine(response, 5, synthetic.Noise(0.02))
    space, _ = build(asked)
    made = open_study(open_storage(asked.storage), asked, space)
    outcome = conclude(open_session(asked, space, made, machine, simulation.silent()))
    assert outcome.confirmed
    made.write("outcome", outcome)
    return made


def test_the_sequence_ends_with_the_verdict(ledger: Ledger) -> None:
    data = study_data(ledger)
    assert data.planned_blocks >= data.confirmed[0].blocks
    for verdict in data.confirmed:
        looks = data.sequence[verdict.metric]
        assert [look.blocks for look in looks] == list(range(2, verdict.blocks + 1))
        assert (looks[-1].low, looks[-1].high) == pytest.approx((verdict.low, verdict.high))


def test_blocks_that_confirmed_another_winner_are_left_out(ledger: Ledger) -> None:
    before = study_data(ledger)
    stale = Run("confirm", 99, "winner", 1e6, 1.0, 0.0, {"wall": 1e9}, "ok")
    ledger.add_block("confirm", 99, Block({"base": {}, "winner": {"vm.swappiness": "1"}}, [stale]))
    after = study_data(ledger)
    assert after.runs == before.runs
    assert after.sequence == before.sequence
