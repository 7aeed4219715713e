"""Tabu search keeps every rule, never gets worse, and reaches optima that greedy rules miss."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.first_schedules import quick_schedule
from models.schedule import PipelineProblem
from solver.pipeline.generators.registry import GENERATORS
from solver.pipeline.local_search.tabu import in_order, new_order, nodes_of, order_of, queue_of, tabu_orders
from solver.pipeline.local_search.tabu_steps import load
from solver.pipeline.problem import PipelineOrder, PipelineShape, shape_of
from solver.pipeline.simulate import replay_shape
from tests.pipelines import budget, cut, pipeline, problems


def chunks(number: int, shape: PipelineShape, start: PipelineOrder, target_s: float = 0.0) -> list[PipelineOrder]:
    """The orders of so many chunks."""
    calls = count()
    found = tabu_orders(shape, start, seed=1, target_s=target_s, stop=lambda: next(calls) >= number)
    return [order for order in found if order is not None]


@settings(max_examples=30, deadline=None)
@given(problems())
def test_orders_run_within_memory_and_get_better_each_time(problem: PipelineProblem) -> None:
    shape = shape_of(problem)
    start = GENERATORS["greedy"](shape)
    assert start is not None
    value_s = replay_shape(shape, start).makespan_s
    for order in chunks(2, shape, start):
        run = replay_shape(shape, order)
        assert (run.peak_memory_bytes <= shape.budget_r * (1 + 1e-9)).all()
        assert run.makespan_s < value_s
        value_s = run.makespan_s


@settings(max_examples=20, deadline=None)
@given(problems())
def test_an_order_survives_the_way_to_nodes_and_back(problem: PipelineProblem) -> None:
    shape = shape_of(problem)
    start = GENERATORS["greedy"](shape)
    assert start is not None
    nodes, of_message = nodes_of(shape)
    named = in_order(shape, start)
    again = order_of(shape, nodes, queue_of(named, of_message))
    for one, two in zip((*named.rank_ops, *named.channel_ops), (*again.rank_ops, *again.channel_ops), strict=True):
        assert np.array_equal(one, two)
    assert replay_shape(shape, named).makespan_s <= replay_shape(shape, start).makespan_s * (1 + 1e-12)


def test_two_cuts_on_one_link_reach_what_only_the_full_search_found() -> None:
    """From the best generator's 1F1B-like order down to less, within 1F1B's memory."""
    hops = [cut(0, 1.0, 1.0, "A-B"), cut(2, 1.0, 1.0, "A-B")]
    problem = pipeline(4, 8, ranks=budget(4, 4), hops=hops)
    shape, best_s = shape_of(problem), quick_schedule(problem).makespan_s
    start = GENERATORS["one_f_one_b"](shape)
    assert start is not None
    orders = chunks(6, shape, start)
    assert replay_shape(shape, orders[-1]).makespan_s <= best_s


def test_same_seed_same_orders() -> None:
    shape = shape_of(pipeline(4, 8, ranks=budget(4, 5), hops=[cut(1, 3.0, 0.5)]))
    start = GENERATORS["one_f_one_b"](shape)
    assert start is not None
    one, two = (chunks(3, shape, start) for _ in range(2))
    values = [[replay_shape(shape, order).makespan_s for order in orders] for orders in (one, two)]
    assert values[0] == values[1]


def test_the_target_ends_it_at_once() -> None:
    shape = shape_of(pipeline(4, 8))
    start = GENERATORS["one_f_one_b"](shape)
    assert start is not None
    assert chunks(3, shape, start, target_s=1e9) == []


@pytest.mark.parametrize("latency_s", [0.0, 4.0])
def test_published_optimum_of_two_buildings(latency_s: float) -> None:
    """p = 8, m = 16, F = B = W = 1, eight activations: 55 without delay; 2 d more per cut at least."""
    problem = pipeline(8, 16, ranks=budget(8, 8), hops=[cut(3, latency_s)])
    shape = shape_of(problem)
    start = GENERATORS["one_f_one_b"](shape)
    assert start is not None
    orders = chunks(8, shape, start, target_s=55.0 + 2 * latency_s)
    assert replay_shape(shape, orders[-1]).makespan_s < replay_shape(shape, start).makespan_s


def test_exchanges_of_a_link_of_their_own_are_served_as_they_get_ready() -> None:
    """From an order whose link serves the first stage, ready last, before the others."""
    syncs = [{"gradient_sync_s": 3.0, "gradient_sync_link": "x"}] * 4
    plain = pipeline(4, 8)
    stages = tuple(stage.model_copy(update=sync) for stage, sync in zip(plain.stages, syncs, strict=True))
    shape = shape_of(plain.model_copy(update={"stages": stages}))
    start = GENERATORS["one_f_one_b"](shape)
    assert start is not None
    backwards = PipelineOrder(start.rank_ops, tuple(np.sort(one) for one in start.channel_ops))
    first = chunks(1, shape, backwards)[0]
    assert replay_shape(shape, first).makespan_s <= replay_shape(shape, start).makespan_s
    assert replay_shape(shape, start).makespan_s < replay_shape(shape, backwards).makespan_s


def test_exchanges_off_the_links_count() -> None:
    plain = pipeline(4, 8)
    stages = (*plain.stages[:-1], plain.stages[-1].model_copy(update={"gradient_sync_s": 9.0}))
    shape, without = shape_of(plain.model_copy(update={"stages": stages})), shape_of(plain)
    start = GENERATORS["zb_h2"](shape)
    assert start is not None
    nodes, of_message = nodes_of(shape)
    value_s = load(nodes, new_order(nodes), queue_of(start, of_message))
    assert value_s == replay_shape(shape, start).makespan_s
    assert value_s > replay_shape(without, start).makespan_s


@settings(max_examples=60, deadline=None)
@given(problems())
def test_the_value_of_an_order_is_that_of_its_replay(problem: PipelineProblem) -> None:
    shape = shape_of(problem)
    start = GENERATORS["greedy"](shape)
    assert start is not None
    nodes, of_message = nodes_of(shape)
    work = new_order(nodes)
    value_s = load(nodes, work, queue_of(in_order(shape, start), of_message))
    again = order_of(shape, nodes, work.queue)
    assert value_s == pytest.approx(replay_shape(shape, again).makespan_s, rel=1e-12)
    assert value_s <= replay_shape(shape, start).makespan_s * (1 + 1e-12)
