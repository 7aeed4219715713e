"""Exchanges sent slowly enough for several to run at once: when that is done, and that the judge derives it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from models.outcome import Planned
from models.plan import Plan
from models.request import PlanRequest
from solver.planner import plan
from solver.transport.exchange import ExchangeCost, InterSiteRing
from solver.transport.exchange_times import run_exchanges, with_slower_rings
from solver.transport.ring import Ring
from solver.verify.judge import judge

RANKS = (0, 1, 2, 3)


def cost(share: float, *, private_s: float = 0.0, bottlenecks: frozenset[int] = frozenset({0})) -> ExchangeCost:
    """One that takes a part of two edges for a second, the rest of which distance takes."""
    shares = {0: share, 1: share / 2.0}
    ring = InterSiteRing(Ring((), ()), 6.0, share, 1.0, share, bottlenecks, shares, ())
    return ExchangeCost(0.0, private_s, 1.0, {0: 6.0, 1: 3.0}, shares, site_ring=ring)


def end_s(costs: tuple[ExchangeCost, ...], ready_s: list[float]) -> float:
    return max(one.end_s for one in run_exchanges(costs, ready_s, RANKS))


@pytest.mark.parametrize(
    ("share", "num_at_once", "last_s"), [(0.5, 1, 2.0), (0.55, 2, 2.2), (0.3, 4, 1.2), (0.9, 8, 3.6), (1.0, 1, 4.0)]
)
def test_exchanges_that_would_follow_each_other_are_sent_at_once(share: float, num_at_once: int, last_s: float) -> None:
    """Four that take more than half of a link each take turns; a little slower, two run at once."""
    costs, ready_s = (cost(share),) * len(RANKS), [0.0] * len(RANKS)
    chosen = with_slower_rings(costs, ready_s, RANKS)
    assert end_s(chosen, ready_s) == pytest.approx(last_s)
    assert end_s(chosen, ready_s) <= end_s(costs, ready_s)
    assert {one.site_ring.ring.num_at_once for one in chosen if one.site_ring is not None} <= {1, 2, 4, 8}
    if num_at_once == 1:
        assert chosen == costs


@pytest.mark.parametrize("bottlenecks", [frozenset({0}), frozenset()], ids=["links", "cards"])
def test_one_that_is_slower_sends_the_same_bytes_at_the_part_of_the_link_that_is_left_to_it(
    bottlenecks: frozenset[int],
) -> None:
    """Whether links or the cards of its rank pace it when it is alone."""
    whole = cost(0.8, bottlenecks=bottlenecks)
    slower = whole.slower(3)
    assert slower.shared_s == pytest.approx(3 * 0.8)
    assert max(slower.shares.values()) == pytest.approx(1.0 / 3.0)
    for edge, share in whole.shares.items():
        assert slower.shares[edge] * slower.shared_s == pytest.approx(share * whole.shared_s)
    assert slower.site_ring is not None
    assert slower.site_ring.ring.num_at_once == 3
    assert slower.site_ring.reached * slower.shared_s == pytest.approx(slower.site_ring.wire_s)


def test_what_has_room_beside_it_is_not_slowed_down() -> None:
    for one, number in ((cost(0.3), 3), (cost(0.8), 1)):
        assert one.slower(number) is one
    inside = ExchangeCost(0.0, 1.0, 0.0, {})
    assert inside.slower(2) is inside


def test_slower_rings_are_taken_only_where_all_exchanges_end_sooner() -> None:
    random, taken = np.random.default_rng(4), 0
    for _ in range(200):
        costs = tuple(
            replace(one, private_s=float(random.uniform(0.0, 2.0)))
            for one in (cost(float(random.uniform(0.2, 1.0))) for _ in RANKS)
        )
        ready_s = random.uniform(0.0, 2.0, size=len(RANKS)).tolist()
        chosen = with_slower_rings(costs, ready_s, RANKS)
        assert end_s(chosen, ready_s) < end_s(costs, ready_s) or chosen is costs
        taken += chosen is not costs
    assert 20 < taken < 200


def request_of(latency_s: float, capacity_bytes_per_s: float) -> PlanRequest:
    """Llama 8B, pipelines of four ranks in each of two buildings, so that every rank exchanges between both."""
    places = [{"id": "r", "level": "region"}, *({"id": one, "level": "building", "parent": "r"} for one in "ab")]
    pools = [{"id": f"p{one}", "place": one, "gpu": "H100-SXM-80G", "num_hosts": 4, "nic_bytes_per_s": 5e10}
             for one in "ab"]  # fmt: skip
    link = {"id": "ab", "from_place": "a", "to_place": "b", "capacity_bytes_per_s": capacity_bytes_per_s}
    allowed = {"tp": [8], "cp": [1], "vpp": [1], "pp": [4], "dp": [2], "sharding": ["zero1"]}
    return PlanRequest.model_validate(
        {
            "workload": {"architecture": "llama-3.1-8b", "sequence_length": 4096, "global_batch_sequences": 8},
            "cluster": {
                "name": "two buildings",
                "places": places,
                "pools": pools,
                "links": [{**link, "latency_s": latency_s}],
            },
            "constraints": {"allowed": allowed, "pipeline_may_cross_buildings": False},
            "options": {"time_limit_s": 3, "workers": 1, "reproducible": True},
        }
    )


def plans() -> Iterator[tuple[PlanRequest, Plan]]:
    """Of links of several widths far apart, those whose exchanges are slowed down."""
    for capacity in (1e11, 2e11, 3e11, 4e11):
        request = request_of(2e-2, capacity)
        outcome = plan(request, clock=lambda: 0.0)
        assert isinstance(outcome, Planned), outcome
        if any(ring.num_at_once > 1 for ring in outcome.plan.exchange_rings):
            yield request, outcome.plan


def test_the_judge_derives_how_slow_exchanges_are_and_convicts_any_other_number() -> None:
    found = list(plans())
    assert found
    for request, slowed in found:
        assert judge(request, slowed).violations == ()
        rings = slowed.exchange_rings
        for number, ring in enumerate(rings):
            for other in {1, ring.num_at_once + 1, 64} - {ring.num_at_once}:
                forged = (*rings[:number], ring.model_copy(update={"num_at_once": other}), *rings[number + 1 :])
                violations = judge(request, slowed.model_copy(update={"exchange_rings": forged})).violations
                assert {one.rule for one in violations} & {"exchange-times", "exchange-rings"}
