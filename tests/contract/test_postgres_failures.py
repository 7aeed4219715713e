"""Failures on a real Postgres: its own death, two workers and one queue, turns per key, quotas, an old database."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.documents import canonical
from app.jobs.access import Busy, Caller
from app.jobs.service import PlanService
from app.storage.migrations import SCHEMA_VERSION, create_tables
from app.storage.plans import NewPlan, PlanStore
from app.storage.queue_figures import QueueFigures
from app.storage.tables import METADATA, SCHEMA, create_engine
from models.request import PlanRequest
from tests.unit.app import fake_solver
from tests.unit.app.http_client import Client
from tests.unit.app.postgres import Postgres, postgres, tool
from tests.unit.app.programs import HOST, await_, free_port, program, ready, searching, state_of
from tests.unit.app.service_fixture import FAKE_SOLVERS, request_for, settings_for
from tests.unit.app.storage.test_migrations import VERSION_1

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A Postgres that lives as long as this module's tests."""
    with postgres() as started:
        yield started


@pytest.fixture
def database(server: Postgres, request: pytest.FixtureRequest) -> str:
    """The URL of an empty database, whatever the test before has done to the server."""
    server.start()
    return _empty(server, "".join(one for one in request.node.name if one.isalnum())[:60].lower())


def _empty(server: Postgres, name: str) -> str:
    engine = sa.create_engine(server.url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f'CREATE DATABASE "{name}"'))
    engine.dispose()
    return server.url.removesuffix("postgres") + name


@pytest.mark.parametrize("how", ["killed", "restarted"])
def test_a_search_outlives_the_database(server: Postgres, database: str, how: str) -> None:
    client = Client(HOST, port := free_port())
    with program("api", port, database, "api"), program("work", 0, database, "w", dead_worker_s=20.0):
        ready(client)
        held = client.post("/v1/plans", request_for(fake_solver.UNTIL_STOPPED, 300.0))["id"]
        await_(lambda: searching(client, held), "searching")
        short = client.post("/v1/plans", request_for(fake_solver.FINDS))["id"]
        server.kill() if how == "killed" else server.stop("fast")
        assert not client.is_ready()
        time.sleep(1.0)
        server.start()
        await_(client.is_ready, "ready again")
        assert state_of(client, held) == "running"
        client.post(f"/v1/plans/{held}:cancel", {})
        await_(lambda: state_of(client, held) == "cancelled", "cancelled")
        await_(lambda: state_of(client, short) == "succeeded", "succeeded")
        ended = json.loads(client.get(f"/v1/plans/{held}"))
    assert (ended["attempt"], ended["outcome"]["complete"]) == (1, False), "the same attempt, with what it had found"


def test_a_stopped_worker_without_a_database_leaves_its_plan_to_others(server: Postgres, database: str) -> None:
    client = Client(HOST, port := free_port())
    with program("api", port, database, "api"), program("work", 0, database, "leaver") as leaver:
        ready(client)
        held = client.post("/v1/plans", request_for(fake_solver.UNTIL_STOPPED, 300.0))["id"]
        await_(lambda: searching(client, held), "searching")
        server.kill()
        leaver.terminate()
        leaver.wait(timeout=60)
        server.start()
        with program("work", 0, database, "heir"):
            await_(lambda: b'"attempt":2' in client.get(f"/v1/plans/{held}/status"), "taken over")
            client.post(f"/v1/plans/{held}:cancel", {})
            await_(lambda: state_of(client, held) == "cancelled", "cancelled")


def test_a_backup_restored_into_an_empty_database_goes_on(server: Postgres, database: str, tmp_path: Path) -> None:
    client = Client(HOST, port := free_port())
    with program("serve", port, database, "w"):
        ready(client)
        done = client.post("/v1/plans", request_for(fake_solver.FINDS))["id"]
        await_(lambda: state_of(client, done) == "succeeded", "succeeded")
        held = client.post("/v1/plans", request_for(fake_solver.UNTIL_STOPPED, 300.0))["id"]
        await_(lambda: searching(client, held), "searching")
        dump = str(tmp_path / "isthmus.dump")
        subprocess.run((tool("pg_dump"), "--format=custom", f"--file={dump}", database), check=True)
        before = client.get(f"/v1/plans/{done}")
    restored = _empty(server, "restored")
    subprocess.run((tool("pg_restore"), f"--dbname={restored}", dump), check=True)
    with program("serve", port, restored, "w"):
        ready(client)
        assert client.get(f"/v1/plans/{done}") == before
        await_(lambda: b'"attempt":2' in client.get(f"/v1/plans/{held}/status"), "taken over")
        await_(lambda: searching(client, held), "searching again")


def _submit(engine: sa.Engine, *lanes: tuple[str, int], case: int, limit_s: float) -> list[str]:
    text = canonical(PlanRequest.model_validate(request_for(case, limit_s)))
    new = [NewPlan(text, "d", None, key_id=key, urgency=urgency) for key, urgency in lanes]
    return [PlanStore(engine).insert(one).id for one in new]


