"""A timed candidate written out as a plan: memory and time by cause, headline figures, assumptions.

The attribution of seconds and bytes to causes.
"""

from __future__ import annotations

import numpy as np

from models.cluster import GpuType
from models.figures import MemoryUse, TimeBreakdown
from models.plan import Metrics, OtherSharing, Plan, Proof, RouteTimeline
from models.prediction import Prediction
from models.statements import assumptions_of
from models.verdict import Verdict
from solver.context import SECONDS_PER_HOUR, Context
from solver.cost.columns import columns_of
from solver.cost.compute import peak_flops_per_s
from solver.cost.fabric import Fabric, fabric_of
from solver.cost.flops import model_flops_per_iteration
from solver.cost.optimizer import step_overhead_s
from solver.cost.uncertainty import evidence_warnings, prediction, shared_errors, slowest_alone, time_factor
from solver.diagnostics.table import plan_diagnostics
from solver.evaluation.evaluate import Evaluation
from solver.evaluation.scheduling import Timing
from solver.evaluation.ways import TimedWay
from solver.evaluation.where import placement_of
from solver.network.policy import POLICY
from solver.pipeline.problem import PipelineOrder
from solver.pipeline.simulate import replay
from solver.transport.communicators import transport_choices
from solver.transport.hops import HopDelay, queues_by_way
from solver.transport.loads import bytes_by_edge, cross_building_bytes, egress_usd, link_loads
from solver.transport.prices import link_prices
from solver.transport.stated import exchange_rings, message_transports
from solver.transport.time_division import choices_between_places
from solver.verify.joint_replay import joint_replay

UNJUDGED = Verdict(accepted=False, rules_checked=())


def plan_of(context: Context, evaluation: Evaluation, proof: Proof) -> Plan:
    """The plan of an evaluation, not yet judged."""
    placement = placement_of(context, evaluation.candidate)
    written = {timing: timing.written() for timing in dict.fromkeys(evaluation.timings)}
    time = time_of(context, evaluation)
    memory = memory_of(context, evaluation)
    error_bars = _error_bars(context, evaluation, memory)
    prices = link_prices(context, evaluation.traffic, hidden_s=evaluation.pipeline_s - time.pipeline_s)
    loads = link_loads(context, evaluation.traffic, iteration_s=evaluation.iteration_s, prices=prices)
    unconfirmed = Plan(
        configuration=evaluation.candidate.configuration,
        placement=placement,
        timelines=tuple(
            RouteTimeline(
                route=route.id,
                problem=one.way.problem,
                schedule=written[one.timing],
                stagger_s=one.way.stagger_s,
                other_sharing=_other_sharing(one),
            )
            for route, one in zip(placement.routes, evaluation.timed, strict=True)
        ),
        exchanges=evaluation.exchanges,
        transport=transport_choices(
            context,
            evaluation.candidate.configuration,
            evaluation.candidate.routes,
            evaluation.stages,
            across=choices_between_places(evaluation.traffic),
        ),
        message_splits=evaluation.paths.stated(
            queues_by_way(context, evaluation.candidate.configuration, evaluation.candidate.routes)
        ),
        message_transports=message_transports(context, placement.routes, _hops_of_both_ways(evaluation)),
        exchange_rings=exchange_rings(context.topology, evaluation.costs),
        transport_policy=POLICY,
        link_loads=loads,
        memory=memory,
        time=time,
        metrics=metrics_of(context, evaluation),
        prediction=error_bars,
        proof=proof,
        assumptions=assumptions_of(
            context.stack,
            evaluation.candidate.configuration.layer_split,
            (context.pools[pool].gpu.name for route in evaluation.candidate.routes for pool in route.pools),
            measured=bool(context.request.workload.layer_profiles),
        ),
        warnings=plan_diagnostics(
            context.request,
            context.topology,
            used_links={load.link for load in loads},
            used_pools={context.pools[pool].id for route in evaluation.candidate.routes for pool in route.pools},
        )
        + evidence_warnings(context.stack, error_bars.evidence),
        verdict=UNJUDGED,
        stack_profile=context.stack.name,
    )
    return _replayed(context, unconfirmed)


def _hops_of_both_ways(evaluation: Evaluation) -> list[tuple[HopDelay, ...]]:
    """Of every route, those of the way of sharing links that was taken, and of the other one."""
    others = (() if one.other is None else one.other.way.delays for one in evaluation.timed)
    return [(*own, *other) for own, other in zip(evaluation.hops, others, strict=True)]


