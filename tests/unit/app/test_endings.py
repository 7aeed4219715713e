"""However a search ends, its plan ends in an honest state and keeps the best that was found."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.unit.app import fake_solver
from tests.unit.app.service_fixture import request_for, submit


def _ended(client: TestClient, location: str) -> Any:
    for _ in range(1500):
        plan = client.get(location).json()
        if plan["state"] not in ("queued", "running"):
            return plan
        time.sleep(0.02)
    raise AssertionError(f"still {plan['state']}")


def _until(client: TestClient, location: str, state: str) -> None:
    for _ in range(1500):
        status = client.get(f"{location}/status").json()
        if status["state"] == state and (status["progress"] or {}).get("phase") == "search":
            return
        time.sleep(0.02)
    raise AssertionError(f"never {state}")


@pytest.mark.parametrize(
    ("case", "state", "reason", "status"),
    [
        (fake_solver.FINDS, "succeeded", "finished", "planned"),
        (fake_solver.INFEASIBLE, "infeasible", "finished", "infeasible"),
        (fake_solver.NOT_FOUND, "not_found", "finished", "not_found"),
        (fake_solver.REFUSES, "failed", "refused", None),
        (fake_solver.MEMORY_BOMB, "incomplete", "memory", "planned"),
        (fake_solver.CRASHES, "incomplete", "crashed", "planned"),
        (fake_solver.KILLED, "incomplete", "killed", "planned"),
        (fake_solver.HALF_MESSAGE, "incomplete", "killed", "planned"),
    ],
)
def test_every_way_to_end_by_itself(client: TestClient, case: int, state: str, reason: str, status: str | None) -> None:
    answer = submit(client, case, wait_s=30)
    assert answer.status_code == 200
    plan = answer.json()
    assert (plan["state"], plan["stop_reason"]) == (state, reason)
    assert (plan["outcome"] or {}).get("status") == status
    if state == "incomplete":
        assert plan["outcome"]["complete"] is False
        assert plan["outcome"]["plan"]["metrics"]["iteration_s"] == 2.0, "the best of those reported"
    assert (plan["fault"] is None) == (reason == "finished")
    if plan["fault"]:
        assert all(plan["fault"][key] for key in ("code", "what", "where", "remedy"))


def test_a_solver_that_ignores_its_limit_is_killed_and_its_best_plan_kept(client: TestClient) -> None:
    plan = submit(client, fake_solver.IGNORES_STOP, wait_s=30, time_limit_s=0.3).json()
    assert (plan["state"], plan["stop_reason"]) == ("incomplete", "time")
    assert plan["outcome"]["plan"]["metrics"]["iteration_s"] == 2.0


def test_a_finished_proof_outlives_an_overrun(client: TestClient) -> None:
    plan = submit(client, fake_solver.PROVES, wait_s=30, time_limit_s=0.3).json()
    assert (plan["state"], plan["stop_reason"], plan["fault"]) == ("succeeded", "finished", None)
    assert plan["outcome"]["complete"] is True


def test_nothing_found_until_the_kill_is_said_and_is_no_defect(client: TestClient) -> None:
    plan = submit(client, fake_solver.STUCK, wait_s=30, time_limit_s=0.3).json()
    assert (plan["state"], plan["stop_reason"]) == ("not_found", "time")
    assert plan["outcome"]["status"] == "not_found"
    assert plan["outcome"]["lower_bound_s"] == 1.0, "what was proven until then"


def _counted(client: TestClient, state: str) -> float:
    (line,) = [
        one for one in client.get("/metrics").text.splitlines() if one.startswith(f'isthmus_plans{{state="{state}"')
    ]
    return float(line.split()[-1])


@pytest.mark.parametrize(
    ("case", "state"), [(fake_solver.INFEASIBLE, "infeasible"), (fake_solver.NOT_FOUND, "not_found")]
)
def test_no_list_and_no_metric_counts_an_end_without_a_plan_as_a_success(
    client: TestClient, case: int, state: str
) -> None:
    successes, others = _counted(client, "succeeded"), _counted(client, state)
    plan = submit(client, case, wait_s=30).json()
    assert (_counted(client, "succeeded"), _counted(client, state)) == (successes, others + 1)
    for listed, expected in ((state, True), ("succeeded", False)):
        ids = [one["id"] for one in client.get(f"/v1/plans?state={listed}").json()["items"]]
        assert (plan["id"] in ids) is expected


def test_the_figures_of_the_queue_say_that_they_count_questions(client: TestClient) -> None:
    before = _counted(client, "succeeded")
    asked = client.post("/v1/questions", json={"ask": "why_not", "request": request_for(fake_solver.FINDS)})
    assert _ended(client, asked.headers["location"])["state"] == "succeeded"
    assert _counted(client, "succeeded") == before + 1
    assert "# HELP isthmus_plans Plans and questions by state." in client.get("/metrics").text


def test_a_schedule_that_was_found_survives_a_kill(client: TestClient) -> None:
    problem = fake_solver.PROBLEM.model_dump(mode="json", exclude_none=True)
    problem["options"] = {"time_limit_s": 0.3, "seed": fake_solver.IGNORES_STOP}
    answer = client.post("/v1/schedules", json=problem)
    assert answer.status_code == 200, answer.text
    assert answer.json()["makespan_s"] == 9.0


def test_cancel_keeps_the_best_plan_so_far(client: TestClient) -> None:
    location = submit(client, fake_solver.UNTIL_STOPPED).headers["location"]
    _until(client, location, "running")
    cancelled = client.post(f"{location}:cancel", headers={"Prefer": "wait=20"})
    assert cancelled.status_code == 200
    plan = _ended(client, location)
    assert (plan["state"], plan["stop_reason"]) == ("cancelled", "cancelled")
    assert plan["outcome"]["complete"] is False
    assert plan["outcome"]["plan"]["metrics"]["iteration_s"] == 2.0


def test_cancel_of_a_solver_that_ignores_it_kills_and_keeps_the_best(client: TestClient) -> None:
    location = submit(client, fake_solver.IGNORES_STOP).headers["location"]
    _until(client, location, "running")
    assert client.post(f"{location}:cancel").status_code == 202
    plan = _ended(client, location)
    assert (plan["state"], plan["outcome"]["plan"]["metrics"]["iteration_s"]) == ("cancelled", 2.0)


def test_cancel_before_anything_was_found_keeps_nothing(client: TestClient) -> None:
    location = submit(client, fake_solver.NOTHING_YET).headers["location"]
    _until(client, location, "running")
    client.post(f"{location}:cancel")
    plan = _ended(client, location)
    assert (plan["state"], plan["outcome"]) == ("cancelled", None)


def test_cancel_of_a_finished_plan_changes_nothing(client: TestClient) -> None:
    answer = submit(client, fake_solver.FINDS, wait_s=30)
    location, before = answer.headers["location"], answer.json()
    assert client.post(f"{location}:cancel").status_code == 200
    assert client.get(location).json() == before


def test_a_deleted_running_plan_is_gone_and_its_search_ends(client: TestClient) -> None:
    location = submit(client, fake_solver.UNTIL_STOPPED).headers["location"]
    _until(client, location, "running")
    assert client.delete(location).status_code == 204
    assert client.get(location).status_code == 404
    assert submit(client, fake_solver.FINDS, wait_s=30).json()["state"] == "succeeded", "the worker is free again"
