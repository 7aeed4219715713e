"""Rows of plans change state only once, and only at the hand of who may."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.storage.migrations import IncompatibleDatabase, create_tables
from app.storage.plans import NewPlan, PlanStore
from app.storage.queue import PlanQueue
from app.storage.tables import SCHEMA, create_engine
from tests.unit.app.taking import take


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    """A fresh database."""
    made = create_engine(f"sqlite:///{tmp_path / 'x.sqlite'}")
    create_tables(made)
    yield made
    made.dispose()


def _new(store: PlanStore, key: str | None = None) -> str:
    return store.insert(NewPlan(b"{}", "d", key))


def test_a_plan_that_is_not_admitted_is_not_there(engine: sa.Engine) -> None:
    store = PlanStore(engine)

    def refuse(_connection: sa.Connection) -> None:
        raise RuntimeError("too much is under way")

    with pytest.raises(RuntimeError):
        store.insert(NewPlan(b"{}", "d", None), refuse)
    assert store.page(limit=10, before=None, state=None) == []


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
