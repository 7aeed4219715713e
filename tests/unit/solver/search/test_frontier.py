"""The open configurations: priced in portions, and never bounded by less than what is priced."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from solver.arrays import FloatArray
from solver.bounds.screening import screening_bounds
from solver.bounds.work import light_bound_s, lower_bounds, shape_bounds_s
from solver.configurations.enumerate import Space, enumerate_space
from solver.context import Context
from solver.cost.columns import FSDP
from solver.objective import Goal
from solver.search.choice import alike_configurations, least_refined
from solver.search.frontier import Frontier, begin_refining, give_up_refining
from solver.search.params import SearchParams
from tests.build_job import ARCHITECTURE, context_of, job, three_types


@pytest.fixture
def frontier() -> Frontier:
    """Nothing priced yet; portions of a hundred configurations."""
    context, params = context_of(job(allowed={})), SearchParams(first_portion=100, portion=100)
    return Frontier(context, enumerate_space(context.request), Goal.of(context), params=params)


def priced(frontier: Frontier) -> int:
    """Configurations that have a bound of their own or do not fit."""
    return len(frontier.space) - len(frontier.unpriced)


def test_a_portion_leaves_the_rest_with_its_cheap_bound(frontier: Frontier) -> None:
    assert frontier.load(float("inf"), planned=False) == 100
    assert priced(frontier) == 100
    assert not frontier.exhausted
    assert frontier.least_bound <= frontier.unpriced.least_value < float("inf")


def test_it_prices_all_that_may_hold_the_least_bound_portion_by_portion(frontier: Frontier) -> None:
    total = 0
    while num_bounded := frontier.load(float("inf"), planned=True):
        assert num_bounded <= 100
        total += num_bounded
    assert total >= priced(frontier) > 100
    assert frontier.unpriced.least_value >= float(frontier.bound.min())


def test_what_somebody_asks_for_is_priced_until_some_of_it_fits(frontier: Frontier) -> None:
    frontier.load(float("inf"), planned=False)
    considered = frontier.space.columns.sharding == FSDP
    assert frontier.load_for(considered) > 0
    assert considered[frontier.rows].any()
    nothing = np.zeros(len(frontier.space), dtype=np.bool_)
    assert frontier.load_for(nothing) == 0


def test_no_guess_is_below_what_is_proven(frontier: Frontier) -> None:
    while frontier.load(float("inf"), planned=True):
        continue
    assert len(frontier.rows) > 100
    assert np.all(frontier.pace_s >= frontier.seconds)
    assert np.all(frontier.guess >= frontier.bound * (1.0 - 1e-12))
    index, above_s = 3, float(2.0 * max(frontier.pace_s[3], frontier.guess[3]))
    frontier.raise_bound(index, above_s)
    assert frontier.pace_s[index] == above_s
    assert frontier.guess[index] == pytest.approx(above_s)


def test_the_first_portion_is_the_most_promising_one(frontier: Frontier) -> None:
    frontier.load(float("inf"), planned=False)
    best = float(frontier.guess.min())
    while frontier.load(float("inf"), planned=True):
        pass
    assert best <= 1.1 * float(frontier.guess.min())


def test_until_something_reaches_the_target_every_other_one_is_the_likeliest_to() -> None:
    context = context_of(job(allowed={}, objective={"kind": "fewest_gpus", "target_iteration_s": 1e3}))
    frontier = Frontier(context, enumerate_space(context.request), Goal.of(context))
    while frontier.load(float("inf"), planned=True):
        pass
    first = frontier.next(float("inf"), planned=False)
    assert first is not None
    frontier.explored.add(first)
    second = frontier.next(float("inf"), planned=False)
    third = frontier.next(float("inf"), planned=True)
    assert (first, second) == (int(np.argmin(frontier.guess)), int(np.argmin(frontier.pace_s)))
    assert third not in (first, second)
    assert frontier.pace_s[second] < frontier.pace_s[first]


def test_shapes_are_bounded_once_and_few_of_their_configurations_are_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of(job(allowed={}))
    space = enumerate_space(context.request)
    cutoff, left, worked = 1.05 * float(lower_bounds(context, space).iteration_s.min()), [], []
    for least_alike in (1.0, float("inf")):
        frontier = Frontier(context, space, Goal.of(context), params=SearchParams(least_alike=least_alike))
        bounded: list[int] = []
        monkeypatch.setattr("solver.search.frontier.shape_bounds_s", partial(_told, bounded))
        while frontier.unpriced.least_value < cutoff and frontier.load(cutoff, planned=True):
            pass
        left.append(sorted(frontier.rows[frontier.bound < cutoff].tolist()))
        worked.append((sum(bounded), priced(frontier), frontier.num_ruled_out(cutoff)))
    assert left[0] == left[1] != [], "what may beat the cutoff is the same"
    assert worked[0][0] > worked[1][0] == 0
    assert worked[0][1] < worked[1][1], "fewer are priced"
    assert len(space) - len(left[0]) >= worked[0][2] >= worked[1][2], "and no fewer are ruled out"


def _told(bounded: list[int], context: Context, space: Space) -> FloatArray:
    bounded.append(len(space))
    return shape_bounds_s(context, space)


def test_the_least_refined_bound_is_tried_and_other_shapes_before_the_same_again(frontier: Frontier) -> None:
    frontier.load(float("inf"), planned=False)
    assert least_refined(frontier, float("inf")) is None
    shapes = frontier.space.take(frontier.rows).pipeline_shapes()
    order = np.argsort(frontier.bound, kind="stable").tolist()
    first = order[0]
    same = next(one for one in order[1:] if (shapes[one] == shapes[first]).all())
    other = next(one for one in order[1:] if (shapes[one] != shapes[first]).any())
    for one in (first, same, other):
        frontier.set_refined((one,))
        frontier.bound[one] = 1.0
    frontier.bound[other] = 1.001
    assert least_refined(frontier, float("inf")) in (first, same)
    frontier.explored.add(first)
    assert least_refined(frontier, float("inf")) == other
    frontier.explored.add(other)
    assert least_refined(frontier, float("inf")) == same
    assert least_refined(frontier, 1.0) is None


def test_bounds_under_way_hold_up_no_others(frontier: Frontier) -> None:
    cutoff = float("inf")
    frontier.load(cutoff, planned=False)
    for one in range(len(frontier.rows)):
        frontier.set_refined((one, one))  # together with others alike: each has its own turn now
    order = np.argsort(frontier.bound, kind="stable").tolist()
    assert frontier.unrefined(cutoff, 1) == [(order[0],)]
    begin_refining(frontier, (order[0],))
    assert frontier.unrefined(cutoff, 1) == [(order[1],)], "it may be far above by now"
    give_up_refining(frontier, (order[0],))
    assert frontier.unrefined(cutoff, 1) == [(order[0],)]
    begin_refining(frontier, (order[0],))
    frontier.refining.clear()
    frontier.bound[order[0]] -= 1e-9
    assert frontier.unrefined(cutoff, 1) == [], "the least bound is refined"
    give_up_refining(frontier, (order[0],))
    assert frontier.unrefined(cutoff, 1) == [(order[0],)]


def test_where_types_are_mixed_what_holds_the_bound_is_refined_once_more() -> None:
    """For longer; and again where nobody does it any more."""
    allowed = {"tp": [2], "cp": [1], "micro_batch_sequences": [1], "recompute": ["none"]}
    context = three_types(ARCHITECTURE, hosts=4, batch=64, allowed=allowed)
    goal, cutoff = Goal.of(context), float("inf")
    frontier = Frontier(context, enumerate_space(context.request), goal)
    frontier.load(cutoff, planned=False)
    least = int(np.argmin(frontier.bound))
    frontier.set_refined((least, least))
    (alone,) = frontier.unrefined(cutoff, 1)
    assert alone == (least,)
    assert alike_configurations(frontier, alone, cutoff).effort == 1
    frontier.set_refined(alone)
    for _ in range(2):
        assert frontier.unrefined(cutoff, 1) == [alone]
        assert alike_configurations(frontier, alone, cutoff).effort == frontier.params.refine_longer > 1
        begin_refining(frontier, alone)
        assert alone not in frontier.unrefined(cutoff, 1), "it is under way"
        give_up_refining(frontier, alone)
        frontier.set_refined(alone)
    frontier.set_refined(alone)
    assert frontier.unrefined(cutoff, 1) == [], "no more is to be had from it"


def test_a_plan_does_not_wait_for_all_to_be_screened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solver.bounds.screening.BLOCK", 200)
    context = context_of(job(allowed={}))
    space = enumerate_space(context.request)
    params = SearchParams(first_look=400, first_portion=100, portion=100)
    frontier = Frontier(context, space, Goal.of(context), params=params)
    num_blocks = -(-len(space) // 200)
    assert num_blocks > 2
    frontier.load(float("inf"), planned=False)
    assert set(frontier.rows % num_blocks) <= {0, 1}
    assert frontier.unpriced.least_value == light_bound_s(context)
    frontier.load(float("inf"), planned=True)
    whole = screening_bounds(context, space)
    waiting = frontier.unpriced.rows
    assert np.all(frontier.unpriced.bound_s[waiting] >= whole.bound_s[waiting])
    assert frontier.unpriced.least_value > light_bound_s(context)


def test_where_nothing_screened_is_left_the_rest_is_screened_before_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solver.bounds.screening.BLOCK", 200)
    context = context_of(job(allowed={}))
    space = enumerate_space(context.request)
    params = SearchParams(first_look=200, first_portion=150, portion=150, growth=1)
    frontier = Frontier(context, space, Goal.of(context), params=params)
    num_blocks = -(-len(space) // 200)
    for _ in range(3):
        rows = frontier.unpriced.next_portion(150, planned=False)
    assert not set(rows % num_blocks) <= {0}
