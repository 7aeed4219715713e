"""Memory of even pipelines in columns: what ranks hold at least, what is left for activations, how many ranks fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.arrays import BoolArray, FloatArray, IntArray
from solver.bounds.bounded import ROUNDING
from solver.configurations.enumerate import V_FAMILY
from solver.configurations.pricing import Shares, StageCosts, kinds, least_cost, least_of, rank_cost
from solver.cost.stage import StageCost


@dataclass(frozen=True)
class RankMemory:
    """What the first and the last rank hold at least, and whether all ranks with known layers have room.

    `last_but_one` is what that rank costs, in a loop the heaviest between the ends. `capacities` are the most bytes
    that any GPU type leaves for activations on the first, the second, the last but one and the last rank.
    """

    ends: list[tuple[IntArray, StageCost]]
    last_but_one: StageCost
    capacities: list[FloatArray]
    fits: BoolArray
    need_bytes: FloatArray

    @classmethod
    def of(cls, prices: list[StageCosts], shares: Shares) -> RankMemory:
        """A configuration fits where one micro-batch has room on these ranks, on whichever type has most."""
        price = least_of(prices)
        (zero, first), (final, last) = ends_of(price, shares)
        inner = [(rank, rank_cost(price, shares, rank)) for rank in (np.minimum(1, final), np.maximum(final - 1, 0))]
        ranks = [(zero, first), *inner, (final, last)]
        capacities = [_capacity_bytes(prices, shares, rank, cost) for rank, cost in ranks]
        lacking = np.maximum.reduce(
            [cost.activation_bytes - capacity for capacity, (_, cost) in zip(capacities, ranks, strict=True)]
        )
        limit = max(price.context.memory_limit_bytes(one.gpu_class.gpu) for one in prices)
        return cls([ranks[0], ranks[-1]], ranks[2][1], capacities, lacking <= ROUNDING * limit, limit + lacking)


def capacity_for_other_shares(prices: list[StageCosts], family: IntArray) -> BoolArray:
    """Whether all ranks may have room for one micro-batch with other layers per stage than an even split gives them.

    `prices` are those of the columns on every GPU type, and the result has an entry per row. Whole layers of the
    lightest kind are counted: each rank takes as many as fit beside the ends that it holds, on the type with most room,
    and has one for each of its stages, but for the last. All ranks together take all layers, in number and in bytes.
    """
    price = least_of(prices)
    columns, context, num_layers = price.columns, price.context, price.context.job.num_layers
    slack = ROUNDING * max(context.memory_limit_bytes(one.gpu_class.gpu) for one in prices)

    def free_bytes(cost: StageCost, has_logits: float = 0.0) -> FloatArray:
        return np.asarray(_most_left_bytes(prices, cost, has_logits) - cost.activation_bytes + slack)

    empty = free_bytes(price.of(0, 0))
    layer = np.minimum.reduce([empty - free_bytes(one) for one in price.layer_of_each_kind()])
    both = free_bytes(price.of(0, 0, embedding=1.0, logits=1.0), 1.0)
    folded, num_ends = family == V_FAMILY, np.where(family == V_FAMILY, 1, 2)
    first = np.where(folded, both, free_bytes(price.of(0, 0, embedding=1.0)))
    last = np.where(folded, both, free_bytes(price.of(0, 0, logits=1.0), 1.0))
    free = np.stack([first, last, empty])
    times = np.stack([np.ones_like(num_ends), num_ends - 1, columns.pp - num_ends])
    counts = np.minimum(np.floor(free / layer), num_layers)
    least = columns.vpp - np.stack([folded, ~folded, np.zeros_like(folded)])
    needs = empty - free_bytes(price.of(*kinds(context, 0, num_layers)))
    fits = ((counts >= least) | (times == 0)).all(axis=0)
    fits &= ((times * counts).sum(axis=0) >= num_layers) & ((times * free).sum(axis=0) >= needs)
    return np.asarray(fits & (columns.pp > 1))


def ranks_in_memory(prices: list[StageCosts], shares: Shares) -> IntArray:
    """The most ranks of a pipeline that have room on these types: an end counts by itself, those between all alike.

    Between the ends no rank has fewer layers than the lightest, nor more of a kind than there are behind the first
    stage.
    """
    price = least_of(prices)
    columns, context = price.columns, price.context
    most = np.zeros(len(columns), dtype=np.int64)
    for number, (rank, cost) in enumerate(ends_of(price, shares)):
        fits = _fits_in(_capacity_bytes(prices, shares, rank, cost), cost.activation_bytes, prices)
        most = most + np.where(fits & ((number == 0) | (columns.pp > 1)), 1, 0)
    light = np.minimum(shares.inner_ranks()[0], shares.num_layers)
    num_dense, num_moe = kinds(context, shares.split.first, shares.num_layers)
    mixes = [np.maximum(light - num_moe, 0), np.minimum(light, num_dense)]
    held = least_cost([price.of(dense, light - dense) for dense in mixes])
    both = held.parameters, held.expert_parameters
    capacity = np.maximum.reduce(
        [context.memory_limit_bytes(one.gpu_class.gpu) - one.static_bytes(*both) for one in prices]
    )
    fits = _fits_in(capacity, held.activation_bytes, prices)
    return np.asarray(most + np.where(fits, np.maximum(columns.pp - 2, 0), 0))


def _fits_in(capacity: FloatArray, activation: FloatArray, prices: list[StageCosts]) -> BoolArray:
    """One micro-batch has room in so many bytes, as far as sums of bytes are exact."""
    limit = max(one.context.memory_limit_bytes(one.gpu_class.gpu) for one in prices)
    return np.asarray(activation - capacity <= ROUNDING * limit)


def _capacity_bytes(prices: list[StageCosts], shares: Shares, rank: IntArray, cost: StageCost) -> FloatArray:
    """Most memory that any of the types leaves for activations on a rank."""
    return _most_left_bytes(prices, cost, np.where(rank == shares.last_rank, 1.0, 0.0))


def _most_left_bytes(prices: list[StageCosts], cost: StageCost, has_logits: FloatArray | float) -> FloatArray:
    """Most memory that any of the types leaves beside model state, buffers and framework of a rank that costs this."""
    left: FloatArray = np.maximum.reduce(
        [
            one.context.memory_limit_bytes(one.gpu_class.gpu)
            - one.static_bytes(cost.parameters, cost.expert_parameters, has_logits=has_logits)
            for one in prices
        ]
    )
    return left


def ends_of(price: StageCosts, shares: Shares) -> list[tuple[IntArray, StageCost]]:
    """The first and the last rank, and what they cost."""
    first, last = np.zeros_like(price.columns.pp), price.columns.pp - 1
    return [(rank, rank_cost(price, shares, rank)) for rank in (first, last)]
