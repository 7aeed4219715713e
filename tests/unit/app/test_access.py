"""Keys decide who comes in, owners whose plans are seen, quotas how much of it, with the limit and the value."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.jobs.access import ANYBODY, Caller, Shares
from app.jobs.service import PlanService
from app.settings import InvalidSetting
from app.storage.keys import KeyStore, NewKey
from app.storage.tables import KEYS
from tests.unit.app.programs import await_
from tests.unit.app.service_fixture import request_for, running, settings_for


def _headers(client: TestClient, owner: str, *scopes: str, **limits: int) -> dict[str, str]:
    service: PlanService = client.app.state.service  # type: ignore[attr-defined]
    _, token = service.keys.create(NewKey(owner, frozenset(scopes), **limits))
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service that wants keys and solves nothing."""
    folder = tmp_path_factory.mktemp("locked")
    with running(settings_for(folder, run_worker=False, authentication="required")) as client:
        yield client


@pytest.fixture(scope="module")
def alice(locked: TestClient) -> dict[str, str]:
    """Headers of a caller who may read and submit."""
    return _headers(locked, "alice", "read", "submit")


@pytest.fixture(scope="module")
def plan(locked: TestClient, alice: dict[str, str]) -> str:
    """The path of a plan of hers."""
    return str(locked.post("/v1/plans", json=request_for(0), headers=alice).headers["location"])


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        (None, "credentials-missing"),
        ("Bearer isthmus_0123456789abcdef_" + "0" * 64, "credentials-invalid"),
        ("Bearer ", "credentials-invalid"),
        ("Basic YWxpY2U6eA==", "credentials-invalid"),
        ("Bearer isthmus_' OR 1=1 --", "credentials-invalid"),
    ],
)
def test_without_a_living_key_nobody_comes_in(locked: TestClient, authorization: str | None, code: str) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    answer = locked.get("/v1/plans", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, code)
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_secret_with_one_wrong_digit_is_refused(locked: TestClient, alice: dict[str, str]) -> None:
    token = alice["Authorization"]
    wrong = token[:-1] + ("0" if token[-1] != "0" else "1")
    assert locked.get("/v1/plans", headers={"Authorization": wrong}).status_code == 401
    assert locked.get("/v1/plans", headers=alice).status_code == 200


def test_the_body_of_a_stranger_is_not_read(locked: TestClient) -> None:
    answer = locked.post("/v1/plans", content=b"x" * 1000, headers={"Content-Type": "application/json"})
    assert answer.json()["code"] == "credentials-missing", "not invalid-json"


def test_pages_and_probes_need_no_key(locked: TestClient) -> None:
    for path in ("/healthz/live", "/docs", "/openapi.json", "/plans", "/plans/plan_0", "/static/desk/main.js"):
        assert locked.get(path).status_code == 200, path
    assert locked.get("/v1/plans").status_code == 401
    assert locked.get("/metrics").status_code == 401


def test_only_a_digest_of_the_secret_is_stored(locked: TestClient, alice: dict[str, str]) -> None:
    service: PlanService = locked.app.state.service  # type: ignore[attr-defined]
    secret = alice["Authorization"].rpartition("_")[2]
    with service.engine.connect() as connection:
        stored = [str(value) for row in connection.execute(KEYS.select()) for value in row]
    assert not any(secret in value for value in stored)


@pytest.mark.parametrize(("scope", "get", "post"), [("read", 200, 403), ("submit", 403, 202), ("admin", 200, 202)])
def test_a_scope_opens_what_it_names(locked: TestClient, scope: str, get: int, post: int) -> None:
    headers = _headers(locked, f"only-{scope}", scope)
    assert locked.get("/v1/plans", headers=headers).status_code == get
    assert locked.post("/v1/plans", json=request_for(0), headers=headers).status_code == post


def _ended(client: TestClient, names: list[str]) -> list[dict[str, Any]]:
    rows = [client.get(f"/v1/plans/{name}").json() for name in names]
    return rows if all(row["finished_at"] for row in rows) else []


