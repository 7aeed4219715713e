"""Plans to export: the hand-made one with groups that share hosts, and whole-host ones that cross buildings either way.

Placements of the whole-host plans are made here; schedules and transport are those of `build_plan`, which no export
compares with the placement.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from models.plan import Degrees, Plan, RankRange, Route
from models.request import PlanRequest
from tests.build_plan import build_plan
from tests.build_request import build_request, cluster, pool, workload

GPUS_PER_HOST = 8
NUM_MICROBATCHES = 4  # of the plan of `build_plan`


def whole_host_request(names: dict[str, str] | None = None) -> PlanRequest:
    """Two buildings with four hosts of eight GPUs each; `names` replaces the names of places."""
    names = {"east": "east", "west": "west"} | (names or {})
    body = cluster()
    body["places"] = [{"id": names[one], "level": "building"} for one in ("east", "west")]
    body["pools"] = [pool(one, 4, place=names[one]) for one in ("east", "west")]
    body["links"] = []
    return build_request(cluster=body, workload=workload(2 * NUM_MICROBATCHES))


def whole_host_plan(crossing: str, names: dict[str, str] | None = None, **configuration: Any) -> Plan:
    """tp 8, pp 2, dp 2 on four hosts: replicas in different buildings (dp_out), or stages (pp_out)."""
    names = {"east": "east", "west": "west"} | (names or {})
    plan = _plain()
    ways = (("east", "east"), ("west", "west")) if crossing == "dp_out" else (("east", "west"), ("east", "west"))
    routes, ranges, taken = [], [], {"east": 0, "west": 0}
    for replica, (route, way) in enumerate(zip(("across", "inside"), ways, strict=True)):
        routes.append(
            Route(
                id=route,
                places=tuple(names[one] for one in way),
                pools=tuple(f"{one}-pool" for one in way),
                num_replicas=1,
                first_replica=replica,
            )
        )
        for rank, where in enumerate(way):
            host = taken[where]
            taken[where] += 1
            ranges.append(
                RankRange(
                    first_rank=(rank * 2 + replica) * GPUS_PER_HOST,
                    num_ranks=GPUS_PER_HOST,
                    pipeline_rank=rank,
                    route=route,
                    pool=f"{where}-pool",
                    first_gpu=host * GPUS_PER_HOST,
                    hosts=(f"{where}-node-{host}",),
                )
            )
    placement = plan.placement.model_copy(
        update={"routes": tuple(routes), "rank_map": tuple(ranges), "crossing": crossing}
    )
    fields = {"degrees": Degrees(tp=8, pp=2, dp=2), "shard_group_replicas": 2} | configuration
    changed = plan.configuration.model_copy(update=fields)
    return plan.model_copy(update={"configuration": changed, "placement": placement})


@cache
def _plain() -> Plan:
    return build_plan(build_request())


def wide_plan(hosts_per_building: int, gpus_per_host: int = 2) -> tuple[Plan, PlanRequest]:
    """Two stages on half of the hosts of two buildings, replicas in different buildings; the hosts have no names.

    In rank order the buildings take turns stage by stage, so a sorted list of the hosts is not the plan's.
    """
    body = cluster()
    body["places"] = [{"id": one, "level": "building"} for one in ("east", "west")]
    body["pools"] = [pool(one, hosts_per_building, place=one, gpus_per_host=gpus_per_host) for one in ("east", "west")]
    for one in body["pools"]:
        one.pop("host_names")
    body["links"] = []
    groups = hosts_per_building // 4  # of one stage in one building
    dp = 2 * groups
    request = build_request(cluster=body, workload=workload(dp * NUM_MICROBATCHES))
    routes = tuple(
        Route(id=one, places=(one, one), pools=(f"{one}-pool",) * 2, num_replicas=groups, first_replica=at * groups)
        for at, one in enumerate(("east", "west"))
    )
    ranges = tuple(
        RankRange(
            first_rank=(rank * dp + at * groups) * gpus_per_host,
            num_ranks=groups * gpus_per_host,
            pipeline_rank=rank,
            route=one,
            pool=f"{one}-pool",
            first_gpu=rank * groups * gpus_per_host,
        )
        for rank in range(2)
        for at, one in enumerate(("east", "west"))
    )
    plan = _plain()
    fields = {"degrees": Degrees(tp=gpus_per_host, pp=2, dp=dp), "shard_group_replicas": dp}
    placement = plan.placement.model_copy(update={"routes": routes, "rank_map": ranges, "crossing": "dp_out"})
    changed = plan.configuration.model_copy(update=fields)
    return plan.model_copy(update={"configuration": changed, "placement": placement}), request
