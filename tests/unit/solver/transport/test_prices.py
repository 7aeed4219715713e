"""Prices of links: what rounding leaves of a dual is none."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from solver.configurations.enumerate import enumerate_space
from solver.evaluation.candidate import configuration_of
from solver.evaluation.evaluate import evaluate
from solver.evaluation.places import placements
from solver.evaluation.scheduling import portfolio_timing
from solver.transport import prices
from tests.build_job import FIXED, context_of, job


def test_rounding_on_a_thin_link_is_no_price_however_dear_a_byte_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dual is told from rounding by what it is worth over the link's rate: thin links have few bytes a second."""
    context = context_of(job(hosts=(2, 2), allowed={**FIXED, "dp": [4]}, link={"reverse_capacity_bytes_per_s": 1.6e9}))
    configuration = configuration_of(context, enumerate_space(context.request), 0)
    greedy = partial(portfolio_timing, names=("greedy",))
    timed = (evaluate(context, one, greedy) for one in placements(context, configuration, ("ranks_whole",)))
    found = next(one for one in timed if one is not None)
    rates = context.topology.capacity_bytes_per_s
    wide = int(np.argmax(rates))
    worth = np.where(np.arange(len(rates)) == wide, 1.0, 2e-7)

    def rounded(_context: object, _phase: object, free: np.ndarray) -> np.ndarray:
        return worth / free

    monkeypatch.setattr(prices, "_phase_prices", rounded)
    assert {edge for edge, _ in prices.link_prices(context, found.traffic, hidden_s=0.0)} == {wide}
