"""A good draft made better: the whole portfolio and CP-SAT for its schedules, and the priced placement.

Owns the order of these steps, and the sharper bound of one configuration.
"""

from __future__ import annotations

from collections.abc import Iterator

from models.cluster import GpuType, Pool
from models.plan import Configuration
from models.schedule import PipelineProblem, PipelineRank, PipelineStage
from solver.context import Context
from solver.evaluation.by_type import priced_again
from solver.evaluation.candidate import Candidate
from solver.evaluation.crossings import prices_of
from solver.evaluation.draft import Draft, draft
from solver.evaluation.places import placements
from solver.evaluation.scheduling import Schedulers
from solver.placement.problem import Prices
from solver.schedules.bounds import lower_bound
from solver.space.stages import PoolStages, pool_stages


def polish(context: Context, found: Draft, schedulers: Schedulers, time_limit_s: float) -> Iterator[Draft]:
    """Drafts that may be better: priced placement first, then thorough schedules of the better of both."""
    best = found
    if len(context.units) > 1:
        prices = prices_of(context, found)
        for candidate in _priced(context, found.candidate, prices):
            priced = draft(context, candidate, schedulers.quick)
            if priced is not None:
                yield priced
                best = min(best, priced, key=lambda one: one.iteration_s)
    share = time_limit_s / max(len(set(best.problems)), 1)
    better = draft(context, best.candidate, lambda problem: schedulers.thorough(problem, share), like=best)
    if better is not None:
        yield better


def _priced(context: Context, candidate: Candidate, prices: Prices) -> Iterator[Candidate]:
    if candidate.configuration.layer_split == "by_gpu_type":
        return priced_again(context, candidate, prices)
    return placements(context, candidate.configuration, ("priced",), prices)


def relaxed_bound_s(context: Context, configuration: Configuration) -> float:
    """Bound of one configuration on any placement: the pipeline bound without hops, on the best of each GPU type.

    Stage times, static memory and optimizer are the least over pools, budgets the largest, so no placement beats it.
    """
    pools = _distinct_pools(context)
    options = [pool_stages(context, pool, configuration) for pool in pools]
    limits = [context.memory_limit_bytes(pool.gpu) for pool in pools]
    problem = _relaxation(configuration, options, limits)
    update = min(float(one.optimizer_s.max()) for one in options)
    return float("inf") if problem is None else lower_bound(problem) + update


def _distinct_pools(context: Context) -> list[Pool]:
    """One pool of each GPU type and fabric."""
    seen: dict[tuple[GpuType, float, int], Pool] = {}
    for pool in context.pools:
        seen.setdefault((pool.gpu, pool.nic_bytes_per_s_per_gpu, pool.gpus_per_host), pool)
    return list(seen.values())


def _relaxation(configuration: Configuration, options: list[PoolStages], limits: list[float]) -> PipelineProblem | None:
    num_stages = configuration.degrees.num_stages
    stages = tuple(
        PipelineStage(
            forward_s=min(float(one.cost.forward_s[s]) for one in options),
            input_grad_s=min(float(one.cost.input_grad_s[s]) for one in options),
            weight_grad_s=min(float(one.cost.weight_grad_s[s]) for one in options),
            activation_bytes=min(float(one.cost.activation_bytes[s]) for one in options),
            weight_grad_context_bytes=min(float(one.cost.weight_grad_context_bytes[s]) for one in options),
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
    if any(need > budget for need, budget in zip(held, budgets, strict=True)):
        return None
    return PipelineProblem(
        num_microbatches=configuration.num_microbatches,
        ranks=tuple(PipelineRank(activation_budget_bytes=budget) for budget in budgets),
        layout=configuration.family,
        stages=stages,
    )
