"""A plan has one ticket: a workflow that was replaced, or came too late, cannot run it or give it away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Thread

import pytest
import sqlalchemy as sa

from app.storage.attempts import AttemptStore
from app.storage.migrations import create_tables
from app.storage.plans import NewPlan, PlanStore
from app.storage.tables import PLANS, create_engine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    """A fresh database."""
    made = create_engine(f"sqlite:///{tmp_path / 'x.sqlite'}")
    create_tables(made)
    yield made
    made.dispose()


@pytest.fixture
def plan_id(engine: sa.Engine) -> str:
    """A queued plan."""
    return PlanStore(engine).insert(NewPlan(b"{}", "d", None), lambda *_: None)


def test_the_workflow_that_was_replaced_runs_nothing(engine: sa.Engine, plan_id: str) -> None:
    attempts = AttemptStore(engine)
    assert attempts.begin(plan_id, "a", plan_id) == 1
    assert attempts.give_back(plan_id, 1, lambda _: "second")
    assert attempts.begin(plan_id, "a", plan_id) is None, "recovered after its worker had given the plan back"
    assert attempts.begin(plan_id, "b", "second") == 1, "leaving does not count"


def test_a_workflow_of_an_older_release_still_runs_its_plan(engine: sa.Engine, plan_id: str) -> None:
    with engine.begin() as connection:
        connection.execute(sa.update(PLANS).values(ticket=None))
    assert AttemptStore(engine).begin(plan_id, "a", f"{plan_id}.0123") == 1


def test_a_claimed_plan_is_handed_on_only_before_it_is_begun(engine: sa.Engine, plan_id: str) -> None:
    attempts = AttemptStore(engine)
    assert not attempts.hand_on(plan_id, "another", lambda _: "second")
    assert attempts.hand_on(plan_id, plan_id, lambda _: "second")
    assert attempts.begin(plan_id, "b", "second") == 1
    assert not attempts.hand_on(plan_id, "second", lambda _: "third"), "it runs"


def test_a_plan_is_rescued_only_if_nothing_happened_to_it(engine: sa.Engine, plan_id: str) -> None:
    attempts, plans = AttemptStore(engine), PlanStore(engine)
    seen = plans.open_plans()[plan_id]
    assert attempts.begin(plan_id, "a", plan_id) == 1
    assert not attempts.rescue(plan_id, seen, lambda _: "second")
    seen = plans.open_plans()[plan_id]
    assert attempts.rescue(plan_id, seen, lambda _: "second")
    assert not attempts.rescue(plan_id, seen, lambda _: "third"), "a second rescuer comes too late"
    assert attempts.begin(plan_id, "b", "second") == 2, "what ended without a word counts"
    assert attempts.finish(plan_id, 2, "succeeded", "finished", outcome=b"{}", fault=None)
    assert plans.open_plans() == {}


def test_a_queue_that_refuses_leaves_the_plan_with_its_holder(engine: sa.Engine, plan_id: str) -> None:
    attempts = AttemptStore(engine)
    attempts.begin(plan_id, "a", plan_id)

    def refuse(_connection: sa.Connection) -> str:
        raise RuntimeError("the queue is gone")

    with pytest.raises(RuntimeError):
        attempts.give_back(plan_id, 1, refuse)
    assert attempts.is_wanted(plan_id, 1)


def test_of_workers_that_begin_at_once_only_the_last_may_write(engine: sa.Engine, plan_id: str) -> None:
    attempts, gate = AttemptStore(engine), Barrier(4)
    numbers: list[int | None] = []

    def begin() -> None:
        gate.wait()
        numbers.append(attempts.begin(plan_id, "w", plan_id))

    threads = [Thread(target=begin) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(number or 0 for number in numbers) == [1, 2, 3, 4]
    ended = [
        attempts.finish(plan_id, number, "succeeded", "finished", outcome=b"{}", fault=None) for number in range(1, 5)
    ]
    assert ended == [False, False, False, True]
    assert [kind for _, kind, _, _ in PlanStore(engine).events(plan_id, after=0)].count("done") == 1
