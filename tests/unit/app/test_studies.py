"""A study fans out into plans of low priority, reads as one table, and keeps what cannot be planned with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from models.request import PlanRequest
from solver.questions.losses import changes_of
from solver.questions.searches import changed
from tests.unit.app import fake_solver
from tests.unit.app.programs import await_
from tests.unit.app.service_fixture import FAKE_SOLVERS, request_for, running, settings_for

SEEDS = {"/options/seed": [fake_solver.FINDS, fake_solver.INFEASIBLE]}


def _study(**parts: Any) -> dict[str, Any]:
    return {"base": request_for(fake_solver.FINDS), **parts}


def _done(client: TestClient, path: str) -> dict[str, Any]:
    body: dict[str, Any] = client.get(path).json()
    return body if body["state"] == "done" else {}


def test_a_grid_is_planned_and_told_as_a_table(client: TestClient) -> None:
    axes = {**SEEDS, "/options/time_limit_s": [5.0, 6.0]}
    answer = client.post("/v1/studies", json=_study(name="grid", axes=axes, patches=[{"constraints": {"max_gpus": 1}}]))
    assert answer.status_code == 202
    body = await_(lambda: _done(client, answer.headers["location"]), "done")
    assert [one["changes"] for one in body["members"][:2]] == [
        {"/options/seed": 0, "/options/time_limit_s": 5.0},
        {"/options/seed": 0, "/options/time_limit_s": 6.0},
    ]
    assert body["counts"] == {"succeeded": 2, "infeasible": 2, "refused": 1}
    assert [one["figures"] and one["figures"]["iteration_s"] for one in body["members"]] == [2.0, 2.0, None, None, None]
    (fault,) = body["members"][4]["faults"]
    assert (fault["code"], fault["pointer"]) == ("too-few-gpus", "/constraints/max_gpus")
    plan = client.get(f"/v1/plans/{body['members'][0]['plan_id']}").json()
    assert (plan["study_id"], plan["priority"]) == (body["id"], 6)


def test_a_member_is_called_what_it_changes(client: TestClient) -> None:
    axes = {"/options/seed": [fake_solver.FINDS], "/options/time_limit_s": [5.0, 6.0]}
    order = _study(name="x" * 100, axes=axes, patches=[{}, {"workload": {"sequence_length": 4096}}])
    members = client.post("/v1/studies", json=order).json()["members"]
    names = [client.get(f"/v1/plans/{one['plan_id']}/status").json()["name"] for one in members]
    assert [one.removeprefix("x" * 90).strip("x…: ") for one in names] == [
        "seed 0, time_limit_s 5.0", "seed 0, time_limit_s 6.0", "", "sequence_length 4096"]  # fmt: skip
    assert max(len(one) for one in names) == 120
    (member,) = client.post("/v1/studies", json=_study(patches=[{"options": {"time_limit_s": 7}}])).json()["members"]
    assert client.get(f"/v1/plans/{member['plan_id']}/status").json()["name"] == "time_limit_s 7"


def test_the_same_key_makes_one_study(client: TestClient) -> None:
    headers = {"Idempotency-Key": "study-once"}
    first, again = (client.post("/v1/studies", json=_study(axes=SEEDS), headers=headers) for _ in range(2))
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["idempotency-replayed"] == "true"
    other = client.post("/v1/studies", json=_study(patches=[{}]), headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused")


@pytest.mark.parametrize(
    ("study", "code"),
    [
        (_study(), "empty-study"),
        (_study(axes={"/options/seed": []}), "empty-study"),
        (
            _study(axes={"/options/seed": list(range(20)), "/constraints/max_gpus": list(range(1, 21))}),
            "limit-exceeded",
        ),
        (_study(axes={"options": [1]}), "invalid-patch"),
        (_study(axes={"/cluster/places/9999/id": [1]}), "invalid-patch"),
        (_study(axes={f"/cluster/places/{'9' * 5000}/id": [1]}), "invalid-patch"),
        (_study(axes={f"/cluster/places/{'9' * 5000}": [1]}), "invalid-patch"),
        (_study(axes={"/options/seed": [1, 2], "/options": [{"time_limit_s": 1}]}), "invalid-patch"),
        (_study(axes={"/options/seed": [-1]}), "out-of-range"),
        (_study(patches=[{"bogus": 1}]), "unknown-field"),
        ({"base": {}, "patches": [{}]}, "missing-field"),
        ({"patches": [{}]}, "missing-field"),
    ],
)
def test_what_is_no_study_is_refused(client: TestClient, study: dict[str, Any], code: str) -> None:
    answer = client.post("/v1/studies", json=study)
    assert (answer.status_code, answer.json()["code"]) == (422, code)


@pytest.mark.parametrize(
    ("study", "pointer"),
    [
        ({"base": {}, "patches": [{}]}, "/base/workload"),
        (_study(patches=[{"options": {"seed": -1}}]), "/patches/0/options/seed"),
        (_study(patches=[{"/options/seed": -1}]), "/patches/0/~1options~1seed"),
        (_study(axes={"/options/workers": [1], "/options/seed": [-1]}), "/axes/~1options~1seed/0"),
        (_study(axes={"/options": [{"seed": -1}]}), "/axes/~1options/0/seed"),
        (_study(patches=[{}] * 10_001), "/patches"),
        (_study(patches=[{}] * 9_999), "/patches"),
    ],
)
def test_a_fault_points_into_the_body(client: TestClient, study: dict[str, Any], pointer: str) -> None:
    assert client.post("/v1/studies", json=study).json()["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize("pointer", ["x" * 1_000_000, "/" + "x" * 1_000_000, "/options/" + "9" * 1_000_000])
def test_an_answer_does_not_repeat_what_is_very_long(client: TestClient, pointer: str) -> None:
    answer = client.post("/v1/studies", json=_study(axes={pointer: [1]}))
    assert answer.status_code == 422
    assert len(answer.content) < 20_000


def test_a_study_is_cancelled_and_removed_with_its_plans(tmp_path: Path) -> None:
    with running(settings_for(tmp_path, run_worker=False)) as client:
        path = client.post("/v1/studies", json=_study(axes=SEEDS)).headers["location"]
        assert client.get(path).json()["state"] == "queued"
        cancelled = client.post(path + ":cancel").json()
        assert (cancelled["state"], cancelled["counts"]) == ("done", {"cancelled": 2})
        removed = cancelled["members"][0]["plan_id"]
        client.delete(f"/v1/plans/{removed}")
        assert client.get(path).json()["counts"] == {"deleted": 1, "cancelled": 1}
        assert client.delete(path).status_code == 204
        assert client.get(path).status_code == 404
        assert client.get("/v1/plans").json()["items"] == []


def test_studies_are_listed_newest_first(tmp_path: Path) -> None:
    with running(settings_for(tmp_path, run_worker=False)) as client:
        made = [client.post("/v1/studies", json=_study(name=str(n), axes=SEEDS)).json()["id"] for n in range(3)]
        first = client.get("/v1/studies?limit=2")
        page, link = first.json(), first.headers["link"]
        assert link == f'</v1/studies?limit=2&cursor={page["next_cursor"]}>; rel="next"'
        rest = client.get(link.partition(">")[0].removeprefix("<"))
        assert [one["id"] for one in page["items"] + rest.json()["items"]] == made[::-1]
        assert "link" not in rest.headers
        assert client.get("/v1/studies?cursor=study_1").status_code == 400


class TestReplan:
    """A new plan from an old one, and what moved."""

    def test_a_changed_request_makes_a_linked_plan(self, client: TestClient) -> None:
        parent = client.post("/v1/plans", json=request_for(fake_solver.FINDS), headers={"Prefer": "wait=30"}).json()
        place = request_for(0)["cluster"]["places"][-1]["id"]
        body = {"patch": {"options": {"time_limit_s": 7.0}}, "lost_places": [place]}
        path = f"/v1/plans/{parent['id']}"
        child = client.post(path + ":replan", json=body, headers={"Prefer": "wait=30"}).json()
        assert (child["parent_id"], child["links"]["moves"]) == (parent["id"], f"/v1/plans/{child['id']}/moves")
        request = client.get(f"/v1/plans/{child['id']}/request").json()
        assert request["options"]["time_limit_s"] == 7.0
        assert request["constraints"]["forbidden_places"] == [place]
        moves = client.get(child["links"]["moves"]).json()
        assert (moves["num_stage_groups"], moves["num_moved"], moves["moves"]) == (2, 0, [])
        assert client.get(path + "/moves").status_code == 409, "nothing to compare it with"

    def test_lost_places_take_their_links_along_as_what_now_has_it(self, client: TestClient) -> None:
        request = request_for(fake_solver.FINDS)
        lost = request["cluster"]["links"][0]["to_place"]
        parent = client.post("/v1/plans", json=request, headers={"Prefer": "wait=30"}).json()
        path = f"/v1/plans/{parent['id']}:replan"
        child = client.post(path, json={"lost_places": [lost]}, headers={"Prefer": "wait=30"}).json()
        planned = PlanRequest.model_validate(client.get(f"/v1/plans/{child['id']}/request").json())
        before = PlanRequest.model_validate(request)
        assert planned == changed(before, changes_of(before, [lost]))
        assert all(lost not in (link.from_place, link.to_place) for link in planned.cluster.links)
        assert len(planned.cluster.links) < len(before.cluster.links)

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({"patch": {"cluster": None}}, "/patch/cluster"),
            ({"patch": {"options": {"time_limit_s": 5000.0}}}, "/patch/options/time_limit_s"),
            ({"patch": {"cluster": {"places": []}}}, "/patch/cluster/places"),
            ({"lost_places": ["nowhere"]}, "/lost_places"),
            ({"patch": []}, "/patch"),
            ({"patch": {"constraints": 5}, "lost_places": ["west-1"]}, "/patch/constraints"),
            ({"patch": {"constraints": {"forbidden_places": 3}}, "lost_places": ["west-1"]}, "/lost_places"),
            ({"webhook": {"url": "https://127.0.0.1/"}}, "/webhook/url"),
        ],
    )
    def test_a_patch_that_breaks_the_request_is_refused(
        self, client: TestClient, body: dict[str, Any], pointer: str
    ) -> None:
        parent = client.post("/v1/plans", json=request_for(fake_solver.FINDS)).headers["location"]
        answer = client.post(parent + ":replan", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


def test_a_replan_that_loses_too_much_says_what_to_keep(tmp_path: Path) -> None:
    solvers = FAKE_SOLVERS.model_copy(update={"lint": "solver.lint:lint"})
    with running(settings_for(tmp_path, solvers=solvers, run_worker=False)) as client:
        request = request_for(fake_solver.FINDS)
        pins = [{"first_pipeline_rank": 0, "last_pipeline_rank": 0, "place": "east"}]
        located = [client.post("/v1/plans", json=one).headers["location"] for one in (
            request, {**request, "constraints": {**request.get("constraints", {}), "pins": pins}}
        )]  # fmt: skip
        (all_lost,) = client.post(located[0] + ":replan", json={"lost_places": ["east", "east-z1", "west"]}).json()[
            "errors"
        ]
        (pin_lost,) = client.post(located[1] + ":replan", json={"lost_places": ["east"]}).json()["errors"]
    assert all_lost["pointer"] == pin_lost["pointer"] == "/lost_places"
    assert "no GPU is left" in all_lost["what"]
    assert "after the losses /constraints/pins/0 is refused" in pin_lost["what"]
    assert "leave 'east' and 'east-z1' (256 GPUs) or 'west' (256 GPUs) out of lost_places" in (all_lost["remedy"])
    assert "leave 'east' (256 GPUs) out of lost_places" in pin_lost["remedy"]


def test_an_evaluation_is_timed_and_compared_with_ours(client: TestClient) -> None:
    request = request_for(fake_solver.FINDS, time_limit_s=11.0)
    given = fake_solver.tiny_plan(2.4).model_dump(mode="json")
    before = client.post("/v1/plans:evaluate", json={"request": request, "plan": given}).json()
    assert before["comparison"] is None
    ours = client.post("/v1/plans", json=request, headers={"Prefer": "wait=30"}).json()
    after = client.post("/v1/plans:evaluate", json={"request": request, "plan": given}).json()
    time_s = after["replayed_iteration_s"] or 2.4
    assert after["comparison"]["plan_id"] == ours["id"]
    assert after["comparison"]["times_as_slow"] == pytest.approx(time_s / 2.0)


def test_a_large_base_has_few_members(client: TestClient) -> None:
    base = request_for(0)
    base["constraints"] = {"forbidden_places": ["x"] * 9000}
    for number, status in ((2, 422), (256, 422)):
        study = {"base": base, "axes": {"/options/seed": list(range(number))}}
        answer = client.post("/v1/studies", json=study)
        assert answer.status_code == status
        assert (answer.json()["code"] == "limit-exceeded") == (number == 256)


@pytest.mark.parametrize("where", ["/base", "/axes", "/patches"])
def test_what_all_members_hold_is_counted(client: TestClient, where: str) -> None:
    large = {"constraints": {"forbidden_places": ["x"] * 9000}}
    study = {
        "/base": {"base": {**request_for(0), **large}, "axes": {"/options/seed": list(range(250))}},
        "/axes": {
            "base": request_for(0),
            "axes": {"/constraints": list(large.values()), "/options/seed": list(range(250))},
        },
        "/patches": {"base": request_for(0), "patches": [large] * 60},
    }[where]
    error = client.post("/v1/studies", json=study).json()["errors"][0]
    assert (error["code"], error["pointer"]) == ("limit-exceeded", where)
