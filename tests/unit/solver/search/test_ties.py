"""Plans that are as good by the objective are told apart by their iteration time."""

from __future__ import annotations

import pytest

from models.outcome import Planned
from models.plan import Alternative, Plan
from models.request import PlanRequest
from solver.planner import plan
from solver.verify.judge import judge
from tests.build_job import FIXED, job

WIDE = {**FIXED, "pp": [2, 4, 8], "tp": [1, 2, 4], "recompute": ["full", "none"]}


def planned(request: PlanRequest) -> Plan:
    outcome = plan(request)
    assert isinstance(outcome, Planned), outcome
    return outcome.plan


@pytest.mark.parametrize("target_s", [3.0, 6.0])
def test_no_plan_for_the_fewest_gpus_is_slower_than_another_on_as_many(target_s: float) -> None:
    objective = {"kind": "fewest_gpus", "target_iteration_s": target_s}
    options = {"time_limit_s": 12.0, "reproducible": True}
    found = planned(job(allowed=WIDE, objective=objective, options=options))
    for one in found.alternatives:
        if one.degrees.num_gpus == found.metrics.num_gpus:
            assert one.iteration_s >= found.metrics.iteration_s
    best = planned(job(allowed=WIDE, constraints={"max_gpus": found.metrics.num_gpus}, options=options))
    assert found.metrics.iteration_s <= best.metrics.iteration_s * 1.02


def test_the_judge_rejects_an_alternative_that_is_faster_on_as_many_gpus() -> None:
    objective = {"kind": "fewest_gpus", "target_iteration_s": 6.0}
    request = job(allowed=WIDE, objective=objective, options={"time_limit_s": 12.0, "reproducible": True})
    found = planned(request)
    own = found.configuration
    rival = Alternative(
        degrees=own.degrees,
        sharding=own.sharding,
        recompute=own.recompute,
        family=own.family,
        crossing=found.placement.crossing,
        slower_by=0.0,
        iteration_s=0.9 * found.metrics.iteration_s,
        why_second="forged",
    )
    verdict = judge(request, found.model_copy(update={"alternatives": (rival,)}))
    assert "alternatives-second" in [one.rule for one in verdict.violations]
