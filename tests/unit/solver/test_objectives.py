"""Least traffic between buildings for a target time, and what a framework cannot run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.catalogue import entry_names
from models.outcome import Infeasible, Planned
from models.plan import Plan
from models.request import PlanRequest
from solver.bounds.least_traffic import least_crossing_bytes
from solver.configurations.enumerate import enumerate_space
from solver.context import Context
from solver.evaluation.candidate import configuration_of
from solver.evaluation.evaluate import evaluate
from solver.evaluation.places import placements
from solver.evaluation.report import evaluation_cross_building_bytes
from solver.evaluation.scheduling import portfolio_timing
from solver.planner import plan, validate
from solver.verify.judge import judge
from tests.build_job import FIXED, context_of, job

LEAST = "least_cross_building_traffic"


def planned(request: PlanRequest) -> Plan:
    outcome = plan(request)
    assert isinstance(outcome, Planned), outcome
    assert judge(request, outcome.plan).accepted
    return outcome.plan


def least(target_s: float, **changes: Any) -> Plan:
    return planned(job(allowed=FIXED, objective={"kind": LEAST, "target_iteration_s": target_s}, **changes))


def test_a_loose_target_keeps_everything_in_one_building() -> None:
    fast = planned(job(allowed=FIXED))
    found = least(2.5 * fast.metrics.iteration_s)
    assert found.metrics.cross_building_bytes == 0
    assert found.proof.status == "optimal"


def test_a_tight_target_costs_bytes_and_is_met() -> None:
    fast = planned(job(allowed=FIXED))
    found = least(1.05 * fast.metrics.iteration_s)
    assert found.metrics.iteration_s <= 1.05 * fast.metrics.iteration_s
    assert 0 < found.metrics.cross_building_bytes <= fast.metrics.cross_building_bytes
    assert "bytes between buildings" in found.proof.proven


def test_the_target_is_needed() -> None:
    with pytest.raises(ValueError, match="least_cross_building_traffic needs a target"):
        job(objective={"kind": LEAST})


WHERE: dict[str, Any] = {"tp": [1, 2, 4], "pp": [1, 2, 4, 8], "cp": [1], "micro_batch_sequences": [1, 2]}
SPACES: dict[tuple[int, ...], tuple[Context, Any]] = {}


def space_on(hosts: tuple[int, ...]) -> tuple[Context, Any]:
    if hosts not in SPACES:
        context = context_of(job(hosts=hosts, allowed=WHERE))
        SPACES[hosts] = (context, enumerate_space(context.request))
    return SPACES[hosts]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(hosts=st.sampled_from([(4, 4), (6, 2), (3, 3, 2)]), which=st.floats(0, 1, exclude_max=True))
def test_no_placement_sends_fewer_bytes_than_the_bound(hosts: tuple[int, ...], which: float) -> None:
    context, space = space_on(hosts)
    crossing = np.flatnonzero(space.columns.num_gpus > context.geography.largest_building_gpus)
    row = crossing[int(which * len(crossing))]
    configuration = configuration_of(context, space, int(row))
    bound = float(least_crossing_bytes(context, space.take(np.array([row])))[0])
    assert bound > 0
    for candidate in placements(context, configuration, ("replicas_whole", "ranks_whole")):
        found = evaluate(context, candidate, lambda problem: portfolio_timing(problem, ("one_f_one_b", "greedy")))
        assert found is None or bound <= evaluation_cross_building_bytes(context, found) * (1 + 1e-9)


@pytest.mark.parametrize("framework", entry_names("frameworks"))
def test_a_plan_runs_on_its_framework(framework: str) -> None:
    request = job(allowed={**FIXED, "vpp": [1, 2]}, constraints={"framework": framework}, options={"time_limit_s": 6.0})
    profile = request.constraints.framework
    assert profile is not None
    found = planned(request)
    assert found.configuration.sharding in profile.sharding
    assert found.configuration.family in profile.families
    assert all((one.problem.backward == "fused") == profile.fused_backward for one in found.timelines)
    if profile.schedules is not None:
        assert {one.schedule.generator for one in found.timelines} <= set(profile.schedules)


def test_what_request_and_framework_share_may_be_nothing() -> None:
    request = job(allowed={**FIXED, "sharding": ["fsdp"]}, constraints={"framework": "deepspeed"})
    outcome = plan(request)
    assert isinstance(outcome, Infeasible)
    assert (outcome.reasons[0].code, outcome.reasons[0].pointer) == ("nothing-allowed", "/constraints/allowed/sharding")
    assert validate(request)[0].code == "nothing-allowed"


def test_a_framework_never_makes_a_plan_faster() -> None:
    free = planned(job(allowed=FIXED, options={"relative_gap": 0.01}))
    bound = planned(job(allowed=FIXED, constraints={"framework": "megatron-core"}, options={"time_limit_s": 6.0}))
    assert bound.metrics.iteration_s >= free.metrics.iteration_s * (1 - 0.01)
