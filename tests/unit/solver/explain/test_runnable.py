"""Every plan says which frameworks run it, how long they take, and the best that was found for each."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from models.catalogue import entry_names
from models.outcome import Planned
from models.plan import Plan, RunnableBy
from models.request import PlanRequest
from solver.planner import plan
from solver.verify.judge import judge
from tests.build_job import FIXED, job

OPTIONS = {"reproducible": True, "relative_gap": 0.0, "time_limit_s": 12.0}
FAR = {"latency_s": 0.01, "capacity_bytes_per_s": 4e10}
APART = {"data_parallel_may_cross_buildings": False, "use_all_gpus": True}


def request(**changes: Any) -> PlanRequest:
    return job(**{"options": OPTIONS, "link": FAR, "allowed": FIXED, **changes})


@cache
def across(framework: str | None, families: tuple[str, ...] = ("one_way", "v")) -> Plan:
    constraints = APART if framework is None else {**APART, "framework": framework}
    allowed = {**FIXED, "dp": [8], "vpp": [1, 2], "family": list(families), "sharding": ["zero1", "fsdp", "hsdp"]}
    outcome = plan(request(constraints=constraints, allowed=allowed))
    assert isinstance(outcome, Planned), outcome
    return outcome.plan


def by_name(found: Plan) -> dict[str, RunnableBy]:
    return {one.framework: one for one in found.runnable_by}


def test_every_framework_of_the_catalogue_is_named_once() -> None:
    assert sorted(one.framework for one in across(None).runnable_by) == sorted(entry_names("frameworks"))


def test_a_v_is_refused_by_name_and_another_plan_offered() -> None:
    found = across(None, ("v",))
    megatron = by_name(found)["megatron-core"]
    assert not megatron.runs
    assert megatron.iteration_s is None
    assert any("one_way, loop, not v" in reason for reason in megatron.reasons)
    assert megatron.best is None
    assert by_name(found)["torchtitan"].best is not None


def test_torchtitan_gets_the_plan_with_its_own_sharding_in_the_same_places() -> None:
    found = across(None, ("v",))
    torchtitan = by_name(found)["torchtitan"]
    assert not torchtitan.runs
    assert torchtitan.best is not None
    assert torchtitan.best.configuration.sharding in ("fsdp", "hsdp")


def test_a_plan_for_a_framework_runs_there_as_planned() -> None:
    found = across("megatron-core")
    megatron = by_name(found)["megatron-core"]
    assert megatron.as_planned
    assert megatron.reasons == ()
    assert megatron.iteration_s == pytest.approx(found.metrics.iteration_s)


def test_blocking_sends_and_whole_backwards_take_longer_than_what_was_planned_without() -> None:
    found = across(None, ("one_way",))
    megatron = by_name(found)["megatron-core"]
    assert megatron.runs
    assert not megatron.as_planned
    assert any("blocking" in reason for reason in megatron.reasons)
    assert megatron.iteration_s is not None
    assert megatron.iteration_s > found.metrics.iteration_s


def test_the_best_of_a_framework_is_no_slower_than_the_plan_as_it_runs_it() -> None:
    for one in (*across(None).runnable_by, *across(None, ("one_way",)).runnable_by):
        if one.iteration_s is not None:
            assert one.best is not None
            assert one.best.iteration_s <= one.iteration_s


@pytest.mark.parametrize(
    "changes",
    [
        {"runs": True, "as_planned": True, "reasons": ()},
        {"iteration_s": 1.0},
        {"as_planned": True},
        {"reasons": ()},
        {"framework": "other"},
    ],
)
def test_the_judge_convicts_a_framework_that_is_said_to_run_a_v(changes: dict[str, Any]) -> None:
    found = across(None, ("v",))
    constraints = APART
    allowed = {**FIXED, "dp": [8], "vpp": [1, 2], "family": ["v"], "sharding": ["zero1", "fsdp", "hsdp"]}
    asked = request(constraints=constraints, allowed=allowed)
    assert judge(asked, found).accepted
    index = next(at for at, one in enumerate(found.runnable_by) if one.framework == "megatron-core")
    forged = list(found.runnable_by)
    forged[index] = forged[index].model_copy(update=changes)
    verdict = judge(asked, found.model_copy(update={"runnable_by": tuple(forged)}))
    assert {one.rule for one in verdict.violations} == {"runnable-by"}
