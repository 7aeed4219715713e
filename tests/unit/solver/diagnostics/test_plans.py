"""What a plan keeps of the linter: every warning on its request, in the judge's own words, and plans of before."""

from __future__ import annotations

import pytest

from models.diagnostic import Diagnostic
from models.outcome import Planned
from models.plan import Plan
from models.request import PlanRequest
from solver.planner import plan
from solver.verify.judge import judge
from tests.build_job import FIXED, job

ONE_SITE = {"data_parallel_may_cross_buildings": False, "pipeline_may_cross_buildings": False}


@pytest.fixture(scope="module")
def request_() -> PlanRequest:
    return job(allowed={**FIXED, "dp": [4]}, link={"latency_s": 2.0}, constraints=ONE_SITE)


@pytest.fixture(scope="module")
def found(request_: PlanRequest) -> Plan:
    outcome = plan(request_)
    assert isinstance(outcome, Planned), outcome
    return outcome.plan


def broken(request: PlanRequest, found: Plan, warnings: tuple[Diagnostic, ...]) -> set[str]:
    changed = found.model_copy(update={"warnings": warnings})
    return {one.rule for one in judge(request, changed).violations}


def test_a_plan_keeps_warnings_and_notes_with_their_place(request_: PlanRequest, found: Plan) -> None:
    by_rule = {one.rule: one for one in found.warnings}
    assert by_rule["latency-unit"].severity == "warning"
    assert by_rule["latency-unit"].pointer == "/cluster/links/0/latency_s"
    assert by_rule["model-size"].severity == "note"
    assert judge(request_, found).violations == ()


def test_pools_that_a_plan_leaves_idle_are_named(found: Plan) -> None:
    (idle,) = (one for one in found.warnings if one.rule == "pool-unused")
    used = {pool for route in found.placement.routes for pool in route.pools}
    assert idle.pointer == "/cluster/pools/" + ("0" if used == {"p1"} else "1")


def test_a_warning_left_out_or_made_up_is_found(request_: PlanRequest, found: Plan) -> None:
    without = tuple(one for one in found.warnings if one.rule != "latency-unit")
    made_up = (*found.warnings, Diagnostic(rule="loss-unit", severity="warning", detail="all is lost"))
    assert "warnings-stated" in broken(request_, found, without)
    assert "warnings-stated" in broken(request_, found, made_up)


def test_a_softened_warning_is_found(request_: PlanRequest, found: Plan) -> None:
    softer = tuple(one.model_copy(update={"severity": "note"}) for one in found.warnings)
    assert "warnings-stated" in broken(request_, found, softer)


def test_notes_cannot_be_left_out(request_: PlanRequest, found: Plan) -> None:
    short = tuple(one for one in found.warnings if one.severity == "warning")
    assert "warnings-stated" in broken(request_, found, short)


def test_text_in_place_of_a_warning_is_read_and_held_to_the_links(request_: PlanRequest, found: Plan) -> None:
    """Plans of before had texts about switch buffers alone; the example of the API is one."""
    earlier = Plan.model_validate({**found.model_dump(mode="json"), "warnings": ["never heard of"]})
    assert "warnings-stated" in {one.rule for one in judge(request_, earlier).violations}
