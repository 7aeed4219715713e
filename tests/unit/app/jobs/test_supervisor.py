"""Whoever held a plan and lost it, however it was lost: it is searched again, and never by two who may write."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.documents import canonical
from app.jobs.supervisor import Supervisor
from app.jobs.worker import Worker
from app.settings import Settings
from app.storage.migrations import create_tables
from app.storage.plans import NewPlan, PlanRow, PlanStore
from app.storage.queue import PlanQueue
from app.storage.tables import create_engine
from app.storage.workers import WorkerStore
from models.request import PlanRequest
from tests.unit.app import fake_solver
from tests.unit.app.programs import await_
from tests.unit.app.service_fixture import request_for, settings_for
from tests.unit.app.taking import take


def _request(case: int) -> bytes:
    return canonical(PlanRequest.model_validate(request_for(case)))


REQUEST = _request(fake_solver.FINDS)
LOST = sa.exc.OperationalError("commit", {}, Exception("the answer was lost"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Short times: a worker is silent after eight looks."""
    return settings_for(tmp_path, heartbeat_s=0.05, dead_worker_s=0.4)


@pytest.fixture
def engine(settings: Settings) -> Iterator[sa.Engine]:
    """A fresh database."""
    made = create_engine(settings.database_url)
    create_tables(made)
    yield made
    made.dispose()


@contextmanager
def _working(settings: Settings, engine: sa.Engine) -> Iterator[Worker]:
    worker = Worker(settings, engine)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


def _ended(store: PlanStore, plan_id: str) -> PlanRow:
    row: PlanRow = await_(lambda: (found := store.get(plan_id)) and found.is_terminal and found, "ended")
    assert [kind for _, kind, _, _ in store.events(plan_id, after=0)].count("done") == 1
    return row


def _reasons(store: PlanStore, plan_id: str) -> list[bytes]:
    return [data for _, kind, _, data in store.events(plan_id, after=1) if kind == "state" and b"queued" in data]


