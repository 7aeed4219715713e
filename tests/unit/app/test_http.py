"""Conventions of HTTP that every client may count on: HEAD, codings, strict parameters, one version."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
from backports import zstd
from fastapi.testclient import TestClient

from app.api.problems import methods_by_path
from tests.unit.app import fake_solver
from tests.unit.app.programs import await_
from tests.unit.app.service_fixture import request_for, running, settings_for, submit

PLAIN = {"Accept-Encoding": "identity"}
PACKED = {"Accept-Encoding": "gzip"}


@pytest.fixture(scope="module")
def plan(client: TestClient) -> str:
    """The path of a finished plan."""
    path = str(submit(client, fake_solver.FINDS, wait_s=20).headers["location"])
    await_(lambda: client.get(path).json()["state"] == "succeeded", "ended")
    return path


def test_head_is_get_without_a_body(client: TestClient, plan: str) -> None:
    for path in (plan, f"{plan}/status", f"{plan}/request", "/v1/plans", "/docs", "/openapi.json",
                 "/static/desk/api.js", "/healthz/live", "/v1/plans/plan_0", "/nowhere", "/version"):  # fmt: skip
        asked, told = client.get(path, headers=PLAIN), client.head(path, headers=PLAIN)
        assert (told.status_code, told.content) == (asked.status_code, b""), path
        assert told.headers["content-length"] == str(len(asked.content)), path
        assert told.headers["content-type"] == asked.headers["content-type"]
    stream = client.head(f"{plan}/events")
    assert (stream.status_code, stream.content) == (200, b"")
    assert client.head("/v1/plans:validate").status_code == 405


@pytest.mark.parametrize("path", ["/version", "/v1/plans/{plan_id}"])
def test_a_head_is_counted_under_its_route(client: TestClient, plan: str, path: str) -> None:
    series = f'isthmus_http_requests_total{{method="other",route="{path}",status="200"}}'

    def counted() -> float:
        lines = [one for one in client.get("/metrics").text.splitlines() if one.startswith(series)]
        return float(lines[0].split()[-1]) if lines else 0.0

    before = counted()
    asked = plan if "{" in path else path
    assert client.get(asked).status_code == client.head(asked).status_code == 200
    assert counted() == before + 1


def test_a_head_of_a_living_stream_ends(client: TestClient) -> None:
    path = submit(client, fake_solver.UNTIL_STOPPED).headers["location"]
    assert client.head(f"{path}/events").status_code == 200
    client.delete(path)


@pytest.mark.parametrize(
    ("accepted", "coding", "unpack"), [("gzip", "gzip", gzip.decompress), ("zstd, gzip", "zstd", zstd.decompress)]
)
def test_answers_are_packed_for_whom_takes_them_so(
    client: TestClient, plan: str, accepted: str, coding: str, unpack: Callable[[bytes], bytes]
) -> None:
    for path in (plan, f"{plan}/artifacts/report-html", "/openapi.json", "/static/desk/desk.css"):
        whole = client.get(path, headers=PLAIN)
        assert "content-encoding" not in whole.headers
        with client.stream("GET", path, headers={"Accept-Encoding": accepted}) as answer:
            raw = b"".join(answer.iter_raw())
        assert answer.headers["content-encoding"] == coding, path
        assert answer.headers["vary"] == "Accept-Encoding"
        assert answer.headers["content-length"] == str(len(raw))
        assert unpack(raw) == whole.content
        assert len(raw) < len(whole.content) * 0.6


def test_a_tag_of_a_packed_answer_is_weak_and_still_known(client: TestClient, plan: str) -> None:
    tags = {client.get(plan, headers=headers).headers["etag"] for headers in (PLAIN, PACKED, PACKED)}
    assert sorted(tag.removeprefix("W/") for tag in tags) == [sorted(tags)[0]] * 2
    for tag in tags:
        assert client.get(plan, headers={**PACKED, "If-None-Match": tag}).status_code == 304


def test_the_answer_to_a_submission_is_never_taken_for_the_plan(client: TestClient) -> None:
    """Packed answers are kept by their tag: a status, long by its labels, has none of the plan's."""
    body = {**request_for(fake_solver.UNTIL_STOPPED), "labels": {f"label-{n}": "x" * 60 for n in range(16)}}
    told = client.post("/v1/plans", json=body, headers=PACKED)
    assert (told.status_code, told.headers["content-encoding"]) == (202, "gzip")
    path = told.headers["location"]
    assert "outcome" in client.get(path, headers=PACKED).json()
    assert "etag" not in told.headers
    client.delete(path)


