"""Rows of plans change state only once, and only at the hand of who may."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.storage.calibrations import CalibrationStore
from app.storage.migrations import IncompatibleDatabase, create_tables
from app.storage.plans import NewPlan, PlanStore
from app.storage.queue import PlanQueue
from app.storage.queue_figures import QueueFigures
from app.storage.searches import delete_kept_before, keep_state, kept_search
from app.storage.studies import NewStudy, StudyStore
from app.storage.tables import PLANS, SCHEMA, create_engine
from tests.unit.app.taking import take


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    """A fresh database."""
    made = create_engine(f"sqlite:///{tmp_path / 'x.sqlite'}")
    create_tables(made)
    yield made
    made.dispose()


def _new(store: PlanStore, key: str | None = None) -> str:
    return store.insert(NewPlan(b"{}", "d", key)).id


def test_a_plan_that_is_not_admitted_is_not_there(engine: sa.Engine) -> None:
    store = PlanStore(engine)

    def refuse(_connection: sa.Connection) -> None:
        raise RuntimeError("too much is under way")

    with pytest.raises(RuntimeError):
        store.insert(NewPlan(b"{}", "d", None), refuse)
    assert store.page(limit=10, before=None) == []


def test_the_longest_key_of_the_longest_owner_fits_its_column(engine: sa.Engine) -> None:
    """What Postgres refuses, SQLite takes: the length is asked for."""
    owner, keys = "o" * 40, ["question:" + "k" * 254 + last for last in "ab"]
    store = PlanStore(engine, kind="question")
    made = [store.insert(NewPlan(b"{}", "d", key, kind="question", owner=owner)).id for key in keys]
    assert [store.by_key(owner, key) for key in keys] == [(one, "d") for one in made]
    with engine.connect() as connection:
        stored = connection.execute(sa.select(PLANS.c.idempotency_key)).scalars().all()
    assert max(map(len, stored)) <= PLANS.c.idempotency_key.type.length


def test_a_key_belongs_to_one_plan(engine: sa.Engine) -> None:
    store = PlanStore(engine)
    plan_id = _new(store, "k")
    with pytest.raises(sa.exc.IntegrityError):
        _new(store, "k")
    assert store.by_key("", "k") == (plan_id, "d")


def test_finished_plans_are_removed_by_age(engine: sa.Engine) -> None:
    now = [100.0]
    store, queue = PlanStore(engine, clock=lambda: now[0]), PlanQueue(engine, clock=lambda: now[0])
    old, running = _new(store), _new(store)
    take(engine, "a")
    take(engine, "a")
    queue.finish(old, 1, "succeeded", "finished", outcome=None, fault=None)
    assert store.delete_finished_before(100.0) == 0
    assert store.delete_finished_before(101.0) == 1
    assert store.get(running) is not None
    assert store.events(old, after=0) == []


def test_a_database_of_another_version_is_refused(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(sa.update(SCHEMA).values(version=99))
    with pytest.raises(IncompatibleDatabase, match="version 99"):
        create_tables(engine)


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        made = create_engine(f"sqlite:///{tmp_path / 'new' / 'y.sqlite'}")
        create_tables(made)
        with made.begin() as connection:
            connection.execute(sa.update(SCHEMA).values(version=SCHEMA.c.version))
            modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "new").iterdir()}
        made.dispose()
    finally:
        os.umask(old)
    assert modes == {"y.sqlite": 0o600, "y.sqlite-wal": 0o600, "y.sqlite-shm": 0o600}


def test_a_current_database_is_opened_without_a_write(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA query_only=ON")
    statements: list[str] = []
    sa.event.listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    create_tables(engine)
    assert [one for one in statements if one.split()[0].upper() not in ("SELECT", "PRAGMA")] == []


def test_a_removed_study_leaves_nothing(engine: sa.Engine) -> None:
    studies, plans = StudyStore(engine), PlanStore(engine)
    members = {number: NewPlan(b"{}", "d", None) for number in range(3)}
    row = studies.insert(NewStudy(owner="", request_digest="d", name="", members=b"[]"), members, lambda _: None)
    ids = [plan.id for plan in studies.plans_of(row.id).values()]
    prepared = NewPlan(b"{}", "d", None, kind="question", parent_id=ids[0], objective="what_if_lost")
    asked = PlanStore(engine, kind="question").insert(prepared).id
    with engine.begin() as connection:
        for one in ids:
            keep_state(connection, one, b"state", "program", 0.0)
    statements: list[str] = []
    sa.event.listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    assert studies.delete(row.id, owner=None)
    # Whoever writes an event locks its plan first. So plans go first: what is written meanwhile is removed after.
    removed = [one.split()[2] for one in statements if one.startswith("DELETE")]
    removed_after = ["isthmus_events", "isthmus_webhooks", "isthmus_searches", "isthmus_events", "isthmus_plans"]
    assert removed == ["isthmus_studies", "isthmus_plans", *removed_after]
    assert [plans.events(one, after=0) for one in (*ids, asked)] == [[], [], [], []]
    with engine.connect() as connection:
        assert [kept_search(connection, one) for one in ids] == [None, None, None]
        assert connection.execute(sa.select(PLANS.c.id)).all() == []


def test_what_a_search_kept_goes_with_age_once_its_plan_has_ended_or_is_gone(engine: sa.Engine) -> None:
    going = _new(PlanStore(engine))
    with engine.begin() as connection:
        for one in (going, "plan_of_a_study_that_was_removed_before"):
            keep_state(connection, one, b"state", "program", 1.0)
    assert delete_kept_before(engine, 1.0) == 0
    assert delete_kept_before(engine, 2.0) == 1
    with engine.connect() as connection:
        assert kept_search(connection, going) is not None


def test_calibrations_have_a_number_and_an_age(engine: sa.Engine) -> None:
    now = [100.0]
    store = CalibrationStore(engine, clock=lambda: now[0])
    first = [store.insert("a", b"{}", most=2) for _ in range(3)]
    assert [one is None for one in first] == [False, False, True]
    assert store.insert("b", b"{}", most=2) is not None, "another owner"
    now[0] = 200.0
    assert (store.delete_older_than(150.0), store.page(limit=9, before=None, owner=None)) == (3, [])


def test_a_write_ahead_log_that_somebody_removes_takes_only_what_was_in_it(tmp_path: Path) -> None:
    """A program is killed, its `-wal` is deleted: what SQLite had put into the file is there, whole, and goes on."""
    engine = create_engine(f"sqlite:///{tmp_path / 'x.sqlite'}")
    create_tables(engine)
    before = _new(PlanStore(engine))
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    _new(PlanStore(engine))
    assert (tmp_path / "x.sqlite-wal").stat().st_size > 0
    shutil.copy(tmp_path / "x.sqlite", tmp_path / "left.sqlite")  # as a crash leaves it, without its log
    engine.dispose()
    left = create_engine(f"sqlite:///{tmp_path / 'left.sqlite'}")
    create_tables(left)
    with left.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
    store = PlanStore(left)
    assert [row.id for row in store.page(limit=10, before=None)] == [before]
    assert len(store.events(before, after=0)) == 1
    _new(store)
    assert QueueFigures(left).count("queued") == 2
    left.dispose()
