"""The replay of a whole plan at once: every route's operations and messages, links shared max-min fairly.

Messages travel the plan's paths between the pools' places (that of least latency, or a split) as fluid flows, one at a
time per link name and direction, in the plan's order. Every queue keeps the share that its stated transfer time
reserves, cut where the shares of an edge add up to more than it has; what is left is shared max-min fairly. Exchanges
take links and cards in the plan's order and never start later than stated. Staggered replicas keep the pace that they
are shifted by, as one flow that delivers after its first turn; the last of them ends by the stagger later.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from models.plan import Plan
from models.request import PlanRequest
from models.schedule import PipelineHop
from models.transport import Dimension
from solver.pipeline.problem import Floats, Ints, ragged
from solver.verify.exchanges_at_once import beside_each, in_order, waits_for
from solver.verify.joint_columns import Network, Work, side_by_side, work_of
from solver.verify.joint_kernel import joint_kernel
from solver.verify.message_paths import edge_parts
from solver.verify.message_rates import stated_hops
from solver.verify.network_facts import Boundary
from solver.verify.reading import Reading


@dataclass(frozen=True)
class EdgeUse:
    """One direction of a link: the highest part of its capacity in use, exchanges included, and message bytes."""

    link: str
    reverse: bool
    peak_utilisation: float
    message_bytes: float


@dataclass(frozen=True)
class JointReplay:
    """When everything ends with shared links."""

    iteration_s: float
    route_end_s: Mapping[str, float]
    edges: tuple[EdgeUse, ...]


def joint_replay(request: PlanRequest, plan: Plan) -> JointReplay:
    """The replay of a plan whose routes, timelines and pools belong together; ValueError where an order deadlocks."""
    return replay_case(Reading(request, plan))


def replay_case(case: Reading) -> JointReplay:
    """`joint_replay` for a case that exists already."""
    alike = _alike_routes(case)
    routes = list(dict.fromkeys(alike.values()))
    timelines = [case.timeline_by_route[route] for route in routes]
    stages = case.configuration.degrees.num_stages
    work = side_by_side([work_of(one) for one in timelines], stages)
    network = _network(case, routes)
    end, peak, sent = joint_kernel(work, network)
    if np.isnan(end).any():
        raise ValueError(f"operation {int(np.flatnonzero(np.isnan(end))[0])} of the joint replay never ends")
    stagger_s = np.array([one.stagger_s for one in timelines])
    exchanges_end_s = _exchanges_end_s(case, _last_gradients(work, end, stages, stagger_s))
    counts = np.cumsum([0] + [one.problem.num_operations for one in timelines])
    own = {
        route: float(end[counts[index] : counts[index + 1]].max() + stagger_s[index])
        for index, route in enumerate(routes)
    }
    ends = {route: own[twin] for route, twin in alike.items()}
    iteration_s = max(*ends.values(), exchanges_end_s) + case.plan.time.step_end_s
    edges = tuple(
        EdgeUse(edge.id, edge.reverse, float(high / edge.capacity_bytes_per_s), float(carried))
        for edge, high, carried in zip(case.network.topology.edges, peak, sent, strict=True)
    )
    return JointReplay(iteration_s, ends, edges)


def _alike_routes(case: Reading) -> dict[str, str]:
    """For every route the first one that runs exactly as it does: the same schedule, and no message on any link."""
    alone, first = dict[str, str](), dict[str, str]()
    for route in case.route_by_id:
        timeline = case.timeline_by_route[route]
        shared = timeline.stagger_s or any(hop.occupancy_s for hop in timeline.problem.hops)
        first[route] = route if shared else alone.setdefault(case.alike_route[route], route)
    return first


def _last_gradients(work: Work, end: Floats, num_stages: int, stagger_s: Floats) -> Floats:
    """End of the last weight gradient of every stage over all routes and replicas."""
    last = np.zeros(num_stages)
    own = work.weight_stage >= 0
    rows = work.weight_stage[own]
    np.maximum.at(last, rows % num_stages, end[own] + stagger_s[rows // num_stages])
    return last


def _exchanges_end_s(case: Reading, last_s: Floats) -> float:
    """End of the last exchange, in the plan's order from when their gradients are ready; 0 where there are none."""
    end_s, cards_free_s = 0.0, [0.0] * case.configuration.degrees.pp
    waits, until_s = waits_for(case.plan.exchanges), dict[int, float]()
    for one in in_order(case.plan.exchanges):
        rank = case.configuration.rank_of_stage(one.stage)
        ready_s = max(float(last_s[one.stage]) - one.overlap_s, cards_free_s[rank])
        others = (until_s[stage] for stage in waits.get(one.stage, ()))
        start_s = min(max(ready_s, *others, 0.0), one.start_s)
        cards_free_s[rank] = start_s + max(one.private_s, one.shared_s)
        until_s[one.stage] = start_s + one.shared_s
        end_s = max(end_s, float(last_s[one.stage]), start_s + case.exchange_s(one.private_s, one.shared_s))
    return end_s


