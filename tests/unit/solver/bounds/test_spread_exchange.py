"""No exchange of a stage is shorter than the bound over any number of places, wherever its replicas are."""

from __future__ import annotations

import itertools
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from models.catalogue import named_entry
from models.request import PlanRequest
from solver.bounds.cuts import cuts
from solver.bounds.spread_exchange import ExchangeBound, span_places
from solver.configurations.enumerate import EVEN, enumerate_space
from solver.cost.columns import ZERO1, columns_from, columns_of
from solver.cost.data_parallel import crossing_bytes, group_parameters, step_traffic
from solver.cost.fabric import fabric_of
from solver.evaluation.candidate import configuration_of
from solver.evaluation.evaluate import stages_of
from solver.transport.exchange import exchange_costs
from tests.build_job import context_of
from tests.property.test_plan_bounds import CASES, anywhere, request_of
from tests.unit.solver.transport.meshes import meshed


@pytest.mark.parametrize("name", CASES)
def test_no_exchange_is_shorter_than_its_bound(name: str) -> None:
    context, random, closest = context_of(request_of(name)), np.random.default_rng(3), 0.0
    space = enumerate_space(context.request)
    fabrics = list({fabric_of(pool) for pool in context.pools})
    rows = np.flatnonzero((space.layer_split == EVEN) & (space.columns.dp > 1) & (space.columns.num_gpus > 8))
    for row in random.choice(rows, size=60).tolist():
        configuration = configuration_of(context, space, row)
        candidate = anywhere(context, configuration, random)
        if candidate is None:
            continue
        stages = stages_of(context, configuration, candidate.routes)
        costs = exchange_costs(context, configuration, candidate.routes, stages, reserved={})
        columns = columns_of(configuration).take(np.zeros(len(costs), dtype=np.int64))
        dense = np.minimum.reduce([one.cost.parameters for one in stages.values()])
        experts = np.minimum.reduce([one.cost.expert_parameters for one in stages.values()])
        bound = ExchangeBound.of(context, columns, fabrics, dense, experts)
        durations = np.array([one.duration_s for one in costs])
        on_cards = np.array([max(one.private_s, one.shared_s) for one in costs])
        assert np.all(bound.duration_s <= durations * (1.0 + 1e-9)), configuration
        assert np.all(bound.cards_s <= on_cards * (1.0 + 1e-9)), configuration
        positive = durations > 0
        closest = max(closest, float((bound.duration_s[positive] / durations[positive]).max(initial=0.0)))
    assert closest > 0.3


def test_few_replicas_in_each_place_exchange_between_places_instead() -> None:
    """Two replicas in each of five zones have nothing to reduce between hosts, and 8 cards to send it all."""
    request = PlanRequest.model_validate(named_entry("examples", "mixtral-five-zones"))
    context = context_of(request)
    row = {"tp": 4, "cp": 1, "ep": 2, "pp": 32, "dp": 10, "vpp": 1, "micro_batch": 1, "num_microbatches": 128}
    columns = columns_from([row | {"sharding": ZERO1, "shard_group": 10, "recompute": 0}])
    parameters, experts = np.array([1e7]), np.array([1.76e8])
    fabric = fabric_of(context.pools[0])
    alone = step_traffic(
        parameters, experts, replace(columns, dp=columns.dp // 5), fabric, context.stack, job=context.job
    )
    found = ExchangeBound.of(context, columns, [fabric], parameters, experts)
    assert alone.reduce_s[0] + alone.gather_s[0] < 0.01
    assert 0.5 < found.cards_s[0] < found.duration_s[0]


def test_sharding_groups_share_places() -> None:
    """Of 10 replicas in two sharding groups 5 at least are in one place."""
    context = context_of(PlanRequest.model_validate(named_entry("examples", "mixtral-five-zones")))
    row = {"tp": 4, "cp": 1, "ep": 1, "pp": 16, "dp": 10, "vpp": 1, "micro_batch": 1, "num_microbatches": 128}
    columns = columns_from([row | {"sharding": ZERO1, "shard_group": group, "recompute": 0} for group in (5, 10)])
    parameters, experts = np.array([1e8, 1e8]), np.array([0.0, 0.0])
    found = ExchangeBound.of(context, columns, [fabric_of(context.pools[0])], parameters, experts)
    assert found.cards_s[0] > found.cards_s[1]


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_links_of_the_places_carry_all_that_is_sent(scale: float) -> None:
    """Two of five zones at least: 0.01 of the links' capacity takes as much longer."""
    document = dict(named_entry("examples", "mixtral-five-zones"))
    document["cluster"] = deepcopy(named_entry("clusters", document["cluster"]))
    for link in document["cluster"]["links"]:
        link["capacity_bytes_per_s"] *= scale
    context = context_of(PlanRequest.model_validate(document))
    row = {"tp": 4, "cp": 1, "ep": 2, "pp": 4, "dp": 80, "vpp": 1, "micro_batch": 1, "num_microbatches": 128}
    columns = columns_from([row | {"sharding": ZERO1, "shard_group": 80, "recompute": 0}])
    parameters, experts = np.array([1e8]), np.array([1e9])
    names = {pool.gpu.name for pool in context.pools}
    assert span_places(context, columns, names)
    found = ExchangeBound.of(context, columns, [fabric_of(context.pools[0])], parameters, experts, names=names)
    sent = crossing_bytes(group_parameters(parameters, experts, columns), columns, 2, context.job)
    (cut,) = [one for one in cuts(context) if one.of_places]
    assert found.duration_s[0] >= float((sent / cut.exchange_rates[2:].max()).max()) > 0.0
    assert not span_places(context, replace(columns, dp=np.array([2])), names)


def test_each_of_two_places_sends_it_all_over_its_own_links() -> None:
    """Of four equal buildings two exchange: what leaves the other two is of no use to them."""
    links = [(f"{one}{other}", f"b{one}", f"b{other}", 1e9, 1e-4) for one, other in itertools.combinations(range(4), 2)]
    context = context_of(meshed(4, tuple(links)))
    row = {"tp": 2, "cp": 1, "ep": 1, "pp": 2, "dp": 32, "vpp": 1, "micro_batch": 1, "num_microbatches": 4}
    columns = columns_from([row | {"sharding": ZERO1, "shard_group": 32, "recompute": 0}])
    parameters, experts = np.array([1e9]), np.array([0.0])
    found = ExchangeBound.of(context, columns, [fabric_of(context.pools[0])], parameters, experts)
    sent = crossing_bytes(group_parameters(parameters, experts, columns), columns, 2, context.job)
    assert found.cards_s[0] >= sent[0] / 3e9
