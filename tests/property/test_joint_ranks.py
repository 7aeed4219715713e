"""Ranks of two stages as one machine: no horizon that a schedule keeps is refuted, and memory of both stages counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.schedule import PipelineProblem
from solver.pipeline.bounds import makespan_bound
from solver.pipeline.exact.columns import state_space_of
from solver.pipeline.exact.decision import OPEN, REFUTED, FeasibilitySearch, least_open
from solver.pipeline.exact.joint import joint_ranks_of
from solver.pipeline.exact.joint_kernel import MERGED, SEPARATE
from solver.pipeline.generators.list_scheduler import greedy_order
from solver.pipeline.portfolio import policies
from solver.pipeline.problem import PipelineShape, shape_of
from solver.pipeline.quantise import quantise
from solver.pipeline.simulate import replay_shape
from tests.pipelines import budget, cut, pipeline, problems
from tests.property.test_bounds import exact_optima

TICK_S = 0.25  # every time here is a whole number of it
TIMES = st.sampled_from([0.25, 0.5, 1.0, 1.75])
ALIKE = {"forward_s": 1.0, "input_grad_s": 1.0, "activation_bytes": 1.0, "weight_grad_context_bytes": 1.0}
STAGES_OF_TWO = [{**ALIKE, "weight_grad_s": seconds} for seconds in (2.0, 1.0, 0.25, 0.5)]


def ticks_of(problem: PipelineProblem) -> PipelineShape:
    """The problem in ticks, exactly."""
    ticks = quantise(shape_of(problem), TICK_S)
    assert ticks.exact
    return ticks.shape


@st.composite
def one_rank(draw: st.DrawFn) -> PipelineProblem:
    """Two micro-batches through two stages of one rank, fused, with a delay between them: all orders can be tried."""
    stages = [
        {
            "forward_s": draw(TIMES),
            "input_grad_s": draw(TIMES),
            "weight_grad_s": draw(TIMES),
            "activation_bytes": 1.0,
            "weight_grad_context_bytes": 0.0,
        }
        for _ in range(2)
    ]
    hops = [cut(0, draw(st.sampled_from([0.0, 1.0, 4.0])), draw(st.sampled_from([0.0, 0.5])))]
    ranks = budget(1, draw(st.sampled_from([2.0, 2.5, 3.0, 4.0])))
    return pipeline(1, 2, chunks=2, stages=stages, hops=hops, ranks=ranks, backward="fused")


@settings(max_examples=15, deadline=None)
@given(one_rank())
def test_no_order_of_a_rank_of_two_stages_is_refuted(problem: PipelineProblem) -> None:
    shape = ticks_of(problem)
    optimum, joint = round(exact_optima(shape)[0]), joint_ranks_of(shape)
    assert joint is not None
    assert FeasibilitySearch(state_space_of(shape), optimum, joint=joint).status == OPEN
    assert least_open(state_space_of(shape), 0, optimum + 5, lambda: False, joint=joint)[0] <= optimum


@settings(max_examples=30, deadline=None)
@given(problems().filter(lambda problem: problem.num_stages > len(problem.ranks)), st.integers(0, 7))
def test_no_schedule_of_a_v_or_loop_is_refuted(problem: PipelineProblem, number: int) -> None:
    shape = ticks_of(problem)
    joint, grid = joint_ranks_of(shape), policies(shape)
    run = replay_shape(shape, greedy_order(shape, grid[number * len(grid) // 8]))
    assert joint is not None
    if np.all(run.peak_memory_bytes <= shape.budget_r * (1 + 1e-9)):
        assert FeasibilitySearch(state_space_of(shape), round(run.makespan_s), joint=joint).status == OPEN


def test_memory_of_both_stages_of_a_rank_counts() -> None:
    """A V short of memory with a delay: what neither stage refutes by itself, both together do."""
    problem = pipeline(4, 8, chunks=2, hops=[cut(1, 2.0), cut(5, 2.0)], ranks=budget(4, 3.0))
    shape = quantise(shape_of(problem), 0.125).shape
    alone, together = state_space_of(shape), joint_ranks_of(shape)
    horizon = round(makespan_bound(shape) * 1.02)
    assert FeasibilitySearch(alone, horizon).status == OPEN
    assert FeasibilitySearch(alone, horizon, joint=together).status == REFUTED


def test_weights_of_different_length_count_apart_where_states_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted together, every W is as short as the shortest: the bound is weaker."""
    shape = quantise(shape_of(pipeline(2, 5, chunks=2, stages=STAGES_OF_TWO, ranks=budget(2, 4.0))), 0.25).shape
    apart = joint_ranks_of(shape)
    assert apart is not None
    monkeypatch.setattr("solver.pipeline.exact.joint.MOST_STATES", len(apart.done) - 1)
    together = joint_ranks_of(shape)
    assert together is not None
    assert (apart.weights == SEPARATE).all()
    assert (together.weights == MERGED).all()
    bounds = [least_open(state_space_of(shape), 0, 500, lambda: False, joint=one)[0] for one in (together, apart)]
    run = replay_shape(shape, greedy_order(shape, policies(shape)[0]))
    assert bounds[0] < bounds[1] <= round(run.makespan_s)


@pytest.mark.parametrize("held", [2.0, 3.5])
def test_states_are_led_into_by_those_with_one_job_less(held: float) -> None:
    """Places of states are kept for two counts of F alone; a table of all states says the same."""
    problem = pipeline(2, 6, chunks=2, stages=STAGES_OF_TWO, ranks=budget(2, held))
    joint = joint_ranks_of(quantise(shape_of(problem), 0.25).shape)
    assert joint is not None
    assert (joint.weights == SEPARATE).all()
    place = {tuple(done): at for at, done in enumerate(joint.done.tolist())}
    for at, done in enumerate(joint.done.tolist()):
        less = [tuple(count - (other == stream) for other, count in enumerate(done)) for stream in range(len(done))]
        assert joint.before[at].tolist() == [place.get(one, -1) for one in less]