def test_short_answers_and_streams_are_not_packed(client: TestClient, plan: str) -> None:
    for path in ("/healthz/live", f"{plan}/events"):
        assert "content-encoding" not in client.get(path, headers=PACKED).headers


@pytest.mark.parametrize(
    "path",
    [
        "/v1/plans?stat=queued",
        "/v1/plans?limit=1&limit=2",
        "/v1/studies?x=1",
        "/v1/calibrations?x",
        "/v1/plans/{}?x=1",
        "/v1/plans/{}/status?verbose=1",
        "/v1/plans/{}/events?last=3",
        "/v1/catalogue/gpus?limit=2",
        "/v1/issue-types?x=",
    ],
)
def test_a_parameter_that_does_nothing_is_refused(client: TestClient, plan: str, path: str) -> None:
    for _ in range(2):
        client.get(plan)  # kept in memory now, which no parameter goes past
        answer = client.get(path.replace("{}", plan.rpartition("/")[2]))
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-parameter")
        assert answer.json()["errors"][0]["where"].startswith("query parameter ")
    assert client.post("/v1/plans?dry_run=true", json=request_for(0)).status_code == 400


def test_the_version_is_that_of_the_package(client: TestClient) -> None:
    told = client.get("/version").json()
    assert told["version"] == version("isthmus") == client.get("/openapi.json").json()["info"]["version"]


def test_a_refusal_does_not_wait_for_the_description(client: TestClient, monkeypatch: Any) -> None:
    monkeypatch.setattr(client.app, "openapi", lambda: pytest.fail("the document is made on the event loop"))
    assert client.put("/v1/plans", json={}).headers["allow"] == "GET, POST"
    assert client.get("/v1/plans/x:cancel").status_code == 405
    assert client.post("/v1/plans", json={}).status_code == 422
    assert client.get("/v1/plans?limit=0").status_code == 400


def test_the_methods_are_those_of_the_description(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    described = {path: {one.upper() for one in operations} for path, operations in paths.items()}
    assert methods_by_path(client.app) == described  # type: ignore[arg-type]


def test_operations_are_named_by_verb_and_thing(client: TestClient) -> None:
    verbs = {
        "validate",
        "evaluate",
        "import",
        "schedule",
        "submit",
        "list",
        "read",
        "delete",
        "cancel",
        "replan",
        "resume",
        "follow",
        "create",
    }
    names = [
        one["operationId"] for path in client.get("/openapi.json").json()["paths"].values() for one in path.values()
    ]
    assert len(set(names)) == len(names)
    assert {name.partition("_")[0] for name in names} <= verbs
    assert {name for name in names if name.startswith("read_plan")} == {
        "read_plan", "read_plan_status", "read_plan_request", "read_plan_artifact", "read_plan_moves",
        "read_plan_webhook", "read_plan_comparison", "read_plan_summary", "read_plan_losses",
    }  # fmt: skip


def test_no_memory_is_said_and_survived(tmp_path: Any, monkeypatch: Any) -> None:
    with running(settings_for(tmp_path, run_worker=False)) as client:

        def none_left(*_: Any, **__: Any) -> None:
            raise MemoryError

        monkeypatch.setattr(client.app.state.service.plans, "page", none_left)  # type: ignore[attr-defined]
        answer = client.get("/v1/plans")
        assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "not-ready", "5")
        assert json.loads(client.get("/healthz/live").content) == {"status": "ok"}
