"""One question after the other: refuted, reached, gone on with, and the order that comes out."""

from __future__ import annotations

import numpy as np

from solver.pipeline.exact.columns import state_space_of
from solver.pipeline.exact.decision import OPEN, REACHED, REFUTED, FeasibilitySearch, least_open, num_states, order_of
from solver.pipeline.problem import shape_of
from solver.pipeline.quantise import quantise
from solver.pipeline.simulate import replay_shape
from tests.pipelines import budget, cut, pipeline

PROBLEM = pipeline(4, 6, hops=[cut(0, 1.0, 0.5, "A"), cut(2, 2.0, 0.5, "A")], ranks=budget(4, 4))
SHAPE = quantise(shape_of(PROBLEM), 0.5).shape
STATES = state_space_of(SHAPE)


def test_a_horizon_of_nothing_is_refuted_at_once() -> None:
    assert FeasibilitySearch(STATES, 0).status == REFUTED


def test_a_search_goes_on_where_it_stopped() -> None:
    horizon = least_open(STATES, 0, 1_000, lambda: False)[0] + 4
    whole, steps = FeasibilitySearch(STATES, horizon), FeasibilitySearch(STATES, horizon)
    assert whole.go_on(10**9) == REACHED
    while steps.go_on(1) == OPEN:
        pass
    assert all(
        np.array_equal(a, b) for a, b in zip(whole.order(SHAPE).rank_ops, steps.order(SHAPE).rank_ops, strict=True)
    )
    assert whole.work == steps.work


def test_the_order_keeps_the_horizon_and_memory() -> None:
    horizon = least_open(STATES, 0, 1_000, lambda: False)[0] + 4
    question = FeasibilitySearch(STATES, horizon)
    question.go_on(10**9)
    run = replay_shape(SHAPE, question.order(SHAPE))
    assert run.makespan_s <= horizon
    assert np.all(run.peak_memory_bytes <= SHAPE.budget_r * (1 + 1e-9))


def test_a_gradient_exchange_off_the_links_ends_within_the_horizon() -> None:
    """A single rank: F, B, W twice, then the exchange of 2.5 s."""
    stage = {"forward_s": 1, "input_grad_s": 1, "weight_grad_s": 1, "gradient_sync_s": 2.5}
    state_space = state_space_of(quantise(shape_of(pipeline(1, 2, stages=[stage])), 0.5).shape)
    assert least_open(state_space, 0, 100, lambda: False)[0] == 17


def test_stopped_at_once_nothing_is_refuted() -> None:
    assert least_open(STATES, 0, 1_000, lambda: True) == (0, 0)


def test_memory_keeps_the_state_space_small() -> None:
    """Unlimited: x >= y >= z of four jobs are 35 states; one activation at a time: 9 less."""
    free = num_states(state_space_of(quantise(shape_of(pipeline(1, 4)), 1.0).shape))
    tight = num_states(state_space_of(quantise(shape_of(pipeline(1, 4, ranks=budget(1, 1))), 1.0).shape))
    assert free == 35
    assert tight == 3 * 4 + 1


def test_what_is_reached_is_improved_to_the_optimum() -> None:
    """From a horizon far above it, closer and closer, until the rest is refuted."""
    least = least_open(STATES, 0, 1_000, lambda: False)[0]
    optimum = next(
        horizon for horizon in range(least, 1_000) if FeasibilitySearch(STATES, horizon).go_on(10**9) == REACHED
    )
    question = FeasibilitySearch(STATES, 3 * optimum)
    queues = question.improve(10**9)
    assert question.status == REFUTED
    assert question.horizon == optimum - 1
    assert queues is not None
    assert replay_shape(SHAPE, order_of(SHAPE, queues)).makespan_s == optimum


def test_lowered_in_the_midst_nothing_that_can_be_kept_is_lost() -> None:
    least = least_open(STATES, 0, 1_000, lambda: False)[0]
    optimum = next(
        horizon for horizon in range(least, 1_000) if FeasibilitySearch(STATES, horizon).go_on(10**9) == REACHED
    )
    question = FeasibilitySearch(STATES, optimum + 30)
    while question.go_on(2_000) == OPEN and question.horizon > optimum:
        question.lower(question.horizon - 1)
    question.lower(optimum)
    assert question.go_on(10**9) == REACHED
    assert replay_shape(SHAPE, question.order(SHAPE)).makespan_s == optimum