class TestOwners:
    """Another owner's plan is answered as one that does not exist."""

    @pytest.mark.parametrize(
        ("method", "part"),
        [
            ("GET", ""),
            ("GET", "/status"),
            ("GET", "/request"),
            ("GET", "/events"),
            ("GET", "/moves"),
            ("GET", "/artifacts/chrome-trace"),
            ("POST", ":cancel"),
            ("POST", ":replan"),
            ("POST", "/artifacts/slurm-hostfile"),
            ("POST", "/bundle"),
            ("DELETE", ""),
        ],
    )
    def test_a_stranger_finds_nothing(self, locked: TestClient, plan: str, method: str, part: str) -> None:
        mallory = _headers(locked, "mallory", "read", "submit")
        bodies: dict[str, Any] = {
            ":replan": {},
            "/artifacts/slurm-hostfile": {"hosts": "a"},
            "/bundle": {"trainer": "nemo", "scheduler": "ssh"},
        }
        body = {"json": bodies[part]} if part in bodies else {}
        theirs = locked.request(method, plan + part, headers=mallory, **body)  # type: ignore[arg-type]
        absent = locked.request(method, "/v1/plans/plan_" + "0" * 32 + part, headers=mallory, **body)  # type: ignore[arg-type]
        assert theirs.status_code == absent.status_code == 404
        assert theirs.json()["code"] == absent.json()["code"] == "not-found"

    def test_a_stranger_asks_no_question_about_it(self, locked: TestClient, plan: str) -> None:
        mallory, named = _headers(locked, "mallory", "read", "submit"), plan.rpartition("/")[2]
        asked = locked.post("/v1/questions", json={"ask": "why_not", "plan_id": named}, headers=mallory)
        assert (asked.status_code, asked.json()["code"]) == (404, "not-found")

    def test_the_plan_is_still_there_for_its_owner(self, locked: TestClient, plan: str, alice: dict[str, str]) -> None:
        assert locked.get(plan, headers=alice).status_code == 200
        assert locked.get(plan, headers=_headers(locked, "alice", "read")).status_code == 200, "another key of hers"
        assert locked.get(plan, headers=_headers(locked, "ops", "admin")).status_code == 200

    def test_a_tag_does_not_tell_that_a_plan_exists(self, locked: TestClient, plan: str, alice: dict[str, str]) -> None:
        tag = locked.get(plan, headers=alice).headers["etag"]
        mallory = {**_headers(locked, "mallory", "read"), "If-None-Match": tag}
        assert locked.get(plan, headers={**alice, "If-None-Match": tag}).status_code == 304
        assert locked.get(plan, headers=mallory).status_code == 404

    def test_lists_show_own_plans_only(self, locked: TestClient, plan: str, alice: dict[str, str]) -> None:
        def listed(headers: dict[str, str]) -> list[str]:
            return [one["links"]["self"] for one in locked.get("/v1/plans", headers=headers).json()["items"]]

        assert plan in listed(alice)
        assert listed(_headers(locked, "newcomer", "read")) == []

    def test_two_owners_may_choose_the_same_idempotency_key(self, locked: TestClient) -> None:
        names = []
        for owner in ("left", "right"):
            headers = {**_headers(locked, owner, "submit"), "Idempotency-Key": "same"}
            names.append(locked.post("/v1/plans", json=request_for(0), headers=headers).json()["id"])
        assert len(set(names)) == 2


def test_a_revoked_key_is_refused_at_once(locked: TestClient) -> None:
    headers = _headers(locked, "leaver", "read")
    service: PlanService = locked.app.state.service  # type: ignore[attr-defined]
    (key,) = [one for one in service.keys.all() if one.owner == "leaver"]
    assert locked.get("/v1/plans", headers=headers).status_code == 200
    assert service.keys.revoke(key.id)
    assert not service.keys.revoke(key.id)
    assert locked.get("/v1/plans", headers=headers).status_code == 401


