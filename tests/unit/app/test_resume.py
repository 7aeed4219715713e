"""A search that has ended goes on as a new plan, with what the service has kept of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.client import calls
from app.jobs.program import program
from app.jobs.resuming import ANOTHER_PROGRAM, NOT_KEPT, documents_of
from app.storage.searches import KeptSearch
from app.storage.tables import SEARCHES, create_engine
from tests.unit.app import fake_solver
from tests.unit.app.programs import await_
from tests.unit.app.service_fixture import request_for, running, settings_for, submit

UNREADABLE = "no saved search"  # what the planner of these tests keeps


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with running(settings_for(tmp_path)) as started:
        yield started


def resumed(client: TestClient, plan_id: str, **body: Any) -> Any:
    """The whole new plan."""
    answer = client.post(f"/v1/plans/{plan_id}:resume", json=body, headers={"Prefer": "wait=30"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def message(client: TestClient, plan_id: str) -> str:
    """What the planner says of itself."""
    progress = client.get(f"/v1/plans/{plan_id}/status").json()["progress"]
    return "" if progress is None else str(progress["message"])


def rows(folder: Path) -> dict[str, KeptSearch]:
    with create_engine(settings_for(folder).database_url).connect() as connection:
        found = connection.execute(sa.select(SEARCHES)).mappings().all()
    return {one["plan_id"]: KeptSearch(one["outcome"], one["state"], one["program"]) for one in found}


def change(folder: Path, **values: Any) -> None:
    with create_engine(settings_for(folder).database_url).begin() as connection:
        connection.execute(sa.update(SEARCHES).values(**values))


def test_the_new_search_begins_with_the_old_plan(client: TestClient, tmp_path: Path) -> None:
    old = submit(client, fake_solver.FINDS, wait_s=30).json()
    new = resumed(client, old["id"], time_limit_s=7.0, relative_gap=0.25, name="longer")
    assert (new["state"], new["parent_id"], new["name"]) == ("succeeded", old["id"], "longer")
    assert "begins with 2.0" in message(client, new["id"])
    options = [client.get(f"/v1/plans/{one}/request").json()["options"] for one in (old["id"], new["id"])]
    assert options[1] == {**options[0], "time_limit_s": 7.0, "relative_gap": 0.25}
    assert rows(tmp_path).keys() == {old["id"], new["id"]}
    assert client.get(f"/v1/plans/{old['id']}").json() == old, "the old plan stays as it is"


def test_a_key_goes_on_from_one_plan(client: TestClient) -> None:
    """Two plans of one request have the same request to go on with; what goes on from one is not from the other."""
    old, other = (submit(client, fake_solver.FINDS, wait_s=30).json()["id"] for _ in range(2))
    headers = {"Idempotency-Key": "goes-on"}
    made = [client.post(f"/v1/plans/{one}:resume", json={}, headers=headers) for one in (old, old, other)]
    made.append(client.post("/v1/plans", json=request_for(fake_solver.FINDS), headers=headers))
    assert made[0].json()["id"] == made[1].json()["id"]
    for again in made[2:]:
        assert (again.status_code, again.json()["code"]) == (422, "idempotency-key-reused")
        assert f"made from {old}" in again.json()["detail"]


def test_the_old_plan_may_be_removed_before_the_new_search_begins(client: TestClient, tmp_path: Path) -> None:
    old = submit(client, fake_solver.FINDS, wait_s=30).json()["id"]
    submit(client, fake_solver.TAKES_ITS_TIME, time_limit_s=1.0)
    new = client.post(f"/v1/plans/{old}:resume", json={}).json()
    assert new["state"] == "queued"
    assert client.delete(f"/v1/plans/{old}").status_code == 204
    assert old not in rows(tmp_path)
    await_(lambda: client.get(f"/v1/plans/{new['id']}/status").json()["state"] == "succeeded", "ended")
    assert "begins with 2.0" in message(client, new["id"])


@pytest.mark.parametrize(
    ("case", "what"), [(fake_solver.INFEASIBLE, "is infeasible"), (fake_solver.UNTIL_STOPPED, "is running")]
)
def test_what_cannot_go_on_is_refused(client: TestClient, case: int, what: str) -> None:
    plan_id = submit(client, case).json()["id"]
    await_(lambda: client.get(f"/v1/plans/{plan_id}/status").json()["state"] == what.split()[1], "there")
    answer = client.post(f"/v1/plans/{plan_id}:resume", json={})
    assert (answer.status_code, answer.json()["code"]) == (409, "not-finished")
    assert what in answer.json()["detail"]
    client.post(f"/v1/plans/{plan_id}:cancel")


def test_a_plan_that_is_not_there_is_not_resumed(client: TestClient) -> None:
    assert client.post("/v1/plans/plan_0:resume", json={}).status_code == 404


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"time_limit_s": 0}, "/time_limit_s"),
        ({"time_limit_s": 1e9}, "/time_limit_s"),
        ({"time_limit_s": 5000}, "/time_limit_s"),
        ({"time_limit_s": "5"}, "/time_limit_s"),
        ({"time_limit_s": True}, "/time_limit_s"),
        ({"relative_gap": 2}, "/relative_gap"),
        ({"workload": {}}, "/workload"),
    ],
)
def test_nothing_but_the_effort_can_be_changed(client: TestClient, body: dict[str, Any], pointer: str) -> None:
    old = submit(client, fake_solver.FINDS, wait_s=30).json()["id"]
    answer = client.post(f"/v1/plans/{old}:resume", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


def test_a_search_that_had_found_nothing_goes_on(client: TestClient) -> None:
    old = submit(client, fake_solver.NOT_FOUND, wait_s=30).json()["id"]
    assert "begins with no plan" in message(client, resumed(client, old)["id"])


def test_a_stopped_search_goes_on(client: TestClient) -> None:
    old = submit(client, fake_solver.UNTIL_STOPPED).json()["id"]
    await_(lambda: client.get(f"/v1/plans/{old}/status").json()["figures"], "found something")
    client.post(f"/v1/plans/{old}:cancel", headers={"Prefer": "wait=30"})
    new = client.post(f"/v1/plans/{old}:resume", json={}).json()["id"]
    await_(lambda: "begins with 2.0" in message(client, new), "begun")
    client.post(f"/v1/plans/{new}:cancel", headers={"Prefer": "wait=30"})


def test_why_there_is_no_state_is_said(client: TestClient, tmp_path: Path) -> None:
    old = submit(client, fake_solver.FINDS, wait_s=30).json()["id"]
    told = [message(client, resumed(client, old)["id"])]
    change(tmp_path, program="an older one")
    told.append(message(client, resumed(client, old)["id"]))
    change(tmp_path, program=program(), state=None)
    told.append(message(client, resumed(client, old)["id"]))
    assert all(reason in one for reason, one in zip((UNREADABLE, ANOTHER_PROGRAM, NOT_KEPT), told, strict=True))


def test_a_state_is_kept_for_its_time(tmp_path: Path) -> None:
    with running(settings_for(tmp_path, search_retention_s=0.3, heartbeat_s=0.05, dead_worker_s=0.1)) as client:
        old = submit(client, fake_solver.FINDS, wait_s=30).json()["id"]
        await_(lambda: not rows(tmp_path), "forgotten")
        assert NOT_KEPT in message(client, resumed(client, old)["id"])


def test_a_state_that_is_too_large_is_not_kept(tmp_path: Path) -> None:
    with running(settings_for(tmp_path, max_search_bytes=len(fake_solver.STATE) - 1)) as client:
        submit(client, fake_solver.FINDS, wait_s=30)
        assert not rows(tmp_path)


def test_another_attempt_begins_with_what_the_last_one_kept() -> None:
    kept = KeptSearch(b"older", b"state", program())
    assert documents_of(kept, best=b"newer") == (b"newer", b"state", b"")
    assert documents_of(kept) == (b"older", b"state", b"")


def test_the_same_key_makes_one_plan(client: TestClient) -> None:
    old = submit(client, fake_solver.FINDS, wait_s=30).json()["id"]
    path, body, headers = f"/v1/plans/{old}:resume", {"time_limit_s": 3.0}, {"Idempotency-Key": "k"}
    ids = {client.post(path, json=body, headers=headers).json()["id"] for _ in range(2)}
    assert len(ids) == 1
    assert client.post(path, json={"time_limit_s": 4.0}, headers=headers).status_code == 422


def test_the_client_asks_for_what_the_route_takes(client: TestClient) -> None:
    old = submit(client, fake_solver.FINDS, wait_s=30).json()["id"]
    call = calls.resume(old, time_limit_s=9.0)
    headers = {**call.headers, "Content-Type": "application/json"}
    answer = client.request(call.method, call.path, content=call.body, headers=headers)
    assert answer.status_code == 202
    assert call.read(answer.content).parent_id == old
    assert json.loads(call.body or b"")["time_limit_s"] == 9.0
    assert request_for(fake_solver.FINDS)["options"]["time_limit_s"] == 20.0
