"""What the judge has to accept: plans at the limit of a rule, on any network, with every option; and just beyond it."""

from __future__ import annotations

from typing import Any

import pytest

from models.plan import Degrees, Plan
from models.request import PlanRequest
from solver.verify.judge import LIMITS, judge
from tests.build_costs import CROSSED, INSIDE, MARGIN, Forgery
from tests.build_plan import build_plan
from tests.build_request import GPU, build_request, cluster, link, pool, workload
from tests.sensitivity.forge import put, puts

EXACT = 1.0 / MARGIN
JUST_BELOW = 0.999 / MARGIN


def objections(request: PlanRequest, plan: Plan) -> set[str]:
    """Names of the rules that object."""
    return {one.rule for one in judge(request, plan, rules=LIMITS).violations}


def check_built(*, objected: set[str], request: PlanRequest | None = None, **built: Any) -> None:
    """A plan built for the request meets exactly these objections."""
    asked = request or build_request()
    assert objections(asked, build_plan(asked, **built)) == objected


def check_asked(*, objected: set[str], **constraints: Any) -> None:
    """The usual plan under these constraints meets exactly these objections."""
    check_built(objected=objected, request=build_request(constraints=constraints))


def joined_by(*links: dict[str, Any]) -> dict[str, Any]:
    """The usual buildings joined by these links only."""
    return cluster() | {"links": list(links)}


def in_zones() -> dict[str, Any]:
    """East and west as zones of two buildings that one link joins."""
    places = [
        {"id": "campus", "level": "region"},
        {"id": "east-hall", "level": "building", "parent": "campus"},
        {"id": "west-hall", "level": "building", "parent": "campus"},
        {"id": "east", "level": "zone", "parent": "east-hall"},
        {"id": "west", "level": "zone", "parent": "west-hall", "uplink": {"oversubscription": 2.0}},
    ]
    pools = [pool("east", 2), pool("west", 1)]
    return {"name": "zones", "places": places, "pools": pools, "links": [link("halls", "east-hall", "west-hall")]}


@pytest.mark.parametrize(
    "network",
    [
        cluster(),
        joined_by(),
        joined_by(link("east-north", "east", "north"), link("north-west", "north", "west")),
        in_zones(),
    ],
    ids=["direct link", "uplinks of the region", "through a building without GPUs of the plan", "zones in buildings"],
)
@pytest.mark.parametrize("routes", [INSIDE, CROSSED], ids=["inside", "crossed"])
def test_a_true_plan_is_accepted_on_any_network(network, routes):
    check_built(objected=set(), request=build_request(cluster=network), routes=routes)


@pytest.mark.parametrize(("oversubscription", "objected"), [(4.0, set()), (6.0, {"hop-share"})])
def test_the_way_out_of_a_zone_is_shared_as_well(oversubscription, objected):
    """Two replicas send 8e10 B/s each; 16 cards of 5e10 B/s leave east over 2e11 or 1.33e11 B/s."""
    network = in_zones()
    network["places"][3]["uplink"] = {"oversubscription": oversubscription}
    check_built(objected=objected, request=build_request(cluster=network), forgery=Forgery(num_sharers=1))


def test_a_plan_with_experts_is_accepted():
    experts = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 1024}
    request = build_request(workload=workload(moe=experts))
    check_built(objected=set(), request=request, degrees=Degrees(tp=2, pp=2, dp=4, ep=2))


def test_gathered_layers_may_take_longer_but_never_less():
    sharded = {"sharding": "fsdp", "shard_group_replicas": 4}
    check_built(objected=set(), forgery=Forgery(stage_times=1.1), **sharded)
    check_built(objected={"stage-times"}, forgery=Forgery(stage_times=0.9), **sharded)


@pytest.mark.parametrize(("factor", "objected"), [(EXACT, set()), (JUST_BELOW, {"hop-latency"})])
def test_a_hop_may_be_as_short_as_its_path(factor, objected):
    check_built(objected=objected, forgery=Forgery(hop_latency=factor))


@pytest.mark.parametrize(("factor", "objected"), [(EXACT, set()), (JUST_BELOW, {"hop-rate"})])
def test_a_message_may_be_as_fast_as_its_cards(factor, objected):
    check_built(objected=objected, forgery=Forgery(hop_transfer=factor))


