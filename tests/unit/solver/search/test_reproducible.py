"""Reproducible mode counts work: on a fast or a slow machine, idle or busy, the plan is the same to the last byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from models.outcome import NotFound, Planned
from solver.planner import plan
from tests.build_job import FIXED, job

WIDE: dict[str, Any] = {**FIXED, "dp": [8], "vpp": [1, 2], "recompute": ["none", "full"]}


def ticking(step_s: float) -> Callable[[], float]:
    """A wall clock that goes on by the same step whenever somebody looks."""
    ticks: Iterator[int] = count()
    return lambda: step_s * next(ticks)


def answer(clock: Callable[[], float], **options: Any) -> Planned:
    request = job(
        allowed=WIDE, link={"latency_s": 0.01}, options={"reproducible": True, "time_limit_s": 8.0, **options}
    )
    outcome = plan(request, clock=clock)
    assert isinstance(outcome, Planned), outcome
    return outcome


def test_a_fast_and_a_slow_machine_give_the_same_bytes() -> None:
    fast, slow = answer(lambda: 0.0), answer(ticking(1e-5))
    assert fast.plan.model_dump_json() == slow.plan.model_dump_json()


def test_the_same_again_with_more_workers_in_the_request() -> None:
    one, four = answer(lambda: 0.0, workers=1), answer(lambda: 0.0, workers=4)
    assert one.plan.model_dump_json() == four.plan.model_dump_json()


def test_another_seed_is_still_within_the_gap_that_is_proven() -> None:
    one, other = answer(lambda: 0.0), answer(lambda: 0.0, seed=7)
    assert one.plan.proof.lower_bound_s <= other.plan.metrics.iteration_s


def test_the_time_limit_is_a_cap() -> None:
    request = job(allowed={}, options={"reproducible": True, "time_limit_s": 8.0})
    outcome = plan(request, clock=ticking(4.0))
    assert isinstance(outcome, NotFound) or not outcome.complete  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_machine_under_load_gives_the_same_bytes() -> None:
    import multiprocessing
    import time

    alone = answer(time.monotonic, time_limit_s=60.0, relative_gap=0.02)
    burners = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(3)]
    for one in burners:
        one.start()
    try:
        crowded = answer(time.monotonic, time_limit_s=60.0, relative_gap=0.02)
    finally:
        for one in burners:
            one.terminate()
    assert alone.plan.model_dump_json() == crowded.plan.model_dump_json()


def _burn() -> None:
    while True:
        pass
