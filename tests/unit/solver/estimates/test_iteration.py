"""The guess knows what far links really give: how few flows fill them, how many pass them, how long they wait."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from models.catalogue import named_entry
from models.plan import Configuration
from models.request import PlanRequest
from solver.bounds.work import lower_bounds
from solver.configurations.enumerate import Space, enumerate_space
from solver.context import Context
from solver.estimates.crossing_patterns import CrossingPattern, crossing_patterns
from solver.evaluation.candidate import configuration_of
from solver.evaluation.evaluate import evaluate
from solver.evaluation.places import placements
from solver.evaluation.scheduling import portfolio_timing
from solver.placement.distances import ALL, EACH, Blocks


def zones(**allowed: Any) -> Context:
    """Mixtral on five cloud zones: TCP, one flow per connection, thin links between two regions."""
    document = {**named_entry("examples", "mixtral-five-zones"), "constraints": {"allowed": allowed}}
    request = PlanRequest.model_validate(document)
    return Context.of(request)


def blocks_of(context: Context, kind: str) -> Blocks:
    return next(one for one in context.partitions if one.kind == kind)


def pattern_of(context: Context, kind: str, space: Space) -> CrossingPattern:
    return next(one for one in crossing_patterns(context, space.columns) if one.kind == kind)


def evaluated_s(context: Context, configuration: Configuration) -> float:
    """The least time over placements of whole replicas and of whole ranks, with quick schedules."""
    found = [
        evaluate(context, one, lambda problem: portfolio_timing(problem, None))
        for one in placements(context, configuration, ("replicas_whole", "ranks_whole"))
    ]
    return min(one.iteration_s for one in found if one is not None)


def test_units_follow_each_other_region_by_region() -> None:
    context = zones()
    regions = [context.geography.region_u[own[0]] for own in blocks_of(context, EACH).groups_b]
    assert sum(one != other for one, other in itertools.pairwise(regions)) == len(set(regions)) - 1


def test_a_ring_is_as_thin_as_its_thinnest_link() -> None:
    ring = blocks_of(zones(), ALL).rings[0]
    assert ring.free_bytes_per_s[3] == pytest.approx(193.28e9)
    assert ring.free_bytes_per_s[5] == pytest.approx(34.88e9)
    assert np.all(np.diff(ring.farthest_s) >= 0)


def test_splitting_reaches_all_links_between_two_regions() -> None:
    plain, wide = blocks_of(zones(), ALL).rings
    assert wide.free_bytes_per_s[5] == pytest.approx(6 * plain.free_bytes_per_s[5])


def test_few_flows_reach_little_of_many_planes() -> None:
    ring = blocks_of(zones(), ALL).rings[0]
    ways = np.array([5, 5, 5])
    rate = ring.rate_bytes_per_s(ways, np.array([1.0, 16.0, 4096.0]), 1e12)
    assert rate[0] == pytest.approx(34.88e9 / 32, rel=0.06)
    assert rate[0] < rate[1] < 0.3 * 34.88e9 < 0.7 * 34.88e9 < rate[2]


def test_where_ranks_lie_whole_in_zones_only_messages_cross() -> None:
    context = zones(tp=[1], cp=[4], ep=[8], pp=[17], dp=[16])
    space = enumerate_space(context.request)
    pattern = pattern_of(context, EACH, space)
    assert pattern.possible.all()
    assert not pattern.exchange_s_per_byte.any()
    assert np.all(pattern.message_s_per_byte > 0)


def test_where_replicas_lie_whole_in_zones_only_exchanges_cross() -> None:
    context = zones(tp=[1], cp=[4], ep=[8], pp=[16], dp=[20])
    pattern = pattern_of(context, ALL, enumerate_space(context.request))
    assert pattern.possible.all()
    assert not pattern.message_s_per_byte.any()
    assert np.all(pattern.num_places == 5)


def test_the_guess_is_near_the_evaluation_on_far_zones() -> None:
    """Both patterns, within a third: what counted the rate of all links together was off by ten."""
    context = zones(tp=[1], cp=[4], ep=[8], recompute=["none"], sharding=["zero1"], micro_batch_sequences=[1])
    space = enumerate_space(context.request)
    bounds = lower_bounds(context, space)
    chosen = [np.flatnonzero(bounds.fits & (space.columns.pp == pp) & (space.columns.dp == 16)) for pp in (16, 17)]
    for row in [int(rows[0]) for rows in chosen]:
        configuration = configuration_of(context, space, row)
        assert 0.75 < evaluated_s(context, configuration) / float(bounds.guess_s[row]) < 1.34


def test_what_exceeds_the_traffic_limit_is_tried_last() -> None:
    context = zones(tp=[1], cp=[4], ep=[8], pp=[17])
    space = enumerate_space(context.request)
    limited = context.request.constraints.model_copy(update={"max_cross_building_bytes_per_iteration": 1.0})
    tight = replace(context, request=context.request.model_copy(update={"constraints": limited}))
    largest = space.columns.num_gpus > context.geography.largest_building_gpus
    assert np.all(lower_bounds(tight, space).guess_s[largest] > 1e5)


def test_an_even_loop_that_needs_only_the_faster_type_is_guessed_as_it_runs() -> None:
    """Four of eight buildings hold it; in their order by region two of them have GPUs that are half as fast."""
    buildings = [(f"r{region}b{number}", f"r{region}") for region in range(2) for number in range(4)]
    types = ("H100-SXM-80G", "B200-SXM")
    document = {
        "workload": {
            "architecture": "llama-4-maverick-like",
            "sequence_length": 8192,
            "global_batch_sequences": 512,
        },
        "cluster": {
            "name": "two-regions-two-types",
            "places": [
                *({"id": f"r{region}", "level": "region"} for region in range(2)),
                *({"id": name, "level": "building", "parent": region} for name, region in buildings),
            ],
            "pools": [
                {"id": name, "place": name, "gpu": types[k % 2], "num_hosts": 16, "nic_bytes_per_s": 5e10}
                for k, (name, _) in enumerate(buildings)
            ],
            "links": [
                {
                    "id": f"{one}-{other}",
                    "from_place": one,
                    "to_place": other,
                    "capacity_bytes_per_s": 9.1e11,
                    "oversubscription": 2.8 if here == there else 112.0,
                    "distance_km": 2.0,
                    "planes": 16,
                    "load_balancing": ["ecmp", "ecmp_qp_scaling", "dqplb"],
                }
                for (one, here), (other, there) in itertools.combinations(buildings, 2)
            ],
        },
        "constraints": {
            "allowed": {
                "tp": [1],
                "cp": [4],
                "pp": [4],
                "vpp": [2],
                "ep": [128],
                "family": ["loop"],
                "recompute": ["none"],
                "layer_split": ["even"],
            }
        },
    }
    context = Context.of(PlanRequest.model_validate(document))
    space = enumerate_space(context.request)
    bounds = lower_bounds(context, space)
    row = int(np.flatnonzero(bounds.fits & (space.columns.dp == 32))[0])
    configuration = configuration_of(context, space, row)
    assert 0.75 < evaluated_s(context, configuration) / float(bounds.guess_s[row]) < 1.34
