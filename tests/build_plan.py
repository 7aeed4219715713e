"""A valid plan for the small request of `build_request`, put together by hand: no planner, no generator, no judge.

Two routes of pp 2: two replicas from east to west, two inside east, so both dimensions cross buildings. The
plan's own arithmetic is written out once more; costs come from `build_costs`, schedules from `build_schedule`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from models.figures import TimeBreakdown
from models.plan import (
    Configuration,
    Degrees,
    MemoryUse,
    Metrics,
    OtherSharing,
    Placement,
    Plan,
    Proof,
    RankRange,
    Route,
    RouteTimeline,
    StageExchange,
)
from models.prediction import Prediction
from models.request import PlanRequest
from models.schedule import PipelineProblem, PipelineRank, PipelineStage
from models.transport import LinkFlow, LinkLoad, TransportChoice
from models.verdict import Verdict
from solver.cost.fabric import fabric_of
from solver.cost.flops import model_flops_per_iteration
from solver.cost.job import job_of
from solver.cost.optimizer import step_overhead_s
from solver.cost.uncertainty import prediction
from tests.build_costs import MIXED, STACK, Costs, Forgery, Routes
from tests.build_loads import valued
from tests.build_schedule import one_f_one_b

TRUTH = Forgery()


def build_plan(
    request: PlanRequest, *, routes: Routes = MIXED, forgery: Forgery = TRUTH, **configuration: object
) -> Plan:
    """The plan; `configuration` replaces fields of its configuration (dp 4, tp 2 and pp 2 stay)."""
    fields = {
        "degrees": Degrees(tp=2, pp=2, dp=4),
        "micro_batch_sequences": 1,
        "num_microbatches": 4,
        "sharding": "zero1",
        "shard_group_replicas": 4,
        "recompute": "none",
        "layers_per_stage": (4, 4),
    }
    costs = Costs(request, Configuration.model_validate(fields | configuration), routes, forgery)
    timelines = tuple(_timeline(costs, name, places, count) for name, places, count in routes)
    exchanges = _exchanges(costs, timelines)
    update = max(costs.optimizer_s(place, rank) for _, places, _ in routes for rank, place in enumerate(places))
    ends = [one.end_s for one in timelines]
    iteration_s = forgery.iteration * (max(*ends, *(one.end_s for one in exchanges)) + update)
    loads = _link_loads(costs, iteration_s, timelines, exchanges)
    memory = _memory(costs, timelines)
    return Plan(
        configuration=costs.configuration,
        placement=_placement(costs),
        timelines=timelines,
        exchanges=exchanges,
        transport=_transport(costs),
        link_loads=loads,
        memory=memory,
        prediction=_error_bars(costs, memory, iteration_s),
        time=_breakdown(costs, iteration_s, update),
        metrics=headline(request, loads, iteration_s=iteration_s, num_gpus=costs.configuration.degrees.num_gpus),
        proof=_proof(request, iteration_s, costs.configuration.degrees.num_gpus),
        verdict=Verdict(accepted=False, rules_checked=()),
        stack_profile=STACK,
    )


def headline(request: PlanRequest, loads: tuple[LinkLoad, ...], *, iteration_s: float, num_gpus: int) -> Metrics:
    """The figures that follow from the time, the loads and the GPUs; all GPUs and links cost the same."""
    tokens = request.workload.tokens_per_iteration
    crossing = _bytes_over(loads, {link.id for link in request.cluster.links} | _uplinks_of_buildings(request))
    priced = _bytes_over(loads, {link.id for link in request.cluster.links}, both_ways=True)
    usd = num_gpus * 2.0 * iteration_s / 3600 + priced / 1e9 * 0.01
    return Metrics(
        iteration_s=iteration_s,
        tokens_per_s=tokens / iteration_s,
        tokens_per_s_per_gpu=tokens / iteration_s / num_gpus,
        model_flops_utilisation=light_s(request, num_gpus) / iteration_s,
        num_gpus=num_gpus,
        usd_per_million_tokens=usd / tokens * 1e6,
        cross_building_bytes=crossing,
    )


def _bytes_over(loads: tuple[LinkLoad, ...], links: set[str], *, both_ways: bool = False) -> float:
    """Bytes on these links; on an uplink only those on the way up, unless both ways count."""
    return sum(
        flow.bytes_per_iteration
        for load in loads
        if load.link in links and (both_ways or not (load.link.startswith("uplink:") and load.reverse))
        for flow in load.flows
    )


def _uplinks_of_buildings(request: PlanRequest) -> set[str]:
    return {f"uplink:{place.id}" for place in request.cluster.places if place.level == "building"}


def light_s(request: PlanRequest, num_gpus: int) -> float:
    """FLOPs over the peak of so many GPUs."""
    return model_flops_per_iteration(request.workload) / (num_gpus * 1e15)


def _placement(costs: Costs) -> Placement:
    degrees, routes, ranges, first = costs.configuration.degrees, [], [], 0
    group = degrees.gpus_per_stage_group
    taken: dict[str, int] = {}
    for name, places, count in costs.routes:
        pools = tuple(costs.pool(place).id for place in places)
        routes.append(Route(id=name, places=places, pools=pools, num_replicas=count, first_replica=first))
        for rank, place in enumerate(places):
            pool, gpu, num_ranks = costs.pool(place), taken.get(place, 0), count * group
            taken[place] = gpu + num_ranks
            ranges.append(
                RankRange(
                    first_rank=(rank * degrees.dp + first) * group,
                    num_ranks=num_ranks,
                    pipeline_rank=rank,
                    route=name,
                    pool=pool.id,
                    first_gpu=gpu,
                    hosts=pool.host_names[gpu // pool.gpus_per_host : (gpu + num_ranks - 1) // pool.gpus_per_host + 1],
                )
            )
        first += count
    return Placement(routes=tuple(routes), rank_map=tuple(ranges), crossing=_crossing(costs))


def _crossing(costs: Costs) -> str:
    pipeline = any(len(set(places)) > 1 for _, places, _ in costs.routes)
    replicas = any(len(costs.num_replicas(rank)) > 1 for rank in range(costs.configuration.degrees.pp))
    return {(False, False): "none", (False, True): "dp_out", (True, False): "pp_out", (True, True): "mixed"}[
        pipeline, replicas
    ]


def _timeline(costs: Costs, name: str, places: tuple[str, ...], count: int) -> RouteTimeline:
    forgery = costs.forgery
    stages = []
    for stage, place in enumerate(places):
        cost = costs.stage(place, stage)
        stages.append(
            PipelineStage(
                forward_s=forgery.stage_times * float(cost.forward_s[0]),
                input_grad_s=forgery.stage_times * float(cost.input_grad_s[0]),
                weight_grad_s=forgery.stage_times * float(cost.weight_grad_s[0]),
                activation_bytes=float(cost.activation_bytes[0]),
                weight_grad_context_bytes=forgery.context_bytes * float(cost.weight_grad_context_bytes[0]),
                gradient_sync_s=forgery.gradient_sync_s,
            )
        )
    budgets = [costs.room_bytes(place, stage) for stage, place in enumerate(places)]
    problem = PipelineProblem(
        num_microbatches=forgery.scheduled_microbatches or costs.configuration.num_microbatches,
        ranks=tuple(
            PipelineRank(activation_budget_bytes=None if forgery.all_forward_first else budget) for budget in budgets
        ),
        stages=tuple(stages),
        hops=tuple(costs.hop(stage, ends, count) for stage, ends in enumerate(pairwise(places))),
    )
    schedule = one_f_one_b(problem, all_forward_first=forgery.all_forward_first)
    turns = [hop for hop in problem.hops if hop.staggered]
    stagger_s = max((hop.occupancy_s - hop.transfer_s for hop in turns), default=0.0)
    other = _all_at_once(problem) if turns else None
    return RouteTimeline(route=name, problem=problem, schedule=schedule, stagger_s=stagger_s, other_sharing=other)


def _all_at_once(problem: PipelineProblem) -> OtherSharing:
    """The route if every replica kept its part of the links, so that each message took the whole round."""
    one = {"num_sharing_replicas": 1, "staggered": False}
    hops = tuple(
        hop.model_copy(update={"transfer_s": hop.occupancy_s} | one) if hop.staggered else hop for hop in problem.hops
    )
    schedule = one_f_one_b(problem.model_copy(update={"hops": hops}))
    end_s = max(end for rank in schedule.ranks for end in rank.end_s)
    return OtherSharing(hops=hops, stagger_s=0.0, end_s=end_s)


def _exchanges(costs: Costs, timelines: tuple[RouteTimeline, ...]) -> tuple[StageExchange, ...]:
    """The last stage first: its gradients are ready first."""
    done: list[StageExchange] = []
    for stage in reversed(range(costs.configuration.degrees.pp)):
        last_s = max(one.schedule.ranks[stage].end_s[-1] + one.stagger_s for one in timelines)
        free_s = max((one.start_s + one.shared_s for one in done), default=0.0)
        done.append(costs.exchange(stage, last_s=last_s, free_s=free_s))
    return tuple(reversed(done))


def _link_loads(
    costs: Costs, iteration_s: float, timelines: tuple[RouteTimeline, ...], exchanges: tuple[StageExchange, ...]
) -> tuple[LinkLoad, ...]:
    """Every edge of the path between the two buildings, there and back, carries the same."""
    across = sum(count for _, places, count in costs.routes if places[0] != places[1])
    pipeline = across * costs.configuration.num_microbatches * costs.message_bytes()
    ranks = range(costs.configuration.degrees.pp)
    exchange = sum(costs.exchanged_bytes(stage) for stage in ranks if len(costs.num_replicas(stage)) > 1)
    sizes = {"pp": pipeline, "dp": exchange}
    flows = tuple(LinkFlow(cause=cause, bytes_per_iteration=size) for cause, size in sizes.items() if size)
    loads = tuple(
        LinkLoad(
            link=edge.id,
            reverse=edge.reverse,
            usable_bytes_per_s=edge.capacity_bytes_per_s,
            flows=flows,
            mean_utilisation=(pipeline + exchange) / (edge.capacity_bytes_per_s * iteration_s),
            peak_utilisation=0.0,
        )
        for edge in (*costs.edges("east", "west"), *costs.edges("west", "east"))
        if flows
    )
    return valued(costs, loads, timelines, exchanges)


def _choice(dimension: str, collective: str, tier: str, **changes: object) -> TransportChoice:
    fields: dict[str, Any] = {
        "dimension": dimension,
        "collective": collective,
        "tier": tier,
        "num_ranks": 2,
        "message_bytes": 1e6,
        "algorithm": "ring",
        "chunk_bytes": 2.0**20,
        "num_queue_pairs": 16,
        "num_outstanding": 8,
        "load_balancing": "ecmp",
        "reliability": "go_back_n",
        "expected_s": 0.1,
        "effective_bytes_per_s": 4e10,
        "reason": "the only one on offer",
    }
    return TransportChoice.model_validate(fields | changes)


def _transport(costs: Costs) -> tuple[TransportChoice, ...]:
    degrees = costs.configuration.degrees
    message = {"message_bytes": costs.message_bytes() / degrees.gpus_per_stage_group, "algorithm": "direct"}
    choices = [
        _choice("tp", "all_reduce", "scale_up"),
        _choice("pp", "send_recv", "building", **message),
        _choice("pp", "send_recv", "cross_building", **message),
        _choice("dp", "all_reduce", "cross_building", num_ranks=4, algorithm="hierarchical"),
    ]
    if degrees.ep > 1:
        choices.append(_choice("ep", "all_to_all", "building", num_ranks=degrees.ep, algorithm="direct"))
    return tuple(choices)


def _memory(costs: Costs, timelines: tuple[RouteTimeline, ...]) -> tuple[MemoryUse, ...]:
    """All pools have one GPU type, so the route that holds most activations is the fullest."""
    uses = []
    for rank in range(costs.configuration.degrees.pp):
        fullest = max(timelines, key=lambda one: one.schedule.ranks[rank].peak_memory_bytes)
        static = costs.static("east", rank)
        uses.append(
            MemoryUse(
                pipeline_rank=rank,
                route=fullest.route,
                weights_bytes=float(static.weights_bytes[0]),
                gradients_bytes=float(static.gradients_bytes[0]),
                optimizer_bytes=float(static.optimizer_bytes[0]),
                activations_bytes=fullest.schedule.ranks[rank].peak_memory_bytes,
                buffers_bytes=float(static.buffers_bytes[0]),
                framework_bytes=float(static.framework_bytes[0]),
                limit_bytes=8e10 * (1 - costs.request.constraints.memory_headroom_fraction),
            )
        )
    return tuple(uses)


def _breakdown(costs: Costs, iteration_s: float, update: float) -> TimeBreakdown:
    """The last rank's work; what is left over is called bubble."""
    cost, m = costs.stage("east", 1), costs.configuration.num_microbatches
    tensor, expert = m * float(cost.tensor_parallel_s[0]), m * float(cost.expert_parallel_s[0])
    compute = m * float(cost.total_s[0]) - tensor - expert
    overhead = costs.forgery.optimizer * float(step_overhead_s(costs.columns, costs.stack)[0])
    return TimeBreakdown(
        compute_s=compute,
        tensor_parallel_s=tensor,
        context_parallel_s=0.0,
        expert_parallel_s=expert,
        bubble_s=iteration_s - update - compute - tensor - expert,
        pipeline_s=0.0,
        data_parallel_s=0.0,
        optimizer_s=update - overhead,
        overhead_s=overhead,
        total_s=iteration_s,
    )


def _error_bars(costs: Costs, memory: tuple[MemoryUse, ...], iteration_s: float) -> Prediction:
    """What the profile says of these figures."""
    pools = [costs.pool(place) for _, places, _ in costs.routes for place in places]
    kept = 1.0 - costs.request.constraints.memory_headroom_fraction
    return prediction(
        job_of(costs.request.workload),
        costs.stack,
        costs.columns,
        [(pool.gpu, fabric_of(pool)) for pool in pools],
        iteration_s=iteration_s,
        memory=[(one.total_bytes, one.limit_bytes / kept) for one in memory],
    )


def _proof(request: PlanRequest, iteration_s: float, num_gpus: int) -> Proof:
    return Proof(
        lower_bound_s=0.9 * iteration_s,
        relative_gap=0.1,
        status="feasible",
        speed_of_light_s=light_s(request, num_gpus),
        num_configurations=10,
        num_pruned=8,
        num_explored=2,
        proven="The bound holds for this configuration.",
    )
