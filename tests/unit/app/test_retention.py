"""Retention really deletes: finished plans, their events and their studies are gone after their time."""

from __future__ import annotations

from pathlib import Path

from app.storage.migrations import create_tables
from app.storage.plans import NewPlan, PlanStore
from app.storage.queue import PlanQueue
from app.storage.studies import NewStudy, StudyStore
from app.storage.tables import create_engine
from tests.unit.app import fake_solver
from tests.unit.app.programs import await_
from tests.unit.app.service_fixture import request_for, running, settings_for
from tests.unit.app.taking import take

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


def test_a_study_keeps_its_members_until_all_have_ended_and_grown_old(tmp_path: Path) -> None:
    now = [100.0]
    engine = create_engine(f"sqlite:///{tmp_path / 'isthmus.sqlite'}")
    create_tables(engine)
    plans, queue = PlanStore(engine, clock=lambda: now[0]), PlanQueue(engine, clock=lambda: now[0])
    studies = StudyStore(engine, clock=lambda: now[0])
    new = NewStudy(owner="", request_digest="d", name="", members=b"[{}, {}]")
    study_id = studies.insert(new, {one: NewPlan(b"{}", "d", None) for one in range(2)}, lambda _: None).id

    def cleaned(at: float) -> tuple[int, int]:
        now[0] = at
        return plans.delete_finished_before(at - 10.0), studies.delete_older_than(at - 10.0)

    first = take(engine, "a")
    queue.finish(first.plan_id, first.lease, "succeeded", "finished", outcome=None, fault=None)
    assert cleaned(200.0) == (0, 0), "the other one still waits"
    assert len(studies.plans_of(study_id)) == 2
    second = take(engine, "a")
    queue.finish(second.plan_id, second.lease, "succeeded", "finished", outcome=None, fault=None)
    assert cleaned(205.0) == (0, 0), "the other one has just ended"
    assert len(studies.plans_of(study_id)) == 2
    assert cleaned(220.0) == (0, 1)
    assert studies.plans_of(study_id) == {}
    engine.dispose()
