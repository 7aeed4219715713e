"""Questions are queued, answered bit by bit, stopped, and refused like any bad request; they are no plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.client import calls
from app.jobs.questions import MAX_QUESTION_VALUES
from app.wire import QuestionStatus
from tests.unit.app import fake_solver
from tests.unit.app.programs import await_
from tests.unit.app.service_fixture import request_for, running, settings_for


def _question(case: int = fake_solver.FINDS, **parts: Any) -> dict[str, Any]:
    return {"ask": "why_not", "request": request_for(case), "options": {"time_limit_s": 20.0}, **parts}


def _ended(client: TestClient, path: str) -> dict[str, Any]:
    body: dict[str, Any] = client.get(path).json()
    return body if body["finished_at"] else {}


def test_a_question_is_answered_and_is_no_plan(client: TestClient) -> None:
    answer = client.post("/v1/questions", json=_question())
    assert answer.status_code == 202
    path = answer.headers["location"]
    body = await_(lambda: _ended(client, path), "the answer")
    assert (body["state"], body["stop_reason"], body["answer"]["complete"]) == ("succeeded", "finished", True)
    assert QuestionStatus.model_validate(body).answer is not None
    assert body["id"] not in [one["id"] for one in client.get("/v1/plans").json()["items"]]
    assert client.get(f"/v1/plans/{body['id']}").status_code == 404
    assert client.get(f"/v1/plans/{body['id']}/request").status_code == 404
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404


def test_a_plan_is_no_question(client: TestClient) -> None:
    plan = client.post("/v1/plans", json=request_for(fake_solver.FINDS)).json()
    assert client.get(f"/v1/questions/{plan['id'].replace('plan', 'question')[:39]}").status_code == 404


@pytest.mark.parametrize(
    ("case", "state", "has_answer"),
    [
        (fake_solver.UNTIL_STOPPED, "cancelled", True),
        (fake_solver.NOTHING_YET, "cancelled", False),
    ],
)
def test_a_question_that_is_stopped_keeps_what_it_has(
    client: TestClient, case: int, state: str, has_answer: bool
) -> None:
    path = client.post("/v1/questions", json=_question(case)).headers["location"]
    await_(lambda: client.get(path).json()["state"] == "running", "its start")
    if has_answer:
        await_(lambda: client.get(path).json()["answer"], "a part of the answer")
    client.post(path + ":cancel")
    body = await_(lambda: _ended(client, path), "its end")
    assert body["state"] == state
    assert body["answer"] is None or body["answer"]["complete"] is False
    assert not has_answer or body["answer"] is not None


def test_what_was_known_when_it_crashed_is_kept(client: TestClient) -> None:
    path = client.post("/v1/questions", json=_question(fake_solver.CRASHES)).headers["location"]
    body = await_(lambda: _ended(client, path), "its end")
    assert (body["state"], body["stop_reason"], body["fault"]["code"]) == ("incomplete", "crashed", "solver-failed")
    assert body["answer"]["complete"] is False


def test_the_same_key_asks_once(client: TestClient) -> None:
    headers = {"Idempotency-Key": "ask-once"}
    first, again = (client.post("/v1/questions", json=_question(), headers=headers) for _ in range(2))
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["idempotency-replayed"] == "true"
    other = client.post("/v1/questions", json=_question(fake_solver.UNTIL_STOPPED), headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused")


def test_what_was_prepared_for_a_plan_is_kept_with_it(client: TestClient) -> None:
    plan = client.post("/v1/plans", json=request_for(fake_solver.FINDS), headers={"Prefer": "wait=20"}).json()
    at = f"/v1/plans/{plan['id']}/losses"
    assert client.get(at).status_code == 404
    path = client.post("/v1/questions", json={"ask": "what_if_lost", "plan_id": plan["id"]}).headers["location"]
    await_(lambda: _ended(client, path), "the answer")
    assert [one["name"] for one in client.get(at).json()["answer"]["losses"]] == ["west"]
    assert client.delete(f"/v1/plans/{plan['id']}").status_code == 204
    assert client.get(at).status_code == 404
    assert client.get(path).status_code == 404, "it goes with the plan"


@pytest.mark.parametrize(("lost", "pointer"), [(["nowhere"], "/lost/0"), ([], "")])
def test_a_loss_of_nothing_is_refused_at_the_door(client: TestClient, lost: list[str], pointer: str) -> None:
    body = {"ask": "what_now", "request": request_for(fake_solver.FINDS), "lost": lost}
    answer = client.post("/v1/questions", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].startswith(pointer)


def test_a_stored_plan_may_stand_in_place_of_its_request(client: TestClient) -> None:
    plan = client.post("/v1/plans", json=request_for(fake_solver.FINDS), headers={"Prefer": "wait=20"}).json()
    path = client.post("/v1/questions", json={"ask": "why_not", "plan_id": plan["id"]}).headers["location"]
    body = await_(lambda: _ended(client, path), "the answer")
    assert body["answer"]["plan"]["iteration_s"] == plan["outcome"]["plan"]["metrics"]["iteration_s"]


@pytest.mark.parametrize(
    ("parts", "pointer"),
    [
        ({"plan_id": "plan_0"}, "/plan_id"),
        ({"plan": fake_solver.tiny_plan(1.0).model_dump(mode="json")}, "/plan"),
    ],
)
def test_a_question_names_one_thing_and_brings_no_plan_of_its_own(
    client: TestClient, parts: dict[str, Any], pointer: str
) -> None:
    answer = client.post("/v1/questions", json=_question(**parts))
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


def test_a_plan_that_is_not_there_does_not_exist(client: TestClient) -> None:
    answer = client.post("/v1/questions", json={"ask": "why_not", "plan_id": "plan_0"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
    (fault,) = answer.json()["errors"]
    assert (fault["where"], fault["pointer"]) == ("/plan_id", "/plan_id")


@pytest.mark.parametrize("parts", [{"ask": "why_not"}, {"ask": "what_now", "lost": ["west"]}])
def test_a_question_about_nothing_is_refused_as_a_whole(client: TestClient, parts: dict[str, Any]) -> None:
    answer = client.post("/v1/questions", json=parts)
    (fault,) = answer.json()["errors"]
    assert (answer.status_code, fault["pointer"], fault["where"]) == (422, "", "the whole document")
    assert "plan_id" in fault["remedy"]


def test_the_list_shows_the_newest_questions_first_without_answers(client: TestClient) -> None:
    asked = [client.post("/v1/questions", json=_question()).json()["id"] for _ in range(3)]
    first = client.get("/v1/questions", params={"limit": 2}).json()
    assert [one["id"] for one in first["items"]] == asked[:0:-1]
    assert (first["items"][0]["ask"], "answer" in first["items"][0]) == ("why_not", False)
    rest = client.get("/v1/questions", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert rest["items"][0]["id"] == asked[0]


MAX_GPUS = "/constraints/max_gpus"
HEADROOM = "/constraints/memory_headroom_fraction"


def _what_if(*changes: dict[str, Any]) -> dict[str, Any]:
    return {"ask": "what_if", "variants": [{"name": "one", "changes": list(changes)}]}


def _range(name: str, pointer: str, *values: float) -> dict[str, Any]:
    return {"name": name, "pointer": pointer, "values": values}


def _robust(*ranges: dict[str, Any]) -> dict[str, Any]:
    return {"ask": "robust", "ranges": list(ranges)}


@pytest.mark.parametrize(
    ("parts", "pointer", "said"),
    [
        ({"ask": "who"}, "/ask", "'frontier', got 'who'"),
        ({"ask": 1}, "/ask", "got '1'"),
        ({"changes": [{"pointer": "/cluster/nowhere", "value": 1}]}, "/changes/0/pointer", "leads nowhere"),
        ({"changes": [{"pointer": "cluster", "value": 1}]}, "/changes/0/pointer", "match"),
        (
            _what_if({"pointer": MAX_GPUS, "value": -1}),
            "/variants/0/changes",
            "after the changes /constraints/max_gpus",
        ),
        (
            _what_if({"pointer": MAX_GPUS, "value": 1}, {"pointer": MAX_GPUS, "value": 2}),
            "/variants/0/changes/1",
            "both change",
        ),
        (_what_if({"pointer": MAX_GPUS, "op": "increase", "value": "x"}), "/variants/0/changes/0", "needs a number"),
        ({"ask": "what_if", "variants": []}, "/variants", "at least 1"),
        (
            _what_if({"pointer": "/objective", "value": {"kind": "fewest_gpus", "target_iteration_s": 9.0}}),
            "/variants/0/changes",
            "the objective is fewest_gpus here and iteration_time in the request",
        ),
        (
            {
                **_what_if({"pointer": "/cluster/pools/*/gpu/usd_per_gpu_hour", "value": None}),
                "changes": [
                    {"pointer": "/objective", "value": {"kind": "cost_per_token"}},
                    {"pointer": "/cluster/pools/*/gpu/usd_per_gpu_hour", "value": 2.0},
                ],
            },
            "/variants/0/changes",
            "not all GPUs state a price here",
        ),
        (
            {
                "ask": "curves",
                "over": ["memory", "bandwidth"],
                "changes": [
                    {"pointer": "/cluster/links", "value": []},
                    {"pointer": "/cluster/places/*/uplink/oversubscription", "value": 1.0},
                    {"pointer": "/cluster/fabric", "value": "separate"},
                ],
            },
            "/over/1",
            "there is no bandwidth to change",
        ),
        ({"ask": "curves", "over": ["/cluster/nowhere"]}, "/over/0", "leads nowhere"),
        ({"ask": "curves", "over": ["speed"]}, "/over/0", "bandwidth"),
        ({"ask": "least", "target": {}}, "/target", "one target is needed"),
        ({"ask": "least", "target": {"tokens_per_s": 1e-3}}, "/target", "at most 10,000,000 s"),
        ({"ask": "frontier", "against": ["joy"]}, "/against/0", "joy"),
        ({"ask": "worth", "of": []}, "/of", "at least 1"),
        ({"ask": "frontier", "against": ["energy"], "watts_of_gpu": {"H1000": 700}}, "/watts_of_gpu/H1000", "H1000"),
        (_robust(_range("one", "/cluster/links/nowhere/latency_s", 0.0, 0.1)), "/ranges/0/pointer", "leads nowhere"),
        (_robust(_range("one", MAX_GPUS, 8, -1)), "/ranges/0", "after the changes /constraints/max_gpus"),
        (
            _robust(_range("headroom", HEADROOM, 0.0, 0.1), _range("more", HEADROOM, 0.2, 0.3)),
            "/ranges/1",
            "both change",
        ),
        (
            _robust(
                _range("planes", "/cluster/links/0/planes", 4, 76),
                _range("failed", "/cluster/links/0/num_failed_planes", 0, 4),
            ),
            "/ranges",
            "planes failed",
        ),
        ({"options": {"time_limit_s": 1e5}}, "/options/time_limit_s", "the limit of this service is 3,600 s"),
        (
            {"ask": "robust", "scenarios": [{"name": "as requested", "changes": [{"pointer": MAX_GPUS, "value": 8}]}]},
            "/scenarios/0/name",
            "is the name of the request as it is",
        ),
        (
            {"ask": "robust", "scenarios": [{"name": "one", "changes": [{"pointer": MAX_GPUS, "value": 8}]}] * 2},
            "/scenarios/1/name",
            "is the name of another scenario",
        ),
        (
            {
                **_robust(_range("gpus", MAX_GPUS, 8, 16)),
                "scenarios": [{"name": "gpus 8", "changes": [{"pointer": MAX_GPUS, "value": 9}]}],
            },
            "/ranges",
            "'gpus 8' is the name of another scenario",
        ),
        ({"options": {"time_limit_s": 8e4}}, "/options/time_limit_s", "limit of this service"),
    ],
)
def test_a_question_that_means_nothing_is_refused_with_its_place(
    client: TestClient, parts: dict[str, Any], pointer: str, said: str
) -> None:
    answer = client.post("/v1/questions", json=_question(**parts))
    assert answer.status_code == 422
    fault = answer.json()["errors"][0]
    assert fault["pointer"] == pointer
    assert said in fault["what"]
    assert fault["remedy"]


def test_a_question_says_what_it_asks(client: TestClient) -> None:
    error = client.post("/v1/questions", json={"request": request_for(0)}).json()["errors"][0]
    assert (error["code"], error["pointer"], error["what"]) == ("missing-field", "/ask", "Field required")
    assert error["allowed"]


@pytest.mark.parametrize("ask", ["what_if", "robust"])
def test_requests_that_a_question_makes_are_counted(client: TestClient, ask: str) -> None:
    request = request_for(0)
    cluster, (pool, *_) = request["cluster"], request["cluster"]["pools"]
    request["cluster"] = {**cluster, "pools": [{**pool, "id": f"p{number}"} for number in range(900)]}
    changes = [{"pointer": MAX_GPUS, "value": 8}]
    parts = {
        "what_if": {"variants": [{"name": f"v{number}", "changes": changes} for number in range(200)]},
        "robust": {"scenarios": [{"name": "s", "slow_pools": [{"pool": "p0", "times": 2}] * 100}]},
    }[ask]
    error = client.post("/v1/questions", json={"ask": ask, "request": request, **parts}).json()["errors"][0]
    assert (error["code"], error["limit"]) == ("limit-exceeded", MAX_QUESTION_VALUES)
    assert error["pointer"] == {"what_if": "/variants", "robust": "/scenarios"}[ask]


def test_questions_wait_behind_usual_plans_and_end_at_once_while_they_wait(tmp_path: Path) -> None:
    with running(settings_for(tmp_path, run_worker=False)) as client:
        body = client.post("/v1/questions", json=_question()).json()
        assert body["state"] == "queued"
        assert client.post(f"/v1/questions/{body['id']}:cancel").json()["state"] == "cancelled"


def test_the_client_asks_what_the_route_takes() -> None:
    call = calls.submit_question(_question())
    assert (call.method, call.path) == ("POST", "/v1/questions")
    assert "Idempotency-Key" in call.headers
