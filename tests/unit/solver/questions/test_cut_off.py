"""A plan whose places are no longer joined once a link is gone: it is not timed there, and others are looked for."""

from __future__ import annotations

import pytest

from models.outcome import Planned
from models.plan import Plan
from models.questions import Robust, WhatIf
from models.request import PlanRequest
from solver.planner import plan
from solver.questions.ask import ask
from solver.questions.searches import with_profile
from solver.search.warm_start import WarmStart
from tests.build_job import FIXED, job
from tests.counted import work_clock

PINS = [
    {"first_pipeline_rank": rank, "last_pipeline_rank": rank, "place": place} for rank, place in ((0, "b0"), (3, "b1"))
]
WITHOUT_LINK = [{"pointer": "/cluster/links/l0", "op": "remove"}, {"pointer": "/constraints/pins", "value": []}]


@pytest.fixture(scope="module")
def before() -> tuple[PlanRequest, Plan]:
    """Three buildings in a chain, pipelines over the first two, and their plan."""
    request = with_profile(
        job(
            hosts=(2, 2, 2),
            batch=48,
            allowed={**FIXED, "dp": [2]},
            options={"reproducible": True, "time_limit_s": 3.0},
            constraints={"pins": PINS},
        )
    )
    outcome = plan(request, clock=work_clock())
    assert isinstance(outcome, Planned)
    return request, outcome.plan


def test_a_search_does_not_begin_with_a_plan_over_a_link_that_is_gone(before: tuple[PlanRequest, Plan]) -> None:
    request, old = before
    after = request.with_cluster(links=request.cluster.links[1:]).with_constraints(pins=())
    outcome = plan(after, clock=work_clock(), begin_with=WarmStart(old))
    assert isinstance(outcome, Planned)
    assert {"b0", "b1"} not in [set(route.places) for route in outcome.plan.placement.routes]


def test_a_variant_without_the_link_is_planned_anew(before: tuple[PlanRequest, Plan]) -> None:
    request, old = before
    variants = [{"name": "cut", "changes": WITHOUT_LINK}]
    question = {"request": request, "plan": old, "variants": variants, "options": {"time_limit_s": 4.0}}
    (gain,) = ask(WhatIf.model_validate(question), clock=work_clock()).gains
    assert gain.status == "planned"
    assert gain.plan is not None
    assert {"b0", "b1"} not in [set(route.places) for route in gain.plan.routes]


def test_a_plan_over_the_link_does_not_run_in_the_world_without_it(before: tuple[PlanRequest, Plan]) -> None:
    request, old = before
    scenarios = [{"name": "cut", "changes": WITHOUT_LINK}]
    question = {"request": request, "plan": old, "scenarios": scenarios, "options": {"time_limit_s": 4.0}}
    answer = ask(Robust.model_validate(question), clock=work_clock())
    assert [one.status for one in answer.figures] == ["planned", "planned"]
    assert answer.value_s is None, "what the pins ask for needs the link"
    assert [one.iteration_s for one in answer.figures] == [None, None]
