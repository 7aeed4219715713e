"""Planning end to end on small jobs: judged plans, honest reasons, physics that holds."""

from __future__ import annotations

from typing import Any

import pytest

from models.catalogue import named_entry
from models.outcome import Infeasible, NotFound, Outcome, Planned, Progress
from models.plan import Plan
from models.request import PlanRequest
from solver.planner import plan, validate
from solver.verify.judge import judge
from tests.build_job import FIXED, job

ONE_DP = {**FIXED, "dp": [8]}
GPU = named_entry("gpus", "H100-SXM-80G")


def pin(place: str, *, rank: int = 0) -> dict[str, Any]:
    return {"first_pipeline_rank": rank, "last_pipeline_rank": rank, "place": place}


def planned(request: PlanRequest) -> Plan:
    outcome = plan(request)
    assert isinstance(outcome, Planned), outcome
    assert judge(request, outcome.plan).accepted
    return outcome.plan


def reason(request: PlanRequest) -> str:
    outcome: Outcome = plan(request)
    assert isinstance(outcome, Infeasible), outcome
    assert all(one.remedies and one.detail for one in outcome.reasons)
    return outcome.reasons[0].code


def test_a_plan_is_judged_bounded_and_complete() -> None:
    found = planned(job(allowed=ONE_DP))
    assert found.verdict.accepted
    assert len(found.verdict.rules_checked) > 50
    assert found.proof.speed_of_light_s <= found.proof.lower_bound_s <= found.metrics.iteration_s
    assert {one.name for one in found.baselines} >= {"nemo-like", "crosspipe-like", "production-like"}
    assert all(one.speed_up is None or one.speed_up >= 1 - 1e-9 for one in found.baselines)
    assert any(one.origin == "fitted" for one in found.assumptions)
    assert found.proof.num_pruned + found.proof.num_explored <= found.proof.num_configurations


def test_progress_and_incumbents_arrive_as_they_happen() -> None:
    told: list[Progress] = []
    better: list[Planned] = []
    outcome = plan(job(allowed=ONE_DP), progress=told.append, incumbent=better.append)
    assert isinstance(outcome, Planned)
    assert better
    assert told[-1].incumbent_s == outcome.plan.metrics.iteration_s
    times = [one.plan.metrics.iteration_s for one in better]
    assert times == sorted(times, reverse=True)
    bounds = [one.lower_bound_s for one in told if one.lower_bound_s is not None]
    assert bounds == sorted(bounds)


def test_progress_states_a_bound_of_time_only_where_time_is_minimised() -> None:
    told: list[Progress] = []
    objective = {"kind": "fewest_gpus", "target_iteration_s": 100.0}
    assert isinstance(plan(job(allowed=ONE_DP, objective=objective), progress=told.append), Planned)
    assert {one.lower_bound_s for one in told} == {None}
    assert told[-1].relative_gap is not None


def test_a_cancelled_search_keeps_what_it_has() -> None:
    seen: list[Planned] = []
    outcome = plan(job(allowed={}), incumbent=seen.append, cancelled=lambda: bool(seen))
    assert isinstance(outcome, Planned)
    assert not outcome.complete


def test_no_time_is_not_a_proof() -> None:
    outcome = plan(job(allowed={}), clock=iter(range(0, 10**9, 100)).__next__)
    assert isinstance(outcome, Planned | NotFound)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (job(pool={"num_reserved_gpus": 32}), "too-few-gpus"),
        (job(allowed={"tp": [16]}), "degrees-do-not-divide"),
        (job(allowed={"dp": [7]}), "degrees-do-not-divide"),
        (job(allowed={"dp": [128]}), "batch-too-small"),
        (job(allowed={"cp": [3]}), "degrees-do-not-divide"),
        (job(allowed={"pp": [64]}), "degrees-do-not-divide"),
        (job(allowed={"tp": [8], "pp": [16]}), "too-few-gpus"),
        (job(workload={"precision": "fp4"}), "precision-unsupported"),
        (job(workload={"architecture": "llama-3.1-405b"}), "memory-too-small"),
        (job(constraints={"max_gpus": 4}), "too-few-gpus"),
        (job(constraints={"framework": {"name": "own", "schedules": ["mine"]}}), "nothing-allowed"),
        (
            job(
                constraints={
                    "pins": [{"first_pipeline_rank": 0, "last_pipeline_rank": 3, "place": "b0"}],
                    "forbidden_places": ["b0"],
                }
            ),
            "pins-contradict",
        ),
        (job(constraints={"pins": [pin("b0"), pin("b1")]}), "pins-contradict"),
        (job(constraints={"pins": [pin("b0"), {**pin("b1"), "num_replicas": 1}]}), "pins-contradict"),
        (job(allowed={}, constraints={"pins": [pin("b0", rank=16)]}), "pins-contradict"),
    ],
)
def test_infeasible_is_an_answer_with_a_typed_reason(request_: PlanRequest, code: str) -> None:
    assert reason(request_) == code
    assert validate(request_)[0].code == code


