"""The event stream is numbered, complete, resumable, and ends when the plan has."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.storage.plans import PlanStore
from tests.unit.app import fake_solver
from tests.unit.app.service_fixture import submit


def _events(client: TestClient, path: str, **headers: str) -> list[tuple[int, str, dict[str, Any]]]:
    """Number, kind and data of every event until the stream ends."""
    events = []
    for block in client.get(path, headers=headers).text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and line[0] != ":")
        if "id" in fields:
            events.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return events


def test_the_stream_tells_the_whole_story_in_order(client: TestClient) -> None:
    location = submit(client, fake_solver.FINDS).headers["location"]
    events = _events(client, f"{location}/events")
    assert [number for number, _, _ in events] == list(range(1, len(events) + 1))
    kinds = [kind for _, kind, _ in events]
    assert kinds[:2] == ["state", "state"]
    assert kinds.count("incumbent") == 2
    assert kinds[-1] == "done"
    assert events[-1][2]["state"] == "succeeded"
    found = [data["iteration_s"] for _, kind, data in events if kind == "incumbent"]
    assert found == [3.0, 2.0]


def test_a_client_that_comes_back_gets_what_it_missed_and_nothing_twice(client: TestClient) -> None:
    location = submit(client, fake_solver.FINDS, wait_s=30).headers["location"]
    everything = _events(client, f"{location}/events")
    for cut in range(len(everything)):
        rest = _events(client, f"{location}/events", **{"Last-Event-ID": str(cut)})
        assert rest == everything[cut:]
        assert _events(client, f"{location}/events?after={cut}") == rest


def test_a_client_that_has_everything_is_told_to_stop_asking(client: TestClient) -> None:
    location = submit(client, fake_solver.FINDS, wait_s=30).headers["location"]
    last = _events(client, f"{location}/events")[-1][0]
    assert client.get(f"{location}/events", headers={"Last-Event-ID": str(last)}).status_code == 204


def test_cancel_ends_the_stream(client: TestClient) -> None:
    location = submit(client, fake_solver.UNTIL_STOPPED).headers["location"]
    client.post(f"{location}:cancel")
    events = _events(client, f"{location}/events")
    assert (events[-1][1], events[-1][2]["state"]) == ("done", "cancelled")


def test_a_last_event_id_that_is_no_number_is_refused(client: TestClient) -> None:
    location = submit(client, fake_solver.FINDS, wait_s=30).headers["location"]
    answer = client.get(f"{location}/events", headers={"Last-Event-ID": "x"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-parameter")


def test_without_the_database_the_stream_ends_and_is_no_defect(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    location = submit(client, fake_solver.UNTIL_STOPPED).headers["location"]
    with monkeypatch.context() as patched:
        stored, looks = PlanStore.events, iter([True])

        def events(store: PlanStore, plan_id: str, *, after: int) -> list[tuple[int, str, float, bytes]]:
            if not next(looks, False):
                raise sa.exc.OperationalError("select", {}, Exception("the server closed the connection"))
            return stored(store, plan_id, after=after)

        patched.setattr(PlanStore, "events", events)
        told = _events(client, f"{location}/events")
    assert [(kind, data["state"]) for _, kind, data in told][:1] == [("state", "queued")]
    assert [one.exc_info for one in caplog.records if "the database does not answer" in one.message] == [None]
    client.post(f"{location}:cancel")
    rest = _events(client, f"{location}/events", **{"Last-Event-ID": str(told[-1][0])})
    assert (rest[0][0], rest[-1][1]) == (told[-1][0] + 1, "done")
