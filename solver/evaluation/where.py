"""The placement of a candidate as a plan states it: routes, rank ranges with hosts, and what crosses buildings.

Global rank = ((pipeline_rank * dp + replica) * cp + c) * tp + t.
"""

from __future__ import annotations

from models.cluster import Pool
from models.plan import Crossing, Placement, RankRange, Route
from solver.context import Context
from solver.evaluation.candidate import Candidate


def placement_of(context: Context, candidate: Candidate) -> Placement:
    """Routes r0, r1, ... in order, replicas numbered along them."""
    routes, first = [], 0
    for index, route in enumerate(candidate.routes):
        pools = [context.pools[pool] for pool in route.pools]
        routes.append(
            Route(
                id=f"r{index}",
                places=tuple(pool.place for pool in pools),
                pools=tuple(pool.id for pool in pools),
                num_replicas=route.num_replicas,
                first_replica=first,
            )
        )
        first += route.num_replicas
    return Placement(
        routes=tuple(routes), rank_map=_rank_map(context, candidate, routes), crossing=crossing_of(context, candidate)
    )


def crossing_of(context: Context, candidate: Candidate) -> Crossing:
    """Whether a replica spans buildings, the replicas of one rank do, or both."""
    building_u, group_of_pool = context.geography.building_u, context.group_of_pool
    buildings = [[building_u[group_of_pool[pool]] for pool in route.pools] for route in candidate.routes]
    pipeline = any(len(set(along)) > 1 for along in buildings)
    data = any(len(set(across)) > 1 for across in zip(*buildings, strict=True))
    if pipeline and data:
        return "mixed"
    return "pp_out" if pipeline else "dp_out" if data else "none"


def _rank_map(context: Context, candidate: Candidate, routes: list[Route]) -> tuple[RankRange, ...]:
    degrees = candidate.configuration.degrees
    group = degrees.gpus_per_stage_group
    ranges = []
    for rank in range(degrees.pp):
        for route, pooled in zip(routes, candidate.routes, strict=True):
            pool = context.pools[pooled.pools[rank]]
            first_gpu, num_ranks = pooled.first_group[rank] * group, pooled.num_replicas * group
            ranges.append(
                RankRange(
                    first_rank=(rank * degrees.dp + route.first_replica) * group,
                    num_ranks=num_ranks,
                    pipeline_rank=rank,
                    route=route.id,
                    pool=pool.id,
                    first_gpu=first_gpu,
                    hosts=_hosts(pool, first_gpu, num_ranks),
                )
            )
    return tuple(ranges)


def _hosts(pool: Pool, first_gpu: int, num_gpus: int) -> tuple[str, ...]:
    """Names of the hosts that hold the GPUs, where the pool gives names."""
    last = first_gpu + num_gpus - 1
    return pool.host_names[first_gpu // pool.gpus_per_host : last // pool.gpus_per_host + 1]
