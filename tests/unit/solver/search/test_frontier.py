"""The open configurations: priced in portions, and never bounded by less than what is priced."""

from __future__ import annotations

import pytest

import solver.frontier
from solver.frontier import Frontier
from solver.objective import Goal
from solver.space.enumerate import enumerate_space
from tests.build_job import context_of, job


@pytest.fixture
def frontier(monkeypatch: pytest.MonkeyPatch) -> Frontier:
    """Nothing priced yet; portions of a hundred configurations."""
    monkeypatch.setattr(solver.frontier, "MAX_ROWS_AT_ONCE", 100)
    monkeypatch.setattr(solver.frontier, "MAX_ROWS_LATER", 100)
    context = context_of(job(allowed={}))
    return Frontier(context, enumerate_space(context.request), Goal.of(context))


def priced(frontier: Frontier) -> int:
    """Configurations that have a bound of their own or do not fit."""
    return frontier.num_ruled_out(float("-inf"))


def test_time_up_leaves_the_rest_with_its_cheap_bound(frontier: Frontier) -> None:
    frontier.load(float("inf"), planned=True, stopped=lambda: True)
    assert priced(frontier) == 100
    assert not frontier.exhausted
    assert frontier.least_bound <= frontier.pending_bound < float("inf")


def test_without_a_stop_it_prices_all_that_may_hold_the_least_bound(frontier: Frontier) -> None:
    while frontier.load(float("inf"), planned=True):
        pass
    assert priced(frontier) > 100
    assert frontier.pending_bound >= float(frontier.bound.min())
