"""The plan that is best at a confidence: its 90 % figure is the least of all that were timed."""

from __future__ import annotations

from typing import Any

import pytest

from models.outcome import Planned
from models.plan import Plan
from models.request import Objective, PlanRequest
from solver.planner import plan
from solver.verify.judge import judge
from tests.build_job import FIXED, job

FREE: dict[str, Any] = {**FIXED, "pp": [2, 4], "dp": [8, 16]}
LINK = {"latency_s": 0.005, "capacity_bytes_per_s": 4e10}


def asked(objective: Objective) -> PlanRequest:
    request = job(allowed=FREE, options={"reproducible": True, "relative_gap": 0.0, "time_limit_s": 12.0}, link=LINK)
    return request.model_copy(update={"objective": objective})


def planned(objective: Objective) -> Plan:
    outcome = plan(asked(objective))
    assert isinstance(outcome, Planned), outcome
    return outcome.plan


def at_90(one: Plan) -> float:
    assert one.prediction is not None
    return one.prediction.iteration_s.p90


def test_the_plan_asked_for_at_a_confidence_is_best_there() -> None:
    fastest, surest = planned(Objective()), planned(Objective(kind="time_at_confidence"))
    assert at_90(surest) <= at_90(fastest) * (1 + 1e-9)
    assert surest.proof.relative_gap == pytest.approx(
        1 - surest.proof.lower_bound_s / surest.metrics.iteration_s, abs=1e-9
    )


def test_at_one_half_it_is_the_fastest() -> None:
    even = planned(Objective(kind="time_at_confidence", confidence=0.5))
    assert even.metrics.iteration_s == pytest.approx(planned(Objective()).metrics.iteration_s)


def test_alternatives_say_how_likely_they_are_slower_and_the_judge_derives_it() -> None:
    found = planned(Objective())
    odds = [one.slower_probability for one in found.alternatives]
    assert all(one is not None and 0.5 <= one <= 1.0 for one in odds)
    first = found.alternatives[0].model_copy(update={"slower_probability": 0.4})
    forged = found.model_copy(update={"alternatives": (first, *found.alternatives[1:])})
    verdict = judge(asked(Objective()), forged)
    assert {one.rule for one in verdict.violations} == {"alternative-odds"}
