"""The plan that is best at a confidence: its 90 % figure is the least of all that were timed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models.outcome import Planned
from models.plan import Plan
from models.request import Objective, PlanRequest
from solver.configurations.enumerate import enumerate_space
from solver.context import Context
from solver.objective import Goal
from solver.planner import plan
from solver.search.frontier import Frontier
from solver.search.saved import SavedSearch, restored, saved_search
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


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_sizes_are_least_ones_until_a_configuration_is_priced(confidence: float) -> None:
    """And a saved search has both, so that its bounds are those of the one that was saved."""
    request = asked(Objective(kind="time_at_confidence", confidence=confidence))
    context = Context.of(request)
    space, goal = enumerate_space(request), Goal.of(context)
    exact = goal.sizes(context, space)
    frontier, again = (Frontier(context, space, goal) for _ in range(2))
    assert np.all(frontier.unpriced.size <= exact * (1 + 1e-12))
    assert frontier.load(np.inf, planned=False, most=4) == 4
    assert frontier.unpriced.size[frontier.rows] == pytest.approx(exact[frontier.rows])
    assert np.array_equal(frontier.bound, goal.least_values(frontier.seconds, exact[frontier.rows]))
    assert restored(SavedSearch.from_bytes(saved_search(frontier, 0.0).to_bytes()), again)
    assert np.array_equal(np.sort(again.bound), np.sort(frontier.bound))


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
