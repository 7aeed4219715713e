"""Windows of an order: what is given outside holds for every order in them, and the whole is the exact search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.pipeline_cases import random_case, random_loop_case, random_v_case
from models.schedule import PipelineProblem
from solver.pipeline.exact.chains import ChainSpaces, exchanged
from solver.pipeline.exact.columns import state_space_of
from solver.pipeline.exact.decision import REACHED, REFUTED, FeasibilitySearch
from solver.pipeline.exact.horizon_search import state_space_tick_s
from solver.pipeline.exact.neighbourhoods import WindowSearch
from solver.pipeline.generators.list_scheduler import greedy_order, one_by_one
from solver.pipeline.generators.list_scheduler_choice import Policy
from solver.pipeline.local_search.tabu import in_order
from solver.pipeline.problem import PipelineOrder, PipelineShape, shape_of
from solver.pipeline.quantise import quantise
from solver.pipeline.simulate import peak_memory_bytes, replay_shape
from tests.property.test_bounds import exact_optima, small

TICK_S = 0.25  # every time of the small pipelines is a whole number of it
CASES = {"one way": random_case, "v": random_v_case, "loop": random_loop_case}


def started(problem: PipelineProblem, tick_s: float = TICK_S) -> tuple[PipelineShape, WindowSearch, PipelineOrder]:
    """Shape in ticks, its window search, and an order to begin with."""
    ticks = quantise(shape_of(problem), tick_s)
    order = in_order(ticks.shape, greedy_order(ticks.shape, Policy()))
    return ticks.shape, WindowSearch(ticks, seed=1), order


@settings(max_examples=25, deadline=None)
@given(small())
def test_a_window_over_everything_is_the_exact_search(problem: PipelineProblem) -> None:
    shape, windows, order = started(problem)
    if (shape.duration_ks == 0).any():
        return
    optimum, incumbent = round(exact_optima(shape)[0]), windows.incumbent(order)
    complete = state_space_of(shape).complete
    for horizon in (optimum - 1, optimum) if complete else (optimum - 1,):
        drawn = windows.neighbourhood(incumbent, windows.streams(incumbent), -np.inf, np.inf, horizon)
        question = FeasibilitySearch(drawn.named.state_space, horizon, given=drawn.given)
        assert question.go_on(10**9) == (REFUTED if horizon < optimum else REACHED)


@settings(max_examples=25, deadline=None)
@given(small(), st.floats(0, 30), st.floats(0, 30))
def test_the_order_itself_is_in_every_window(problem: PipelineProblem, begin: float, length: float) -> None:
    shape, windows, order = started(problem)
    if (shape.duration_ks == 0).any():
        return
    incumbent = windows.incumbent(order)
    drawn = windows.neighbourhood(incumbent, windows.streams(incumbent), begin, begin + length, incumbent.value)
    question = FeasibilitySearch(drawn.named.state_space, incumbent.value, given=drawn.given)
    assert question.go_on(10**9) == REACHED
    assert replay_shape(shape, drawn.named.order(shape, question.queues())).makespan_s <= incumbent.value


@pytest.mark.parametrize("layout", CASES)
@pytest.mark.parametrize("number", range(3))
def test_better_orders_are_better_and_within_memory(layout: str, number: int) -> None:
    problem = CASES[layout](4, 6, number, 1.0)
    shape, windows, _ = started(problem, state_space_tick_s(shape_of(problem)))
    incumbent = windows.incumbent(one_by_one(shape))
    first = incumbent.value
    for _ in range(150):
        drawn = windows.drawn(incumbent)
        before = replace(drawn.way)
        found, _, answered = windows.asked(drawn)
        assert drawn.way == before, "questions side by side change nothing for each other"
        drawn.way.learn(found=found is not None, answered=answered)
        if found is not None:
            run = replay_shape(shape, found)
            assert run.makespan_s <= drawn.horizon
            assert np.all(run.peak_memory_bytes <= shape.budget_r * (1 + 1e-9))
            incumbent = windows.better(incumbent, found)
    assert incumbent.value < first


@pytest.mark.parametrize("layout", ["v", "loop"])
def test_chains_allow_what_memory_allows(layout: str) -> None:
    """Every count of jobs done that an order goes through is within memory by the chains, and one F more is not."""
    shape = shape_of(CASES[layout](3, 5, 1, 1.0))
    order = in_order(shape, greedy_order(shape, Policy()))
    spaces = ChainSpaces(shape)
    for group in (np.array([[0, 0], [1, 1], [2, 2]]), np.array([[0, 1], [2, 1], [1, 2]])):
        named = spaces.space(spaces.chains(order, group))
        machines = named.state_space.machines
        for rank, queue in enumerate(order.rank_ops):
            streams = [
                named.old[first : first + count]
                for first, count in zip(machines.first[rank], machines.length[rank], strict=True)
            ]
            for size in range(len(queue) + 1):
                x, y, z = (int(np.isin(stream, queue[:size]).sum()) for stream in streams)
                assert x <= machines.most[rank, y, z]
            x, y, z = (int(machines.most[rank, 0, 0]), 0, 0)
            if x < len(streams[0]):
                assert peak_memory_bytes(shape, streams[0][: x + 1]) > shape.budget_r[rank]


@pytest.mark.parametrize("layout", ["v", "loop"])
def test_chains_with_neighbours_exchanged_are_made_from_those_before(layout: str) -> None:
    shape = shape_of(CASES[layout](3, 5, 1, 1.0))
    order = in_order(shape, greedy_order(shape, Policy()))
    spaces = ChainSpaces(shape)
    chains = spaces.chains(order, np.array([[0, 0], [1, 1], [2, 2]]))
    others = [list(one) for one in chains]
    for rank, chain in ((0, 0), (2, 1)):
        jobs = chains[rank][chain]
        apart = np.flatnonzero(jobs[1:] // shape.num_microbatches != jobs[:-1] // shape.num_microbatches)
        others[rank][chain] = exchanged(jobs, int(apart[0]))
    made = spaces.space(others, (chains, spaces.space(chains)))
    anew = spaces.space(others)
    assert np.array_equal(made.old, anew.old)
    assert np.array_equal(made.state_space.machines.most, anew.state_space.machines.most)
