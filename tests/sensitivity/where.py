"""Corruptions of the configuration, the placement and the rank map, one or more for every rule on them.

`ep` corruptions plan a job with experts.
"""

from __future__ import annotations

from typing import Any

from models.framework import FrameworkProfile
from models.plan import Degrees, Plan, Route
from models.request import PlanRequest
from tests.build_costs import INSIDE
from tests.build_request import GPU, PROFILES, build_request, cluster, pool, workload
from tests.sensitivity.forge import Corruption, demand, edit, exchanged, lie, put, puts, settled


def _experts(num_experts: int) -> dict[str, Any]:
    return {"num_experts": num_experts, "experts_per_token": 2, "expert_ffn_hidden_size": 1024}


def _heads(num_heads: int, num_kv_heads: int) -> dict[str, Any]:
    return {"kind": "gqa", "num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": 128}


def _odd_domains() -> dict[str, Any]:
    gpu = GPU | {"scale_up_domain_gpus": 9}
    return cluster() | {"pools": [pool(name, size, gpu=gpu) for name, size in (("east", 2), ("west", 1), ("north", 1))]}


def _two_types() -> PlanRequest:
    """GPUs in the west that differ from the others by name alone."""
    pools = [pool("east", 2), pool("west", 1, gpu=GPU | {"name": "other-gpu"}), pool("north", 1)]
    profiles = [*PROFILES, *(one | {"gpu": "other-gpu"} for one in PROFILES)]
    return build_request(cluster=cluster() | {"pools": pools}, workload=workload() | {"layer_profiles": profiles})


def _only(**parts: Any) -> FrameworkProfile:
    return FrameworkProfile.model_validate({"name": "narrow", **parts})


def _ghost_route(request: PlanRequest, plan: Plan) -> tuple[PlanRequest, Plan]:
    """A fifth replica where four exist, on GPUs that are free, with its own timeline and true figures for 20 GPUs."""
    inside = plan.placement.routes[1]
    ghost = Route(id="ghost", places=inside.places, pools=inside.pools, num_replicas=1, first_replica=3)
    timeline = put(plan.timelines[1], "route", "ghost")
    haunted = puts(plan, placement__routes=(*plan.placement.routes, ghost), timelines=(*plan.timelines, timeline))
    for stage in (0, 1):
        haunted = exchanged(haunted, stage, private_s=lambda old: 3 * old)
    return request, settled(request, haunted, num_gpus=20)


def _unknown_pool(request: PlanRequest, plan: Plan) -> tuple[PlanRequest, Plan]:
    """Half of the replicas end in a pool that does not exist; everything else is true of the other half."""
    lost = puts(
        plan,
        placement__routes__0__pools=("east-pool", "atlantis"),
        placement__rank_map__1__pool="atlantis",
        placement__rank_map__1__hosts=(),
        placement__crossing="none",
        link_loads=(),
    )
    lost = put(lost, "memory", tuple(put(use, "route", "inside") for use in lost.memory))
    return request, settled(request, lost, num_gpus=12)


def _pinned(*, num_replicas: int | None) -> PlanRequest:
    """The request with the second pipeline rank pinned to west."""
    pin = {"first_pipeline_rank": 1, "last_pipeline_rank": 1, "place": "west", "num_replicas": num_replicas}
    return build_request(constraints={"pins": [pin]})


