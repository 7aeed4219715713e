"""The whole recipe: published optima, limits, cancellation and progress."""

from __future__ import annotations

from itertools import count

import pytest

from models.schedule import PipelineProblem, ScheduleProgress
from solver.cpsat.solve import solve_pipeline
from solver.schedules.portfolio import quick_schedule
from tests.pipelines import budget, cut, pipeline


@pytest.mark.parametrize(("delay_s", "optimum_s"), [(0.0, 55.0), (2.0, 63.0), (8.0, 87.0)])
def test_two_buildings_reach_the_proven_optimum(delay_s: float, optimum_s: float) -> None:
    """p = 8, m = 16, F = I = W = 1, eight activations per rank, one cut in the middle."""
    problem = pipeline(8, 16, ranks=budget(8, 8), hops=[cut(3, delay_s)])
    schedule = solve_pipeline(problem)
    assert schedule.objective_value_s == pytest.approx(optimum_s)
    assert schedule.status == "optimal"
    assert schedule.lower_bound_s == pytest.approx(optimum_s)


def test_the_order_of_transfers_is_planned() -> None:
    """Two cuts on one link: the search is at least as good as any first come first served generator."""
    hops = [cut(0, 1.0, 1.0, "A-B"), cut(2, 1.0, 1.0, "A-B")]
    problem = pipeline(4, 6, ranks=budget(4, 4), hops=hops)
    assert solve_pipeline(problem).objective_value_s <= quick_schedule(problem).objective_value_s


def test_cancelled_at_once_still_answers() -> None:
    problem = pipeline(4, 8, ranks=budget(4, 4), hops=[cut(1, 3.0)])
    schedule = solve_pipeline(problem, cancelled=lambda: True)
    assert schedule.objective_value_s == quick_schedule(problem).objective_value_s


def test_time_is_the_clock_that_was_given() -> None:
    ticks = count()
    problem = pipeline(4, 8, ranks=budget(4, 4), hops=[cut(1, 3.0)])
    schedule = solve_pipeline(problem, clock=lambda: float(next(ticks) * 100))
    assert schedule.seconds >= 100


def test_progress_only_ever_gets_better() -> None:
    seen: list[ScheduleProgress] = []
    problem = pipeline(4, 8, ranks=budget(4, 4), hops=[cut(1, 3.0)])
    final = solve_pipeline(problem, progress=seen.append)
    values = [step.objective_value_s for step in seen]
    bounds = [step.lower_bound_s for step in seen]
    assert values == sorted(values, reverse=True)
    assert bounds == sorted(bounds)
    assert values[-1] == final.objective_value_s


def test_span_of_zero_bubble_is_all_work() -> None:
    problem = PipelineProblem.model_validate(pipeline(4, 8).model_dump() | {"objective": "span"})
    assert solve_pipeline(problem).objective_value_s == pytest.approx(24.0)
