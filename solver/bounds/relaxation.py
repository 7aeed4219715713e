"""The sharper bound of one configuration: its own pipeline, with every cost at its least over places and GPU types.

Owns that relaxation, and which bounds refine a configuration. Never schedules or places anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.cluster import GpuType, Pool
from models.plan import Configuration
from models.schedule import PipelineProblem, PipelineRank, PipelineStage
from solver.bounds.bounded import ROUNDING
from solver.bounds.slower_ranks import slower_ranks_s
from solver.bounds.stage_partition import line_bound_s
from solver.bounds.synchronisation import least_exchange_s
from solver.configurations.stages import PoolStages, pool_stages
from solver.context import Context
from solver.cost.columns import FloatArray, columns_of
from solver.cost.fabric import fabric_of
from solver.pipeline.bounds import lower_bound


def refined_bound_s(context: Context, configuration: Configuration, high_s: float) -> float:
    """The best bound of one configuration, as far as it matters up to `high_s`.

    Layers by GPU type follow the placement: there every share of them counts.
    """
    if configuration.layer_split == "by_gpu_type":
        return line_bound_s(context, configuration, 0.0, high_s)
    priced = _Priced.of(context, configuration)
    relaxed_s = _relaxed_s(context, configuration, priced)
    if relaxed_s >= high_s or len({pool.gpu for pool in priced.pools}) == 1:
        return relaxed_s
    costs = list(zip(priced.pools, priced.options, strict=True))
    return max(relaxed_s, slower_ranks_s(context, configuration, costs, priced.exposed_s, high_s))


def relaxed_bound_s(context: Context, configuration: Configuration) -> float:
    """Bound of one configuration on any placement: the pipeline bound without hops, on the best of each GPU type.

    Stage times, exchanges, static memory and optimizer are the least over pools, budgets the largest, so no placement
    beats it.
    """
    return _relaxed_s(context, configuration, _Priced.of(context, configuration))


@dataclass(frozen=True)
class _Priced:
    """One pool of each GPU type and fabric, the stages on it, and the least that every stage's exchange exposes."""

    pools: list[Pool]
    options: list[PoolStages]
    exposed_s: FloatArray

    @classmethod
    def of(cls, context: Context, configuration: Configuration) -> _Priced:
        """The stages of a configuration on all pools that may be used."""
        pools = _distinct_pools(context)
        options = [pool_stages(context, pool, configuration) for pool in pools]
        return cls(pools, options, _exposed_s(context, configuration, pools, options))


def _relaxed_s(context: Context, configuration: Configuration, priced: _Priced) -> float:
    limits = [context.memory_limit_bytes(pool.gpu) for pool in priced.pools]
    problem = _relaxation(configuration, priced.options, limits, priced.exposed_s)
    update = float(np.minimum.reduce([one.optimizer_s for one in priced.options]).max())
    return float("inf") if problem is None else lower_bound(problem) + update


def _distinct_pools(context: Context) -> list[Pool]:
    """One pool of each GPU type and fabric."""
    seen: dict[tuple[GpuType, float, int], Pool] = {}
    for pool in context.pools:
        seen.setdefault((pool.gpu, pool.nic_bytes_per_s_per_gpu, pool.gpus_per_host), pool)
    return list(seen.values())


def _exposed_s(
    context: Context, configuration: Configuration, pools: list[Pool], options: list[PoolStages]
) -> FloatArray:
    """Least time from the last weight gradient of every stage to the end of its exchange.

    Some place holds at least its even share of the replicas and exchanges among them; no more of that than the stack
    allows overlaps. Beyond that share any number of replicas may be there, so the least over all numbers counts.
    """
    columns, num_places = columns_of(configuration), len({pool.place for pool in context.pools})
    durations, overlaps = [], []
    for pool, one in zip(pools, options, strict=True):
        dense, experts = one.cost.parameters, one.cost.expert_parameters
        fabric = fabric_of(pool)
        least_s = least_exchange_s(context, columns, fabric, dense=dense, experts=experts, num_places=num_places)
        durations.append(least_s)
        overlaps.append(context.stack.data_parallel_overlap.value * one.cost.total_s)
    exposed: FloatArray = np.maximum(np.minimum.reduce(durations) - np.maximum.reduce(overlaps), 0.0)
    return exposed


def _relaxation(
    configuration: Configuration, options: list[PoolStages], limits: list[float], exposed_s: FloatArray
) -> PipelineProblem | None:
    num_stages = configuration.degrees.num_stages
    stages = tuple(
        PipelineStage(
            forward_s=min(float(one.cost.forward_s[s]) for one in options),
            input_grad_s=min(float(one.cost.input_grad_s[s]) for one in options),
            weight_grad_s=min(float(one.cost.weight_grad_s[s]) for one in options),
            activation_bytes=min(float(one.cost.activation_bytes[s]) for one in options),
            weight_grad_context_bytes=min(
                float(min(one.cost.weight_grad_context_bytes[s], one.cost.activation_bytes[s])) for one in options
            ),  # a fused backward keeps no context, and the bound has no use for more than the activation
            gradient_sync_s=float(exposed_s[s]),
        )
        for s in range(num_stages)
    )
    budgets = [
        max(limit - float(one.static.total_bytes[rank]) for one, limit in zip(options, limits, strict=True))
        for rank in range(configuration.degrees.pp)
    ]
    held = [0.0] * configuration.degrees.pp
    for s, stage in enumerate(stages):
        held[configuration.rank_of_stage(s)] += stage.activation_bytes
    if any(need > budget + ROUNDING * abs(budget) for need, budget in zip(held, budgets, strict=True)):
        return None
    return PipelineProblem(
        num_microbatches=configuration.num_microbatches,
        ranks=tuple(
            PipelineRank(activation_budget_bytes=max(need, budget)) for need, budget in zip(held, budgets, strict=True)
        ),
        layout=configuration.family,
        stages=stages,
    )