def _other_sharing(timed: TimedWay) -> OtherSharing | None:
    """The way of sharing links that was not taken."""
    other = timed.other
    if other is None:
        return None
    return OtherSharing(hops=other.way.problem.hops, stagger_s=other.way.stagger_s, end_s=other.end_s)


def _replayed(context: Context, plan: Plan) -> Plan:
    """The plan with the time that it takes when links are shared max-min fairly."""
    shared_s = joint_replay(context.request, plan).iteration_s
    return plan.model_copy(update={"metrics": plan.metrics.model_copy(update={"shared_replay_s": shared_s})})


def memory_of(context: Context, evaluation: Evaluation) -> tuple[MemoryUse, ...]:
    """Per pipeline rank the route whose GPUs are closest to their limit."""
    rows = []
    for rank in range(evaluation.candidate.configuration.degrees.pp):
        uses = [_memory_use(context, evaluation, route, rank) for route in range(len(evaluation.candidate.routes))]
        rows.append(max(uses, key=lambda use: use.total_bytes - use.limit_bytes))
    return tuple(rows)


def _memory_use(context: Context, evaluation: Evaluation, route: int, rank: int) -> MemoryUse:
    pool = evaluation.candidate.routes[route].pools[rank]
    static = evaluation.stages[pool].static
    return MemoryUse(
        pipeline_rank=rank,
        route=f"r{route}",
        weights_bytes=float(static.weights_bytes[rank]),
        gradients_bytes=float(static.gradients_bytes[rank]),
        optimizer_bytes=float(static.optimizer_bytes[rank]),
        activations_bytes=float(evaluation.timings[route].peak_memory_bytes[rank]),
        buffers_bytes=float(static.buffers_bytes[rank]),
        framework_bytes=float(static.framework_bytes[rank]),
        limit_bytes=context.memory_limit_bytes(context.pools[pool].gpu),
    )


def _error_bars(context: Context, evaluation: Evaluation, memory: tuple[MemoryUse, ...]) -> Prediction:
    """What the figures of the evaluation may turn out to be."""
    retained = 1.0 - context.request.constraints.memory_headroom_fraction
    return prediction(
        context.job,
        context.stack,
        columns_of(evaluation.candidate.configuration),
        _gpu_types(context, evaluation),
        iteration_s=evaluation.iteration_s,
        memory=[(one.total_bytes, one.limit_bytes / retained) for one in memory],
    )


def errors_of(context: Context, evaluation: Evaluation) -> tuple[float, ...]:
    """What the errors of the profile's constants make of the evaluation's time."""
    columns = columns_of(evaluation.candidate.configuration)
    return shared_errors(context.job, context.stack, columns, _gpu_types(context, evaluation))


def quantile(context: Context, evaluation: Evaluation, confidence: float) -> float:
    """The time that a measurement remains below with this probability, over that of the evaluation."""
    columns = columns_of(evaluation.candidate.configuration)
    slowest = slowest_alone(context.job, context.stack, columns, _gpu_types(context, evaluation))
    return float(time_factor(slowest, confidence)[0])


def _gpu_types(context: Context, evaluation: Evaluation) -> list[tuple[GpuType, Fabric]]:
    """GPU types in use, with the network that they see."""
    pools = sorted({pool for route in evaluation.candidate.routes for pool in route.pools})
    return [(context.pools[pool].gpu, fabric_of(context.pools[pool])) for pool in pools]


def time_of(context: Context, evaluation: Evaluation) -> TimeBreakdown:
    """Causes as the busiest rank of the slowest route sees them; its idle time is split by a replay without hops."""
    configuration = evaluation.candidate.configuration
    route = max(range(len(evaluation.timings)), key=lambda one: evaluation.timed[one].end_s)
    busy_s = np.array([_busy_s(evaluation, route, rank) for rank in range(configuration.degrees.pp)])
    busiest_s = busy_s[busy_s.sum(axis=1).argmax()]
    compute_s, tensor_s, context_s, expert_s, data_s = busiest_s.tolist()
    pipeline_end_s = evaluation.pipeline_s
    overhead_s = float(step_overhead_s(columns_of(configuration), context.stack)[0])
    idle_s = max(pipeline_end_s - float(busiest_s.sum()), 0.0)
    without_hops_s = _end_without_hops_s(evaluation.timings[route])
    waiting_s = min(max(pipeline_end_s - without_hops_s, 0.0), idle_s)
    return TimeBreakdown(
        compute_s=compute_s,
        tensor_parallel_s=tensor_s,
        context_parallel_s=context_s,
        expert_parallel_s=expert_s,
        bubble_s=idle_s - waiting_s,
        pipeline_s=waiting_s,
        data_parallel_s=data_s + max(max(0.0, one.end_s - pipeline_end_s) for one in evaluation.exchanges),
        optimizer_s=max(evaluation.optimizer_s - overhead_s, 0.0),
        overhead_s=overhead_s,
        total_s=evaluation.iteration_s,
    )