def _spans(engine: sa.Engine, plan_ids: list[str]) -> list[tuple[float, float]]:
    """From when to when each plan ran; every plan must have ended in its first attempt."""
    rows = [PlanStore(engine).get(one) for one in plan_ids]
    assert all(row and row.state == "succeeded" and row.attempt == 1 for row in rows)
    return [(row.started_at or 0.0, row.finished_at or 0.0) for row in rows if row]


def test_one_plan_of_a_key_runs_at_a_time_on_all_workers_and_the_urgent_ones_first(database: str) -> None:
    engine = create_engine(database)
    create_tables(engine)
    lanes = [("a", 5), ("a", 5), ("a", 2), ("b", 5), ("b", 5), ("b", 2)]
    plan_ids = _submit(engine, *lanes, case=fake_solver.TAKES_ITS_TIME, limit_s=0.5)
    queue, limits = QueueFigures(engine), {"max_running_per_key": 1, "num_concurrent_solves": 2, "dead_worker_s": 20.0}
    with program("work", 0, database, "one", **limits), program("work", 0, database, "two", **limits):
        await_(lambda: queue.count("succeeded") == len(plan_ids), "all ended")
    spans = _spans(engine, plan_ids)
    for of_key in (spans[:3], spans[3:]):
        assert of_key[2] == min(of_key), "the most urgent of a key first"
        in_order = sorted(of_key)
        assert all(before[1] <= after[0] for before, after in pairwise(in_order))
    overlapping = [(a, b) for a in spans[:3] for b in spans[3:] if a[0] < b[1] and b[0] < a[1]]
    assert overlapping, "two keys at the same time"
    engine.dispose()


def test_forty_plans_and_two_workers_give_forty_attempts(database: str) -> None:
    engine = create_engine(database)
    create_tables(engine)
    plan_ids = _submit(engine, *[("", 3)] * 40, case=fake_solver.FINDS, limit_s=20.0)
    queue, limits = QueueFigures(engine), {"num_concurrent_solves": 4, "dead_worker_s": 20.0}
    with program("work", 0, database, "one", **limits), program("work", 0, database, "two", **limits):
        await_(lambda: queue.count("succeeded") == len(plan_ids), "all ended")
    assert len(_spans(engine, plan_ids)) == 40
    with engine.connect() as connection:
        count = "SELECT worker_id, count(*) FROM isthmus_plans GROUP BY worker_id"
        shares = dict(connection.execute(sa.text(count)).all())  # type: ignore[arg-type]
    assert set(shares) == {"one", "two"}, shares
    engine.dispose()


def test_a_quota_holds_when_everybody_submits_at_once(database: str) -> None:
    service = PlanService(settings_for_database(database, max_active_plans=5))
    caller = Caller("team", "key-1", frozenset({"submit"}))

    def submit(number: int) -> bool:
        request = PlanRequest.model_validate(request_for(fake_solver.FINDS, 20.0 + number))
        try:
            return service.submit(request, caller=caller).is_new
        except Busy:
            return False

    with ThreadPoolExecutor(12) as pool:
        accepted = sum(pool.map(submit, range(24)))
    assert (accepted, service.queue_figures.count("queued")) == (5, 5)
    service.close()


def test_one_key_submitted_by_many_at_once_makes_one_plan(database: str) -> None:
    services = [PlanService(settings_for_database(database)) for _ in range(2)]
    request = PlanRequest.model_validate(request_for(fake_solver.FINDS))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: services[number % 2].submit(request, "the-key"), range(16)))
    assert len({one.plan_id for one in answers}) == 1
    assert sum(one.is_new for one in answers) == 1
    assert services[0].queue_figures.count("queued") == 1
    for service in services:
        service.close()


def settings_for_database(database: str, **changes: Any) -> Any:
    """The settings of the tests on this database."""
    return settings_for(Path(), database_url=database, solvers=FAKE_SOLVERS, **changes)


def test_a_database_of_the_first_release_comes_forward(database: str) -> None:
    engine = create_engine(database)
    with engine.begin() as connection:
        for statement in VERSION_1.replace(" BLOB", " BYTEA").replace("'w', 0, 1", "'w', false, 1").split(";\n"):
            if statement.strip():
                connection.execute(sa.text(statement.replace(":1'", "\\:1'")))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: create_tables(engine), range(4)))
    with engine.connect() as connection:
        assert connection.execute(sa.select(SCHEMA.c.version)).scalar_one() == SCHEMA_VERSION
    found = sa.inspect(engine)
    for table in METADATA.sorted_tables:
        assert {column["name"] for column in found.get_columns(table.name)} == {column.name for column in table.c}
    row = PlanStore(engine).get("plan_old")
    assert row is not None
    assert (row.state, row.outcome) == ("succeeded", b'{"status":"planned"}')
    assert PlanStore(engine).by_key("", "key-1") == ("plan_old", "sha256:1")
    engine.dispose()