@pytest.mark.parametrize(("factor", "objected"), [(EXACT, set()), (JUST_BELOW, {"hop-share"})])
def test_messages_may_fill_their_link(factor, objected):
    narrow = build_request(cluster=joined_by(link("east-west", "east", "west", capacity_bytes_per_s=5e10)))
    check_built(objected=objected, request=narrow, forgery=Forgery(hop_transfer=factor))


@pytest.mark.parametrize(("turns", "objected"), [(True, set()), (False, {"hop-share"})])
def test_messages_in_turns_may_each_have_the_whole_link(turns, objected):
    narrow = build_request(cluster=joined_by(link("east-west", "east", "west", capacity_bytes_per_s=5e10)))
    check_built(objected=objected, request=narrow, forgery=Forgery(num_sharers=1, messages_take_turns=turns))


@pytest.mark.parametrize(("factor", "objected"), [(1.0, set()), (0.999, {"memory-limit"})])
def test_memory_may_be_full(factor, objected):
    plan = build_plan(build_request())
    limit = factor * plan.memory[0].total_bytes
    full = put(plan, "memory", tuple(put(use, "limit_bytes", limit) for use in plan.memory))
    request = put(build_request(), "constraints.memory_headroom_fraction", 1 - limit / GPU["memory_bytes"])
    assert objections(request, full) == objected


@pytest.mark.parametrize(
    ("constraints", "objected"),
    [
        ({"max_gpus": 16}, set()),
        ({"max_gpus": 19, "use_all_gpus": True}, set()),
        ({"max_gpus": 20, "use_all_gpus": True}, {"use-all-gpus"}),
        ({"allowed": {"tp": [2], "dp": [1, 4], "sharding": ["zero1"], "family": ["one_way"]}}, set()),
        ({"allowed": {"micro_batch_sequences": [2]}}, {"allowed-values"}),
        ({"pins": [{"first_pipeline_rank": 1, "last_pipeline_rank": 1, "place": "west", "num_replicas": 2}]}, set()),
        ({"pins": [{"first_pipeline_rank": 0, "last_pipeline_rank": 1, "place": "campus"}]}, set()),
        ({"pins": [{"first_pipeline_rank": 0, "last_pipeline_rank": 2, "place": "campus"}]}, {"pins-obeyed"}),
        ({"forbidden_places": ["north"]}, set()),
        ({"max_cross_building_bytes_per_iteration": 1e12}, set()),
    ],
)
def test_constraints_hold_up_to_their_limit(constraints, objected):
    check_asked(objected=objected, **constraints)


@pytest.mark.parametrize(("num_kv_heads", "objected"), [(1, set()), (2, set()), (8, set())])
def test_key_value_heads_may_repeat_over_tensor_parallel_ranks(num_kv_heads, objected):
    attention = {"kind": "gqa", "num_heads": 32, "num_kv_heads": num_kv_heads, "head_dim": 128}
    check_built(objected=objected, request=build_request(workload=workload(attention=attention)))


@pytest.mark.parametrize(("asked_gap", "objected"), [(0.1, set()), (0.09, {"optimal-within-gap"})])
def test_optimal_means_within_the_gap_asked_for(asked_gap, objected):
    request = build_request(options={"relative_gap": asked_gap})
    assert objections(request, put(build_plan(request), "proof.status", "optimal")) == objected


def test_an_unknown_price_leaves_the_cost_open():
    free = {key: value for key, value in GPU.items() if key != "usd_per_gpu_hour"}
    pools = [pool(name, size, gpu=free) for name, size in (("east", 2), ("west", 1), ("north", 1))]
    request = build_request(cluster=cluster() | {"pools": pools})
    plan = build_plan(request)
    assert objections(request, plan) == {"cost"}
    assert objections(request, put(plan, "metrics.usd_per_million_tokens", None)) == set()


def test_unnamed_hosts_stay_unnamed():
    pools = [pool(name, size, host_names=[]) for name, size in (("east", 2), ("west", 1), ("north", 1))]
    request = build_request(cluster=cluster() | {"pools": pools})
    plan = build_plan(request)
    assert objections(request, plan) == set()
    assert objections(request, put(plan, "placement.rank_map.0.hosts", ("east-node-0",))) == {"hosts-right"}


def test_failed_planes_and_background_shrink_what_is_usable():
    request = build_request()
    worn = puts(request, cluster__links__0__num_failed_planes=1, cluster__links__0__background_bytes_per_s=1e10)
    assert objections(worn, build_plan(request)) == {"link-usable"}
    assert objections(worn, build_plan(worn)) == set()
