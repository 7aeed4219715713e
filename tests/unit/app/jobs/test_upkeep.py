"""Whatever the queue and the plans disagree about is found and mended: a plan is never left where nobody runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from dbos import DBOSClient

from app.documents import canonical
from app.jobs.queue import enqueue_plan, open_queue
from app.jobs.upkeep import Upkeep
from app.jobs.worker import Worker
from app.settings import Settings
from app.storage.attempts import AttemptStore
from app.storage.migrations import create_tables
from app.storage.plans import NewPlan, PlanRow, PlanStore
from app.storage.tables import create_engine
from app.storage.workers import WorkerStore
from models.request import PlanRequest
from tests.unit.app import fake_solver
from tests.unit.app.programs import await_
from tests.unit.app.service_fixture import request_for, settings_for

REQUEST = canonical(PlanRequest.model_validate(request_for(fake_solver.FINDS)))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Short times; the name of the worker is test-worker."""
    return settings_for(tmp_path, heartbeat_s=0.05, dead_worker_s=0.4)


@pytest.fixture
def engine(settings: Settings) -> Iterator[sa.Engine]:
    """A fresh database."""
    made = create_engine(settings.database_url)
    create_tables(made)
    yield made
    made.dispose()


@pytest.fixture
def client(engine: sa.Engine) -> Iterator[DBOSClient]:
    """The queue in it."""
    opened = open_queue(engine)
    yield opened
    opened.destroy()


@contextmanager
def _working(settings: Settings, engine: sa.Engine, client: DBOSClient) -> Iterator[None]:
    worker = Worker(settings, engine, client)
    worker.start()
    try:
        yield
    finally:
        worker.stop()


def _claim(engine: sa.Engine, plan_id: str, holder: str) -> None:
    """What a worker writes when it takes a plan from the queue."""
    claim = "UPDATE workflow_status SET status = 'PENDING', executor_id = :holder WHERE workflow_uuid = :plan_id"
    with engine.begin() as connection:
        assert connection.execute(sa.text(claim), {"holder": holder, "plan_id": plan_id}).rowcount == 1


def _ended(store: PlanStore, plan_id: str) -> PlanRow:
    row: PlanRow = await_(lambda: (found := store.get(plan_id)) and found.is_terminal and found, "ended")
    assert [kind for _, kind, _, _ in store.events(plan_id, after=0)].count("done") == 1
    return row


def _queued(engine: sa.Engine, client: DBOSClient) -> str:
    return PlanStore(engine).insert(NewPlan(REQUEST, "d", None), partial(enqueue_plan, client))


def test_a_plan_without_a_place_in_the_queue_gets_one(
    settings: Settings, engine: sa.Engine, client: DBOSClient
) -> None:
    store = PlanStore(engine)
    plan_id = store.insert(NewPlan(REQUEST, "d", None), lambda *_: None)
    with _working(settings, engine, client):
        assert _ended(store, plan_id).state == "succeeded"


def test_a_plan_whose_workflow_failed_is_searched_again(
    settings: Settings, engine: sa.Engine, client: DBOSClient
) -> None:
    store, plan_id = PlanStore(engine), _queued(engine, client)
    AttemptStore(engine).begin(plan_id, "somebody", plan_id)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE workflow_status SET status = 'ERROR'"))
    with _working(settings, engine, client):
        row = _ended(store, plan_id)
    assert (row.state, row.attempt) == ("succeeded", 2)


def test_a_claim_that_this_worker_never_heard_of_is_queued_again(
    settings: Settings, engine: sa.Engine, client: DBOSClient
) -> None:
    store = PlanStore(engine)
    with _working(settings, engine, client):
        plan_id = _queued(engine, client)
        done = _ended(store, plan_id)
        lost = store.insert(NewPlan(REQUEST, "d", None), lambda *_: None)
        # The answer to a claim that the database has written does not arrive: the row is ours and nothing runs.
        with engine.begin() as connection:
            enqueue_plan(client, connection, lost, NewPlan(REQUEST, "d", None).lane)
            claim = (
                "UPDATE workflow_status SET status = 'PENDING', executor_id = 'test-worker' WHERE workflow_uuid = :id"
            )
            connection.execute(sa.text(claim), {"id": lost})
        row = _ended(store, lost)
    assert (done.attempt, row.state, row.attempt) == (1, "succeeded", 1)


def test_the_claim_of_a_worker_that_left_in_good_order_is_taken_over(
    settings: Settings, engine: sa.Engine, client: DBOSClient
) -> None:
    """A worker that leaves has no heartbeat that could grow old; what it claimed in its last moment is still its."""
    store, plan_id = PlanStore(engine), _queued(engine, client)
    _claim(engine, plan_id, "left-for-good")
    with _working(settings, engine, client):
        assert _ended(store, plan_id).state == "succeeded"


def test_the_claim_of_a_living_worker_is_left_alone(
    settings: Settings, engine: sa.Engine, client: DBOSClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_id = _queued(engine, client)
    _claim(engine, plan_id, "neighbour")
    WorkerStore(engine).beat("neighbour")
    taken: list[Any] = []
    monkeypatch.setattr("dbos.DBOS._recover_pending_workflows", taken.append)
    upkeep = Upkeep(settings, engine, client, is_running=lambda _: False)
    upkeep.once()
    assert taken == []
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE isthmus_workers SET seen_at = seen_at - 60 WHERE id = 'neighbour'"))
    upkeep.once()
    assert taken == [["neighbour"]]


def test_after_a_silence_of_its_own_a_worker_gives_the_others_time(
    settings: Settings, engine: sa.Engine, client: DBOSClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_id = _queued(engine, client)
    _claim(engine, plan_id, "neighbour")
    now, taken = [1000.0], []
    monkeypatch.setattr("app.jobs.upkeep.time.monotonic", lambda: now[0])
    monkeypatch.setattr("dbos.DBOS._recover_pending_workflows", taken.append)
    patient = settings.model_copy(update={"dead_worker_s": 30.0})
    upkeep = Upkeep(patient, engine, client, is_running=lambda _: False)
    WorkerStore(engine).beat("neighbour")
    upkeep.once()
    now[0] += 60.0  # the database was away for both of them, and this one is the first to be back
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE isthmus_workers SET seen_at = seen_at - 60"))
    upkeep.once()
    assert taken == []
    for _ in range(16):
        now[0] += 2.0
        upkeep.once()
    assert taken[0] == ["neighbour"], "it did not show up in that time"


def test_ended_workflows_are_forgotten_and_plans_kept(
    settings: Settings, engine: sa.Engine, client: DBOSClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.jobs.upkeep.KEPT_WORKFLOWS", timedelta(hours=-1))
    store = PlanStore(engine)
    with _working(settings, engine, client):
        plan_id = _queued(engine, client)
        _ended(store, plan_id)
        await_(lambda: not client.list_workflows(load_input=False), "forgotten")
    assert store.get(plan_id) is not None
