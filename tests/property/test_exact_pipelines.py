"""The search over states is exact on small pipelines: it refutes all below the optimum and nothing at or above."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from models.schedule import PipelineProblem
from solver.pipeline.exact.columns import StateSpace, state_space_of
from solver.pipeline.exact.decision import OPEN, REACHED, REFUTED, FeasibilitySearch, least_open
from solver.pipeline.problem import PipelineShape, shape_of
from solver.pipeline.quantise import quantise
from solver.pipeline.simulate import BrokenOrderError, replay_shape
from tests.pipelines import budget, cut, pipeline
from tests.property.test_bounds import exact_optima, small

TICK_S = 0.25  # every time of the small pipelines is a whole number of it


def ticks_of(problem: PipelineProblem) -> tuple[PipelineShape, StateSpace, int]:
    """Shape in ticks, its state space and the exact optimum in ticks."""
    ticks = quantise(shape_of(problem), TICK_S)
    assert ticks.exact
    return ticks.shape, state_space_of(ticks.shape), round(exact_optima(ticks.shape)[0])


@settings(max_examples=25, deadline=None)
@given(small())
def test_propagation_refutes_no_horizon_that_can_be_kept(problem: PipelineProblem) -> None:
    _, state_space, optimum = ticks_of(problem)
    assert FeasibilitySearch(state_space, optimum).status == OPEN
    assert least_open(state_space, 0, optimum + 5, lambda: False)[0] <= optimum


@settings(max_examples=25, deadline=None)
@given(small())
def test_the_search_ends_at_the_exact_optimum(problem: PipelineProblem) -> None:
    shape, state_space, optimum = ticks_of(problem)
    if not state_space.complete:
        return
    assert FeasibilitySearch(state_space, optimum - 1).go_on(10**9) == REFUTED
    question = FeasibilitySearch(state_space, optimum)
    assert question.go_on(10**9) == REACHED
    order = question.order(shape)
    try:
        run = replay_shape(shape, order)
    except BrokenOrderError:
        assert (shape.duration_ks == 0).any(), "only what takes no time can wait in a circle"
        return
    assert run.makespan_s <= optimum
    assert np.all(run.peak_memory_bytes <= shape.budget_r * (1 + 1e-9))


@pytest.mark.parametrize("link", [None, "shared"])
def test_a_pipeline_of_three_cuts_is_solved_like_any_other(link: str | None) -> None:
    """Where brute force ends, refutation one tick below an order that replays is the proof."""
    hops = [cut(0, 1.25, 0.75, link), cut(1, 2.0, 0.5, link), cut(2, 0.25, 1.0, link)]
    problem = pipeline(4, 5, hops=hops, ranks=budget(4, 3.5))
    ticks = quantise(shape_of(problem), TICK_S)
    state_space = state_space_of(ticks.shape)
    optimum = least_open(state_space, 0, 1_000, lambda: False)[0]
    while FeasibilitySearch(state_space, optimum).go_on(10**9) == REFUTED:
        optimum += 1
    question = FeasibilitySearch(state_space, optimum)
    assert question.go_on(10**9) == REACHED
    run = replay_shape(ticks.shape, question.order(ticks.shape))
    assert run.makespan_s == optimum
    assert np.all(run.peak_memory_bytes <= ticks.shape.budget_r * (1 + 1e-9))
