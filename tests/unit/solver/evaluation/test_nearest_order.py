"""Ranks of a type change places so that the way over all ranks is short; nothing else of a placement changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from models.request import PlanRequest
from solver.configurations.enumerate import enumerate_space
from solver.context import Context
from solver.evaluation.by_type import typed_placements
from solver.evaluation.candidate import Candidate, configuration_of
from solver.evaluation.evaluate import evaluate
from solver.evaluation.nearest_order import in_nearest_order
from solver.evaluation.scheduling import portfolio_timing
from solver.placement.fill import PooledRoute
from tests.build_job import context_of, job

NUM_RANKS, FAR_S = 8, 2e-2
GPUS = ("A100-SXM-80G", "H100-SXM-80G", "A100-SXM-80G", "H100-SXM-80G")
REGION_OF_POOL = (0, 0, 1, 1)


def two_regions(family: str, **constraints: object) -> tuple[Context, Candidate]:
    """Two regions with a building of either type each, two ranks in each; the ranks of a type region after region."""
    allowed: dict[str, Any] = {"tp": [4], "cp": [1], "pp": [NUM_RANKS], "dp": [2]}
    allowed |= {"vpp": [1 if family == "one_way" else 2]}
    allowed |= {"micro_batch_sequences": [1], "layer_split": ["by_gpu_type"], "family": [family], "recompute": ["none"]}
    document = job(hosts=(2, 2, 2, 2), batch=16, allowed=allowed, constraints=constraints).model_dump(mode="json")
    for pool, gpu in zip(document["cluster"]["pools"], GPUS, strict=True):
        pool["gpu"] = gpu
    document["cluster"]["links"][1]["latency_s"] = FAR_S
    context = context_of(PlanRequest.model_validate(document))
    configuration = configuration_of(context, enumerate_space(context.request), 0)
    route = PooledRoute(pools=(0, 0, 2, 2, 1, 1, 3, 3), num_replicas=2, first_group=(0, 2) * 4)
    return context, Candidate(configuration, (route,))


def num_far(candidate: Candidate) -> int:
    """How often one chunk of the pipeline goes to the other region, in a loop on the way back as well."""
    regions = [REGION_OF_POOL[pool] for pool in candidate.routes[0].pools]
    ways = pairwise([*regions, regions[0]] if candidate.configuration.family == "loop" else regions)
    return sum(here != there for here, there in ways)


@pytest.mark.parametrize(("family", "before", "after"), [("loop", 4, 2), ("one_way", 3, 2), ("v", 3, 2)])
def test_segments_of_two_types_meet_in_a_region(family: str, before: int, after: int) -> None:
    context, candidate = two_regions(family)
    nearest = in_nearest_order(context, candidate)
    assert (num_far(candidate), num_far(nearest)) == (before, after)

    def time_s(one: Candidate) -> float:
        found = evaluate(context, one, lambda problem: portfolio_timing(problem, ("greedy", "interleaved")))
        assert found is not None
        return found.iteration_s

    assert time_s(nearest) < time_s(candidate) - FAR_S


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("family", ["loop", "one_way"])
def test_ranks_keep_their_type_and_room_and_the_way_is_no_longer(family: str, seed: int) -> None:
    context, candidate = two_regions(family)
    (route,) = candidate.routes
    order = np.random.default_rng(seed).permutation(NUM_RANKS).tolist()
    rooms = [(route.pools[rank], route.first_group[rank]) for rank in order]
    pools, first_group = zip(*rooms, strict=True)
    shuffled = replace(candidate, routes=(replace(route, pools=pools, first_group=first_group),))
    nearest = in_nearest_order(context, shuffled)
    assert nearest.gpu_types(context) == shuffled.gpu_types(context)
    assert Counter(zip(nearest.routes[0].pools, nearest.routes[0].first_group, strict=True)) == Counter(rooms)
    assert num_far(nearest) <= num_far(shuffled)
    assert in_nearest_order(context, nearest) == nearest


def test_pinned_ranks_and_several_routes_stay_where_they_are() -> None:
    context, candidate = two_regions("loop", pins=[{"first_pipeline_rank": 0, "last_pipeline_rank": 0, "place": "b0"}])
    assert in_nearest_order(context, candidate) == candidate
    context, candidate = two_regions("loop")
    one, other = (replace(candidate.routes[0], num_replicas=1, pools=pools)
                  for pools in ((0, 0, 2, 2, 1, 1, 3, 3), (2, 2, 0, 0, 3, 3, 1, 1)))  # fmt: skip
    several = replace(candidate, routes=(one, other))
    assert in_nearest_order(context, several) == several


def test_what_is_placed_by_type_goes_to_the_other_region_twice() -> None:
    context, candidate = two_regions("loop")
    found = list(typed_placements(context, candidate.configuration))
    assert found
    assert len(set(found)) == len(found)
    assert all(num_far(one) == 2 for one in found if len(one.routes) == 1)
