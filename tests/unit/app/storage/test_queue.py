"""Plans are taken in turn, each by one worker, and only who holds a plan writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.storage.migrations import create_tables
from app.storage.plans import NewPlan, PlanStore
from app.storage.queue import PlanQueue
from app.storage.tables import create_engine
from app.storage.workers import WorkerStore
from tests.unit.app.taking import take


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    """A fresh database."""
    made = create_engine(f"sqlite:///{tmp_path / 'x.sqlite'}")
    create_tables(made)
    yield made
    made.dispose()


SECONDS = count()  # ids sort by milliseconds; here every plan has a second of its own


def _new(engine: sa.Engine, key_id: str = "", urgency: int = 3) -> str:
    second = float(next(SECONDS))
    return PlanStore(engine, clock=lambda: second).insert(NewPlan(b"{}", "d", None, key_id=key_id, urgency=urgency)).id


def _ends(engine: sa.Engine, plan_id: str) -> int:
    return [kind for _, kind, _, _ in PlanStore(engine).events(plan_id, after=0)].count("done")


def test_only_the_latest_lease_may_write(engine: sa.Engine) -> None:
    plan_id, queue = _new(engine), PlanQueue(engine)
    first = take(engine, "a")
    assert queue.take_over("a", None) == [plan_id]
    second = take(engine, "b")
    assert (first.lease, second.lease, second.attempt) == (1, 2, 2)
    assert not queue.record(plan_id, 1, "progress", b"{}")
    assert not queue.finish(plan_id, 1, "succeeded", "finished", outcome=b"{}", fault=None)
    assert not queue.give_back(plan_id, 1, counts=True, why="late")
    assert not queue.is_wanted(plan_id, 1)
    assert queue.finish(plan_id, 2, "succeeded", "finished", outcome=b"{}", fault=None)
    assert not queue.finish(plan_id, 2, "failed", "crashed", outcome=None, fault=None), "an end is final"
    assert not any(queue.waiting())
    assert _ends(engine, plan_id) == 1


def test_an_attempt_that_was_given_back_in_good_order_comes_again_and_its_lease_does_not(engine: sa.Engine) -> None:
    plan_id, queue = _new(engine), PlanQueue(engine)
    take(engine, "a")
    assert queue.give_back(plan_id, 1, counts=False, why="its worker left")
    assert queue.held_by("a") == {}
    again = take(engine, "b")
    assert (again.attempt, again.lease) == (1, 2)
    assert not queue.give_back(plan_id, 1, counts=False, why="repeated, because the answer was lost")
    assert queue.held_by("b") == {plan_id: 2}


def test_a_plan_that_was_to_stop_and_lost_its_worker_has_ended(engine: sa.Engine) -> None:
    plan_id, queue, store = _new(engine), PlanQueue(engine), PlanStore(engine)
    take(engine, "a")
    queue.record(plan_id, 1, "incumbent", b"{}", outcome=b"the best so far")
    store.cancel(plan_id)
    assert queue.take_over("a", None) == [plan_id]
    row = store.get(plan_id)
    assert row is not None
    assert (row.state, row.stop_reason, row.outcome) == ("cancelled", "cancelled", b"the best so far")
    assert row.finished_at is not None
    assert _ends(engine, plan_id) == 1


def test_a_cancel_that_races_the_end_leaves_one_end(engine: sa.Engine) -> None:
    plan_id, store = _new(engine), PlanStore(engine)
    take(engine, "a")
    store.cancel(plan_id)
    PlanQueue(engine).finish(plan_id, 1, "succeeded", "finished", outcome=b"{}", fault=None)
    store.cancel(plan_id)
    row = store.get(plan_id)
    assert row is not None
    assert (row.state, row.cancel_requested, _ends(engine, plan_id)) == ("succeeded", True, 1)


def test_the_urgent_have_places_of_their_own_and_wait_for_nobody(engine: sa.Engine) -> None:
    _new(engine)
    urgent = _new(engine, urgency=0)
    assert PlanQueue(engine).waiting() == (True, True)
    assert take(engine, "a", urgent=True).plan_id == urgent
    assert PlanQueue(engine).waiting() == (False, True)


def test_of_one_key_the_most_urgent_goes_first_and_then_the_oldest(engine: sa.Engine) -> None:
    made = [_new(engine, "k", urgency) for urgency in (5, 2, 5, 2)]
    order = [take(engine, "a").plan_id for _ in made]
    assert order == [made[1], made[3], made[0], made[2]]


def test_every_key_has_its_turn(engine: sa.Engine) -> None:
    """Whoever has many plans waiting holds up nobody who has few."""
    for key, number in (("many", 12), ("some", 4), ("one", 1)):
        for _ in range(number):
            _new(engine, key)
    queue, served, order = PlanQueue(engine), {}, []
    while claim := queue.claim("a", "a", urgent=False, max_per_key=1000, served=served):
        served[claim.key_id] = len(order)
        order.append(claim.key_id)
        queue.finish(claim.plan_id, claim.lease, "succeeded", "finished", outcome=None, fault=None)
    assert set(order[:3]) == {"many", "some", "one"}
    assert Counter(order[:8]) == {"many": 4, "some": 3, "one": 1} or Counter(order[:8])["some"] == 4
    assert len(order) == 17


def test_the_limit_per_key_holds_over_all_workers(engine: sa.Engine) -> None:
    for _ in range(12):
        _new(engine, "k")
        _new(engine, "l")
    queue = PlanQueue(engine)

    def work(number: int) -> list[str]:
        claims = (queue.claim(f"w{number}", "w", urgent=False, max_per_key=2, served={}) for _ in range(4))
        return [one.key_id for one in claims if one]

    with ThreadPoolExecutor(6) as pool:
        taken = [key for keys in pool.map(work, range(6)) for key in keys]
    assert Counter(taken) == {"k": 2, "l": 2}


def test_many_workers_take_each_plan_once(engine: sa.Engine) -> None:
    made = [_new(engine) for _ in range(30)]
    queue = PlanQueue(engine)

    def work(number: int) -> list[str]:
        found = []
        while claim := queue.claim(f"w{number}", "w", urgent=False, max_per_key=1000, served={}):
            found.append(claim.plan_id)
        return found

    with ThreadPoolExecutor(6) as pool:
        taken = [one for found in pool.map(work, range(6)) for one in found]
    assert sorted(taken) == sorted(made)


def test_a_worker_that_leaves_holds_nothing_any_more(engine: sa.Engine) -> None:
    plan_id, workers = _new(engine), WorkerStore(engine)
    workers.enter("run 1", "w")
    take(engine, "run 1")
    workers.leave("run 1")
    assert PlanQueue(engine).beats() == {}
    assert take(engine, "run 2").plan_id == plan_id


def test_workers_heard_of_lately_are_counted(engine: sa.Engine) -> None:
    now = [100.0]
    workers = WorkerStore(engine, clock=lambda: now[0])
    workers.enter("run a", "a")
    now[0] = 120.0
    workers.enter("run b", "b")
    assert (workers.num_living(30.0), workers.num_living(10.0)) == (2, 1)
    workers.beat("run a", "a", 1)
    assert workers.num_living(10.0) == 2
    now[0] = 20.0
    assert workers.num_living(10.0) == 0, "the clock was set back, and nobody has shown itself since"
    workers.beat("run a", "a", 2)
    assert workers.num_living(10.0) == 1
