"""A database of an older release is brought forward with everything in it, on SQLite; a newer one is refused."""

from __future__ import annotations

import gzip
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import sqlalchemy as sa

from app.documents import canonical
from app.jobs.worker import Worker
from app.storage.migrations import SCHEMA_VERSION, STEPS, IncompatibleDatabase, create_tables
from app.storage.plans import PlanStore
from app.storage.queue_figures import QueueFigures
from app.storage.tables import METADATA, SCHEMA, create_engine
from models.request import PlanRequest
from tests.unit.app import fake_solver
from tests.unit.app.programs import await_
from tests.unit.app.service_fixture import request_for, running, settings_for

# The tables as release 0.1.0 created them.
VERSION_1 = """
CREATE TABLE isthmus_schema (version INTEGER NOT NULL PRIMARY KEY);
CREATE TABLE isthmus_plans (
  id VARCHAR(40) NOT NULL PRIMARY KEY, state VARCHAR(16) NOT NULL, stop_reason VARCHAR(32), revision INTEGER NOT NULL,
  request BLOB NOT NULL, request_digest VARCHAR(80) NOT NULL, idempotency_key VARCHAR(300) UNIQUE,
  created_at FLOAT NOT NULL, started_at FLOAT, finished_at FLOAT, attempt INTEGER NOT NULL, worker_id VARCHAR(120),
  cancel_requested BOOLEAN NOT NULL, num_events INTEGER NOT NULL, progress BLOB, outcome BLOB, fault BLOB);
CREATE INDEX ix_isthmus_plans_state ON isthmus_plans (state);
CREATE TABLE isthmus_events (plan_id VARCHAR(40) NOT NULL, sequence INTEGER NOT NULL, kind VARCHAR(16) NOT NULL,
  at FLOAT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (plan_id, sequence));
CREATE TABLE isthmus_workers (id VARCHAR(120) NOT NULL PRIMARY KEY, seen_at FLOAT NOT NULL);
INSERT INTO isthmus_schema VALUES (1);
INSERT INTO isthmus_plans VALUES ('plan_old', 'succeeded', 'finished', 7, '{}', 'sha256:1', 'key-1', 1.0, 2.0, 3.0, 1,
  'w', 0, 1, NULL, '{"status":"planned"}', NULL);
INSERT INTO isthmus_events VALUES ('plan_old', 1, 'done', 3.0, '{}');
"""


@pytest.fixture
def old(tmp_path: Path) -> sa.Engine:
    """A database as the first release left it."""
    path = tmp_path / "old.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(VERSION_1)
    connection.close()
    return create_engine(f"sqlite:///{path}")


def _names(engine: sa.Engine, table: str) -> set[str | None]:
    found = sa.inspect(engine)
    return {one["name"] for one in found.get_columns(table)} | {one["name"] for one in found.get_indexes(table)}


def _version(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(sa.select(SCHEMA.c.version)).scalar_one())


def test_an_old_database_comes_forward_with_its_plans(old: sa.Engine) -> None:
    create_tables(old)
    assert _version(old) == SCHEMA_VERSION
    store = PlanStore(old)
    row = store.get("plan_old")
    assert row is not None
    assert (row.state, row.revision, row.owner, row.urgency) == ("succeeded", 7, "", 3)
    assert row.outcome in (b'{"status":"planned"}', '{"status":"planned"}')
    assert store.by_key("", "key-1") == ("plan_old", "sha256:1"), "the key still makes the same plan"
    assert len(store.events("plan_old", after=0)) == 1
    old.dispose()


@pytest.mark.parametrize("status", ["infeasible", "not_found"])
def test_a_search_that_ended_without_a_plan_gets_the_state_of_its_outcome(old: sa.Engine, status: str) -> None:
    with old.begin() as connection:
        connection.execute(
            sa.text("UPDATE isthmus_plans SET outcome = :outcome"), {"outcome": f'{{"status":"{status}"}}'}
        )
    create_tables(old)
    store = PlanStore(old)
    row = store.get("plan_old")
    assert row is not None
    assert (row.state, row.stop_reason, row.revision) == (status, "finished", 8)
    assert QueueFigures(old).count("succeeded") == 0
    (event,) = store.events("plan_old", after=0)
    assert status.encode() in bytes(event[3])
    old.dispose()


