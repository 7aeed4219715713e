"""Pools in the order of the links, whatever order the request has them in."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from models.outcome import Planned
from models.request import PlanRequest
from solver.context import Context
from solver.planner import plan
from tests.build_job import job

CHAIN = ("b3", "b0", "b4", "b1", "b2")  # neighbours on the links
HOSTS = {"b0": 2, "b1": 3, "b2": 1, "b3": 2, "b4": 1}


def _chained(seed: int | None = None, **options: Any) -> PlanRequest:
    """A chain of buildings with wide and narrow links in turn; a seed shuffles its document."""
    document = job(hosts=(1,), options=options).model_dump(mode="json")
    pool = document["cluster"]["pools"][0]
    document["cluster"] = {
        "name": "chain",
        "places": [{"id": name, "level": "building"} for name in HOSTS],
        "pools": [{**pool, "id": f"p-{name}", "place": name, "num_hosts": count} for name, count in HOSTS.items()],
        "links": [
            {"id": f"l{one}", "from_place": one, "to_place": other, "latency_s": 1e-4, "capacity_bytes_per_s": rate}
            for (one, other), rate in zip(pairwise(CHAIN), (4e11, 1e10, 4e11, 1e10), strict=True)
        ],
    }
    if seed is not None:
        for kind in ("places", "pools", "links"):
            Random(seed).shuffle(document["cluster"][kind])
    return PlanRequest.model_validate(document)


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_neighbours_on_the_links_are_neighbours_in_the_order(seed: int | None) -> None:
    buildings = tuple(group.building for group in Context.of(_chained(seed)).capacity_groups)
    assert buildings in (CHAIN, CHAIN[::-1])


def test_joined_buildings_remain_together_and_the_largest_come_first() -> None:
    document = job(hosts=(1, 2, 4)).model_dump(mode="json")
    document["cluster"]["links"] = document["cluster"]["links"][:1]
    pools = Context.of(PlanRequest.model_validate(document)).pools
    assert [pool.id for pool in pools] == ["p2", "p1", "p0"]


def test_pools_of_a_place_remain_together() -> None:
    document = job(hosts=(2, 2)).model_dump(mode="json")
    first, second = document["cluster"]["pools"]
    document["cluster"]["pools"] = [first, second, {**first, "id": "p10"}]
    assert [pool.id for pool in Context.of(PlanRequest.model_validate(document)).pools] == ["p0", "p10", "p1"]


@pytest.mark.parametrize("seed", [1, 2])
def test_the_order_of_the_document_changes_no_plan(seed: int) -> None:
    options = {"reproducible": True, "time_limit_s": 3.0}
    found = [plan(_chained(order, **options), clock=lambda: 0.0) for order in (None, seed)]
    assert all(isinstance(one, Planned) for one in found)
    one, other = (each.plan for each in found if isinstance(each, Planned))
    assert (one.configuration, one.placement.routes) == (other.configuration, other.placement.routes)
    assert one.metrics.iteration_s == other.metrics.iteration_s
