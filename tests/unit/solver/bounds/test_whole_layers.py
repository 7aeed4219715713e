"""Whole numbers of layers by rank, and what exchanges send: against every share, and stage by stage."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from solver.bounds.gradient_exchange import GradientExchange
from solver.bounds.layer_limits import LayerLimits, LayerTimes, whole_layers_s
from solver.bounds.least_hops import least_hops_s
from solver.bounds.type_ranks import Types
from solver.bounds.unequal_layers import slowest_rank_s
from solver.configurations.enumerate import V_FAMILY, Space, enumerate_space
from solver.configurations.pricing import Shares, StageCosts, moe_among, rank_cost
from solver.configurations.stages import pool_stages
from solver.context import Context
from solver.cost.data_parallel import crossing_bytes, group_parameters
from solver.cost.stage import StageCost
from solver.evaluation.candidate import configuration_of
from tests.build_job import ARCHITECTURE, three_types

PARTS = ("forward_s", "input_grad_s", "weight_grad_s")
MIXED = {
    "name": "mixed",
    "num_layers": 12,
    "hidden_size": 2048,
    "ffn_hidden_size": 8192,
    "attention": {"kind": "gqa", "num_heads": 16, "num_kv_heads": 8, "head_dim": 128},
    "vocab_size": 32000,
    "moe": {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 4096},
}


def every_share_s(types: Types, space: Space, row: int) -> Iterator[float]:
    """What ranks take at least, for every order of types and every share of the layers; a V has both ends on rank 0.

    The slowest rank's work; its gradients and weights after the first forward of all; the way of the first micro-batch
    there and back, that of the others through a last stage of one layer or the largest stage, and the weight gradient
    of a first stage.
    """
    num_ranks, num_layers = int(space.columns.pp[row]), types.context.job.num_layers
    m, end = float(space.columns.num_microbatches[row]), 0 if space.family[row] == V_FAMILY else -1
    costs = [price.usual_layer for price in types.prices]
    ends = [[price.of(0, 0, **{name: 1.0}) for price in types.prices] for name in ("embedding", "logits")]

    def column(of_each: list[StageCost]) -> np.ndarray:
        return np.array([[getattr(one, part)[row] for part in PARTS] for one in of_each])

    layer, first, last = column(costs), *map(column, ends)
    folds = int(space.columns.vpp[row]) - 1 if end == 0 else 0
    num_messages = num_ranks * int(space.columns.vpp[row]) - 1 - folds
    messages_s = num_messages * float(least_hops_s(types.context, space.columns)[row])
    for order in itertools.product(range(len(costs)), repeat=num_ranks):
        if any(order.count(kind) > most for kind, most in enumerate(types.held[:, row])):
            continue
        for cuts in itertools.combinations(range(1, num_layers), num_ranks - 1):
            layers = np.diff([0, *cuts, num_layers])
            if layers.min() < space.columns.vpp[row]:
                continue
            rank = layer[list(order)] * layers[:, None]
            rank[0] += first[order[0]]
            rank[end] += last[order[end]]
            last_stage = (layer + last)[order[end]]
            forward_s = messages_s + float(rank[:, 0].sum())
            home_s = messages_s + float((layer + first)[order[0], 2])
            largest = -(-layers[:, None] // int(space.columns.vpp[row])) * layer[list(order)][:, :2]
            behind_s = (m - 1.0) * max(float(last_stage[:2].sum()), float(largest.max()))
            passes_s = forward_s + float(rank[:, 1].sum()) + behind_s + home_s
            yield max(m * float(rank.sum(axis=1).max()), forward_s + m * float(rank[:, 1:].sum(axis=1).max()), passes_s)


def test_no_share_of_whole_layers_is_faster_than_their_bound() -> None:
    context = three_types(
        ARCHITECTURE, hosts=2, batch=64, allowed={"tp": [2], "pp": [4], "vpp": [2], "layer_split": ["by_gpu_type"]}
    )
    space = enumerate_space(context.request)
    space = space.take(np.arange(0, len(space), max(len(space) // 6, 1)))
    types = Types.of(context, space)
    found_s = whole_layers_s(LayerTimes.of(types, LayerLimits.of_work(types)), slowest_rank_s(types))
    least_s = np.array([min(every_share_s(types, space, row)) for row in range(len(space))])
    assert (found_s <= least_s * (1.0 + 1e-9)).all()
    assert np.median(found_s / least_s) > 0.9


@pytest.fixture(scope="module")
def mixed() -> tuple[Context, Space]:
    """A model that begins with dense layers, and configurations with even shares of any kind."""
    architecture = MIXED | {"moe": MIXED["moe"] | {"first_moe_layer": 3}}  # type: ignore[operator]
    allowed: dict[str, list[Any]] = {
        "layer_split": ["even"],
        "sharding": ["zero1", "ddp"],
        "micro_batch_sequences": [1],
    }
    context = three_types(architecture, hosts=2, batch=64, allowed=allowed)
    space = enumerate_space(context.request)
    return context, space.take(np.arange(0, len(space), max(len(space) // 40, 1)))


def sent_bytes(context: Context, space: Space, row: int, stages: list[int]) -> float:
    """What exchanges of these stages of a configuration send out of each of two places."""
    cost = pool_stages(context, context.pools[0], configuration_of(context, space, row)).cost
    dense, experts = (float(getattr(cost, name)[stages].sum()) for name in ("parameters", "expert_parameters"))
    columns = space.columns.take(np.array([row]))
    everything = group_parameters(np.array([dense]), np.array([experts]), columns)
    return float(crossing_bytes(everything, columns, 2, context.job)[0])


def test_exchanges_lie_between_the_smallest_stage_and_the_largest_rank(mixed: tuple[Context, Space]) -> None:
    context, space = mixed
    price = StageCosts(context, next(iter(context.gpu_classes.values())), space.columns)
    two = np.full(len(space), 2)
    shares, last = Shares.of(price, space.family), space.columns.pp - 1
    ends = [rank_cost(price, shares, rank) for rank in (np.zeros_like(last), last)]
    found = GradientExchange.of(price, shares, two, ends)
    whole, beside_one = (found.beside(np.full(len(space), number)) for number in (0, 1))
    for row in range(len(space)):
        one = configuration_of(context, space, row)
        by_stage = [sent_bytes(context, space, row, [stage]) for stage in range(one.degrees.num_stages)]
        by_rank = [sent_bytes(context, space, row, list(one.stages_of_rank(rank))) for rank in range(one.degrees.pp)]
        assert found.smallest[row] <= min(by_stage) * (1.0 + 1e-9)
        assert beside_one[row] <= (sum(by_rank) - max(by_rank)) * (1.0 + 1e-9)
        assert whole[row] == pytest.approx(sum(by_stage))


def test_layers_in_a_row_have_as_few_experts_as_the_model_allows(mixed: tuple[Context, Space]) -> None:
    fewest, most = moe_among(mixed[0])
    assert fewest.tolist() == [0, 0, 0, 0, *range(1, 10)]
    assert most.tolist() == [*range(10), 9, 9, 9]