def _busy_s(evaluation: Evaluation, route: int, rank: int) -> list[float]:
    """Busy time of one rank of one route: computing, then tensor, context, expert and data parallelism."""
    configuration = evaluation.candidate.configuration
    cost = evaluation.stages[evaluation.candidate.routes[route].pools[rank]].cost
    own = configuration.stages_of_rank(rank)
    causes = (cost.tensor_parallel_s, cost.context_parallel_s, cost.expert_parallel_s, cost.data_parallel_s)
    total_s, *apart_s = (configuration.num_microbatches * float(one[own].sum()) for one in (cost.total_s, *causes))
    return [total_s - sum(apart_s), *apart_s]


def _end_without_hops_s(timing: Timing) -> float:
    """End of the last operation when the same order runs without any delay between stages."""
    free = timing.problem.without_exchanges().model_copy(update={"hops": ()})
    return float(replay(free, PipelineOrder(timing.order.rank_ops, ())).end.max())


def metrics_of(context: Context, evaluation: Evaluation) -> Metrics:
    """Throughput, utilisation and cost of the plan."""
    degrees = evaluation.candidate.configuration.degrees
    tokens = context.request.workload.tokens_per_iteration
    gpus, bytes_e = evaluation.candidate.gpus_of_pool, bytes_by_edge(context, evaluation.traffic)
    egress = egress_usd(context, bytes_e)
    peak = sum(count * peak_flops_per_s(context.pools[pool].gpu, context.job.precision) for pool, count in gpus.items())
    rate = tokens / evaluation.iteration_s
    flops = model_flops_per_iteration(context.request.workload)
    return Metrics(
        iteration_s=evaluation.iteration_s,
        tokens_per_s=rate,
        tokens_per_s_per_gpu=rate / degrees.num_gpus,
        model_flops_utilisation=flops / peak / evaluation.iteration_s,
        num_gpus=degrees.num_gpus,
        usd_per_million_tokens=_usd_per_million_tokens(context, gpus, evaluation.iteration_s, egress),
        cross_building_bytes=cross_building_bytes(context, bytes_e),
    )


def exceeds_traffic_limit(context: Context, evaluation: Evaluation) -> bool:
    """More bytes between buildings than the request allows."""
    limit = context.request.constraints.max_cross_building_bytes_per_iteration
    return limit is not None and evaluation_cross_building_bytes(context, evaluation) > limit


def evaluation_cross_building_bytes(context: Context, evaluation: Evaluation) -> float:
    """Bytes between buildings per iteration."""
    return cross_building_bytes(context, bytes_by_edge(context, evaluation.traffic))


def extra_usd(context: Context, evaluation: Evaluation, usd_per_gpu_s: float) -> float:
    """What a plan costs per iteration beyond its GPUs at the least price: dearer GPUs, and egress over priced links."""
    egress = egress_usd(context, bytes_by_edge(context, evaluation.traffic))
    gpus = evaluation.candidate.gpus_of_pool
    prices = ((context.pools[pool].gpu.usd_per_gpu_hour, count) for pool, count in gpus.items())
    dearer = sum(count * (price / SECONDS_PER_HOUR - usd_per_gpu_s) for price, count in prices if price is not None)
    return egress + dearer * evaluation.iteration_s


def _usd_per_million_tokens(context: Context, gpus: dict[int, int], iteration_s: float, egress: float) -> float | None:
    hourly = 0.0
    for pool, count in gpus.items():
        price = context.pools[pool].gpu.usd_per_gpu_hour
        if price is None:
            return None
        hourly += count * price
    return (hourly * iteration_s / SECONDS_PER_HOUR + egress) / context.request.workload.tokens_per_iteration * 1e6
