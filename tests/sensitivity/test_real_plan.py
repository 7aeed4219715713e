"""The planner's own plan of a small request: the judge accepts it, from JSON as well, and convicts what is forged."""

from __future__ import annotations

from typing import Any

import pytest

from models.outcome import Planned
from models.plan import Plan, Route
from models.request import PlanRequest
from solver.planner import plan as plan_request
from solver.verify.judge import judge
from tests.build_request import build_request
from tests.sensitivity.forge import put, puts, retext

PINS = [
    {"first_pipeline_rank": 0, "last_pipeline_rank": 0, "place": "east"},
    {"first_pipeline_rank": 1, "last_pipeline_rank": 1, "place": "west"},
]


def small_request() -> PlanRequest:
    """Two stages, the first pinned to east and the second to west."""
    allowed = {
        "tp": [2],
        "cp": [1],
        "pp": [2],
        "dp": [4],
        "vpp": [1],
        "micro_batch_sequences": [1],
        "sharding": ["zero1"],
    }
    return build_request(
        constraints={"allowed": allowed, "pins": PINS},
        options={"time_limit_s": 6.0, "reproducible": True, "workers": 1},
    )


@pytest.fixture(scope="module")
def real_plan() -> Plan:
    """What the planner answers."""
    outcome = plan_request(small_request())
    assert isinstance(outcome, Planned), outcome
    return outcome.plan


def objections(plan: Plan, request: PlanRequest | None = None) -> set[str]:
    """Names of the rules that object."""
    return {one.rule for one in judge(request or small_request(), plan).violations}


def test_the_planners_plan_is_accepted(real_plan):
    assert objections(real_plan) == set()
    assert real_plan.placement.crossing == "pp_out"


def test_a_plan_survives_its_json(real_plan):
    assert objections(Plan.model_validate_json(real_plan.model_dump_json())) == set()


@pytest.mark.parametrize("time_limit_s", [1.0, 3600.0])
def test_a_plan_is_one_of_its_request_whatever_time_the_search_had(real_plan, time_limit_s):
    """`isthmus plan --time-limit` and `isthmus resume` search for another time than the request says."""
    assert objections(real_plan, small_request().with_options(time_limit_s=time_limit_s)) == set()


@pytest.mark.parametrize(("stated_s", "objected"), [(6.0, set()), (7.0, {"problem-facts"})])
def test_plans_of_earlier_versions_state_the_time_limit_of_their_request(real_plan, stated_s, objected):
    assert objections(put(real_plan, "timelines.0.problem.options.time_limit_s", stated_s)) == objected


def test_the_plan_carries_the_judges_verdict(real_plan):
    assert real_plan.verdict == judge(small_request(), real_plan)


def _extra_route(routes: tuple[Route, ...]) -> tuple[Route, ...]:
    return (*routes, put(routes[0], "id", "one more"))


