"""The plan resource keeps the conventions of the wire: 202 and 200, keys, tags, cursors, exports."""

from __future__ import annotations

import csv
import io
import sqlite3
import uuid
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app import documents
from app.api import exports
from app.documents import canonical, digest
from app.faults import Refused
from models.request import PlanRequest
from tests.unit.app import fake_solver
from tests.unit.app.exporters.test_binding import nameless
from tests.unit.app.service_fixture import request_for, running, settings_for, submit


@pytest.fixture(scope="module")
def planned(client: TestClient) -> str:
    """The path of a plan that succeeded."""
    return str(submit(client, fake_solver.FINDS, wait_s=30).headers["location"])


def test_a_submission_is_accepted_and_found_under_its_location(client: TestClient) -> None:
    answer = submit(client, fake_solver.FINDS)
    assert answer.status_code == 202
    body = answer.json()
    assert answer.headers["location"] == body["links"]["self"] == f"/v1/plans/{body['id']}"
    assert client.get(answer.headers["location"]).json()["id"] == body["id"]


def test_prefer_wait_gives_the_whole_plan_at_once(client: TestClient) -> None:
    answer = submit(client, fake_solver.FINDS, wait_s=30)
    assert answer.status_code == 200
    assert answer.headers["preference-applied"] == "wait=30"
    plan = answer.json()
    assert plan["outcome"]["plan"]["verdict"]["accepted"] is True
    assert plan["request_digest"] == digest(canonical(PlanRequest.model_validate(request_for(fake_solver.FINDS))))


def test_a_wait_that_is_too_short_leaves_the_plan_running(client: TestClient) -> None:
    answer = submit(client, fake_solver.UNTIL_STOPPED, wait_s=1)
    assert answer.status_code == 202
    assert answer.headers["retry-after"]
    assert client.delete(answer.headers["location"]).status_code == 204


def test_the_request_is_kept_as_it_was_understood(client: TestClient, planned: str) -> None:
    stored = client.get(f"{planned}/request").json()
    assert PlanRequest.model_validate(stored) == PlanRequest.model_validate(request_for(fake_solver.FINDS))
    assert stored["constraints"]["memory_headroom_fraction"] == 0.06, "defaults are stated"


def test_an_unchanged_plan_is_not_sent_again(client: TestClient, planned: str) -> None:
    tag = client.get(planned).headers["etag"]
    again = client.get(planned, headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert client.get(planned, headers={"If-None-Match": '"other"'}).status_code == 200


def test_a_plan_is_removed_only_as_the_client_knows_it(client: TestClient) -> None:
    """RFC 9110, 13.1.1: with If-Match, tags are compared strongly."""
    path, second = (submit(client, fake_solver.FINDS, wait_s=30).headers["location"] for _ in range(2))
    tag = client.get(path, headers={"Accept-Encoding": "identity"}).headers["etag"]
    for other in ('"other"', f"W/{tag}", ""):
        answer = client.delete(path, headers={"If-Match": other})
        assert (answer.status_code, answer.json()["code"]) == (412, "precondition-failed")
    assert client.delete("/v1/plans/plan_x", headers={"If-Match": tag}).status_code == 404
    assert client.delete(path, headers={"If-Match": f'"other", {tag}'}).status_code == 204
    assert client.delete(second, headers={"If-Match": "*"}).status_code == 204


def test_status_is_light_and_tells_the_figures(client: TestClient, planned: str) -> None:
    status = client.get(f"{planned}/status").json()
    assert "outcome" not in status
    assert status["progress"]["incumbent_s"] == 2.0
    assert (status["state"], status["queue_position"], status["attempt"]) == ("succeeded", None, 1)


class TestIdempotency:
    def test_the_same_key_and_request_make_one_plan(self, client: TestClient) -> None:
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        body = request_for(fake_solver.FINDS)
        first = client.post("/v1/plans", json=body, headers=headers)
        second = client.post("/v1/plans", json=dict(reversed(body.items())), headers=headers)
        assert first.json()["id"] == second.json()["id"]
        assert second.headers["idempotency-replayed"] == "true"
        assert "idempotency-replayed" not in first.headers

    def test_the_same_key_with_another_request_is_refused(self, client: TestClient) -> None:
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        client.post("/v1/plans", json=request_for(fake_solver.FINDS), headers=headers)
        other = client.post("/v1/plans", json=request_for(fake_solver.INFEASIBLE), headers=headers)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused")

    def test_a_second_request_while_the_first_is_answered_conflicts(self, client: TestClient) -> None:
        key = str(uuid.uuid4())
        with client.app.state.service.holding_key(key):  # type: ignore[attr-defined]
            answer = client.post("/v1/plans", json=request_for(fake_solver.FINDS), headers={"Idempotency-Key": key})
        assert (answer.status_code, answer.json()["code"]) == (409, "idempotency-key-in-use")

    @pytest.mark.parametrize("key", ["", "x" * 256, "two words"])
    def test_a_malformed_key_is_refused(self, client: TestClient, key: str) -> None:
        answer = client.post("/v1/plans", json=request_for(fake_solver.FINDS), headers={"Idempotency-Key": key})
        assert (answer.status_code, answer.json()["code"]) == (400, "idempotency-key-malformed")

    def test_many_submissions_with_one_key_make_one_plan(self, client: TestClient) -> None:
        service = client.app.state.service  # type: ignore[attr-defined]
        request = PlanRequest.model_validate(request_for(fake_solver.FINDS))
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda _: service.submit(request, "the-one-key"), range(16)))
        assert len({one.plan_id for one in made}) == 1
        assert sum(one.is_new for one in made) == 1


