"""Whatever is killed, no plan is lost, none is made twice, and none hangs."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.jobs.queue import enqueue_plan, open_queue
from app.jobs.worker import Worker
from app.storage.plans import NewPlan, PlanStore
from app.storage.tables import create_engine, create_tables
from app.terminal.client import Client
from tests.unit.app import fake_solver
from tests.unit.app.service_fixture import request_for, settings_for

ROOT = Path(__file__).parents[3]
HOST = "127.0.0.1"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def _program(role: str, port: int, folder: Path, worker_id: str) -> Iterator[subprocess.Popen[bytes]]:
    database = f"sqlite:///{folder / 'crash.sqlite'}"
    command = [sys.executable, "-m", "tests.unit.app.serve_fake", role, str(port), database, worker_id]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=20)


def _await(condition: Any, what: str) -> Any:
    for _ in range(1500):
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"never {what}")


def _ready(client: Client) -> None:
    _await(client.is_ready, "ready")


def _state(client: Client, plan_id: str) -> str:
    state: str = json.loads(client.get(f"/v1/plans/{plan_id}/status"))["state"]
    return state


def _searching(client: Client, plan_id: str) -> bool:
    return b"incumbent" in client.get(f"/v1/plans/{plan_id}/status") and _state(client, plan_id) == "running"


def _descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def test_a_killed_service_goes_on_with_what_it_had(tmp_path: Path) -> None:
    client = Client(HOST, port := _free_port())
    with _program("serve", port, tmp_path, "one") as first:
        _ready(client)
        running = client.post("/v1/plans", request_for(fake_solver.UNTIL_STOPPED))["id"]
        _await(lambda: _searching(client, running), "searching")
        waiting = [client.post("/v1/plans", request_for(fake_solver.FINDS))["id"] for _ in range(3)]
        family = _descendants(first)
        first.kill()
        first.wait()
        _await(lambda: not any(one.is_running() and one.status() != "zombie" for one in family), "without orphans")
    with _program("serve", port, tmp_path, "one"):
        _ready(client)
        _await(lambda: _searching(client, running), "searching again")
        client.post(f"/v1/plans/{running}:cancel", {})
        for plan_id in (running, *waiting):
            _await(lambda plan_id=plan_id: _state(client, plan_id) in ("succeeded", "cancelled"), "ended")
        states = {plan_id: _state(client, plan_id) for plan_id in (running, *waiting)}
    assert states == {running: "cancelled", **dict.fromkeys(waiting, "succeeded")}


def test_the_work_of_a_worker_that_never_returns_is_taken_over(tmp_path: Path) -> None:
    client = Client(HOST, port := _free_port())
    with _program("api", port, tmp_path, "api"), _program("work", 0, tmp_path, "mortal") as mortal:
        _ready(client)
        plan_id = client.post("/v1/plans", request_for(fake_solver.UNTIL_STOPPED))["id"]
        _await(lambda: _searching(client, plan_id), "searching")
        mortal.kill()
        mortal.wait()
        with _program("work", 0, tmp_path, "heir"):
            _await(lambda: b'"attempt":2' in client.get(f"/v1/plans/{plan_id}"), "taken over")
            client.post(f"/v1/plans/{plan_id}:cancel", {})
            assert _await(lambda: _state(client, plan_id) == "cancelled", "cancelled")


def test_a_stopped_service_gives_its_running_plan_back(tmp_path: Path) -> None:
    client = Client(HOST, port := _free_port())
    with _program("serve", port, tmp_path, "one") as first:
        _ready(client)
        plan_id = client.post("/v1/plans", request_for(fake_solver.UNTIL_STOPPED))["id"]
        _await(lambda: _searching(client, plan_id), "searching")
        first.send_signal(signal.SIGTERM)
        assert first.wait(timeout=20) in (0, -signal.SIGTERM)
    with _program("serve", port, tmp_path, "two"):
        _ready(client)
        _await(lambda: _searching(client, plan_id), "searching again")
        assert b'"attempt":1' in client.get(f"/v1/plans/{plan_id}"), "leaving is not a failed attempt"
        client.post(f"/v1/plans/{plan_id}:cancel", {})
        assert _await(lambda: _state(client, plan_id) == "cancelled", "cancelled")


def test_a_killed_child_costs_only_its_own_plan(tmp_path: Path) -> None:
    client = Client(HOST, port := _free_port())
    with _program("serve", port, tmp_path, "one") as service:
        _ready(client)
        plan_id = client.post("/v1/plans", request_for(fake_solver.UNTIL_STOPPED))["id"]
        _await(lambda: _searching(client, plan_id), "searching")
        leaders = [one for one in _descendants(service) if psutil.Process(one.pid).ppid() != service.pid]
        for child in leaders:
            child.kill()
        _await(lambda: _state(client, plan_id) == "incomplete", "incomplete")
        envelope = client.get(f"/v1/plans/{plan_id}")
        assert b'"complete":false' in envelope
        assert b'"iteration_s":2.0' in envelope
        other = client.post("/v1/plans", request_for(fake_solver.FINDS))["id"]
        _await(lambda: _state(client, other) == "succeeded", "succeeded")


@pytest.mark.parametrize("max_attempts", [1, 2])
def test_a_plan_that_kills_its_worker_is_given_up_after_so_many_attempts(tmp_path: Path, max_attempts: int) -> None:
    settings = settings_for(tmp_path, max_attempts=max_attempts)
    engine = create_engine(settings.database_url)
    create_tables(engine)
    client, store = open_queue(engine), PlanStore(engine)
    plan_id = store.insert(NewPlan(b"{}", "", None), lambda connection, name: enqueue_plan(client, connection, name))
    for _ in range(max_attempts):
        assert store.begin(plan_id, "a worker that died") is not None
    worker = Worker(settings, engine, client)
    worker.start()
    try:
        row = _await(lambda: (found := store.get(plan_id)) and found.is_terminal and found, "given up")
    finally:
        worker.stop()
        client.destroy()
        engine.dispose()
    assert (row.state, row.stop_reason) == ("failed", "attempts")
