"""The same service on a real Postgres: two workers share one queue, and a killed one loses nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from app.jobs.access import Busy
from app.jobs.service import PlanService
from app.settings import Settings
from app.storage.tables import PLANS
from models.request import PlanRequest
from tests.unit.app import fake_solver
from tests.unit.app.http_client import Client
from tests.unit.app.postgres import postgres
from tests.unit.app.programs import HOST, await_, free_port, program, ready, searching, state_of
from tests.unit.app.service_fixture import request_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The URL of a Postgres that lives as long as this module's tests."""
    with postgres() as server:
        yield server.url


def test_two_workers_share_the_queue_and_no_plan_is_lost_or_made_twice(database: str) -> None:
    client = Client(HOST, port := free_port())
    with program("api", port, database, "api"), program("work", 0, database, "mortal") as mortal:
        ready(client)
        held = client.post("/v1/plans", request_for(fake_solver.UNTIL_STOPPED))["id"]
        await_(lambda: searching(client, held), "searching")
        with program("work", 0, database, "heir"):
            others = [client.post("/v1/plans", request_for(fake_solver.FINDS))["id"] for _ in range(20)]
            mortal.kill()
            mortal.wait()
            await_(lambda: b'"attempt":2' in client.get(f"/v1/plans/{held}"), "taken over")
            client.post(f"/v1/plans/{held}:cancel", {})
            await_(lambda: state_of(client, held) == "cancelled", "cancelled")
            await_(lambda: all(state_of(client, one) == "succeeded" for one in others), "succeeded")
            for one in others:
                assert client.get(f"/v1/plans/{one}/events?after=0").count(b"event: done") == 1


def test_submissions_at_once_do_not_pass_the_limit_of_the_queue(database: str) -> None:
    settings = Settings(database_url=database, max_queued_plans=3)
    service = PlanService(settings)
    together = threading.Barrier(12)

    def submit(number: int) -> bool:
        document = request_for(number)
        together.wait(timeout=60)
        try:
            service.submit(PlanRequest.model_validate(document))
        except Busy:
            return False
        return True

    try:
        with service.engine.begin() as connection:
            connection.execute(sa.delete(PLANS))
        with ThreadPoolExecutor(12) as pool:
            accepted = list(pool.map(submit, range(12)))
        assert sum(accepted) == service.queue_figures.count("queued") == 3
    finally:
        with service.engine.begin() as connection:
            connection.execute(sa.delete(PLANS))
        service.close()