def test_the_list_pages_through_every_plan_once_newest_first(client: TestClient) -> None:
    made = [submit(client, fake_solver.INFEASIBLE, wait_s=30).json()["id"] for _ in range(3)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = client.get("/v1/plans", params=query).json()
        seen += [one["id"] for one in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == len(set(seen))
    assert set(made) <= set(seen)


def test_the_list_can_be_narrowed_to_a_state(client: TestClient, planned: str) -> None:
    items = client.get("/v1/plans", params={"state": "succeeded"}).json()["items"]
    assert planned.rsplit("/", 1)[1] in {one["id"] for one in items}
    assert {one["state"] for one in items} == {"succeeded"}
    assert client.get("/v1/plans", params={"state": "lost"}).status_code == 400


def test_a_removed_plan_is_gone(client: TestClient) -> None:
    location = submit(client, fake_solver.FINDS, wait_s=30).headers["location"]
    assert client.delete(location).status_code == 204
    answers = [client.get(location + end) for end in ("", "/status", "/events", "/request", "/artifacts/chrome-trace")]
    answers += [client.delete(location), client.post(f"{location}:cancel")]
    assert {one.status_code for one in answers} == {404}
    assert {one.headers["content-type"] for one in answers} == {"application/problem+json"}


def test_a_plan_is_exported_on_request(client: TestClient, planned: str) -> None:
    trace = client.get(f"{planned}/artifacts/chrome-trace")
    assert trace.headers["content-disposition"].endswith('.trace.json"')
    assert len(trace.json()["traceEvents"]) > 12
    table = client.get(f"{planned}/artifacts/rank-map-csv").text
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["building"] for row in rows] == ["east", "west"]
    assert rows[1]["pool"] == "'=p2", "a spreadsheet must not compute a name"


def test_what_was_not_planned_cannot_be_exported(client: TestClient) -> None:
    location = submit(client, fake_solver.INFEASIBLE, wait_s=30).headers["location"]
    answer = client.get(f"{location}/artifacts/chrome-trace")
    assert (answer.status_code, answer.json()["code"]) == (409, "not-finished")
    assert client.get(f"{location}/artifacts/abacus").status_code == 400


@pytest.fixture
def nameless_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plan is the whole-host one of a cluster without host names: the solver of these tests knows no pools."""
    monkeypatch.setattr(exports, "_planned", lambda *_: nameless())


@pytest.mark.usefixtures("nameless_plan")
def test_hosts_are_bound_when_a_plan_is_exported(client: TestClient, planned: str) -> None:
    path = f"{planned}/artifacts/slurm-hostfile"
    assert client.get(path).status_code == 422, "the plan knows no hosts"
    answer = client.post(path, json={"hosts": "east-pool=e[1-2]\nwest-pool=w[1-2]"})
    assert (answer.status_code, list(dict.fromkeys(answer.text.split()))) == (200, ["e1", "w1", "e2", "w2"])
    lacking = client.post(path, json={"hosts": "east-pool=e[1-2]"})
    assert (lacking.status_code, lacking.json()["code"]) == (422, "missing-field")
    (error,) = lacking.json()["errors"]
    assert (error["where"], error["what"]) == (
        "hosts", "pool 'west-pool' needs 2 hosts, 0 were given; hosts 1 to 2 of the pool have no name"
    )  # fmt: skip


@pytest.mark.usefixtures("nameless_plan")
def test_the_folder_that_starts_a_plan_comes_as_a_zip(client: TestClient, planned: str) -> None:
    hosts = "east-pool=e[1-2]\nwest-pool=w[1-2]"
    body = {"trainer": "megatron-core", "scheduler": "slurm", "hosts": hosts, "partition": "gpu"}
    answer = client.post(f"{planned}/bundle", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip"), answer.text
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert "#SBATCH --partition=gpu\n" in archive.read("isthmus/job.sbatch").decode()
    for field, value in (("time_limit_minutes", "5"), ("time_limit_minutes", True), ("block_topology", "yes")):
        lax = client.post(f"{planned}/bundle", json={**body, field: value})
        assert (lax.status_code, lax.json()["errors"][0]["pointer"]) == (422, f"/{field}")
    refused = client.post(f"{planned}/bundle", json={**body, "partition": "gpu; reboot"})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/partition")


class TestDirect:
    def test_validate_tells_reasons_without_a_plan(self, client: TestClient) -> None:
        good = client.post("/v1/plans:validate", json=request_for(fake_solver.FINDS)).json()
        assert good == {"feasible": True, "reasons": [], "diagnostics": []}
        bad = client.post("/v1/plans:validate", json=request_for(fake_solver.INFEASIBLE)).json()
        assert (bad["feasible"], bad["reasons"][0]["code"]) == (False, "too-few-gpus")

    def test_evaluate_judges_a_plan_of_the_client(self, client: TestClient) -> None:
        request = request_for(fake_solver.FINDS)
        verdicts = []
        for iteration_s in (2.0, 3.0):
            plan = fake_solver.tiny_plan(iteration_s).model_dump(mode="json")
            answer = client.post("/v1/plans:evaluate", json={"request": request, "plan": plan})
            verdicts.append(answer.json()["verdict"])
        assert [one["accepted"] for one in verdicts] == [True, False]
        assert verdicts[1]["violations"][0]["rule"] == "too-slow"

    def test_a_pipeline_is_timed_at_once(self, client: TestClient) -> None:
        answer = client.post("/v1/schedules", json=fake_solver.PROBLEM.model_dump(mode="json"))
        assert answer.status_code == 200
        assert answer.json() == fake_solver.SCHEDULE.model_dump(mode="json")

    def test_too_many_at_once_are_told_to_come_back(self, client: TestClient) -> None:
        slow: dict[str, Any] = fake_solver.PROBLEM.model_dump(mode="json")
        slow["options"] |= {"seed": fake_solver.UNTIL_STOPPED, "time_limit_s": 1.0}
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: client.post("/v1/schedules", json=slow), range(4)))
        assert sorted(one.status_code for one in answers) == [200, 200, 503, 503]
        busy = [one for one in answers if one.status_code == 503]
        assert {one.json()["code"] for one in busy} == {"too-busy"}
        assert all(one.headers["retry-after"] for one in busy)


def test_a_full_queue_refuses_with_the_limit_and_a_time(tmp_path: Any) -> None:
    with running(settings_for(tmp_path, run_worker=False, max_queued_plans=2)) as client:
        codes = [submit(client, fake_solver.FINDS).status_code for _ in range(3)]
        last = submit(client, fake_solver.FINDS)
        assert codes == [202, 202, 429]
        assert last.headers["retry-after"]
        assert "the limit is 2" in last.json()["detail"]
        assert (last.json()["errors"][0]["limit"], last.json()["errors"][0]["value"]) == (2, 3)
        positions = [one["queue_position"] for one in client.get("/v1/plans").json()["items"]]
        assert positions == [1, 0]
        assert client.get("/healthz/ready").status_code == 503, "nobody is there to solve"
        assert client.get("/healthz/live").status_code == 200


def test_cancel_of_a_waiting_plan_ends_it_at_once(tmp_path: Any) -> None:
    with running(settings_for(tmp_path, run_worker=False)) as client:
        location = submit(client, fake_solver.FINDS).headers["location"]
        answer = client.post(f"{location}:cancel")
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")


def test_the_longest_wait_is_never_less_than_none(tmp_path: Any) -> None:
    with running(settings_for(tmp_path, run_worker=False)) as client:
        submit(client, fake_solver.FINDS)
        with closing(sqlite3.connect(tmp_path / "service.sqlite")) as database, database:
            database.execute("UPDATE isthmus_plans SET created_at = created_at + 3600")  # the clock was set back
        assert "isthmus_oldest_queued_seconds 0.0" in client.get("/metrics").text


def test_a_service_can_demand_keys(tmp_path: Any) -> None:
    with running(settings_for(tmp_path, run_worker=False, require_idempotency_key=True)) as client:
        answer = submit(client, fake_solver.FINDS)
        assert (answer.status_code, answer.json()["code"]) == (400, "idempotency-key-missing")


def test_health_and_figures(client: TestClient, planned: str) -> None:
    assert client.get("/healthz/ready").json() == {"status": "ok"}
    client.get(planned)
    text = client.get("/metrics").text
    assert 'isthmus_plans{state="succeeded"}' in text
    assert "isthmus_workers 1.0" in text
    assert 'route="/v1/plans/{plan_id}"' in text
    assert planned not in text, "paths are not labels"


def test_a_plan_with_more_values_than_a_body_may_have_is_read_and_exported(
    client: TestClient, planned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small fleet with a batch of a million sequences has such a plan."""
    other = planned.replace("/v1/plans/", "")
    own, plan = (client.get(planned + path).content for path in ("/request", ""))
    most = own.count(b",") + own.count(b"[") + own.count(b"{")
    assert plan.count(b",") > most
    monkeypatch.setattr(documents, "MAX_JSON_VALUES", most)
    monkeypatch.setattr(documents, "MAX_JSON_CONTAINERS", most)
    with pytest.raises(Refused, match="values"):
        documents.parse_json(plan)
    for path in ("/summary", "/artifacts/report-html", f"/comparison?other={other}"):
        assert client.get(planned + path).status_code == 200, path