CONFIGURATION = (
    lie("wrong batch", "batch-arithmetic", request=build_request(workload=workload(20))),
    lie(
        "heads that tp cannot split",
        "degrees-divide",
        request=build_request(workload=workload(attention=_heads(33, 11))),
    ),
    lie(
        "an expert degree that does not divide the replicas",
        "expert-parallel-inside",
        request=build_request(workload=workload(moe=_experts(6))),
        degrees=Degrees(tp=2, pp=2, dp=4, ep=3),
        routes=INSIDE,
    ),
    lie("a missing layer", "layers-complete", layers_per_stage=(4, 3)),
    lie("a layer too many", "layers-complete", layers_per_stage=(5, 4)),
    lie("a rank on two GPU types", "layer-split", request=_two_types(), layer_split="by_gpu_type"),
    lie("shares by GPU type on one type", "layer-split", layer_split="by_gpu_type"),
    edit("a fold of odd length", "family-shape", configuration__family="v"),
    lie("groups that do not divide the replicas", "shard-group", shard_group_replicas=3),
    edit(
        "two copies of the optimizer state in the memory of one",
        "memory-report",
        "optimizer-time",
        configuration__shard_group_replicas=2,
    ),
    lie(
        "copies of the optimizer state over two buildings",
        "sharding-groups-together",
        shard_group_replicas=2,
        routes=(("east", ("east", "east"), 1), ("across", ("east", "west"), 3)),
    ),
    demand("tp that is not allowed", "allowed-values", constraints__allowed__tp=(4, 8)),
    demand("sharding that is not allowed", "allowed-values", constraints__allowed__sharding=("fsdp",)),
    demand("a framework without this sharding", "framework-runs-it", constraints__framework=_only(sharding=("fsdp",))),
    demand("layers that are not allowed", "allowed-values", constraints__allowed__layer_split=("by_gpu_type",)),
    demand("a framework without this fold", "framework-runs-it", constraints__framework=_only(families=("v",))),
    demand("a framework that cannot split", "framework-runs-it", constraints__framework=_only(fused_backward=True)),
    demand("blocking sends", "framework-runs-it", constraints__framework=_only(blocking_sends=("one_way",))),
    demand("a framework without this order", "framework-runs-it", constraints__framework=_only(schedules=("zbv",))),
    demand("more GPUs than allowed", "max-gpus", constraints__max_gpus=15),
    demand("idle GPUs although all are wanted", "use-all-gpus", constraints__use_all_gpus=True),
)

PLACEMENT = (
    edit("a route with a place too many", "route-shape", placement__routes__1__places=("east", "east", "west")),
    Corruption("a replica too many", frozenset({"replica-ranges"}), _ghost_route),
    edit(
        "a route with too many replicas",
        "replica-ranges",
        "pipeline-bytes",
        "utilisation",
        "cost",
        placement__routes__0__num_replicas=3,
    ),
    Corruption("a pool that does not exist", frozenset({"pools-exist"}), _unknown_pool),
    edit("a pool in another place than named", "pools-in-place", placement__routes__0__places=("east", "north")),
    Corruption(
        "over capacity",
        frozenset({"pool-capacity", "gpus-held-once"}),
        lambda request, plan: (put(request, "cluster.pools.0.num_unhealthy_gpus", 6), plan),
    ),
    lie("tensor parallelism across domains", "scale-up-domain", request=build_request(cluster=_odd_domains())),
    lie(
        "experts shared between buildings",
        "expert-groups-together",
        request=build_request(workload=workload(moe=_experts(8))),
        degrees=Degrees(tp=2, pp=2, dp=4, ep=4),
    ),
    demand("forbidden place", "forbidden-places", constraints__forbidden_places=("west",)),
    Corruption(
        "GPUs without the precision",
        frozenset({"precision-supported"}),
        lambda request, plan: (put(request, "workload.precision", "fp4"), plan),
    ),
    Corruption(
        "violated pin",
        frozenset({"pins-obeyed"}),
        lambda _, plan: (_pinned(num_replicas=None), plan),
    ),
    Corruption(
        "pin for more replicas than obey",
        frozenset({"pins-obeyed"}),
        lambda _, plan: (_pinned(num_replicas=3), plan),
    ),
    edit("wrong crossing label", "crossing-label", placement__crossing="dp_out"),
    demand("a pipeline that may not cross", "pipeline-crossing", constraints__pipeline_may_cross_buildings=False),
    demand(
        "replicas that may not cross", "data-parallel-crossing", constraints__data_parallel_may_cross_buildings=False
    ),
)

RANK_MAP = (
    edit("rank map hole", "rank-map-complete", placement__rank_map=lambda old: old[:-1]),
    edit("rank map overlap", "rank-map-complete", "rank-map-agrees", placement__rank_map__3__first_rank=10),
    edit("ranks of another route", "rank-map-agrees", placement__rank_map__3__route="across"),
    edit("GPUs held twice", "gpus-held-once", placement__rank_map__2__first_gpu=2),
    edit("half a tensor-parallel group", "scale-up-aligned", placement__rank_map__3__first_gpu=9),
    edit("wrong hosts", "hosts-right", placement__rank_map__3__hosts=("east-node-0",)),
)


WHERE = CONFIGURATION + PLACEMENT + RANK_MAP
