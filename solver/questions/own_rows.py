"""Configurations of a smaller request that a larger one does not have, or whose layers it shares out otherwise.

Of all others a plan of the smaller request is one of the larger, so what bounds the larger bounds it. Where do own ones
come from? With fewer GPUs of the best type, or none that is best, with pins or limits of crossing, pipelines that
fitted on it alone are left to a split by GPU type. The even split goes by the strongest type that there is, and by its
network. Ranks go by the number of buildings.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from math import inf

import numpy as np

from models.cluster import GpuType
from models.request import PlanRequest
from solver.arrays import BoolArray
from solver.clock import Clock
from solver.configurations.distinct import distinct_rows
from solver.configurations.enumerate import (
    BY_GPU_TYPE,
    EVEN,
    Space,
    crossing_allowed,
    enumerate_space,
    left_to_even,
    types_differ,
)
from solver.configurations.framework import within_framework
from solver.configurations.layers import LayerSplit, split_layers
from solver.configurations.nearness import best_type, ranks_by_type
from solver.configurations.pricing import StageCosts
from solver.context import Context
from solver.cost.columns import FSDP
from solver.cost.fabric import Fabric
from solver.network.places import num_enclosing
from solver.questions.row_bounds import RowBounds, row_numbers
from solver.search.warm_start import allowing_only

PRICED_BY = ("tp", "cp", "ep", "pp", "dp", "micro_batch", "sharding", "shard_group", "recompute")  # a layer's time


def own_bound_s(
    smaller: PlanRequest,
    larger: PlanRequest,
    target_bound_s: float,
    stopped: Callable[[], bool],
    clock: Clock = time.monotonic,
) -> float:
    """No plan of an own configuration of the smaller request takes less, as far as it matters up to `target_bound_s`.

    Infinite where there is none. Only for requests of which `direction` says that one has nothing but more.
    """
    small, large = (Context.of(one) for one in map(within_framework, (smaller, larger)))
    if not small.pools or has_every_row(small, large):
        return inf
    typed = allowing_only(small.request, {"layer_split": "by_gpu_type"}) if _only_typed(small, large) else small.request
    if typed is None:
        return inf
    rows = RowBounds(typed, clock, guessed=False)
    own = own_rows(rows.context, rows.space, large)
    rows.price(own, target_bound_s, stopped)
    return float(rows.seconds[own].min(initial=inf))


def has_every_row(small: Context, large: Context) -> bool:
    """Whether what differs shows that the larger request has every configuration, without enumerating any.

    True where the even split goes by the same GPUs, values are not allowed for the first time, buildings are as many,
    and the smaller request has no split by GPU type, or the larger leaves the same pipelines to the even split: fewer
    GPUs, places or links only take configurations away.
    """
    return _only_typed(small, large) and (not types_differ(small.request, small.pools) or _left_alike(small, large))


def _only_typed(small: Context, large: Context) -> bool:
    """Whether own rows can only be such as are split by GPU type."""
    return (
        reference_of(small) == reference_of(large)
        and num_enclosing(small.request) == num_enclosing(large.request)
        and _is_closed(small.request, large.request)
    )


def own_rows(small: Context, space: Space, large: Context) -> BoolArray:
    """Which rows of the smaller request's space are its own."""
    if not large.pools:
        return np.ones(len(space), dtype=np.bool_)
    if _only_typed(small, large):
        typed: BoolArray = space.layer_split == BY_GPU_TYPE
        if not types_differ(large.request, large.pools):
            return typed
        columns = space.columns
        held = ranks_by_type(large.pools, columns.tp, columns.cp, columns.dp)
        return typed & left_to_even(large.request, large.pools, vars(columns), held)
    numbers = row_numbers([space, enumerate_space(large.request)])
    own: BoolArray = ~np.isin(numbers[0], numbers[1])
    if len(space) and reference_of(small) != reference_of(large):
        apart = [
            np.asarray(one) != two
            for one, two in zip(layer_split_of(small, space), layer_split_of(large, space), strict=True)
        ]
        own |= (space.layer_split == EVEN) & np.logical_or.reduce(apart)
    return own


def reference_of(context: Context) -> tuple[GpuType, Fabric]:
    """What the even split goes by: the strongest type with its network, but for its memory."""
    first = next(iter(context.gpu_classes.values()))
    return first.gpu.model_copy(update={"memory_bytes": 1.0, "usd_per_gpu_hour": None}), first.fabric


def _left_alike(small: Context, large: Context) -> bool:
    """Whether the same pipelines are left to the even split: the same GPUs, best type and limits."""
    small_left, large_left = (
        (
            [(pool.place, pool.gpu.name, pool.num_free_gpus) for pool in one.pools],
            best_type(one.request.workload, one.pools),
            types_differ(one.request, one.pools),
            crossing_allowed(one.request),
            bool(one.request.constraints.pins),
        )
        for one in (small, large)
    )
    return small_left == large_left


def _is_closed(small: PlanRequest, large: PlanRequest) -> bool:
    """Every stated choice is open, or stated, on both sides."""
    one, two = small.constraints.allowed, large.constraints.allowed
    return all((getattr(one, name) is None) == (getattr(two, name) is None) for name in type(one).model_fields)


def layer_split_of(context: Context, space: Space) -> LayerSplit:
    """How the even split shares out the layers of every row."""
    reference, columns = next(iter(context.gpu_classes.values())), space.columns
    alone = replace(columns, pp=np.minimum(columns.pp, 2))  # what a part costs depends on whether there are stages
    alone = replace(alone, shard_group=np.where(columns.sharding >= FSDP, columns.shard_group, 1))
    alone = replace(alone, dp=np.where(columns.sharding >= FSDP, columns.dp, 1))
    first, row_of = distinct_rows(*(getattr(alone, name) for name in PRICED_BY))
    extras = StageCosts(context, reference, columns.take(first)).end_extras()
    first_extra, last_extra = (one[row_of] for one in extras)
    stages = columns.pp * columns.vpp
    return split_layers(context.job.num_layers, stages, first_extra=first_extra, last_extra=last_extra)
