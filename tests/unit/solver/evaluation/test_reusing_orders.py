"""Routes that are not the slowest take over an order; nobody else is scheduled differently for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.schedule import PipelineProblem
from solver.evaluation.scheduling import Timing, portfolio_timing, reusing_orders
from solver.pipeline.simulate import replay
from tests.pipelines import budget, cut, pipeline


class Asked:
    """A scheduler that counts its problems."""

    def __init__(self) -> None:
        self.problems: list[PipelineProblem] = []

    def __call__(self, problem: PipelineProblem) -> Timing | None:
        self.problems.append(problem)
        return portfolio_timing(problem, ("greedy",))


def routes(number: int, **changes: Any) -> list[PipelineProblem]:
    """One route in one place, the others cut ever earlier with ever longer delays."""
    base: dict[str, Any] = {"ranks": budget(4, 6), **changes}
    return [pipeline(**base)] + [pipeline(hops=[cut(k % 3, 0.01 * k, 0.1)], **base) for k in range(1, number)]


def test_many_routes_share_few_orders_and_none_ends_after_the_slowest() -> None:
    asked, problems = Asked(), routes(12)
    scheduler = reusing_orders(asked, problems)
    timings = [timing for one in problems if (timing := scheduler(one)) is not None]
    slowest_s = max(timing.end_s for timing in map(asked, list(asked.problems)) if timing is not None)
    assert len(set(map(id, asked.problems))) <= 4
    for problem, timing in zip(problems, timings, strict=True):
        assert timing.problem == problem
        assert timing.end_s <= slowest_s
        assert timing.end_s == replay(problem, timing.order).end.max()
        assert np.array_equal(timing.operation_ends_s(), replay(problem, timing.order).end)


def test_an_order_that_needs_more_memory_is_not_taken_over() -> None:
    problems = routes(6)
    tight = pipeline(ranks=budget(4, 1))
    timing = reusing_orders(Asked(), [*problems, tight])(tight)
    assert timing is not None
    assert np.all(timing.peak_memory_bytes <= 1 + 1e-9)


def test_few_routes_are_all_scheduled() -> None:
    asked, problems = Asked(), routes(3)
    scheduler = reusing_orders(asked, problems)
    for problem in problems:
        scheduler(problem)
        scheduler(problem)
    assert len(asked.problems) == 3
