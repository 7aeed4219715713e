"""Retention really deletes: finished plans, their events and their studies are gone after their time."""

from __future__ import annotations

from pathlib import Path

from tests.unit.app import fake_solver
from tests.unit.app.programs import await_
from tests.unit.app.service_fixture import request_for, running, settings_for

SEEDS = {"/options/seed": [fake_solver.FINDS, fake_solver.INFEASIBLE]}


def test_finished_plans_and_studies_leave_after_their_time(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, retention_s=0.2, heartbeat_s=0.05, dead_worker_s=0.5)
    with running(settings) as client:
        path = client.post("/v1/studies", json={"base": request_for(fake_solver.FINDS), "axes": SEEDS}).headers[
            "location"
        ]
        plan = client.post("/v1/plans", json=request_for(fake_solver.FINDS)).headers["location"]
        await_(lambda: client.get(plan).status_code == 404, "removed")
        await_(lambda: client.get(path).status_code == 404, "removed")
        assert client.get("/v1/plans").json()["items"] == []
