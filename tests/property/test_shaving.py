"""Shaved windows: no schedule loses its place in them, and they refute what propagation alone leaves open."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.schedule import PipelineProblem
from solver.clock import WorkClock
from solver.pipeline.exact.columns import state_space_of
from solver.pipeline.exact.decision import OPEN, REFUTED, least_open
from solver.pipeline.exact.joint import joint_ranks_of, no_joint_ranks
from solver.pipeline.exact.shaving import WindowShaving, jobs_of, shave_windows
from solver.pipeline.generators.list_scheduler import greedy_order
from solver.pipeline.generators.list_scheduler_choice import Policy
from solver.pipeline.local_search.progress import PipelineSearch
from solver.pipeline.local_search.tabu import in_order
from solver.pipeline.portfolio import policies
from solver.pipeline.problem import PipelineShape, shape_of
from solver.pipeline.quantise import quantise
from solver.pipeline.simulate import replay_shape
from tests.pipelines import budget, cut, pipeline, problems
from tests.property.test_bounds import exact_optima
from tests.property.test_joint_ranks import one_rank, ticks_of

WORK = 200_000  # states: many rounds at these sizes
TIMES = {"input_grad_s": 1.0, "weight_grad_s": 0.75, "activation_bytes": 1.0, "weight_grad_context_bytes": 0.5}
STAGES = [{**TIMES, "forward_s": 1.0 + 0.125 * (stage % 3)} for stage in range(6)]
TIGHT_V = pipeline(3, 8, chunks=2, stages=STAGES, hops=[cut(1, 1.0), cut(3, 1.0)], ranks=budget(3, 3.0))


def shaved(shape: PipelineShape, horizon: int) -> WindowShaving:
    """The windows of a horizon before they are shaved."""
    joint = joint_ranks_of(shape) or no_joint_ranks(shape)
    return WindowShaving(state_space_of(shape), horizon, joint, jobs_of(shape))


@settings(max_examples=15, deadline=None)
@given(one_rank())
def test_the_optimum_of_all_orders_is_never_refuted(problem: PipelineProblem) -> None:
    shape = ticks_of(problem)
    optimum = round(exact_optima(shape)[0])
    windows = shaved(shape, optimum + 3)
    windows.go_on(WORK)
    windows.lower(optimum)
    windows.go_on(WORK)
    assert windows.status == OPEN


@settings(max_examples=40, deadline=None)
@given(problems(), st.integers(0, 7), st.integers(0, 6))
def test_a_schedule_remains_within_the_windows_of_its_makespan(
    problem: PipelineProblem, number: int, above: int
) -> None:
    shape = ticks_of(problem)
    grid = policies(shape)
    run = replay_shape(shape, in_order(shape, greedy_order(shape, grid[number * len(grid) // 8])))
    if not np.all(run.peak_memory_bytes <= shape.budget_r * (1 + 1e-9)):
        return
    windows = shaved(shape, round(run.makespan_s) + above)
    windows.go_on(WORK)
    windows.lower(round(run.makespan_s))
    windows.go_on(WORK)
    assert windows.status == OPEN
    early, late = windows.starts
    start = np.rint(run.start[: shape.num_operations])
    assert (early[: shape.num_operations] <= start).all()
    assert (start <= late[: shape.num_operations]).all()


def test_shaving_refutes_what_propagation_leaves_open() -> None:
    shape = quantise(shape_of(TIGHT_V), 0.125).shape
    horizon, _ = least_open(state_space_of(shape), 0, 1_000, lambda: False, joint=joint_ranks_of(shape))
    windows = shaved(shape, horizon)
    assert windows.status == OPEN
    windows.go_on(10**7)
    assert windows.status == REFUTED


def test_a_question_leaves_what_the_horizon_alone_has_narrowed() -> None:
    """Windows only ever shrink, also where questions far above the bound cut nothing off."""
    shape = quantise(shape_of(TIGHT_V), 0.125).shape
    horizon, _ = least_open(state_space_of(shape), 0, 1_000, lambda: False, joint=joint_ranks_of(shape))
    windows = shaved(shape, horizon + 100)
    early, late = (starts.copy() for starts in windows.starts)
    assert early.max() > 0
    for _ in range(20):
        windows.go_on(1)
        assert (windows.starts[0] >= early).all()
        assert (windows.starts[1] <= late).all()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_bound_of_a_search_rises_and_the_same_work_gives_the_same(workers: int) -> None:
    problem = TIGHT_V.model_copy(update={"options": TIGHT_V.options.model_copy(update={"workers": workers})})
    bounds = []
    for _ in range(2):
        clock = WorkClock(lambda: 0.0, 10.0)
        search = PipelineSearch(problem, clock)
        search.offer(greedy_order(search.shape, Policy()), "greedy")
        shave_windows(search, 1.0)
        bounds.append(search.bound_s)
    assert 0 < bounds[0] <= search.value_s
    assert bounds[0] == bounds[1]
