"""Rings lead through places so that narrow links are crossed as seldom as may be, in whatever order buildings stand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from models.outcome import Planned
from models.plan import Plan
from models.request import PlanRequest
from solver.planner import plan
from solver.transport.ring import ring_of
from solver.transport.ring_order import ring_order
from solver.verify.judge import judge
from tests.build_job import FIXED, context_of, job
from tests.unit.solver.transport.meshes import meshed

ALLOWED: dict[str, Any] = {**FIXED, "tp": [8], "pp": [1], "dp": [4], "sharding": ["ddp"]}
FAR = {"capacity_bytes_per_s": 2e10, "latency_s": None, "distance_km": 1000.0}


def planned(order: tuple[int, ...]) -> Plan:
    """Four buildings in a row, named in this order, with a thin link in the middle; one replica in each."""
    request = job(hosts=(1, 1, 1, 1), batch=32, allowed=ALLOWED, options={"reproducible": True, "time_limit_s": 3.0})
    document = request.model_dump(mode="json")
    hardware = document["cluster"]
    hardware["links"][1] |= FAR
    for kind in ("places", "pools"):
        hardware[kind] = [hardware[kind][number] for number in order]
    read = PlanRequest.model_validate(document)
    outcome = plan(read)
    assert isinstance(outcome, Planned)
    assert judge(read, outcome.plan).accepted
    return outcome.plan


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (0, 3, 1, 2), (2, 0, 3, 1)])
def test_the_order_of_buildings_in_a_request_does_not_matter(order: tuple[int, ...]) -> None:
    plain, other = planned((0, 1, 2, 3)), planned(order)
    assert other.metrics.iteration_s == pytest.approx(plain.metrics.iteration_s, rel=1e-3)
    assert other.metrics.cross_building_bytes == pytest.approx(plain.metrics.cross_building_bytes)


@pytest.mark.parametrize("seed", range(20))
def test_on_a_tree_the_thinnest_link_is_crossed_once_each_way(seed: int) -> None:
    random = np.random.default_rng(seed)
    number = int(random.integers(4, 12))
    links = [
        (f"l{one}", f"b{one}", f"b{int(random.integers(one))}", float(random.uniform(1e10, 1e12)),
         float(random.uniform(1e-5, 1e-2)))
        for one in range(1, number)
    ]  # fmt: skip
    context = context_of(meshed(number, tuple(links)))
    capacity = context.topology.capacity_bytes_per_s
    some = random.permutation(number)[: max(4, number - 2)]
    ring = ring_of(context.topology, list(ring_order(context, tuple(f"b{one}" for one in some))))
    least_s = max(1.0 / capacity[edge] for edge in ring.load)  # whatever the order, each of them is on some step's way
    assert max(part / capacity[edge] for edge, part in ring.load.items()) <= least_s * 1.01


def test_along_a_row_the_ring_has_no_step_over_all_of_it() -> None:
    context = context_of(meshed(8, tuple((f"l{one}", f"b{one}", f"b{one + 1}", 1e12, 1e-3) for one in range(7))))
    order = ring_order(context, tuple(f"b{one}" for one in range(8)))
    ring = ring_of(context.topology, list(order))
    assert set(ring.load.values()) == {1.0}
    assert max(len(path) for parts in ring.parts for path, _ in parts) == 2


@pytest.mark.parametrize("seed", range(20))
def test_no_order_is_worse_than_the_one_that_is_given(seed: int) -> None:
    random = np.random.default_rng(seed)
    pairs = [(one, other) for one, other in itertools.combinations(range(6), 2) if other == one + 1 or seed % 2]
    links = [
        (f"l{one}{other}", f"b{one}", f"b{other}", float(random.uniform(1e10, 1e12)), 1e-4) for one, other in pairs
    ]
    context = context_of(meshed(6, tuple(links)))
    given = tuple(f"b{one}" for one in random.permutation(6))
    found = ring_order(context, given)
    assert sorted(found) == sorted(given)
    capacity = context.topology.capacity_bytes_per_s
    fullest = [max(part / capacity[edge] for edge, part in ring_of(context.topology, list(order)).load.items())
               for order in (given, found)]  # fmt: skip
    assert fullest[1] <= fullest[0] * 1.01
    assert ring_order(context, ("b0", "b2", "b1")) == ("b0", "b2", "b1"), "three places have one order"
