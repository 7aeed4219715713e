"""The sharper bound of a configuration, or of several alike: the pipeline, with every cost at its least over places,
GPU types and configurations.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from models.cluster import GpuType, Pool
from models.plan import Configuration
from solver.arrays import BoolArray
from solver.bounds.bounded import ROUNDING
from solver.bounds.crossing_groups import several_groups_bound_s
from solver.bounds.crossing_pipelines import CrossingPipelines, PipelineRelaxation, crossing_bound_s
from solver.bounds.least_hops import MessageDelays, TypeHops, least_hop_s
from solver.bounds.mixed_pipelines import MixedPipelines
from solver.bounds.partition_pipelines import partition_pipelines_bound_s
from solver.bounds.slower_ranks import Costs, crossing_ranks_s, halves, slower_ranks_s
from solver.bounds.spread_exchange import ExchangeBound
from solver.bounds.stage_partition import stage_partition_bound_s
from solver.bounds.synchronisation import least_exchange_s, rank_exchanges_s
from solver.clock import Clock
from solver.configurations.framework import backward_of
from solver.configurations.pricing import least_cost
from solver.configurations.stages import PoolStages, pool_stages
from solver.context import Context
from solver.cost.columns import FloatArray, columns_of_all
from solver.cost.fabric import fabric_of
from solver.cost.stage import StageCost
from solver.pipeline.problem import PipelineShape


def refined_bound_s(
    context: Context,
    configurations: Sequence[Configuration],
    high_s: float,
    clock: Clock = time.monotonic,
    *,
    quick: bool = False,
    effort: int = 1,
) -> float:
    """The best bound of some configurations, as far as it matters up to `high_s`: none of them is faster.

    Of even pipelines it is no less than that of the pipeline on any placement, with every cost and every message at its
    least over pools and the largest budgets.

    They have the same pipeline and differ in expert parallelism and sharding alone, so one relaxation with every cost
    at its least over them bounds them all. Layers by GPU type follow the placement: there every share of them counts,
    and its pipeline where the experts are the same, unless it has to be `quick`. `clock` is charged for these
    pipelines, of which as many as usual are looked at, times `effort`.
    """
    configuration = configurations[0]
    if configuration.layer_split == "by_gpu_type":
        if quick or len({one.degrees.ep for one in configurations}) > 1:
            return stage_partition_bound_s(context, configurations, high_s)
        return partition_pipelines_bound_s(context, configurations, high_s, clock, effort=effort)
    priced = _Priced.of(context, configurations)
    relaxed = _relaxed(context, configuration, priced)
    bound_s = relaxed.bound_s()
    if bound_s < high_s:
        bound_s = max(bound_s, relaxed.on_cards_s(clock))
    costs = priced.costs
    if bound_s < high_s and len({pool.gpu for pool in priced.pools}) > 1:
        bound_s = max(bound_s, slower_ranks_s(context, configuration, costs, priced.exposed_s, high_s))
        for alone_s, mixed in _mixed_pipelines(context, configurations, priced, relaxed) if bound_s < high_s else ():
            if alone_s > bound_s:
                bound_s = max(bound_s, min(alone_s, mixed.least_s(bound_s, high_s, clock, effort)))

    def delayed_s(delays: MessageDelays) -> float:
        return crossing_ranks_s(context, configuration, costs, priced.exposed_s, high_s, delays=delays)

    def on_types_s(names: AbstractSet[str]) -> float:
        shape, fits_r = _pipeline(context, configuration, priced, [one for one in costs if one[0].gpu.name in names])
        return relaxed.bound_s(shape) if fits_r.all() else float("inf")

    if bound_s < high_s:
        parameters = _parameters(priced.options, len(configurations))
        crossing = CrossingPipelines(context, configurations, relaxed, *parameters, delayed_s, on_types_s, clock)
        bound_s = crossing_bound_s(crossing, bound_s, high_s)
        bound_s = several_groups_bound_s(crossing, bound_s, high_s)
    return bound_s


@dataclass(frozen=True)
class _Priced:
    """One pool of each GPU type and fabric, the stages on it, how long every stage exchanges at least on cards and from
    its last weight gradient to the end (`exposed_s`), and the most of it that runs beside the last backward.

    `options` are the stages of each configuration on each pool, pool by pool, configuration after configuration, and
    `least` has every cost of a stage at its least over them.
    """

    pools: list[Pool]
    options: list[PoolStages]
    least: StageCost
    cards_s: FloatArray
    exposed_s: FloatArray
    overlap_s: FloatArray
    hop_s: float

    @property
    def costs(self) -> Costs:
        """The stages with the pool that they are on."""
        return list(zip(itertools.cycle(self.pools), self.options, strict=False))

    @classmethod
    def of(
        cls, context: Context, configurations: Sequence[Configuration], names: AbstractSet[str] | None = None
    ) -> _Priced:
        """The stages of these configurations on all pools that may be used, or on those of some GPU types."""
        pools = [one for one in _distinct_pools(context) if names is None or one.gpu.name in names]
        options = [pool_stages(context, pool, configuration) for configuration in configurations for pool in pools]
        least = least_cost([one.cost for one in options])
        inside_s = _exchange_s(context, configurations, pools, least)
        spread = _spread(context, configurations, pools, options)
        cards_s, exchange_s = np.maximum(inside_s, spread.cards_s), np.maximum(inside_s, spread.duration_s)
        overlap_s = context.stack.data_parallel_overlap.value * np.maximum.reduce([one.cost.total_s for one in options])
        exposed_s = np.maximum(exchange_s - overlap_s, 0.0)
        return cls(pools, options, least, cards_s, exposed_s, overlap_s, least_hop_s(context, configurations))


def _relaxed(context: Context, configuration: Configuration, priced: _Priced) -> PipelineRelaxation:
    """The pipeline with every message at its least."""
    update_s = float(np.minimum.reduce([one.optimizer_s for one in priced.options]).max())
    shape, fits_r = _pipeline(context, configuration, priced, priced.costs)
    work_s = priced.least.forward_s, priced.least.input_grad_s, priced.least.weight_grad_s
    exchanges_s = rank_exchanges_s(configuration, work_s, priced.cards_s, priced.overlap_s)
    some = shape if fits_r.all() else None
    return PipelineRelaxation(some, priced.hop_s, priced.overlap_s, priced.cards_s, exchanges_s, update_s)


def _mixed_pipelines(
    context: Context, configurations: Sequence[Configuration], priced: _Priced, relaxed: PipelineRelaxation
) -> Iterator[tuple[float, MixedPipelines]]:
    """For every split of the types: a bound where all ranks are on the faster ones, infinite where these have no room
    for all of them, and the pipelines of a replica that has some on the slower ones.
    """
    configuration, least = configurations[0], relaxed.shape
    if least is None:
        return
    hops = TypeHops.of(context, configurations)
    for fast, slow, most_fast in halves(context, configuration, priced.costs):
        slower, faster = (_pipeline(context, configuration, priced, one) for one in (slow, fast))
        names, others = (frozenset(pool.gpu.name for pool, _ in one) for one in (slow, fast))
        apart_s = min(hops.between(*pair).plain_s for pair in ((names, others), (others, names)))
        apart_s = apart_s if apart_s > priced.hop_s else 0.0
        num_slow, alone_s = configuration.degrees.pp - most_fast, float("inf")
        if not num_slow:
            on_fast = _Priced.of(context, configurations, others)
            alone_s = _relaxed(context, configuration, on_fast).bound_s()
        yield (
            alone_s,
            MixedPipelines(least, slower, faster, max(num_slow, 1), update_s=relaxed.update_s, apart_s=apart_s),
        )


def _distinct_pools(context: Context) -> list[Pool]:
    """One pool of each GPU type and fabric."""
    seen: dict[tuple[GpuType, float, int], Pool] = {}
    for pool in context.pools:
        seen.setdefault((pool.gpu, pool.nic_bytes_per_s_per_gpu, pool.gpus_per_host), pool)
    return list(seen.values())


def _exchange_s(
    context: Context, configurations: Sequence[Configuration], pools: list[Pool], least: StageCost
) -> FloatArray:
    """Least time that the exchange of every stage takes inside places.

    Some place holds at least its even share of the replicas and exchanges among them. Beyond that share any number of
    replicas may be there, so the least over all numbers counts.
    """
    columns, names = columns_of_all(configurations), {pool.gpu.name for pool in pools}
    both = {"dense": least.parameters, "experts": least.expert_parameters}
    durations = [least_exchange_s(context, columns, fabric_of(pool), **both, names=names) for pool in pools]
    exchange: FloatArray = np.minimum.reduce(durations)
    return exchange


def _spread(
    context: Context, configurations: Sequence[Configuration], pools: list[Pool], options: list[PoolStages]
) -> ExchangeBound:
    """Least times of the exchange of every stage over any number of places, of any of the configurations."""
    num_stages, fabrics = configurations[0].degrees.num_stages, [fabric_of(pool) for pool in pools]
    rows = columns_of_all(configurations).take(np.repeat(np.arange(len(configurations)), num_stages))
    dense, experts = _parameters(options, len(configurations))
    found = ExchangeBound.of(context, rows, fabrics, dense.ravel(), experts.ravel())
    return ExchangeBound(
        found.duration_s.reshape(dense.shape).min(axis=0), found.cards_s.reshape(dense.shape).min(axis=0)
    )


def _parameters(options: list[PoolStages], num_configurations: int) -> tuple[FloatArray, FloatArray]:
    """Dense and expert parameters on one GPU, by configuration and stage, the least of all pools."""
    num_pools = len(options) // num_configurations
    of_each = [options[first : first + num_pools] for first in range(0, len(options), num_pools)]
    dense = np.stack([np.minimum.reduce([one.cost.parameters for one in own]) for own in of_each])
    return dense, np.stack([np.minimum.reduce([one.cost.expert_parameters for one in own]) for own in of_each])


def _pipeline(
    context: Context, configuration: Configuration, priced: _Priced, costs: Costs
) -> tuple[PipelineShape, BoolArray]:
    """The pipeline on some of the types, every cost and every message at its least, and which ranks have memory for one
    micro-batch.
    """
    least, rank_of_s = least_cost([stages.cost for _, stages in costs]), np.array(configuration.rank_of_stages)
    duration_ks = np.stack([least.forward_s, least.input_grad_s, least.weight_grad_s])
    # The bound has no use for more than the activation, and a fused backward keeps nothing from one half to the other.
    context_s = np.minimum(least.weight_grad_context_bytes, least.activation_bytes)
    if backward_of(context.request) == "fused":
        duration_ks, context_s = np.stack([duration_ks[0], duration_ks[1] + duration_ks[2]]), np.zeros_like(context_s)
    budgets = [context.memory_limit_bytes(pool.gpu) - stages.static.total_bytes for pool, stages in costs]
    budget_r = np.maximum.reduce(budgets)
    held_r = np.bincount(rank_of_s, weights=least.activation_bytes, minlength=len(budget_r))
    shape = PipelineShape.without_links(
        configuration.num_microbatches,
        rank_of_s,
        duration_ks,
        np.where(np.append(rank_of_s[1:] != rank_of_s[:-1], False), priced.hop_s, 0.0),
        priced.exposed_s,
        activation_s=least.activation_bytes,
        context_s=context_s,
        budget_r=np.maximum(held_r, budget_r),
    )
    return shape, held_r <= budget_r + ROUNDING * np.abs(budget_r)