def test_a_thousand_pins_that_contradict_each_other_are_a_reason_each() -> None:
    """Not one for each of their half a million pairs, which took seconds and hundreds of megabytes to tell."""
    pins = [pin(f"b{number % 2}") for number in range(1000)]
    assert len(validate(job(constraints={"pins": pins}))) == 999


def test_a_feasible_request_has_nothing_to_say() -> None:
    assert validate(job()) == ()


def iteration_s(**changes: Any) -> float:
    return planned(job(**{"allowed": ONE_DP, **changes})).metrics.iteration_s


def test_two_buildings_without_distance_equal_one() -> None:
    near = iteration_s(link={"latency_s": 0.0, "capacity_bytes_per_s": 1e15})
    single = iteration_s(hosts=(8,))
    assert near == pytest.approx(single, rel=0.02)  # a ring of two places is given the cards of each, one of one is not


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        ({"link": {"capacity_bytes_per_s": 1e9}}, {"link": {"capacity_bytes_per_s": 1e11}}),
        ({"link": {"latency_s": 0.05}}, {"link": {"latency_s": 0.001}}),
        ({"link": {"loss_probability": 1e-4, "latency_s": 0.005}}, {"link": {"latency_s": 0.005}}),
        ({"constraints": {"memory_headroom_fraction": 0.6}}, {"constraints": {"memory_headroom_fraction": 0.0}}),
        ({"hosts": (4, 4)}, {"hosts": (8, 8), "allowed": {**FIXED, "dp": [8, 16]}}),
        ({"pool": {"nic_bytes_per_s": 1e9}}, {"pool": {"nic_bytes_per_s": 1e11}}),
    ],
)
def test_more_of_a_good_thing_is_never_worse(worse: dict[str, Any], better: dict[str, Any]) -> None:
    assert iteration_s(**better) <= iteration_s(**worse) * (1 + 1e-6)


def test_pins_and_toggles_reach_the_plan() -> None:
    pins = [{"first_pipeline_rank": 0, "last_pipeline_rank": 1, "place": "b1"}]
    found = planned(job(allowed={**FIXED, "dp": [4]}, constraints={"pins": pins}))
    assert all(set(route.places[:2]) == {"b1"} for route in found.placement.routes)
    whole = planned(job(allowed=ONE_DP, constraints={"pipeline_may_cross_buildings": False}))
    assert whole.placement.crossing == "dp_out"
    split = planned(job(allowed=ONE_DP, constraints={"data_parallel_may_cross_buildings": False}))
    assert split.placement.crossing == "pp_out"


def test_a_pin_to_a_zone_of_a_building_with_more_zones_is_obeyed() -> None:
    base = job(hosts=(8,)).model_dump(mode="json")
    base["cluster"] |= {
        "places": [
            {"id": "b", "level": "building"},
            *({"id": z, "level": "zone", "parent": "b"} for z in ("z0", "z1")),
        ],
        "pools": [base["cluster"]["pools"][0] | {"id": f"p-{z}", "place": z, "num_hosts": 4} for z in ("z0", "z1")],
    }
    base["constraints"] |= {
        "allowed": {**FIXED, "dp": [4]},
        "pins": [{"first_pipeline_rank": 0, "last_pipeline_rank": 1, "place": "z1"}],
    }
    found = planned(PlanRequest.model_validate(base))
    assert all(set(route.places[:2]) == {"z1"} for route in found.placement.routes)


@pytest.mark.parametrize("hosts", [(4, 4), (2, 4)])
def test_without_any_crossing_the_largest_building_is_used(hosts: tuple[int, ...]) -> None:
    toggles = {"pipeline_may_cross_buildings": False, "data_parallel_may_cross_buildings": False}
    found = planned(job(hosts=hosts, allowed=FIXED, constraints=toggles))
    assert found.placement.crossing == "none"
    assert found.metrics.num_gpus == max(hosts) * 8


def test_a_limit_on_crossing_traffic_is_kept() -> None:
    found = planned(job(allowed=FIXED, constraints={"max_cross_building_bytes_per_iteration": 1e6}))
    assert found.metrics.cross_building_bytes <= 1e6


