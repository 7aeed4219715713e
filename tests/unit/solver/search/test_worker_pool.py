"""A search with others at work finds what it finds alone; who vanishes takes nothing along."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from models.outcome import Planned, Progress
from solver.baselines.policies import POLICIES
from solver.planner import plan
from solver.search.dispatcher import Defect
from solver.search.params import SearchParams
from solver.search.tasks import BaselineTask, EvaluateTask, ImproveTask, RefineBoundTask, SearchTask, topic_of
from solver.search.worker_pool import WorkerEvent
from tests.build_job import FIXED, job
from tests.unit.solver.search.toy_pool import ToyPool

WIDE: dict[str, Any] = {**FIXED, "pp": [2, 4], "dp": [4, 8], "recompute": ["none", "full"]}
REQUEST = job(
    batch=16,
    allowed=WIDE,
    link={"latency_s": 0.005},
    constraints={"framework": {"name": "plain", "schedules": ["one_f_one_b", "gpipe"]}},
    options={"time_limit_s": 60.0, "workers": 3, "relative_gap": 0},
)


def ticking(step_s: float = 2e-3) -> Callable[[], float]:
    """A clock that goes on by the same step whenever somebody looks: what takes long is what looks often."""
    ticks: Iterator[int] = count()
    return lambda: step_s * next(ticks)


AT_ONCE = SearchParams(alone_s=0.0)


def planned(pool: ToyPool | None, told: list[Progress] | None = None, params: SearchParams = AT_ONCE) -> Planned:
    outcome = plan(
        REQUEST,
        worker_pool=pool,
        clock=pool.clock if pool else ticking(),
        progress=[].append if told is None else told.append,
        params=params,
    )
    assert isinstance(outcome, Planned), outcome
    return outcome


def compared(found: Planned) -> list[tuple[str, float | None]]:
    return [(one.name, one.iteration_s) for one in found.plan.baselines]


@pytest.fixture(scope="module")
def alone() -> Planned:
    return planned(None)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_no_worse_than_alone(alone: Planned, size: int) -> None:
    pool = ToyPool(size, ticking())
    found = planned(pool)
    assert found.plan.metrics.iteration_s <= alone.plan.metrics.iteration_s * 1.001
    assert found.plan.proof.num_explored >= alone.plan.proof.num_explored
    assert found.plan.proof.lower_bound_s >= alone.plan.proof.lower_bound_s * 0.999
    assert compared(found) == compared(alone)
    assert {type(one) for one in pool.given} >= {EvaluateTask, BaselineTask, ImproveTask}
    assert (pool.begun, pool.shut_down) == (1, 1)


def test_nothing_is_tried_twice() -> None:
    pool = ToyPool(2, ticking())
    planned(pool)
    places = [one.index for one in pool.given if isinstance(one, EvaluateTask)]
    assert len(places) == len(set(places))
    refined = [each.indices for one in pool.given if isinstance(one, RefineBoundTask) for each in one.refinements]
    assert len(refined) == len(set(refined))
    assert not {index for index, *others in refined if not others} & set(places)


class CountingPool(ToyPool):
    """Remembers how many bounds waited to be refined at once, at most."""

    most_waiting: int = 0

    def submit(self, number: int, task: bytes, /, *, is_urgent: bool) -> None:
        super().submit(number, task, is_urgent=is_urgent)
        self.most_waiting = max(self.most_waiting, sum(isinstance(one, RefineBoundTask) for _, one in self._todo))


def test_several_bounds_are_refined_side_by_side() -> None:
    pool = CountingPool(1, ticking())
    planned(pool)
    assert 1 < pool.most_waiting <= AT_ONCE.queued / 2


def test_what_is_lost_once_has_its_turn_again(alone: Planned) -> None:
    seen: set[object] = set()

    def first_time(task: SearchTask) -> bool:
        topic = topic_of(task)
        is_new = topic not in seen
        seen.add(topic)
        return is_new

    told: list[Progress] = []
    found = planned(ToyPool(2, ticking(), first_time), told)
    assert found.plan.metrics.iteration_s <= alone.plan.metrics.iteration_s * 1.001
    assert compared(found) == compared(alone)
    assert any("ended unexpectedly; the others go on" in one.message for one in told)


def test_what_brings_down_its_bearer_twice_is_left_alone_and_stays_in_the_bound(alone: Planned) -> None:
    pool = ToyPool(2, ticking(), lambda task: isinstance(task, EvaluateTask))
    found = planned(pool)
    places = [one.index for one in pool.given if isinstance(one, EvaluateTask)]
    assert max(places.count(one) for one in places) == 2
    assert found.plan.proof.lower_bound_s <= alone.plan.metrics.iteration_s


def test_a_baseline_that_nobody_survives_says_so() -> None:
    pool = ToyPool(len(POLICIES), ticking(), lambda task: isinstance(task, BaselineTask) and task.policy == 1)
    found = planned(pool)
    assert "ended unexpectedly" in found.plan.baselines[1].reason
    assert sum("ended unexpectedly" in one.reason for one in found.plan.baselines) == 1


def test_when_all_are_gone_the_search_goes_on_alone(alone: Planned) -> None:
    told: list[Progress] = []
    pool = ToyPool(2, ticking(), lambda task: isinstance(task, BaselineTask | ImproveTask), num_spares=0)
    found = planned(pool, told)
    assert found.plan.metrics.iteration_s <= alone.plan.metrics.iteration_s * 1.001
    assert compared(found) == compared(alone)
    assert any("the search goes on alone" in one.message for one in told)


class FailingPool(ToyPool):
    """Says of every task that it failed."""

    def events(self, _wait_s: float, /) -> list[WorkerEvent]:
        """The traceback of a failure."""
        return [WorkerEvent("failed", self._todo.popleft()[0], b"ZeroDivisionError: there")] if self._todo else []


def test_a_defect_is_not_hidden() -> None:
    pool = FailingPool(1, ticking())
    with pytest.raises(Defect, match="ZeroDivisionError: there"):
        planned(pool)
    assert pool.shut_down == 1


def test_a_reproducible_search_asks_nobody() -> None:
    request = job(allowed=FIXED, options={"reproducible": True, "time_limit_s": 8.0, "workers": 4})
    pool = ToyPool(3, lambda: 0.0)
    plan(request, worker_pool=pool, clock=lambda: 0.0)
    assert (pool.begun, pool.given) == (0, [])


def test_a_search_that_is_soon_over_asks_nobody() -> None:
    pool = ToyPool(3, ticking())
    planned(pool, params=SearchParams(alone_s=1e9))
    assert pool.begun == 0


def test_a_cancelled_search_drops_what_is_underway() -> None:
    pool, seen = ToyPool(2, ticking()), list[Planned]()
    outcome = plan(
        REQUEST,
        worker_pool=pool,
        clock=pool.clock,
        incumbent=seen.append,
        cancelled=lambda: bool(seen),
        params=AT_ONCE,
    )
    assert isinstance(outcome, Planned)
    assert not outcome.complete
    assert pool.shut_down == 1
