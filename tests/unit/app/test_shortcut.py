"""A finished plan that is read again comes from memory, with the same headers, and not once it has been removed."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from tests.unit.app import fake_solver
from tests.unit.app.service_fixture import submit


@pytest.fixture
def plan(client: TestClient) -> str:
    """The path of a plan that has ended."""
    answer = submit(client, fake_solver.FINDS, wait_s=30)
    assert answer.status_code == 200
    return str(answer.headers["location"])


def test_the_second_answer_is_the_first(client: TestClient, plan: str) -> None:
    first, second = client.get(plan), client.get(plan)
    assert first.content == second.content
    assert dict(first.headers) == dict(second.headers)


def test_it_knows_entity_tags(client: TestClient, plan: str) -> None:
    tag = client.get(plan).headers["etag"]
    for given, status in ((tag, 304), (f'"x", W/{tag}', 304), ("*", 304), ('"x"', 200)):
        answer = client.get(plan, headers={"If-None-Match": given})
        assert (answer.status_code, answer.headers["etag"]) == (status, tag)
        assert bool(answer.content) == (status == 200)


def test_it_is_counted_under_its_route(client: TestClient, plan: str) -> None:
    def counted() -> float:
        wanted = 'isthmus_http_requests_total{method="GET",route="/v1/plans/{plan_id}",status="200"} '
        lines = client.get("/metrics").text.splitlines()
        return sum(float(line.removeprefix(wanted)) for line in lines if line.startswith(wanted))

    client.get(plan)
    before = counted()
    client.get(plan)
    assert counted() == before + 1


def test_a_removed_plan_is_gone_at_once(client: TestClient, plan: str) -> None:
    client.get(plan)
    assert client.delete(plan).status_code == 204
    assert client.get(plan).status_code == 404


def test_other_paths_and_methods_are_not_answered_from_memory(client: TestClient, plan: str) -> None:
    client.get(plan)
    assert client.head(plan).content == b""
    assert client.get(plan + "/status").json()["state"] == "succeeded"
    assert client.get(plan + "/").status_code == 404
    cancelled = client.get(plan + ":cancel")
    assert (cancelled.status_code, cancelled.headers["allow"]) == (405, "POST")
