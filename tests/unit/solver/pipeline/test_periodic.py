"""Steady states: shortest rounds that are known by hand, what no round may break, and what unrolling makes of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, islice, pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.first_schedules import quick_schedule
from models.schedule import PipelineProblem
from solver.pipeline.generators.list_scheduler import greedy_order, with_messages
from solver.pipeline.generators.list_scheduler_choice import GUIDED, Policy
from solver.pipeline.generators.periodic import SteadyState, busiest_s, steady_states
from solver.pipeline.generators.unrolling import guide_of, in_flight, orders_of, periodic, unrolled
from solver.pipeline.local_search.progress import PipelineSearch
from solver.pipeline.local_search.steady_states import repeat
from solver.pipeline.portfolio import candidates
from solver.pipeline.problem import PipelineShape, shape_of
from solver.pipeline.simulate import peak_memory_bytes, replay_shape
from solver.pipeline.solve import start
from tests.pipelines import budget, cut, pipeline, problems


def shortest(shape: PipelineShape, num_microbatches: int = 1, placings: int = 2000) -> SteadyState:
    spent = count()
    states = list(steady_states(shape, num_microbatches, seed=0, stop=lambda: next(spent) >= placings))
    assert all(late.length_s < early.length_s for early, late in pairwise(states))
    return states[-1]


def period_s(state: SteadyState) -> float:
    """Seconds per micro-batch."""
    return state.length_s / state.num_microbatches


def test_without_delays_the_period_is_the_work_of_a_rank() -> None:
    """Eight activations are what 1F1B needs, so nobody waits."""
    assert period_s(shortest(shape_of(pipeline(8, 32, ranks=budget(8, 8))))) == pytest.approx(3.0)


def test_a_link_that_is_busier_than_any_rank_sets_the_period() -> None:
    shape = shape_of(pipeline(4, 16, hops=[cut(0, 1.0, 2.5, "A-B"), cut(2, 1.0, 2.5, "A-B")]))
    assert busiest_s(shape) == pytest.approx(5.0)
    assert period_s(shortest(shape)) == pytest.approx(5.0)


@pytest.mark.parametrize(("delay_s", "activations"), [(4.0, 8), (8.0, 8), (8.0, 12)])
def test_memory_sets_the_period_where_delays_are_long(delay_s: float, activations: int) -> None:
    """A micro-batch lives 2 p + 1 + 2 d on rank 0 (F, way there and back, B, W) and at most K of them live there."""
    shape = shape_of(pipeline(8, 32, ranks=budget(8, activations), hops=[cut(3, delay_s)]))
    least_s = max(3.0, (2 * 8 + 1 + 2 * delay_s) / activations)
    found_s = min(period_s(shortest(shape, size)) for size in (1, 2, 3))
    assert least_s * (1 - 1e-9) <= found_s <= 1.2 * least_s


def test_two_micro_batches_in_a_round_lose_less_to_rounding() -> None:
    """Units of time and memory: B comes back at odd times, so rounds of three units meet themselves, of six do not."""
    shape = shape_of(pipeline(8, 32, ranks=budget(8, 8), hops=[cut(3, 2.0)]))
    assert period_s(shortest(shape, 2)) == pytest.approx(3.0)
    assert period_s(shortest(shape, 1)) > 3.5


@given(problems(max_ranks=3, max_microbatches=6))
@settings(max_examples=60, deadline=None)
def test_a_round_breaks_no_rule(problem: PipelineProblem) -> None:
    """Repeated for ever it never meets itself, keeps every delay, and its order runs within the period and memory."""
    shape = shape_of(problem.model_copy(update={"num_microbatches": 6}))
    shape = replace(shape, duration_ks=np.maximum(shape.duration_ks, 0.25))
    for size in (1, 2):
        spent = count()
        states = list(steady_states(shape, size, seed=1, stop=lambda spent=spent: next(spent) >= 40))
        for state in states[-1:]:
            assert period_s(state) >= busiest_s(shape) * (1 - 1e-6)
            assert_no_overlap(shape, state)
            assert_in_order(shape, state)
            assert_runs(shape, state)


def assert_no_overlap(shape: PipelineShape, state: SteadyState) -> None:
    for rank in range(shape.num_ranks):
        own = np.flatnonzero(shape.rank_of_s == rank)
        begins = state.start[:, own].ravel() % state.length_s
        lasts = np.repeat(shape.duration_ks[:, own].ravel(), state.num_microbatches)
        real = lasts > 0
        order = np.argsort(begins[real])
        begins, lasts = begins[real][order], lasts[real][order]
        gaps = np.append(begins[1:], begins[:1] + state.length_s) - begins - lasts
        assert gaps.min(initial=0.0) >= -1e-6 * state.length_s


def assert_in_order(shape: PipelineShape, state: SteadyState) -> None:
    near = 1e-6 * state.length_s
    end = state.start + shape.duration_ks[:, :, None]
    travels = (shape.transfer_s + shape.latency_s)[:-1, None]
    assert (state.start[0, 1:] >= end[0, :-1] + travels - near).all()
    assert (state.start[1, :-1] >= end[1, 1:] + travels - near).all()
    assert (state.start[1, -1] >= end[0, -1] - near).all()
    if shape.num_kinds == 3:
        assert (state.start[2] >= end[1] - near).all()


def assert_runs(shape: PipelineShape, state: SteadyState) -> None:
    orders = unrolled(shape, state, shape.num_kinds)
    for rank, operations in enumerate(orders):
        assert peak_memory_bytes(shape, operations) <= shape.budget_r[rank] * (1 + 1e-6)
    order = with_messages(shape, orders)
    assert order is not None
    if (shape.transfer_s == 0).all():  # else messages may take turns otherwise than in the round
        planned = guide_of(shape, state) + np.repeat(shape.duration_ks.ravel(), shape.num_microbatches)
        assert (replay_shape(shape, order).end <= planned + 1e-6 * planned.max()).all()


@given(problems(max_ranks=3, max_microbatches=8))
@settings(max_examples=40, deadline=None)
def test_every_unrolled_order_is_one_of_the_problem(problem: PipelineProblem) -> None:
    shape = shape_of(problem)
    state = next(iter(steady_states(shape, 1, seed=0, stop=lambda: False)), None)
    if state is None:
        assert busiest_s(shape) == 0 or np.isfinite(shape.budget_r).any()
        return
    assert (in_flight(shape, state) >= 1).all()
    for order in islice(orders_of(shape, state), 6):
        assert np.isfinite(replay_shape(shape, order).makespan_s)


def test_same_seed_same_rounds() -> None:
    shape = shape_of(pipeline(4, 16, chunks=2, ranks=budget(4, 3), hops=[cut(1, 2.0), cut(5, 2.0)]))
    one, two = shortest(shape), shortest(shape)
    assert (one.start == two.start).all()


def test_few_micro_batches_are_not_repeated() -> None:
    assert periodic(shape_of(pipeline(4, 7))) is None
    assert periodic(shape_of(pipeline(4, 8))) is not None


def test_it_wins_where_a_v_meets_delays_and_little_memory() -> None:
    hops = [cut(1, 1.0, 0.2, "A-B"), cut(5, 1.0, 0.2, "A-B")]
    problem = pipeline(4, 96, chunks=2, ranks=budget(4, 3), hops=hops)
    others = {one.name: one.value_s for one in candidates(shape_of(problem), problem.objective)}
    del others["periodic"]
    makespan_s = quick_schedule(problem, ("periodic",)).makespan_s
    assert makespan_s < 0.98 * others.pop("paced")
    assert makespan_s < 0.97 * min(others.values())


def test_a_search_takes_the_best_of_all_rounds() -> None:
    hops = [cut(1, 1.0, 0.2, "A-B"), cut(5, 1.0, 0.2, "A-B")]
    problem = pipeline(4, 96, chunks=2, ranks=budget(4, 3), hops=hops)
    ticks = count()
    search = PipelineSearch(problem, lambda: next(ticks) * 1e-3)
    start(search)
    before_s = search.value_s
    repeat(search, 5.0)
    assert search.value_s <= before_s
    assert search.generator == "periodic"


@given(st.randoms(use_true_random=False), st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_a_guide_that_never_idles_is_followed(random: Random, num_microbatches: int) -> None:
    """One rank, any order of F, B and W that data allows: the guided list scheduler runs it as it is."""
    shape = shape_of(pipeline(1, num_microbatches))
    done, sequence = [0, 0, 0], []
    while done[2] < num_microbatches:
        ready = [kind for kind in range(3) if done[kind] < (num_microbatches if kind == 0 else done[kind - 1])]
        kind = random.choice(ready)
        sequence.append(shape.operation_id(kind, 0, done[kind]))
        done[kind] += 1
    guide = np.zeros(shape.num_operations)
    guide[sequence] = np.arange(len(sequence))
    order = greedy_order(shape, Policy(GUIDED), guide=guide)
    assert order.rank_ops[0].tolist() == sequence
