"""Whatever is killed, no plan is lost, none is made twice, and none hangs."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from app.jobs.worker import Worker
from app.storage.migrations import create_tables
from app.storage.plans import NewPlan, PlanStore
from app.storage.tables import create_engine
from app.storage.workers import WorkerStore
from tests.unit.app import fake_solver
from tests.unit.app.http_client import Client
from tests.unit.app.programs import HOST, await_, descendants, free_port, program, ready, searching, sqlite, state_of
from tests.unit.app.service_fixture import request_for, settings_for
from tests.unit.app.taking import take


def test_a_killed_service_goes_on_with_what_it_had(tmp_path: Path) -> None:
    client = Client(HOST, port := free_port())
    with program("serve", port, sqlite(tmp_path), "one") as first:
        ready(client)
        running = client.post("/v1/plans", request_for(fake_solver.UNTIL_STOPPED))["id"]
        await_(lambda: searching(client, running), "searching")
        waiting = [client.post("/v1/plans", request_for(fake_solver.FINDS))["id"] for _ in range(3)]
        family = descendants(first)
        first.kill()
        first.wait()
        await_(lambda: not any(one.is_running() and one.status() != "zombie" for one in family), "without orphans")
    with program("serve", port, sqlite(tmp_path), "one"):
        ready(client)
        await_(lambda: searching(client, running), "searching again")
        client.post(f"/v1/plans/{running}:cancel", {})
        for plan_id in (running, *waiting):
            await_(lambda plan_id=plan_id: state_of(client, plan_id) in ("succeeded", "cancelled"), "ended")
        states = {plan_id: state_of(client, plan_id) for plan_id in (running, *waiting)}
    assert states == {running: "cancelled", **dict.fromkeys(waiting, "succeeded")}


def test_the_work_of_a_worker_that_never_returns_is_taken_over(tmp_path: Path) -> None:
    client = Client(HOST, port := free_port())
    with program("api", port, sqlite(tmp_path), "api"), program("work", 0, sqlite(tmp_path), "mortal") as mortal:
        ready(client)
        plan_id = client.post("/v1/plans", request_for(fake_solver.UNTIL_STOPPED))["id"]
        await_(lambda: searching(client, plan_id), "searching")
        mortal.kill()
        mortal.wait()
        with program("work", 0, sqlite(tmp_path), "heir"):
            await_(lambda: b'"attempt":2' in client.get(f"/v1/plans/{plan_id}"), "taken over")
            client.post(f"/v1/plans/{plan_id}:cancel", {})
            assert await_(lambda: state_of(client, plan_id) == "cancelled", "cancelled")


def test_a_stopped_service_gives_its_running_plan_back(tmp_path: Path) -> None:
    client = Client(HOST, port := free_port())
    with program("serve", port, sqlite(tmp_path), "one") as first:
        ready(client)
        plan_id = client.post("/v1/plans", request_for(fake_solver.UNTIL_STOPPED))["id"]
        await_(lambda: searching(client, plan_id), "searching")
        first.send_signal(signal.SIGTERM)
        assert first.wait(timeout=20) in (0, -signal.SIGTERM)
    with program("serve", port, sqlite(tmp_path), "two"):
        ready(client)
        await_(lambda: searching(client, plan_id), "searching again")
        assert b'"attempt":1' in client.get(f"/v1/plans/{plan_id}"), "leaving is not a failed attempt"
        client.post(f"/v1/plans/{plan_id}:cancel", {})
        assert await_(lambda: state_of(client, plan_id) == "cancelled", "cancelled")


def test_a_killed_child_costs_only_its_own_plan(tmp_path: Path) -> None:
    client = Client(HOST, port := free_port())
    with program("serve", port, sqlite(tmp_path), "one") as service:
        ready(client)
        plan_id = client.post("/v1/plans", request_for(fake_solver.UNTIL_STOPPED))["id"]
        await_(lambda: searching(client, plan_id), "searching")
        leaders = [one for one in descendants(service) if psutil.Process(one.pid).ppid() != service.pid]
        for child in leaders:
            child.kill()
        await_(lambda: state_of(client, plan_id) == "incomplete", "incomplete")
        envelope = client.get(f"/v1/plans/{plan_id}")
        assert b'"complete":false' in envelope
        assert b'"iteration_s":2.0' in envelope
        other = client.post("/v1/plans", request_for(fake_solver.FINDS))["id"]
        await_(lambda: state_of(client, other) == "succeeded", "succeeded")


@pytest.mark.parametrize("max_attempts", [1, 2])
def test_a_plan_that_kills_its_worker_is_given_up_after_so_many_attempts(tmp_path: Path, max_attempts: int) -> None:
    settings = settings_for(tmp_path, max_attempts=max_attempts)
    engine = create_engine(settings.database_url)
    create_tables(engine)
    store = PlanStore(engine)
    plan_id = store.insert(NewPlan(b"{}", "", None)).id
    for number in range(max_attempts):
        WorkerStore(engine).enter(f"run {number}", settings.worker_id)
        assert take(engine, f"run {number}").plan_id == plan_id
    worker = Worker(settings, engine)
    worker.start()
    try:
        row = await_(lambda: (found := store.get(plan_id)) and found.is_terminal and found, "given up")
    finally:
        worker.stop()
        engine.dispose()
    assert (row.state, row.stop_reason) == ("failed", "attempts")