def _last_dropped(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return values[:-1]


def _times(factor: float) -> Any:
    return lambda old: factor * old


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("batch-arithmetic", {"configuration__num_microbatches": 5}),
        ("layers-complete", {"configuration__layers_per_stage": (4, 3)}),
        ("shard-group", {"configuration__sharding": "ddp", "configuration__shard_group_replicas": 2}),
        ("allowed-values", {"configuration__degrees__tp": 4}),
        ("replica-ranges", {"placement__routes": _extra_route}),
        ("replica-ranges", {"placement__routes__0__num_replicas": 1000}),
        ("pool-capacity", {"placement__routes__0__num_replicas": 1000}),
        ("pools-exist", {"placement__routes__0__pools__0": "atlantis"}),
        ("pools-in-place", {"placement__routes__0__places__0": "north"}),
        ("pins-obeyed", {"placement__routes__0__pools__0": "north-pool"}),
        ("crossing-label", {"placement__crossing": "none"}),
        ("rank-map-complete", {"placement__rank_map": _last_dropped}),
        ("rank-map-agrees", {"placement__rank_map__0__pool": "north-pool"}),
        ("gpus-held-once", {"placement__rank_map__0__first_gpu": 1000}),
        ("hosts-right", {"placement__rank_map__0__hosts": ()}),
        ("timeline-per-route", {"timelines": lambda old: (*old, old[0])}),
        ("problem-shape", {"timelines__0__problem__num_microbatches": 3}),
        ("stage-times", {"timelines__0__problem__stages__0__forward_s": _times(0.9)}),
        ("stage-bytes", {"timelines__0__problem__stages__0__activation_bytes": _times(0.9)}),
        ("hop-latency", {"timelines__0__problem__hops__0__latency_s": 0.0}),
        ("hop-latency", {"timelines__0__problem__hops": ()}),
        (
            "hop-rate",
            {"timelines__0__problem__hops__0__transfer_s": 0.0, "timelines__0__problem__hops__0__latency_s": 0.0},
        ),
        (
            "schedule-missing-operation",
            {"timelines__0__schedule": lambda old: retext(put(old, "ranks.0.operations.0", "9F9"))},
        ),
        ("schedule-duration", {"timelines__0__schedule__ranks__0__end_s__0": _times(0.5)}),
        ("schedule-rank-exclusive", {"timelines__0__schedule__ranks__1__start_s__1": 0.0}),
        ("schedule-precedence", {"timelines__0__schedule__ranks__1__start_s__0": 0.0}),
        ("schedule-totals", {"timelines__0__schedule__makespan_s": _times(0.9)}),
        ("exchange-complete", {"exchanges": _last_dropped}),
        ("exchange-ready", {"exchanges__0__start_s": 0.0}),
        ("exchange-times", {"exchanges__0__private_s": 0.0}),
        ("exchange-end", {"exchanges__0__end_s": _times(0.5)}),
        ("transport-complete", {"transport": ()}),
        ("links-exist", {"link_loads__0__link": "atlantic"}),
        ("link-usable", {"link_loads__0__usable_bytes_per_s": _times(2.0)}),
        ("link-capacity", {"link_loads__0__peak_utilisation": 1.1}),
        ("pipeline-bytes", {"link_loads": ()}),
        ("memory-report", {"memory__0__weights_bytes": _times(0.5)}),
        ("breakdown-sum", {"time__bubble_s": _times(3.0)}),
        ("breakdown-work", {"time__compute_s": _times(0.5)}),
        ("optimizer-time", {"time__optimizer_s": _times(0.5)}),
        ("optimizer-time", {"time__overhead_s": _times(0.5)}),
        ("error-bars", {"prediction__iteration_s__p90": _times(1.01)}),
        ("error-bars", {"prediction__fits_probability": _times(0.9)}),
        ("error-bars", {"prediction": None}),
        ("iteration-time", {"metrics__iteration_s": _times(0.9)}),
        ("gpu-count", {"metrics__num_gpus": 15}),
        ("throughput", {"metrics__tokens_per_s": _times(1.1)}),
        ("utilisation", {"metrics__model_flops_utilisation": _times(1.1)}),
        ("cost", {"metrics__usd_per_million_tokens": _times(0.9)}),
        ("cross-building-bytes", {"metrics__cross_building_bytes": 0.0}),
        ("proof-light", {"proof__speed_of_light_s": _times(100.0)}),
        ("proof-light", {"proof__speed_of_light_s": _times(1.5)}),
        ("speed-of-light", {"metrics__iteration_s": _times(0.01)}),
        ("load-facts", {"link_loads__0__peak_utilisation": _times(1.01)}),
        ("bound-below-time", {"proof__lower_bound_s": _times(100.0)}),
        ("gap-arithmetic", {"proof__relative_gap": lambda old: old + 0.1}),
    ],
    ids=lambda one: one if isinstance(one, str) else ",".join(one),
)
def test_a_forged_plan_is_convicted(real_plan, rule, changes):
    assert rule in objections(puts(real_plan, **changes))


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("forbidden-places", {"constraints__forbidden_places": ("west",)}),
        ("max-gpus", {"constraints__max_gpus": 15}),
        ("pipeline-crossing", {"constraints__pipeline_may_cross_buildings": False}),
        ("cross-building-limit", {"constraints__max_cross_building_bytes_per_iteration": 1.0}),
        ("memory-limit", {"constraints__memory_headroom_fraction": 0.899}),
    ],
    ids=lambda one: one if isinstance(one, str) else ",".join(one),
)
def test_a_plan_for_another_request_is_convicted(real_plan, rule, changes):
    assert rule in objections(real_plan, puts(small_request(), **changes))
