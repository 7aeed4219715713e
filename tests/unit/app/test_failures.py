"""Kills at the worst moment, as a client sees them: one plan per key, no event twice, work that is done stays done."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.storage.plans import TERMINAL
from tests.unit.app import fake_solver
from tests.unit.app.http_client import Client, ServiceError
from tests.unit.app.programs import (
    HOST,
    await_,
    free_port,
    locked,
    program,
    ready,
    searching,
    sqlite,
    started,
    state_of,
)
from tests.unit.app.service_fixture import request_for, running, settings_for, submit


def _post(port: int, case: int, key: str) -> tuple[int, Any, dict[str, str]]:
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    headers = {"Content-Type": "application/json", "Idempotency-Key": f'"{key}"'}
    try:
        connection.request("POST", "/v1/plans", json.dumps(request_for(case)), headers)
        answer: http.client.HTTPResponse = connection.getresponse()
        return answer.status, json.loads(answer.read()), dict(answer.getheaders())
    finally:
        connection.close()


def test_a_service_that_dies_between_the_insert_and_the_reply_made_one_plan(tmp_path: Path) -> None:
    port, database = free_port(), sqlite(tmp_path)
    with program("api", port, database, "one", dies_after_insert=True) as first:
        await_(lambda: _answers(port), "up")
        with pytest.raises((OSError, http.client.HTTPException)):
            _post(port, fake_solver.FINDS, "k1")
        assert first.wait(timeout=30) == -signal.SIGKILL
    with program("serve", port, database, "two"):
        ready(client := Client(HOST, port))
        status, plan, headers = _post(port, fake_solver.FINDS, "k1")
        assert (status, headers.get("idempotency-replayed")) == (202, "true")
        await_(lambda: state_of(client, plan["id"]) == "succeeded", "succeeded")
        assert len(json.loads(client.get("/v1/plans"))["items"]) == 1


def test_who_reads_is_answered_while_many_wait_to_write_to_a_locked_file(tmp_path: Path) -> None:
    port = free_port()
    with program("serve", port, sqlite(tmp_path), "one"):
        ready(client := Client(HOST, port))
        plan = _post(port, fake_solver.FINDS, "k1")[1]["id"]
        with ThreadPoolExecutor(45) as threads:
            with locked(tmp_path / "crash.sqlite"):
                cancels = [threads.submit(client.post, f"/v1/plans/{plan}:cancel", {}) for _ in range(45)]
                await_(lambda: not client.is_ready(), "not ready")
                with pytest.raises(ServiceError, match="another program keeps it locked") as refused:
                    client.get("/healthz/ready")
                assert refused.value.status == 503
                assert json.loads(client.get("/v1/plans"))["items"][0]["id"] == plan
            assert {one.result()["id"] for one in cancels} == {plan}
        ready(client)


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/healthz/live")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def test_a_request_that_kills_its_worker_is_given_up_and_others_go_on(tmp_path: Path) -> None:
    database, limits = sqlite(tmp_path), {"max_attempts": 2}
    client = Client(HOST, port := free_port())
    with program("api", port, database, "api", **limits):
        await_(lambda: _answers(port), "up")
        poison = client.post("/v1/plans", request_for(fake_solver.KILLS_WORKER))["id"]
        deaths = 0
        with _worker_that_comes_back(database, **limits) as count:
            await_(lambda: state_of(client, poison) in ("failed", "incomplete"), "given up", pause_s=0.1)
            other = client.post("/v1/plans", request_for(fake_solver.FINDS))["id"]
            await_(lambda: state_of(client, other) == "succeeded", "succeeded", pause_s=0.1)
            deaths = count[0]
        ended = json.loads(client.get(f"/v1/plans/{poison}"))
    assert (ended["stop_reason"], ended["attempt"], deaths) == ("attempts", 3, 2)


@contextmanager
def _worker_that_comes_back(database: str, **changes: Any) -> Iterator[list[int]]:
    """A worker that is started again whenever it dies; how often it died."""
    deaths, enough = [0], Event()
    current: list[subprocess.Popen[bytes]] = []

    def keep_alive() -> None:
        while not enough.is_set():
            current[:] = [started("work", 0, database, "phoenix", **changes)]
            while current[0].poll() is None and not enough.wait(0.05):
                pass
            deaths[0] += current[0].poll() is not None

    keeper = Thread(target=keep_alive)
    keeper.start()
    try:
        yield deaths
    finally:
        enough.set()
        keeper.join()
        current[0].terminate()
        current[0].wait(timeout=30)


@pytest.mark.parametrize("role", ["serve", "work"])
def test_told_to_stop_it_ends_what_runs_and_takes_nothing_more(tmp_path: Path, role: str) -> None:
    database, patience = sqlite(tmp_path), {"drain_s": 60.0}
    client = Client(HOST, port := free_port())
    with program("api", port, database, "api"):
        await_(lambda: _answers(port), "up")
        with program(role, free_port(), database, "leaver", **patience) as leaver:
            running = client.post("/v1/plans", request_for(fake_solver.TAKES_ITS_TIME, 2.0))["id"]
            waiting = [client.post("/v1/plans", request_for(fake_solver.TAKES_ITS_TIME, 2.0))["id"] for _ in range(3)]
            await_(lambda: searching(client, running), "searching")
            leaver.send_signal(signal.SIGTERM)
            assert leaver.wait(timeout=90) in (0, -signal.SIGTERM)
        assert state_of(client, running) == "succeeded"
        assert {state_of(client, one) for one in waiting} == {"queued"}


def test_a_reader_of_events_changes_its_service_and_misses_nothing(tmp_path: Path) -> None:
    database = sqlite(tmp_path)
    first_port, second_port = free_port(), free_port()
    client = Client(HOST, second_port)
    with program("api", first_port, database, "a") as mortal, program("serve", second_port, database, "b"):
        await_(lambda: _answers(first_port), "up")
        ready(client)
        plan_id = client.post("/v1/plans", request_for(fake_solver.UNTIL_STOPPED, 300.0))["id"]
        await_(lambda: searching(client, plan_id), "searching")
        numbers = _read_until_killed(first_port, plan_id, mortal)
        client.post(f"/v1/plans/{plan_id}:cancel", {})
        numbers += _numbers(second_port, plan_id, last=numbers[-1])
        ended = json.loads(client.get(f"/v1/plans/{plan_id}/status"))
    assert numbers == list(range(1, ended["num_events"] + 1))


def _read_until_killed(port: int, plan_id: str, service: subprocess.Popen[bytes]) -> list[int]:
    numbers: list[int] = []
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    connection.request("GET", f"/v1/plans/{plan_id}/events")
    with suppress(OSError, http.client.HTTPException):
        for line in connection.getresponse():
            if line.startswith(b"id: "):
                numbers.append(int(line[4:]))
            if len(numbers) == 3:
                service.kill()
    connection.close()
    return numbers


def _numbers(port: int, plan_id: str, last: int) -> list[int]:
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    connection.request("GET", f"/v1/plans/{plan_id}/events", headers={"Last-Event-ID": str(last)})
    numbers = [int(line[4:]) for line in connection.getresponse() if line.startswith(b"id: ")]
    connection.close()
    return numbers


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[TestClient]:
    """A service that kills no search, however late a busy machine lets it answer."""
    with running(settings_for(tmp_path, soft_grace_s=60.0, kill_grace_s=60.0, cancel_grace_s=60.0)) as client:
        yield client


def test_a_cancel_that_races_the_end_is_answered_truly(patient: TestClient) -> None:
    client, seen = patient, set()
    for number in range(12):
        location = submit(client, fake_solver.TAKES_ITS_TIME, time_limit_s=0.05 + 0.02 * number).headers["location"]
        await_(lambda location=location: client.get(f"{location}/status").json()["state"] != "queued", "begun")
        answer = client.post(f"{location}:cancel").json()
        await_(lambda location=location: client.get(f"{location}/status").json()["state"] in ENDS, "ended")
        plan = client.get(location).json()
        seen.add(plan["state"])
        if answer["state"] in ENDS:
            assert plan["state"] == answer["state"], "an end is final"
        assert client.get(f"{location}/events").text.count("event: done") == 1
        assert plan["state"] in ("succeeded", "cancelled")
        assert plan["outcome"]["status"] == "planned" if plan["outcome"] else plan["state"] == "cancelled"
    assert "cancelled" in seen


ENDS = tuple(TERMINAL)
