"""A finished plan that is read again comes from memory, with the same headers, and not once it has been removed."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from tests.unit.app import fake_solver
from tests.unit.app.service_fixture import request_for, running, settings_for, submit


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


def _statements(client: TestClient) -> list[str]:
    """What the database is asked from here on."""
    found: list[str] = []
    engine = client.app.state.service.engine  # type: ignore[attr-defined]
    sa.event.listen(engine, "before_cursor_execute", lambda *given: found.append(given[2]))
    return found


def test_a_list_is_looked_up_once_for_all_who_ask_within_a_tenth_of_a_second(tmp_path: Path) -> None:
    with running(settings_for(tmp_path, run_worker=False)) as client:
        for _ in range(3):
            submit(client, fake_solver.FINDS)
        client.app.state.service.list_responses._fresh_s = 1e9  # type: ignore[attr-defined]  # noqa: SLF001
        first = client.get("/v1/plans?limit=2")
        asked = _statements(client)
        second = client.get("/v1/plans?limit=2")
        assert asked == []
        assert (first.content, dict(first.headers)) == (second.content, dict(second.headers))
        assert "link" in second.headers
        assert client.get("/v1/plans?limit=2&limit=3").status_code == 400, "another query is read as ever"
        assert len(client.get("/v1/plans").json()["items"]) == 3


@pytest.mark.parametrize("change", ["submit", "study", "cancel", "delete"])
def test_a_list_shows_what_its_reader_has_just_done(tmp_path: Path, change: str) -> None:
    with running(settings_for(tmp_path, run_worker=False)) as client:
        path = submit(client, fake_solver.FINDS).headers["location"]
        client.app.state.service.list_responses._fresh_s = 1e9  # type: ignore[attr-defined]  # noqa: SLF001
        before = client.get("/v1/plans").json()["items"]
        if change == "submit":
            submit(client, fake_solver.FINDS)
        elif change == "study":
            client.post("/v1/studies", json={"base": request_for(fake_solver.FINDS), "patches": [{}]})
        elif change == "cancel":
            client.post(f"{path}:cancel")
        else:
            client.delete(path)
        assert client.get("/v1/plans").json()["items"] != before


def test_a_submission_asks_the_database_three_times_and_is_answered_with_what_is_stored(tmp_path: Path) -> None:
    with running(settings_for(tmp_path, run_worker=False)) as client:
        submit(client, fake_solver.FINDS)
        asked = _statements(client)
        answer = submit(client, fake_solver.FINDS)
        # How long to wait for a lock, and from when on one writes: neither reads the database.
        assert [one.split()[0] for one in asked] == ["PRAGMA", "BEGIN", "SELECT", "INSERT", "INSERT"]
        later = client.get(f"{answer.headers['location']}/status").json()
        assert later == answer.json()
        assert later["queue_position"] == 1