def test_a_claim_whose_answer_was_lost_is_given_back_and_costs_no_attempt(
    settings: Settings, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, lost = PlanQueue.claim, []

    def claim_and_lose(*args: Any, **kwargs: Any) -> Any:
        found = claim(*args, **kwargs)
        if found is not None and not lost:
            lost.append(found)
            raise LOST
        return found

    monkeypatch.setattr(PlanQueue, "claim", claim_and_lose)
    store = PlanStore(engine)
    plan_id = store.insert(NewPlan(REQUEST, "d", None)).id
    with _working(settings, engine):
        row = _ended(store, plan_id)
    assert (len(lost), row.state, row.attempt) == (1, "succeeded", 1)
    assert _reasons(store, plan_id) == [b'{"state":"queued","reason":"its worker had not heard of it"}']


def test_an_end_whose_answer_was_lost_is_stored_once(
    settings: Settings, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, answers = PlanQueue.finish, []

    def finish_and_lose(*args: Any, **kwargs: Any) -> bool:
        answers.append(finish(*args, **kwargs))
        if len(answers) == 1:
            raise LOST
        return answers[-1]

    monkeypatch.setattr(PlanQueue, "finish", finish_and_lose)
    store = PlanStore(engine)
    plan_id = store.insert(NewPlan(REQUEST, "d", None)).id
    with _working(settings, engine):
        row = _ended(store, plan_id)
        await_(lambda: len(answers) == 2, "repeated")
    assert (row.state, row.attempt, answers) == ("succeeded", 1, [True, False])


def test_a_search_that_meets_a_defect_is_given_back_and_counts(
    settings: Settings, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any, **_kwargs: Any) -> Any:
        raise ZeroDivisionError("a defect of ours")

    monkeypatch.setattr("app.jobs.worker.search", fail)
    store = PlanStore(engine)
    plan_id = store.insert(NewPlan(REQUEST, "d", None)).id
    with _working(settings.model_copy(update={"max_attempts": 2}), engine):
        row = _ended(store, plan_id)
    assert (row.state, row.stop_reason, row.attempt) == ("failed", "attempts", 3)
    assert _reasons(store, plan_id) == [b'{"state":"queued","reason":"its worker met a defect"}'] * 2


def test_what_a_run_without_heartbeats_holds_is_taken_over(settings: Settings, engine: sa.Engine) -> None:
    """It left in good order, and its last claim arrived after that."""
    store = PlanStore(engine)
    plan_id = store.insert(NewPlan(REQUEST, "d", None)).id
    take(engine, "left for good")
    with _working(settings, engine):
        row = _ended(store, plan_id)
    assert (row.state, row.attempt) == ("succeeded", 2)
    assert _reasons(store, plan_id) == [b'{"state":"queued","reason":"its worker went silent"}']


def test_a_worker_that_is_started_anew_goes_on_at_once(settings: Settings, engine: sa.Engine) -> None:
    store, patient = PlanStore(engine), settings.model_copy(update={"dead_worker_s": 1e6})
    plan_id = store.insert(NewPlan(REQUEST, "d", None)).id
    WorkerStore(engine).enter("an earlier run", settings.worker_id)
    take(engine, "an earlier run")
    with _working(patient, engine):
        assert _ended(store, plan_id).attempt == 2
    assert _reasons(store, plan_id) == [b'{"state":"queued","reason":"its worker was started anew"}']


def test_the_plan_of_a_living_worker_is_left_alone_whatever_the_clocks_say(
    settings: Settings, engine: sa.Engine
) -> None:
    store, workers = PlanStore(engine), WorkerStore(engine, clock=lambda: -1e9)  # its clock is decades behind
    plan_id = store.insert(NewPlan(REQUEST, "d", None)).id
    workers.enter("run n", "neighbour")
    take(engine, "run n")
    supervisor = Supervisor(settings, engine, "an observer")
    for number in range(1, 40):
        workers.beat("run n", "neighbour", number)
        supervisor.once()
    held = store.get(plan_id)
    assert held is not None
    assert held.state == "running"
    for _ in range(8):
        supervisor.once()
    row = store.get(plan_id)
    assert row is not None
    assert row.state == "queued"


def test_an_observer_that_was_away_has_not_looked_meanwhile(settings: Settings, engine: sa.Engine) -> None:
    store = PlanStore(engine)
    plan_id = store.insert(NewPlan(REQUEST, "d", None)).id
    WorkerStore(engine).enter("run n", "neighbour")
    take(engine, "run n")
    supervisor = Supervisor(settings, engine, "an observer")
    supervisor.once()
    supervisor.once()  # an hour later: both were away, and the neighbour is the second to be back
    row = store.get(plan_id)
    assert row is not None
    assert row.state == "running"


def test_a_heartbeat_that_arrives_at_the_last_moment_counts(engine: sa.Engine) -> None:
    store, queue, workers = PlanStore(engine), PlanQueue(engine), WorkerStore(engine)
    store.insert(NewPlan(REQUEST, "d", None))
    workers.enter("run n", "neighbour")
    take(engine, "run n")
    seen = queue.beats()["run n"]
    workers.beat("run n", "neighbour", 1)
    assert queue.take_over("run n", seen) is None
    assert queue.take_over("run n", 1) != []


def test_a_worker_that_drains_goes_on_showing_that_it_lives(settings: Settings, engine: sa.Engine) -> None:
    """Its plans would be taken over otherwise, however long it was allowed to take."""
    draining, store, queue = settings.model_copy(update={"drain_s": 60.0}), PlanStore(engine), PlanQueue(engine)
    plan_id = store.insert(NewPlan(_request(fake_solver.UNTIL_STOPPED), "d", None)).id
    worker = Worker(draining, engine)
    worker.start()
    await_(lambda: (found := store.get(plan_id)) and found.headline, "searching")
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    (before,) = queue.beats().values()
    await_(lambda: next(iter(queue.beats().values())) >= (before or 0) + 3, "three heartbeats later")
    store.cancel(plan_id)
    stopping.join()
    row = store.get(plan_id)
    assert row is not None
    assert (row.state, row.attempt) == ("cancelled", 1)
    assert queue.beats() == {}