def _network(case: Reading, routes: list[str]) -> Network:
    """Flows of every hop of these routes, both ways, and what exchanges take of the edges."""
    number, stages = {route: index for index, route in enumerate(routes)}, case.configuration.degrees.num_stages
    capacity = case.network.topology.capacity_bytes_per_s
    size = 2 * stages * len(routes)
    weight, volume, tail, cap, floor = np.ones(size), np.ones(size), np.zeros(size), np.ones(size), np.zeros(size)
    edges: list[Ints] = [np.zeros(0, dtype=np.int64)] * size
    parts: list[Floats] = [np.zeros(0)] * size
    for boundary, hop in stated_hops(case):
        if hop.occupancy_s == 0:
            continue
        rows = 2 * (stages * number[boundary.route] + boundary.from_stage)
        replicas = case.route_by_id[boundary.route].num_replicas
        rate = case.network.boundary_bytes(boundary) / hop.occupancy_s
        for row, back in ((rows, False), (rows + 1, True)):
            edges[row], parts[row] = edge_parts(case, boundary, back=back)
            weight[row], volume[row], floor[row] = replicas, case.network.boundary_bytes(boundary), rate
            cap[row] = _cap_bytes_per_s(case, boundary, hop) if len(edges[row]) and not hop.staggered else rate
            if hop.staggered:
                volume[row] /= hop.num_sharing_replicas
                tail[row] = volume[row] * (hop.num_sharing_replicas - 1)
    reserved = reserved_bytes_per_s(case)
    part = np.minimum(1.0, capacity / np.maximum(reserved, 1e-9))
    floor = np.minimum(floor, cap) * [part[own].min(initial=1.0) for own in edges]
    flat, offsets = ragged(edges)
    part_of = np.concatenate([np.zeros(0), *parts])
    hold = np.minimum(_held_bytes_per_s(case), np.maximum(capacity - reserved, 0.0))
    left = np.repeat([case.timeline_by_route[route].problem.num_microbatches for route in routes], stages)
    armed = _until_exchange(case, routes, left)
    return Network(weight, volume, tail, cap, floor, flat, part_of, offsets, capacity, hold, left, armed)


def reserved_bytes_per_s(case: Reading, hops: Iterable[tuple[Boundary, PipelineHop]] | None = None) -> Floats:
    """Rate that message queues keep of every edge: of each link name and direction along the ranks the fastest.

    `hops` stand for the stated ones.
    """
    queues: dict[tuple[int, str, str, bool], float] = {}
    for boundary, hop in stated_hops(case) if hops is None else hops:
        if hop.occupancy_s == 0:
            continue
        at_once = -(-case.route_by_id[boundary.route].num_replicas // hop.num_sharing_replicas)
        rate = at_once * case.network.boundary_bytes(boundary) / hop.transfer_s
        ranks = [case.configuration.rank_of_stage(boundary.from_stage + step) for step in (0, 1)]
        for back in (False, True):
            upwards = (ranks[1] > ranks[0]) != back
            for edge, part in zip(*edge_parts(case, boundary, back=back), strict=True):
                key = (int(edge), boundary.route, hop.link_name, upwards)
                queues[key] = max(queues.get(key, 0.0), rate * part)
    reserved = np.zeros(len(case.network.topology.edges))
    for (edge, *_), rate in queues.items():
        reserved[edge] += rate
    return reserved


def stated_bytes(case: Reading, cause: Dimension) -> Floats:
    """Bytes of a cause that the plan says are on every edge."""
    stated = np.zeros(len(case.network.topology.edges))
    for load, edge in case.loads:
        stated[edge] += load.bytes_of(cause)
    return stated


def _cap_bytes_per_s(case: Reading, boundary: Boundary, hop: PipelineHop) -> float:
    """Rate of one replica alone: cards of the stage group, at the pace of the transport that the plan chose.

    Replicas that have time slots share the pace of those that send at once.
    """
    tier = case.network.topology.tier(*boundary.places)
    cards = min(pool.nic_bytes_per_s_per_gpu for pool in (boundary.sender, boundary.receiver))
    chosen = [one.effective_bytes_per_s for one in case.plan.transport if (one.dimension, one.tier) == ("pp", tier)]
    stated = case.network.boundary_bytes(boundary) / hop.transfer_s
    alone = case.gpus_per_group * min(max(chosen), cards) if chosen else stated
    replicas = case.route_by_id[boundary.route].num_replicas
    return max(alone, stated) * -(-replicas // hop.num_sharing_replicas) / replicas


def _held_bytes_per_s(case: Reading) -> Floats:
    """Rate of the exchange of every stage, and of those beside it, on every edge: bytes that the plan routes there, by
    size of the stages.
    """
    network, stages = case.network, case.configuration.degrees.num_stages
    sizes, times = np.zeros(stages), np.zeros(stages)
    for one in case.plan.exchanges:
        places = network.places_of_rank(case.configuration.rank_of_stage(one.stage))
        sizes[one.stage], times[one.stage] = network.exchange_bytes(one.stage, len(places)), one.shared_s
    parts = np.divide(sizes, times * max(sizes.sum(), 1.0), out=np.zeros(stages), where=times > 0)
    shared = [one for one in case.plan.exchanges if one.shared_s > 0]
    own = [one.stage for one in shared]
    parts[own] = beside_each(shared, parts[own, None])[:, 0]
    return np.outer(parts, stated_bytes(case, "dp")).astype(np.float64)


def _until_exchange(case: Reading, routes: list[str], left: Ints) -> Ints:
    """Weight gradients still to end, on each route and stage, when the exchange may be about to start."""
    overlap = {one.stage: one.overlap_s for one in case.plan.exchanges}
    counts = []
    for route in routes:
        problem = case.timeline_by_route[route].problem
        for stage, cost in enumerate(problem.stages):
            last_s = cost.weight_grad_s + (cost.input_grad_s if problem.backward == "fused" else 0.0)
            counts.append(math.ceil(overlap.get(stage, 0.0) / last_s) if last_s > 0 else problem.num_microbatches)
    return np.minimum(np.array(counts, dtype=np.int64), left - 1)