def test_it_has_every_column_and_index_of_a_new_one(old: sa.Engine, tmp_path: Path) -> None:
    create_tables(old)
    fresh = create_engine(f"sqlite:///{tmp_path / 'new.sqlite'}")
    create_tables(fresh)
    for table in METADATA.sorted_tables:
        migrated, made = sa.inspect(old), sa.inspect(fresh)
        assert {c["name"] for c in migrated.get_columns(table.name)} == {
            c["name"] for c in made.get_columns(table.name)
        }
        assert {i["name"] for i in migrated.get_indexes(table.name)} == {
            i["name"] for i in made.get_indexes(table.name)
        }
    for engine in (old, fresh):
        engine.dispose()


def test_a_second_migration_changes_nothing(old: sa.Engine) -> None:
    create_tables(old)
    create_tables(old)
    assert PlanStore(old).by_key("", "key-1") is not None
    old.dispose()


def test_a_step_that_fails_leaves_the_old_version(old: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.storage import migrations

    broken = {2: ("ALTER TABLE isthmus_plans ADD COLUMN owner VARCHAR(64)", "ALTER TABLE nowhere ADD COLUMN x INTEGER")}
    monkeypatch.setattr(migrations, "STEPS", broken)
    with pytest.raises(sa.exc.OperationalError):
        create_tables(old)
    assert _version(old) == 1
    monkeypatch.undo()
    create_tables(old)
    assert _version(old) == SCHEMA_VERSION, "and the migration can be tried again"
    old.dispose()


def test_a_newer_database_is_refused(old: sa.Engine) -> None:
    with old.begin() as connection:
        connection.execute(sa.update(SCHEMA).values(version=SCHEMA_VERSION + 1))
    with pytest.raises(IncompatibleDatabase, match=str(SCHEMA_VERSION + 1)):
        create_tables(old)
    old.dispose()


@pytest.mark.parametrize("_turn", range(8))
def test_programs_that_start_together_create_one_database(tmp_path: Path, _turn: int) -> None:
    together = Barrier(4)

    def start(_number: int) -> None:
        engine = create_engine(f"sqlite:///{tmp_path / 'new.sqlite'}")
        together.wait()
        create_tables(engine)
        engine.dispose()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, range(4)))
    engine = create_engine(f"sqlite:///{tmp_path / 'new.sqlite'}")
    assert set(METADATA.tables) <= set(sa.inspect(engine).get_table_names())
    engine.dispose()


def _at_version(folder: Path, version: int, rows: str) -> sa.Engine:
    """A database as a release with that schema left it, with rows of a plan that waits and of two that run."""
    path = folder / f"version-{version}.sqlite"
    steps = [statement for step in range(2, version + 1) for statement in STEPS[step]]
    with sqlite3.connect(path) as connection:
        connection.executescript(VERSION_1 + ";\n".join([*steps, f"UPDATE isthmus_schema SET version = {version}"]))
        connection.executescript(rows)
    connection.close()
    return create_engine(f"sqlite:///{path}")


LEASES = 5  # the version from which a running plan has a holder
COLUMNS = (
    "id, state, revision, request, request_digest, created_at, started_at, attempt, worker_id, cancel_requested, "
    "num_events"
)


