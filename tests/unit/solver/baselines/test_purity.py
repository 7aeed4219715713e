"""What a baseline fixes in advance stays fixed, whatever the cluster offers and whatever would be faster."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from models.request import PlanRequest
from solver.baselines.policies import POLICIES
from solver.baselines.run import BaselineResult, Effort, promising, restricted, try_policy
from solver.configurations.enumerate import enumerate_space
from solver.context import Context
from solver.network.options import path_options
from solver.objective import Goal
from solver.search.frontier import Frontier
from tests.build_job import context_of, job

ALLOWED = {"tp": [4], "cp": [1], "pp": [4], "micro_batch_sequences": [1], "recompute": ["none"]}


def tried_on(hosts: tuple[int, ...]) -> tuple[Context, list[BaselineResult]]:
    return tried_of(job(hosts=hosts, batch=48, allowed=ALLOWED))


def tried_of(request: PlanRequest) -> tuple[Context, list[BaselineResult]]:
    context = context_of(request)
    frontier = Frontier(context, enumerate_space(context.request), Goal.of(context))
    while frontier.load(float("inf"), planned=True):
        pass
    effort = Effort(lambda: 0.0, lambda: False, deadline=float("inf"), ends_s=float("inf"))
    priced = frontier.space.take(frontier.rows)
    spaces = [(policy, promising(context, policy, priced, frontier.guess)) for policy in POLICIES]
    return context, [try_policy(context, policy, own, effort) for policy, own in spaces if len(own)]


@pytest.mark.parametrize("hosts", [(4, 2), (3, 3), (5, 3, 2)])
def test_what_a_policy_keeps_in_one_building_stays_there(hosts: tuple[int, ...]) -> None:
    context, tried = tried_on(hosts)
    building = {pool.id: context.topology.enclosing(pool.place, "building") for pool in context.pools}
    for one in tried:
        if one.best is None:
            assert one.reason
            continue
        routes = [[building[context.pools[pool].id] for pool in route.pools] for route in one.best.candidate.routes]
        kept = routes if one.policy.keeps_replicas_in_buildings else list(zip(*routes, strict=True))
        assert all(len(set(together)) == 1 for together in kept), one.policy.name
    assert any(one.best is not None for one in tried)


def two_regions() -> PlanRequest:
    """Two regions of two buildings each, H100 and B200 in both."""
    document = job(hosts=(2, 1, 2, 1), batch=48, allowed=ALLOWED).model_dump(mode="json")
    cluster = document["cluster"]
    for number, (place, pool) in enumerate(zip(cluster["places"], cluster["pools"], strict=True)):
        place["parent"] = f"region{number // 2}"
        pool["gpu"] = ("H100-SXM-80G", "B200-SXM")[number % 2]
    cluster["places"] = [{"id": name, "level": "region"} for name in ("region0", "region1")] + cluster["places"]
    return PlanRequest.model_validate(document)


def test_sailor_alone_shares_out_layers_by_type_and_keeps_replicas_in_a_region() -> None:
    context, tried = tried_of(two_regions())
    region = {pool.id: context.topology.enclosing(pool.place, "region") for pool in context.pools}
    space = enumerate_space(context.request)
    by_type = {one.policy.name: bool(space.layer_split[one.policy.allowed(space)].any()) for one in tried}
    assert by_type.pop("sailor-like")
    assert not any(by_type.values())
    sailor = next(one for one in tried if one.policy.name == "sailor-like")
    assert sailor.best is not None
    ranks = zip(*(route.pools for route in sailor.best.candidate.routes), strict=True)
    assert all(len({region[context.pools[pool].id] for pool in pools}) == 1 for pools in ranks)


def test_even_plans_of_baselines_use_the_fastest_type_that_holds_them() -> None:
    document = job(hosts=(4, 2), batch=48, allowed={**ALLOWED, "dp": [1], "layer_split": ["even"]}).model_dump(
        mode="json"
    )
    document["cluster"]["pools"][1]["gpu"] = "B200-SXM"
    context, tried = tried_of(PlanRequest.model_validate(document))
    pools = [one.best.candidate.routes for one in tried if one.best is not None]
    assert pools
    for routes in pools:
        assert {context.pools[pool].gpu.name for route in routes for pool in route.pools} == {"B200-SXM"}


@pytest.mark.parametrize("found", ["link-without-plain-ecmp", "ecmp-beside-queue-pairs"])
def test_plain_ecmp_is_all_that_a_policy_without_balancing_takes_where_it_is_on_offer(found: str) -> None:
    path = Path(__file__).parents[3] / "laws" / "found" / f"{found}.json"
    context = context_of(PlanRequest.model_validate_json(path.read_text()))
    own = restricted(context, next(one for one in POLICIES if one.plain_ecmp))
    places = [pool.place for pool in context.pools]
    paths = [own.topology.path_facts(*ends) for ends in itertools.permutations(places, 2) if ends[0] != ends[1]]
    taken = [{one.load_balancing for one in path_options(path).options} for path in paths]
    assert own.request.cluster == context.request.cluster
    assert all(ways == {"ecmp"} for path, ways in zip(paths, taken, strict=True) if "ecmp" in path.load_balancing)
    assert any("ecmp" in path.load_balancing for path in paths)
