"""A search outlives its database: what it finds waits, and nothing is searched twice for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.documents import canonical
from app.jobs.search import search
from app.jobs.worker import Worker
from app.storage.migrations import create_tables
from app.storage.plans import NewPlan, PlanStore
from app.storage.queue import PlanQueue
from app.storage.tables import create_engine
from app.storage.workers import WorkerStore
from models.request import PlanRequest
from tests.unit.app import fake_solver
from tests.unit.app.programs import await_
from tests.unit.app.service_fixture import request_for, running, settings_for, submit
from tests.unit.app.taking import take

OUTAGE = sa.exc.OperationalError("any statement", {}, Exception("the server is gone"))


def _text(case: int) -> bytes:
    return canonical(PlanRequest.model_validate(request_for(case)))


def _failing(times: int, action: Callable[..., Any]) -> Callable[..., Any]:
    left = [times]

    def act(*args: Any, **kwargs: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            raise OUTAGE
        return action(*args, **kwargs)

    return act


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    """A fresh database."""
    made = create_engine(settings_for(tmp_path).database_url)
    create_tables(made)
    yield made
    made.dispose()


def test_a_search_goes_on_without_the_database_and_keeps_its_news(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, queue = PlanStore(engine), PlanQueue(engine)
    plan_id = store.insert(NewPlan(_text(fake_solver.CRASHES), "d", None)).id
    claim = take(engine, "w")
    monkeypatch.setattr(queue, "record", _failing(3, queue.record))
    monkeypatch.setattr(queue, "is_wanted", _failing(2, queue.is_wanted))
    ended = search(queue, settings_for(tmp_path), claim, leaving=lambda: False)
    assert ended is not None
    assert (ended.state, ended.reason) == ("incomplete", "crashed")
    assert b'"iteration_s":2.0' in (ended.outcome or b"")
    row = store.get(plan_id)
    assert row is not None
    assert b'"iteration_s":2.0' in (row.headline or b""), "what could not be stored was stored later"


def test_a_defect_is_no_outage(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, queue = PlanStore(engine), PlanQueue(engine)
    store.insert(NewPlan(_text(fake_solver.FINDS), "d", None))
    claim = take(engine, "w")  # of a plan that nobody wants the child might be stopped before it says anything
    wrong = sa.exc.ProgrammingError("any statement", {}, Exception("no such column"))
    monkeypatch.setattr(queue, "record", lambda *_args, **_kwargs: (_ for _ in ()).throw(wrong))
    with pytest.raises(sa.exc.ProgrammingError):
        search(queue, settings_for(tmp_path), claim, leaving=lambda: False)


@pytest.mark.parametrize("method", ["claim", "waiting", "held_by", "finish", "record", "is_wanted"])
def test_a_statement_that_fails_for_a_while_costs_no_attempt(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    settings = settings_for(tmp_path, heartbeat_s=0.05)
    store = PlanStore(engine)
    monkeypatch.setattr(PlanQueue, method, _failing(3, getattr(PlanQueue, method)))
    with _working(settings, engine):
        plan_id = store.insert(NewPlan(_text(fake_solver.FINDS), "d", None)).id
        row = await_(lambda: (found := store.get(plan_id)) and found.is_terminal and found, "ended")
    assert (row.state, row.attempt) == ("succeeded", 1)
    assert [kind for _, kind, _, _ in store.events(plan_id, after=0)].count("done") == 1


def test_a_worker_of_a_service_begins_as_soon_as_the_database_lets_it(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkerStore, "enter", _failing(3, WorkerStore.enter))
    settings, store = settings_for(tmp_path, heartbeat_s=0.05), PlanStore(engine)
    with pytest.raises(sa.exc.OperationalError):
        Worker(settings, engine).start()
    plan_id = store.insert(NewPlan(_text(fake_solver.FINDS), "d", None)).id
    worker = Worker(settings, engine)
    worker.start(patiently=True)
    try:
        await_(lambda: (found := store.get(plan_id)) and found.state == "succeeded", "ended")
    finally:
        worker.stop()


def test_a_worker_that_never_began_can_be_stopped(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkerStore, "enter", _failing(1_000, WorkerStore.enter))
    worker = Worker(settings_for(tmp_path, heartbeat_s=0.05), engine)
    worker.start(patiently=True)
    worker.stop()
    assert PlanQueue(engine).beats() == {}


def test_what_an_earlier_attempt_found_is_kept_by_one_that_finds_nothing(engine: sa.Engine, tmp_path: Path) -> None:
    queue, settings = PlanQueue(engine), settings_for(tmp_path)
    PlanStore(engine).insert(NewPlan(_text(fake_solver.CRASHES), "d", None))
    first = take(engine, "w")
    search(queue, settings, first, leaving=lambda: False)
    assert queue.give_back(first.plan_id, first.lease, counts=True, why="a test")
    second = take(engine, "w")
    assert (second.lease, second.attempt) == (2, 2)
    attempt = replace(second, request=_text(fake_solver.NOT_FOUND))
    ended = search(queue, settings, attempt, leaving=lambda: False)
    assert ended is not None
    assert b'"complete":false' in (ended.outcome or b""), "a plan, and not the end of the search that found it"


@contextmanager
def _working(settings: Any, engine: sa.Engine) -> Iterator[None]:
    worker = Worker(settings, engine)
    worker.start()
    try:
        yield
    finally:
        worker.stop()


def test_a_full_disk_is_told_and_survived(tmp_path: Path) -> None:
    with running(settings_for(tmp_path, heartbeat_s=0.1, num_concurrent_solves=2)) as client:
        engine = client.app.state.service.engine  # type: ignore[attr-defined]
        held = submit(client, fake_solver.UNTIL_STOPPED, time_limit_s=300.0).headers["location"]
        await_(lambda: b"incumbent_s" in client.get(f"{held}/status").content, "searching")
        limit = _Limit(engine)
        limit.pages = 1
        answers = [submit(client, fake_solver.UNTIL_STOPPED, time_limit_s=300.0) for _ in range(40)]
        kept = next(number for number, one in enumerate(answers) if one.status_code == 503)  # pages have space left
        refused = answers[kept:]
        assert kept < 20
        assert {one.status_code for one in refused} == {503}
        assert refused[0].json()["code"] == "not-ready"
        assert "retry-after" in refused[0].headers
        assert client.get(held).json()["state"] == "running", "what is stored can be read"
        limit.pages = 1_000_000
        for one in answers[:kept]:
            client.post(f"{one.headers['location']}:cancel")
        assert submit(client, fake_solver.FINDS, wait_s=60).json()["state"] == "succeeded"
        client.post(f"{held}:cancel")
        await_(lambda: client.get(held).json()["state"] == "cancelled", "cancelled")
        assert client.get(held).json()["attempt"] == 1
        assert len(client.get("/v1/plans").json()["items"]) == 2 + kept, "what was refused is not half there"


class _Limit:
    """Lets a database file grow only to so many pages; SQLite then says what it says of a full disk."""

    def __init__(self, engine: sa.Engine) -> None:
        self.pages = 1_000_000
        sa.event.listen(engine, "checkout", self._apply)

    def _apply(self, connection: Any, _record: Any, _proxy: Any) -> None:
        connection.execute(f"PRAGMA max_page_count={self.pages}")