def test_a_pin_for_some_replicas_is_obeyed() -> None:
    pins = [{"first_pipeline_rank": 3, "last_pipeline_rank": 3, "place": "b1", "num_replicas": 3}]
    found = planned(job(allowed={**FIXED, "dp": [4]}, constraints={"pins": pins}))
    assert sum(route.num_replicas for route in found.placement.routes if route.places[3] == "b1") >= 3


def test_unequal_buildings_share_the_leftovers() -> None:
    found = planned(job(hosts=(5, 3), allowed=ONE_DP))
    assert found.metrics.num_gpus == 64
    assert sum(route.num_replicas for route in found.placement.routes) == 8


def test_the_same_request_gives_the_same_plan() -> None:
    request = job(allowed=ONE_DP, options={"reproducible": True})
    first, second = planned(request), planned(request)
    assert first.configuration == second.configuration
    assert first.metrics == second.metrics


def test_the_fewest_gpus_reach_the_target() -> None:
    fast = planned(job(allowed=FIXED))
    target = 2.5 * fast.metrics.iteration_s
    found = planned(job(allowed=FIXED, objective={"kind": "fewest_gpus", "target_iteration_s": target}))
    assert found.metrics.iteration_s <= target
    assert found.metrics.num_gpus < fast.metrics.num_gpus
    assert found.proof.status == "optimal"


def test_a_bound_that_rounding_alone_keeps_from_the_plan_proves_it() -> None:
    """A bound gives away as much as rounding may lift it, so that no plan is ever below it."""
    found = plan(job(hosts=(1,), allowed={**FIXED, "tp": [4, 8], "pp": [1, 2, 4]}, options={"relative_gap": 0.0}))
    assert isinstance(found, Planned)
    assert found.plan.proof.relative_gap < 1e-9
    assert (found.plan.proof.status, found.complete) == ("optimal", True)


def test_a_target_nobody_reaches_is_a_reason() -> None:
    assert reason(job(objective={"kind": "fewest_gpus", "target_iteration_s": 1e-4})) == "target-out-of-reach"


def test_the_cheapest_plan_costs_no_more_than_the_fastest() -> None:
    gpu = GPU | {"usd_per_gpu_hour": 3.0}
    fast = planned(job(allowed=FIXED, pool={"gpu": gpu}))
    cheap = planned(job(allowed=FIXED, pool={"gpu": gpu}, objective={"kind": "cost_per_token"}))
    assert cheap.metrics.num_gpus * cheap.metrics.iteration_s <= fast.metrics.num_gpus * fast.metrics.iteration_s
    assert cheap.metrics.iteration_s >= fast.metrics.iteration_s
    assert cheap.metrics.usd_per_million_tokens is not None
    assert not any("price" in note for note in cheap.notes)


def test_least_cost_without_any_price_is_refused_and_with_some_the_plan_says_what_is_assumed() -> None:
    document = job(
        allowed=ONE_DP, pool={"gpu": GPU | {"usd_per_gpu_hour": None}}, objective={"kind": "cost_per_token"}
    ).model_dump(mode="json")
    assert reason(PlanRequest.model_validate(document)) == "no-price"
    document["cluster"]["pools"][0]["gpu"] |= {"usd_per_gpu_hour": 3.0, "name": "priced"}
    found = planned(PlanRequest.model_validate(document))
    assert any("state no price" in note and GPU["name"] in note for note in found.notes)
    assert found.metrics.usd_per_million_tokens is None


def test_a_limit_that_costs_time_is_named_and_one_that_does_not_is_not() -> None:
    free = planned(job(allowed=FIXED))
    sent = free.metrics.cross_building_bytes
    assert sent > 0
    tight = planned(job(allowed=FIXED, constraints={"max_cross_building_bytes_per_iteration": 0.9995 * sent}))
    assert tight.metrics.iteration_s > free.metrics.iteration_s
    assert any("max_cross_building_bytes_per_iteration binds" in note and "0.05 %" in note for note in tight.notes)
    wide = planned(job(allowed=FIXED, constraints={"max_cross_building_bytes_per_iteration": 10 * sent}))
    assert not any("binds" in note for note in wide.notes)


def test_what_only_unusual_degrees_can_do_is_not_infeasible() -> None:
    """Three hosts that one replica must use: three ranks, which is no usual number for a model of so many layers."""
    request = job(
        hosts=(3,),
        allowed={"tp": [8], "cp": [1], "dp": [1]},
        constraints={"use_all_gpus": True},
        options={"time_limit_s": 4.0, "reproducible": True},
    )
    assert validate(request) == ()
    assert planned(request).configuration.degrees.pp == 3