@pytest.mark.parametrize("version", range(1, LEASES))
def test_plans_that_waited_or_ran_under_an_older_program_are_carried_over(tmp_path: Path, version: int) -> None:
    request = canonical(PlanRequest.model_validate(request_for(fake_solver.FINDS))).hex()
    rows = "".join(
        f"INSERT INTO isthmus_plans ({COLUMNS}) VALUES "
        f"('{plan}', '{state}', 4, x'{request}', 'd', 1.0, {began}, {attempt}, '{worker}', {cancelled}, 1);\n"
        f"INSERT INTO isthmus_events VALUES ('{plan}', 1, 'state', 1.0, '{{}}');\n"
        for plan, state, began, attempt, worker, cancelled in (
            ("plan_waits", "queued", "NULL", 0, "", 0),
            ("plan_runs", "running", 2.0, 1, "test-worker", 0),
            ("plan_stops", "running", 2.0, 1, "another", 1),
        )
    )
    engine = _at_version(
        tmp_path, version, rows + "INSERT INTO isthmus_workers (id, seen_at) VALUES ('test-worker', 1e12);"
    )
    create_tables(engine)
    store = PlanStore(engine)
    worker = Worker(settings_for(tmp_path), engine)
    worker.start()
    try:
        figures = QueueFigures(engine)
        await_(lambda: figures.count("queued") + figures.count("running") == 0, "all ended")
    finally:
        worker.stop()
    found = {row.id: row for row in store.page(limit=10, before=None)}
    ends = {name: (row.state, row.attempt) for name, row in found.items() if name != "plan_old"}
    assert ends == {"plan_waits": ("succeeded", 1), "plan_runs": ("succeeded", 2), "plan_stops": ("cancelled", 2)}
    assert all(
        [one[0] for one in store.events(row.id, after=0)] == list(range(1, row.num_events + 1))
        for row in found.values()
    )
    engine.dispose()


def test_a_program_of_the_version_before_can_begin_nothing_any_more(tmp_path: Path) -> None:
    """Its statements that begin a plan, or submit one, name a column that is gone."""
    engine = _at_version(tmp_path, 3, "")
    create_tables(engine)
    for statement in (
        "UPDATE isthmus_plans SET state = 'running' WHERE ticket = 'plan_old'",
        "INSERT INTO isthmus_plans (id, ticket) VALUES ('plan_new', 'plan_new')",
    ):
        with pytest.raises(sa.exc.OperationalError, match="ticket"), engine.begin() as connection:
            connection.execute(sa.text(statement))
    engine.dispose()


@pytest.mark.parametrize("version", [1, 2])
def test_what_a_service_of_that_time_left_behind_is_carried_over(tmp_path: Path, version: int) -> None:
    """A dump of its database in the middle of its work, queue library and all: three ended, one cancelled, two open."""
    dump = Path(__file__).parent / "data" / f"schema_{version}.sql.gz"
    with sqlite3.connect(tmp_path / "service.sqlite") as connection:
        connection.executescript(gzip.decompress(dump.read_bytes()).decode())
        assert connection.execute("SELECT version FROM isthmus_schema").fetchone() == (version,)
    connection.close()
    with running(settings_for(tmp_path, num_concurrent_solves=2)) as client:
        rows = client.get("/v1/plans").json()["items"]
        assert len(rows) == 6
        ended = {row["state"]: client.get(row["links"]["self"]).json() for row in rows if row["finished_at"]}
        assert set(ended) == {"cancelled", "incomplete", "infeasible", "succeeded"}
        assert ended["succeeded"]["outcome"]["plan"]["metrics"]["iteration_s"] > 0
        assert ended["infeasible"]["outcome"]["reasons"]
        _, waited, ran = rows[:3]  # newest first
        await_(lambda: client.get(waited["links"]["status"]).json()["state"] == "succeeded", "searched")
        stored = client.get(ran["links"]["request"]).json()
        again = client.post("/v1/plans", json=stored, headers={"Idempotency-Key": "real-1"})
        assert again.status_code in (202, 422), (
            "the key still names it, though a request may be understood otherwise now"
        )
        assert again.json().get("id", ran["id"]) == ran["id"]
        stopped = client.post(f"{ran['links']['self']}:cancel", headers={"Prefer": "wait=20"})
        assert stopped.json()["state"] in ("cancelled", "succeeded"), "searched again, and ended by us or by its limit"
