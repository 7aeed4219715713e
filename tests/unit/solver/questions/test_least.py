"""The least that reaches a target: enumeration agrees, what is enough has a plan, what is not enough has a proof."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from models.errors import InvalidRequest
from models.least import Sizing, SizingAnswer, Target
from models.outcome import Planned
from solver.planner import plan
from solver.questions.ask import ask
from solver.questions.searches import changed, with_profile
from solver.questions.targets import target_seconds
from tests.build_request import GPU, build_request, cluster, link, pool, workload
from tests.counted import work_clock
from tests.unit.solver.questions.test_frontier import CLOSE, enumerated, small_request, with_batch


def _asked(request: dict[str, Any], limit_s: float, target: dict[str, Any], *of: str) -> SizingAnswer:
    document = {"request": request, "target": target, "of": of, "options": {"time_limit_s": limit_s}}
    return ask(Sizing.model_validate(document), clock=work_clock())


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["few", "all"])
def test_the_fewest_gpus_and_the_cheapest_mix_are_those_of_all_configurations(few: bool) -> None:
    request, every = with_batch(8, few=few), enumerated(8, few=few)
    target_s = sorted(one.metrics.iteration_s for one in every)[len(every) // 2] * (1 + CLOSE)
    in_time = [one.metrics for one in every if one.metrics.iteration_s <= target_s]
    answer = _asked(request, 20.0, {"iteration_s": target_s}, "gpus", "cost")
    gpus, cost = answer.least
    assert answer.outcome == "planned"
    assert gpus.value == min(one.num_gpus for one in in_time)
    assert gpus.lower_bound is not None
    assert gpus.lower_bound <= gpus.value
    cheapest = min(one.usd_per_million_tokens or 0.0 for one in in_time)
    assert cost.value == pytest.approx(cheapest, rel=CLOSE)
    assert cost.lower_bound is not None
    assert cost.lower_bound <= cheapest * (1 + CLOSE)
    for one in answer.least:
        assert one.plan is not None
        assert one.plan.iteration_s <= target_s
        assert sum(one.gpus_of_pool.values()) == one.plan.num_gpus


def test_fibre_and_memory_are_enough_by_a_plan_and_not_enough_by_a_proof() -> None:
    hardware = cluster()
    for wire in hardware["links"]:
        wire["capacity_bytes_per_s"] = 1e11
    everywhere = {"allowed": {"tp": [2], "pp": [2], "dp": [8]}}
    options = {"workers": 1, "time_limit_s": 3.0}
    request = build_request(cluster=hardware, constraints=everywhere, options=options).model_dump(mode="json")
    answer = _asked(request, 8.0, {"iteration_s": 0.3}, "fibre", "memory")
    base = with_profile(build_request(**request))
    for one in answer.least:
        assert one.value is not None
        assert one.there is not None
        assert one.lower_bound is not None
        assert one.lower_bound < one.value < one.there
        narrowed = changed(base, one.changes)
        outcome = plan(narrowed, clock=work_clock())
        assert isinstance(outcome, Planned)
        assert outcome.plan.proof.lower_bound_s <= 0.3, "no bound is above the plan that was found"


def test_no_fibre_is_needed_where_one_building_does() -> None:
    answer = _asked(build_request(options={"workers": 1}).model_dump(mode="json"), 8.0, {"iteration_s": 0.15}, "fibre")
    (fibre,) = answer.least
    assert (fibre.value, fibre.lower_bound) == (0.0, 0.0)
    assert fibre.plan is not None
    assert fibre.plan.crossing == "none"


def test_what_nothing_reaches_is_infeasible_with_its_reason() -> None:
    answer = _asked(small_request(), 8.0, {"tokens_per_s": 1e9}, "gpus", "memory")
    assert answer.outcome == "infeasible"
    assert answer.reasons[0].code == "target-out-of-reach"
    assert answer.complete
    assert {one.status for one in answer.least} == {"infeasible"}


def test_targets_are_iteration_times() -> None:
    request = build_request()
    tokens = request.workload.tokens_per_iteration
    assert target_seconds(Target(iteration_s=2.0), request) == 2.0
    assert target_seconds(Target(tokens_per_s=tokens / 4.0), request) == 4.0
    dated = {"begins_at": "2026-01-01T00:00:00Z", "ends_at": "2026-01-02T00:00:00Z", "training_fraction": 0.5}
    assert target_seconds(Target.model_validate({"tokens": 100.0 * tokens, **dated}), request) == 432.0


@pytest.mark.parametrize(
    ("target", "advice"),
    [
        ({"tokens_per_s": 1e-3}, "tokens per second"),
        ({"tokens": 1, "begins_at": "2026-03-01T00:00:00Z", "ends_at": "2099-03-01T00:00:01Z"}, "more tokens"),
        (
            {
                "tokens": 1e18,
                "begins_at": "2026-03-01T00:00:00Z",
                "ends_at": "2026-03-02T00:00:00Z",
                "training_fraction": 5e-324,
            },
            "training_fraction",
        ),
    ],
)
def test_a_target_that_no_plan_could_state_is_refused(target: dict[str, Any], advice: str) -> None:
    with pytest.raises(InvalidRequest, match="at most 10,000,000 s") as refused:
        _asked(small_request(), 1.0, target, "gpus")
    assert refused.value.pointer == "/target"
    assert advice in refused.value.remedy


def test_the_least_rate_that_a_refusal_names_is_taken() -> None:
    request = build_request()
    with pytest.raises(InvalidRequest) as refused:
        target_seconds(Target(tokens_per_s=1e-6), request)
    rate = float(refused.value.remedy.split("at least ")[1].split()[0])
    assert 0.99e7 < target_seconds(Target(tokens_per_s=rate), request) <= 1e7


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({}, "one target is needed"),
        ({"iteration_s": 1.0, "tokens_per_s": 1.0}, "one target is needed"),
        ({"tokens": 1e9}, "belong to tokens"),
        ({"iteration_s": 1.0, "ends_at": "2026-01-01T00:00:00Z"}, "belong to tokens"),
        ({"tokens": 1e9, "begins_at": "2026-01-02T00:00:00Z", "ends_at": "2026-01-01T00:00:00Z"}, "not after"),
        ({"tokens": 1e9, "begins_at": "2026-01-01T00:00:00", "ends_at": "2026-01-02T00:00:00Z"}, "timezone"),
    ],
)
def test_a_target_that_is_none_is_refused(target: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Target.model_validate(target)


def test_links_inside_a_building_are_fibre_that_a_plan_inside_it_needs() -> None:
    """Four replicas in two zones: without their link, gradients go over uplinks of 1:2000 and take ten seconds."""
    slow = {"oversubscription": 2000.0, "latency_s": 1e-3}
    zones = [{"id": name, "level": "zone", "parent": "x", "uplink": slow} for name in ("z1", "z2")]
    hardware = {
        "name": "zones",
        "places": [{"id": "x", "level": "building"}, *zones],
        "pools": [pool("z1", 2), pool("z2", 2)],
        "links": [link("l", "z1", "z2", latency_s=1e-6)],
    }
    allowed = {"tp": [8], "cp": [1], "pp": [1], "dp": [4], "vpp": [1]}
    options = {"workers": 1, "time_limit_s": 3.0}
    request = build_request(
        workload=workload(32), cluster=hardware, constraints={"allowed": allowed}, options=options
    ).model_dump(mode="json")
    fibre = _asked(request, 6.0, {"iteration_s": 0.14}, "fibre").least[0]
    assert fibre.plan is not None
    assert fibre.value is not None
    assert fibre.value > 0.0
    narrower = plan(changed(build_request(**request), fibre.changes), clock=work_clock())
    assert isinstance(narrower, Planned)
    assert narrower.plan.metrics.iteration_s <= 0.14


def test_a_plan_in_time_has_its_cost_where_no_time_is_left_for_a_cheaper_one() -> None:
    """No GPU states a price, and the question is over as soon as a share of its time is given to the cost."""
    hardware = cluster()
    for one in hardware["pools"]:
        one["gpu"] = {**GPU, "usd_per_gpu_hour": None}
    allowed = {"tp": [4], "pp": [2], "vpp": [1], "micro_batch_sequences": [1], "sharding": ["zero1"]}
    request = build_request(cluster=hardware, constraints={"allowed": allowed}, options={"workers": 1})
    readings: list[int] = []

    def clock() -> float:
        readings.extend(readings and [1])
        return 100.0 if len(readings) > 3 else 0.0

    def found(answer: Any) -> None:
        readings.extend([1] if answer.fastest is not None and not readings else [])

    question = Sizing(request=request, target=Target(iteration_s=5.0), of=("cost",), options={"time_limit_s": 20.0})
    answer = ask(question, found=found, clock=clock)
    assert isinstance(answer, SizingAnswer)
    cost, metrics = answer.least[0], answer.fastest
    assert metrics is not None
    tokens = request.workload.tokens_per_iteration
    assert cost.value == pytest.approx(metrics.num_gpus * metrics.iteration_s / 3600.0 * 1e6 / tokens)
