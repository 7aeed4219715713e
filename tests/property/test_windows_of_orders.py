"""Windows of an order: what is given outside holds for every order in them, and the whole is the exact search."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from models.schedule import PipelineProblem
from solver.pipeline.exact.columns import state_space_of
from solver.pipeline.exact.decision import REACHED, REFUTED, FeasibilitySearch
from solver.pipeline.exact.neighbourhoods import WindowSearch
from solver.pipeline.generators.list_scheduler import Policy, greedy_order
from solver.pipeline.local_search.tabu import in_order
from solver.pipeline.problem import shape_of
from solver.pipeline.quantise import quantise
from solver.pipeline.simulate import replay_shape
from tests.property.test_bounds import exact_optima, small

TICK_S = 0.25  # every time of the small pipelines is a whole number of it


def windows_of(problem: PipelineProblem, seed: int = 1) -> WindowSearch | None:
    """The window search of a pipeline without operations of no time, where questions have exact answers."""
    ticks = quantise(shape_of(problem), TICK_S)
    state_space = state_space_of(ticks.shape)
    if not state_space.complete or (ticks.shape.duration_ks == 0).any():
        return None
    return WindowSearch(ticks, state_space, seed=seed)


@settings(max_examples=25, deadline=None)
@given(small())
def test_a_window_over_everything_is_the_exact_search(problem: PipelineProblem) -> None:
    windows = windows_of(problem)
    if windows is None:
        return
    shape = quantise(shape_of(problem), TICK_S).shape
    optimum = round(exact_optima(shape)[0])
    incumbent = windows.incumbent(in_order(shape, greedy_order(shape, Policy())))
    for horizon, answer in ((optimum - 1, REFUTED), (optimum, REACHED)):
        drawn = windows.neighbourhood(incumbent, -np.inf, np.inf, horizon)
        question = FeasibilitySearch(windows.state_space, horizon, given=drawn.given)
        assert question.go_on(10**9) == answer


@settings(max_examples=25, deadline=None)
@given(small(), st.floats(0, 30), st.floats(0, 30))
def test_the_order_itself_is_in_every_window(problem: PipelineProblem, begin: float, length: float) -> None:
    windows = windows_of(problem)
    if windows is None:
        return
    shape = quantise(shape_of(problem), TICK_S).shape
    order = in_order(shape, greedy_order(shape, Policy()))
    incumbent = windows.incumbent(order)
    drawn = windows.neighbourhood(incumbent, begin, begin + length, incumbent.value)
    question = FeasibilitySearch(windows.state_space, incumbent.value, given=drawn.given)
    assert question.go_on(10**9) == REACHED
    assert replay_shape(shape, question.order(shape)).makespan_s <= incumbent.value


@settings(max_examples=25, deadline=None)
@given(small())
def test_better_orders_are_better_and_within_memory(problem: PipelineProblem) -> None:
    windows = windows_of(problem)
    if windows is None:
        return
    shape = quantise(shape_of(problem), TICK_S).shape
    incumbent = windows.incumbent(in_order(shape, greedy_order(shape, Policy())))
    for _ in range(20):
        drawn = windows.drawn(incumbent)
        order, _ = windows.asked(drawn, windows.scratch())
        if order is not None:
            run = replay_shape(shape, order)
            assert run.makespan_s <= drawn.horizon
            assert np.all(run.peak_memory_bytes <= shape.budget_r * (1 + 1e-9))
            incumbent = windows.better(incumbent, order)
