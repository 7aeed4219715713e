"""The judge's own pipelines: they acquit the planner's plans, and refute bounds and rivals that cannot be."""

from __future__ import annotations

import re

import pytest
from numpy.random import default_rng

from models.plan import Plan
from solver.verify.case import Case
from solver.verify.deep.judge import bound_refuted, deep_judge
from solver.verify.deep.space import bound_of_space_s, trials
from solver.verify.deep.trial import Trial
from tests.sensitivity.forge import puts
from tests.sensitivity.plans import plan_called, request_called

NAMES = ("replicas across", "pipelines across", "GPUs of two types", "experts", "lossy planes")


def convictions(name: str, plan: Plan) -> set[str]:
    return {one.rule for one in deep_judge(request_called(name), plan).violations}


@pytest.mark.parametrize("name", NAMES)
def test_the_planners_plans_are_acquitted_and_more_is_confirmed(name):
    plan = plan_called(name)
    verdict = deep_judge(request_called(name), plan)
    assert verdict.violations == ()
    assert [one.pointer for one in verdict.unjudged] == [one.pointer for one in plan.verdict.unjudged]
    reason = verdict.unjudged[0].reason
    assert "the judge itself confirms" in reason
    sampled = re.search(r"at least the stated bound for \d+ of \d+ random configurations", reason)
    in_one_pool = list(trials(Case(request_called(name), plan), default_rng(0), 1))
    assert (sampled is not None) == bool(in_one_pool)


@pytest.mark.parametrize("name", NAMES)
def test_no_bound_of_the_judge_is_above_a_plan(name):
    request, plan = request_called(name), plan_called(name)
    case = Case(request, plan)
    assert bound_of_space_s(case) <= plan.metrics.iteration_s
    own = Trial(request, plan, plan.configuration, plan.placement.routes)
    assert bound_of_space_s(case) <= own.bound_s() * (1 + 1e-9)
    assert own.bound_s() <= plan.metrics.iteration_s * (1 + 1e-9)


def test_the_judges_own_pipelines_are_no_faster_than_a_true_bound():
    name = "replicas across"
    plan = plan_called(name)
    times = [one.time_s() for one in trials(Case(request_called(name), plan), default_rng(1), 8)]
    found = [one for one in times if one is not None]
    assert found
    assert min(found) >= plan.proof.lower_bound_s


def test_a_bound_above_a_pipeline_of_the_judge_is_refuted():
    """The same work in a slow plan: its bound is its own time, which the judge's 1F1B of a rival beats."""
    name, rival = "lossy planes", "replicas across"
    plan = plan_called(name)
    faster = Trial(request_called(name), plan, plan_called(rival).configuration, plan_called(rival).placement.routes)
    own_s = faster.time_s()
    assert own_s is not None
    verdicts = refuted(plan, own_s)
    assert verdicts == {True: set(), False: {"deep-bound"}}


def refuted(plan: Plan, own_s: float) -> dict[bool, set[str]]:
    """Rules that object to bounds just below and just above a time of the judge's own."""
    found = {}
    for below in (True, False):
        claimed = puts(plan, proof__lower_bound_s=own_s * (0.999 if below else 1.001))
        case = Case(request_called("lossy planes"), claimed)
        found[below] = {one.rule for one in bound_refuted(case, [own_s])}
    return found


@pytest.mark.parametrize("factor", [10.0, 2.0])
def test_a_rival_made_slow_is_convicted(factor):
    name = "pipelines across"
    plan = plan_called(name)
    index = next(index for index, one in enumerate(plan.baselines) if one.name == "atlas-like")
    at = f"baselines__{index}__"
    slower = puts(plan, **{at + "iteration_s": lambda old: factor * old, at + "speed_up": lambda old: factor * old})
    assert convictions(name, slower) == {"deep-rival"}
