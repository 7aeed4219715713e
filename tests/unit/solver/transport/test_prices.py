"""Prices of links: the plan's own bytes pay for their time, and what rounding leaves of a dual is none."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from models.request import PlanRequest
from solver.configurations.enumerate import enumerate_space
from solver.evaluation.candidate import configuration_of
from solver.evaluation.evaluate import evaluate
from solver.evaluation.places import placements
from solver.evaluation.scheduling import portfolio_timing
from solver.transport import prices
from solver.transport.ring import ring_of
from tests.build_job import FIXED, context_of, job

PAID = 1e-4  # relative: what the judge allows


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

    monkeypatch.setattr(prices, "phase_prices", rounded)
    assert {edge for edge, _ in prices.link_prices(context, found.traffic, hidden_s=0.0)} == {wide}


@pytest.mark.parametrize("detours_matter", [False, True])
def test_bytes_pay_for_the_time_that_they_take_whatever_paths_they_have(*, detours_matter: bool) -> None:
    """Where bytes between buildings are limited, a path of least latency through a third building is no path of the
    routing: its duals priced the direct link, which carried nothing.
    """
    random, ways_round = np.random.default_rng(3), 0
    limits = {"max_cross_building_bytes_per_iteration": 1e15} if detours_matter else {}
    for _ in range(20):
        document = job(hosts=(1, 1, 1), constraints=limits).model_dump(mode="json", exclude_none=True)
        near, *others = document["cluster"]["links"]
        links = [near, *others, {**near, "id": "direct", "from_place": "b0", "to_place": "b2"}]
        for one in links:
            one |= {"latency_s": float(random.choice([1e-4, 1e-3, 1e-2])),
                    "capacity_bytes_per_s": float(random.choice([1e10, 3e10, 1e11]))}  # fmt: skip
        document["cluster"]["links"] = links
        context = context_of(PlanRequest.model_validate(document))
        ring, rates = ring_of(context.topology, ["b0", "b2"]), np.array(context.topology.capacity_bytes_per_s)
        load_e = np.zeros(len(rates))
        for edge, part in ring.load.items():
            load_e[edge] = part * 1e9
        phase = prices.PricedPhase(dict.fromkeys(ring.steps, 1e9), load_e)
        price_e = prices.phase_prices(context, phase, rates)
        assert price_e @ rates == pytest.approx(1.0, rel=PAID)
        assert price_e @ load_e == pytest.approx((load_e / rates).max(), rel=PAID)
        ways_round += any(len(path) > 1 for parts in ring.parts for path, _ in parts)
    assert ways_round > 3
