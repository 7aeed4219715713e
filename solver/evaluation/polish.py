"""A good draft made better: the whole portfolio and CP-SAT for its schedules, and the priced placement.

Owns the prices that the integer flow trades off, and the sharper bound of one configuration.
"""

from __future__ import annotations

from collections.abc import Iterator

from models.cluster import GpuType, Pool
from models.plan import Configuration
from models.schedule import PipelineProblem, PipelineRank, PipelineStage
from solver.context import Context
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
        for candidate in placements(context, found.candidate.configuration, ("priced",), prices):
            priced = draft(context, candidate, schedulers.quick)
            if priced is not None:
                yield priced
                best = min(best, priced, key=lambda one: one.iteration_s)
    share = time_limit_s / max(len(set(best.problems)), 1)
    better = draft(context, best.candidate, lambda problem: schedulers.thorough(problem, share))
    if better is not None:
        yield better


def prices_of(context: Context, found: Draft) -> Prices:
    """What crossings cost an iteration of this configuration: 2 delays per boundary, slots per message, exchanges."""
    configuration = found.candidate.configuration
    stages = next(iter(found.stages.values()))
    work_s = float(stages.cost.total_s.max())
    units = range(len(context.units))
    places = [context.pools[unit.pools[0]].place for unit in context.units]
    latency = [[_latency_s(context, places[u], places[v]) for v in units] for u in units]
    rate = [[_rate(context, places[u], places[v]) for v in units] for u in units]
    passes = configuration.degrees.vpp
    per_replica = [found.message_bytes * passes / rate[u][v] if u != v else 0.0 for u in units for v in units]
    slot = tuple(tuple(per_replica[u * len(units) + v] for v in units) for u in units)
    boundary = tuple(tuple(2.0 * passes * (latency[u][v] + slot[u][v]) for v in units) for u in units)
    span = tuple(_span_s(context, found, stages, rank) for rank in range(configuration.degrees.pp))
    return Prices(boundary_s=boundary, slot_s=slot, work_s=work_s, span_s=span)


def _latency_s(context: Context, one: str, other: str) -> float:
    if one == other or not context.topology.connected(one, other):
        return 0.0
    return context.topology.path_facts(one, other).latency_s


def _rate(context: Context, one: str, other: str) -> float:
    if one == other or not context.topology.connected(one, other):
        return float("inf")
    return min(float(context.topology.capacity_bytes_per_s[edge]) for edge in context.topology.path(one, other))


def _span_s(context: Context, found: Draft, stages: PoolStages, rank: int) -> float:
    """Exchange of a rank's stages over the slowest pair of buildings: the gradients of the stage, once."""
    configuration = found.candidate.configuration
    degrees = configuration.degrees
    own = [s for s in range(degrees.num_stages) if configuration.rank_of_stage(s) == rank]
    parameters = sum(
        float(stages.cost.parameters[s]) * degrees.tp
        + float(stages.cost.expert_parameters[s]) * degrees.tp * degrees.ep
        for s in own
    )
    places = [context.pools[unit.pools[0]].place for unit in context.units]
    rates = [_rate(context, one, other) for one in places for other in places if one != other]
    size = parameters * context.job.optimizer.gradient_bytes_per_parameter
    return size / min(rates) if rates and min(rates) < float("inf") else 0.0


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