class TestQuotas:
    """Refusals carry the limit, the value and a time."""

    @staticmethod
    def _assert_refused(answer: Any, code: str, limit: int, value: int) -> None:
        assert (answer.status_code, answer.json()["code"]) == (429, code)
        (error,) = answer.json()["errors"]
        assert (error["limit"], error["value"]) == (limit, value)
        assert 1 <= int(answer.headers["retry-after"]) <= 60

    def test_plans_queued_and_running(self, locked: TestClient) -> None:
        headers = _headers(locked, "busy", "read", "submit", max_active_plans=2)
        first, second, third = (locked.post("/v1/plans", json=request_for(0), headers=headers) for _ in range(3))
        assert (first.status_code, second.status_code) == (202, 202)
        self._assert_refused(third, "quota-exceeded", 2, 3)
        locked.post(first.headers["location"] + ":cancel", headers=headers)
        assert locked.post("/v1/plans", json=request_for(0), headers=headers).status_code == 202

    def test_submissions_of_a_minute(self, locked: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
        service: PlanService = locked.app.state.service  # type: ignore[attr-defined]
        monkeypatch.setattr(service.keys, "_clock", lambda: 90.0)
        headers = _headers(locked, "fast", "submit", max_submissions_per_minute=2)
        answers = [locked.post("/v1/plans", json=request_for(0), headers=headers) for _ in range(3)]
        self._assert_refused(answers[2], "rate-exceeded", 2, 3)
        assert answers[2].headers["retry-after"] == "30"
        monkeypatch.setattr(service.keys, "_clock", lambda: 125.0)
        assert locked.post("/v1/plans", json=request_for(0), headers=headers).status_code == 202

    def test_a_study_counts_with_all_its_plans(self, locked: TestClient) -> None:
        headers = _headers(locked, "grid", "submit", max_active_plans=3)
        study = {"base": request_for(0), "axes": {"/options/seed": [0, 1, 2, 3]}}
        self._assert_refused(locked.post("/v1/studies", json=study, headers=headers), "quota-exceeded", 3, 4)
        assert locked.get("/v1/studies", headers=_headers(locked, "grid", "read")).json()["items"] == []


class TestPriorities:
    """1 to 7 are for everybody, 0 for administrators."""

    def test_only_an_administrator_goes_before_everybody(self, locked: TestClient, alice: dict[str, str]) -> None:
        urgent = {"Isthmus-Priority": "0"}
        refused = locked.post("/v1/plans", json=request_for(0), headers={**alice, **urgent})
        assert (refused.status_code, refused.json()["code"]) == (403, "not-allowed")
        admin = {**_headers(locked, "boss", "admin"), **urgent}
        assert locked.post("/v1/plans", json=request_for(0), headers=admin).json()["priority"] == 0

    @pytest.mark.parametrize("value", ["8", "-1", "high", "1.5"])
    def test_a_priority_that_is_none_is_refused(self, locked: TestClient, alice: dict[str, str], value: str) -> None:
        answer = locked.post("/v1/plans", json=request_for(0), headers={**alice, "Isthmus-Priority": value})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-parameter")

    def test_the_more_urgent_plan_is_taken_first(self, tmp_path: Path) -> None:
        with running(settings_for(tmp_path, run_worker=False)) as client:
            names = [
                client.post("/v1/plans", json=request_for(0), headers={"Isthmus-Priority": priority}).json()["id"]
                for priority in ("7", "3", "1")
            ]
            positions = [client.get(f"/v1/plans/{name}/status").json()["queue_position"] for name in names]
            assert positions == [2, 1, 0]
        with running(settings_for(tmp_path)) as client:
            rows = await_(lambda: _ended(client, names), "ended")
            assert rows[2]["started_at"] < rows[1]["started_at"] < rows[0]["started_at"]


class TestOpenness:
    """A service that others can reach has keys, or says that it wants none."""

    def test_it_does_not_start_for_the_world_without_keys(self, tmp_path: Path) -> None:
        with (
            pytest.raises(InvalidSetting, match="isthmus keys create"),
            running(settings_for(tmp_path, host="0.0.0.0", run_worker=False)),
        ):
            raise AssertionError("it started")

    @pytest.mark.parametrize(("authentication", "status"), [("off", 200), ("required", 401)])
    def test_unless_it_is_told_so(self, tmp_path: Path, authentication: str, status: int) -> None:
        changes: dict[str, Any] = {"host": "0.0.0.0", "run_worker": False, "authentication": authentication}
        with running(settings_for(tmp_path, **changes)) as client:
            assert client.get("/v1/plans").status_code == status

    def test_a_first_key_locks_the_door_of_a_loopback_service(self, tmp_path: Path) -> None:
        settings = settings_for(tmp_path, run_worker=False)
        with running(settings) as client:
            service: PlanService = client.app.state.service  # type: ignore[attr-defined]
            assert client.get("/v1/plans").status_code == 200
            KeyStore(service.engine).create(NewKey("a", frozenset({"read"})))
        with running(settings) as client:
            assert client.get("/v1/plans").status_code == 401
            assert client.get("/v1/plans", headers=_headers(client, "a", "read")).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:80", "", "isthmus", "[evil"])
def test_without_keys_a_page_elsewhere_cannot_ask_in_the_name_of_its_reader(tmp_path: Path, host: str) -> None:
    with running(settings_for(tmp_path, run_worker=False)) as client:
        for method, path in (("GET", "/v1/plans"), ("DELETE", "/v1/plans/plan_0"), ("GET", "/metrics")):
            answer = client.request(method, path, headers={"Host": host})
            assert (answer.status_code, answer.json()["code"]) == (421, "host-not-allowed")
        for name in ("localhost:8000", "127.0.0.1", "[::1]:80", "LOCALHOST", "192.0.2.7:8000"):
            assert client.get("/v1/plans", headers={"Host": name}).status_code == 200


def test_names_that_are_allowed_bind_everybody_but_probes(tmp_path: Path) -> None:
    changes = {"allowed_hosts": "plans.example, *.lab.example", "authentication": "required"}
    with running(settings_for(tmp_path, run_worker=False, **changes)) as client:
        key = _headers(client, "alice", "read")
        asked = {host: client.get("/v1/plans", headers={**key, "Host": host}).status_code for host in (
            "plans.example", "a.lab.example:444", "lab.example", "evil.example", "localhost")}  # fmt: skip
        assert list(asked.values()) == [200, 200, 421, 421, 421]
        assert client.get("/docs", headers={"Host": "evil.example"}).status_code == 421
        assert client.get("/healthz/live", headers={"Host": "10.0.0.7"}).status_code == 200


def test_a_key_leaves_room_for_direct_computations_of_others(tmp_path: Path) -> None:
    with running(settings_for(tmp_path, run_worker=False, authentication="required")) as client:
        alice, bob = (_headers(client, owner, "read", "submit") for owner in ("alice", "bob"))
        service: PlanService = client.app.state.service  # type: ignore[attr-defined]
        key_id = alice["Authorization"].split("_")[1]
        her = Caller("alice", key_id)
        with service.direct_places.place(her) as first, service.direct_places.place(her) as second:
            assert (first, second) == (True, False)
            answers = [client.post("/v1/plans:validate", json=request_for(0), headers=key) for key in (alice, bob)]
        assert [one.status_code for one in answers] == [503, 200]
        assert answers[0].json()["code"] == "too-busy"
        assert client.post("/v1/plans:validate", json=request_for(0), headers=alice).status_code == 200


def test_direct_computations_count_in_the_rate_of_their_key(tmp_path: Path) -> None:
    with running(settings_for(tmp_path, run_worker=False, authentication="required")) as client:
        key = _headers(client, "alice", "read", "submit", max_submissions_per_minute=2)
        codes = [client.post("/v1/plans:validate", json=request_for(0), headers=key).status_code for _ in range(3)]
        assert codes[-1] == 429 or codes == [200, 200, 200], "a minute may have begun in between"
        assert 429 in [client.post("/v1/plans:validate", json=request_for(0), headers=key).status_code
                       for _ in range(4)]  # fmt: skip


def test_shares_are_given_back_to_the_last_byte() -> None:
    shares, alice, bob = Shares(100, 60), Caller("a", "a"), Caller("b", "b")
    assert [shares.take(alice, 50), shares.take(alice, 20), shares.take(bob, 50), shares.take(bob, 1)] == [
        True, False, True, False,
    ]  # fmt: skip
    shares.give_back(alice, 50)
    assert [shares.take(bob, 10), shares.take(ANYBODY, 40), shares.take(ANYBODY, 1)] == [True, True, False]


def test_the_bytes_of_one_key_leave_room_for_another(tmp_path: Path) -> None:
    limits = {"max_body_bytes": 4000, "max_body_bytes_per_key": 4000, "max_body_bytes_at_once": 8000}
    with running(settings_for(tmp_path, run_worker=False, authentication="required", **limits)) as client:
        alice, bob = (_headers(client, owner, "read", "submit") for owner in ("alice", "bob"))
        service: PlanService = client.app.state.service  # type: ignore[attr-defined]
        held = Caller("alice", alice["Authorization"].split("_")[1])
        assert service.body_bytes.take(held, 4000)
        answer = client.post("/v1/plans", json=request_for(0), headers=alice)
        assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "too-busy", "2")
        assert client.post("/v1/plans", json=request_for(0), headers=bob).status_code == 202
        service.body_bytes.give_back(held, 4000)
        assert client.post("/v1/plans", json=request_for(0), headers=alice).status_code == 202
