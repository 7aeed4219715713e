"""The same service on a real Postgres: two workers share one queue, and a killed one loses nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.terminal.client import Client
from tests.unit.app import fake_solver
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
