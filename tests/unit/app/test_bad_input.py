"""Every bad request gets a 4xx problem document with a pointer, a published code and a remedy."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from backports import zstd
from fastapi.testclient import TestClient

from app import documents
from app.api.problems import ISSUE_TYPES
from app.documents import MANY_KEYS, MAX_CROWDED_MEMBERS, MAX_JSON_DEPTH, MAX_JSON_KEYS, json_depth, parse_json
from app.faults import Refused
from app.settings import Solvers
from tests.unit.app.service_fixture import FAKE_SOLVERS, request_for, running, settings_for
from tests.unit.models.bad_requests import BAD_REQUESTS, BadRequest, good_request

JSON = {"Content-Type": "application/json"}
ZSTD = {**JSON, "Content-Encoding": "zstd"}
# A window of 128 MiB: what unpacks it would have to keep as much in memory.
_WIDE = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
WIDE = _WIDE.compress(b" " * 1000) + _WIDE.flush()
WIRE_WORDS = {"half a document": "not a JSON document", "deep JSON": "levels deep", "NaN": "NaN and Infinity"}


def assert_is_problem(answer: Any) -> dict[str, Any]:
    """The body, after checking that it keeps every promise of the error format."""
    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert set(body) == {"type", "title", "status", "detail", "instance", "code", "errors"}
    assert body["status"] == answer.status_code
    assert body["type"] == f"/v1/issue-types#{body['code']}"
    for error in body["errors"]:
        assert error["code"] in ISSUE_TYPES
        assert error["what"]
        assert error["where"]
        assert error["remedy"]
    return body


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A service with the real lint, which refuses before anything is queued."""
    solvers = Solvers(**{**FAKE_SOLVERS.model_dump(), "lint": Solvers().lint})
    folder = tmp_path_factory.mktemp("strict")
    with running(settings_for(folder, run_worker=False, solvers=solvers)) as client:
        yield client


@pytest.mark.parametrize("case", BAD_REQUESTS, ids=lambda case: case.name)
def test_every_bad_request_is_refused_with_pointer_and_remedy(strict: TestClient, case: BadRequest) -> None:
    answer = strict.post("/v1/plans", content=case.text(), headers=JSON)
    body = assert_is_problem(answer)
    if case.name in WIRE_WORDS:
        assert WIRE_WORDS[case.name] in body["errors"][0]["what"]
        return
    assert any(case.pointer in error["pointer"] for error in body["errors"]), body
    said = " ".join(" ".join(map(str, error.values())) for error in body["errors"])
    assert case.says in said
    assert strict.get("/v1/plans").json()["items"] == [], "nothing was queued"


def test_the_soil_of_the_table_is_accepted(strict: TestClient) -> None:
    answer = strict.post("/v1/plans", json=good_request())
    assert answer.status_code == 202
    strict.delete(answer.headers["location"])


def test_arithmetic_refuses_before_the_queue(client: TestClient) -> None:
    body = request_for(0) | {"constraints": {"max_gpus": 1}}
    problem = assert_is_problem(client.post("/v1/plans", json=body))
    assert (problem["code"], problem["errors"][0]["pointer"]) == ("too-few-gpus", "/constraints/max_gpus")


@pytest.mark.parametrize(
    ("content", "headers", "status", "code"),
    [
        (b"", JSON, 422, "missing-field"),
        (b"{}", {"Content-Type": "text/plain"}, 415, "unsupported-media-type"),
        (b"{}", {**JSON, "Content-Encoding": "br"}, 415, "unsupported-media-type"),
        (b"{}", {**JSON, "Content-Encoding": "gzip"}, 400, "invalid-coding"),
        (gzip.compress(b"{}", mtime=0)[:-3], {**JSON, "Content-Encoding": "gzip"}, 400, "invalid-coding"),
        (gzip.compress(b"{}", mtime=0) + b"{}", {**JSON, "Content-Encoding": "gzip"}, 400, "invalid-coding"),
        (gzip.compress(b"{", mtime=0), {**JSON, "Content-Encoding": "gzip"}, 400, "invalid-json"),
        (b"{}", ZSTD, 400, "invalid-coding"),
        (zstd.compress(b"{}")[:-1], ZSTD, 400, "invalid-coding"),
        (zstd.compress(b"{}") * 2, ZSTD, 400, "invalid-coding"),
        (WIDE, ZSTD, 400, "invalid-coding"),
        (zstd.compress(b"{"), ZSTD, 400, "invalid-json"),
        (b'{"NaN": 1,}', JSON, 400, "invalid-json"),
        (b'["NaN" Infinity]', JSON, 400, "invalid-json"),
        (b'{"a":\n\n [1, NaN]}', JSON, 422, "not-finite"),
        (b"\xc3\xa9NaN", JSON, 400, "invalid-json"),
        (b"{} {}", JSON, 400, "invalid-json"),
        (b"\xff\xfe", JSON, 400, "invalid-json"),
        (b'{"a": -Infinity}', JSON, 422, "not-finite"),
        (b"1" * 5000, JSON, 400, "invalid-json"),
        (b"null", JSON, 422, "wrong-type"),
    ],
)
def test_bodies_that_are_no_request(
    client: TestClient, content: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    answer = client.post("/v1/plans", content=content, headers=headers)
    assert (answer.status_code, assert_is_problem(answer)["code"]) == (status, code)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the request has no body"),
        (b"\xef\xbb\xbf{}", "UTF-8 with a byte order mark"),
        ("{}".encode("utf-16"), "UTF-16"),
        ("{}".encode("utf-16-le"), "UTF-16"),
        ("{}".encode("utf-16-be"), "UTF-16"),
        (gzip.compress(b"{}", mtime=0), "it is packed with gzip"),
        (zstd.compress(b"{}"), "it is packed with zstd"),
        (b'{"workload": null}', "got null"),
        (b'{"workload": {"sequence_length": true}}', "Input should be a valid integer, got true"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_json(client: TestClient, content: bytes, said: str) -> None:
    errors = assert_is_problem(client.post("/v1/plans", content=content, headers=JSON))["errors"]
    assert said in " ".join(error["what"] for error in errors)
    assert all(error["allowed"] for error in errors)


def test_a_name_of_nothing_is_told_which_there_are(client: TestClient) -> None:
    error = assert_is_problem(client.post("/v1/plans", json=request_for(0) | {"cluster": "two-building"}))["errors"][0]
    assert error["allowed"].startswith("one of ")
    assert "two-buildings" in error["allowed"]


@pytest.mark.parametrize("secret", ["A" * 33, "A" * 32 + "=", "A" * 88, "A" * 31])
def test_a_secret_is_base64_of_the_length_that_the_standard_names(client: TestClient, secret: str) -> None:
    webhook = {"url": "https://hooks.example.org/", "secret": "whsec_" + secret}
    error = assert_is_problem(client.post("/v1/plans", json=request_for(0) | {"webhook": webhook}))["errors"][0]
    assert error["pointer"] == "/webhook/secret"
    assert error["allowed"]
    assert "number of data" not in error["remedy"], "words of the library"


def test_a_body_over_the_limit_is_refused_before_it_is_read(tmp_path: Any) -> None:
    with running(settings_for(tmp_path, run_worker=False, max_body_bytes=1000)) as client:
        for content in (b" " * 2000, iter([b" " * 600, b" " * 600])):
            answer = client.post("/v1/plans", content=content, headers=JSON)
            assert answer.status_code == 413
            assert "limit is 1,000" in assert_is_problem(answer)["detail"]


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("zstd", zstd.compress)])
def test_a_packed_body_is_unpacked_as_far_as_the_limit(
    tmp_path: Any, coding: str, pack: Callable[[bytes], bytes]
) -> None:
    headers = {**JSON, "Content-Encoding": coding}
    with running(settings_for(tmp_path, run_worker=False, max_body_bytes=100_000)) as client:
        packed = pack(json.dumps(request_for(0)).encode())
        assert client.post("/v1/plans", content=packed, headers=headers).status_code == 202
        answer = client.post("/v1/plans", content=pack(b" " * 10_000_000), headers=headers)
        assert (answer.status_code, assert_is_problem(answer)["code"]) == (413, "body-too-large")


def test_a_large_document_is_told_its_first_faults_and_a_small_one_all(client: TestClient) -> None:
    body = request_for(0)
    told = []
    for number in (50, 30_000):
        body["cluster"] = {**body["cluster"], "pools": [{}] * number}
        errors = assert_is_problem(client.post("/v1/plans", json=body))["errors"]
        told.append({one["pointer"].split("/")[3] for one in errors if one["pointer"].startswith("/cluster/pools/")})
    assert told == [{str(number) for number in range(20)}, {"0"}], "100 faults are 20 pools of five"


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        (rb'{"x\":1": "\":"}', None),
        (rb'{"\":": 1, "a" :{"b":1, "b" :2}}', "/a/b"),
        (rb'{"k": "\":", "a": [{"a": 1, "a": 2}]}', "/a/0/a"),
        (rb'{"\"a": 1, "\"a": 1}', '/"a'),
        (rb'{"a": {"a": {"a": 1}}, "b": {"a": 1}}', None),
        (b'{"a":1,\n"a"\t\n :1}', "/a"),
    ],
)
def test_a_repeated_key_is_found_whatever_the_strings_hold(text: bytes, pointer: str | None) -> None:
    if pointer is None:
        assert parse_json(text) == json.loads(text)
        return
    with pytest.raises(Refused) as refused:
        parse_json(text)
    assert [(fault.code, fault.pointer) for fault in refused.value.faults] == [("duplicate-key", pointer)]


def test_the_depth_limit_is_what_the_parser_does(client: TestClient) -> None:
    for depth, code in ((MAX_JSON_DEPTH, "wrong-type"), (MAX_JSON_DEPTH + 1, "limit-exceeded")):
        content = b"[" * depth + b"]" * depth
        assert json_depth(content) == depth
        assert assert_is_problem(client.post("/v1/plans", content=content, headers=JSON))["code"] == code


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"max_gpus": 100}, "/cluster/pools"),
        ({"max_time_limit_s": 1.0}, "/options/time_limit_s"),
        ({"max_cluster_parts": 3}, "/cluster"),
    ],
)
def test_limits_of_the_service_name_the_limit_and_the_value(
    tmp_path: Any, changes: dict[str, Any], pointer: str
) -> None:
    with running(settings_for(tmp_path, run_worker=False, **changes)) as client:
        error = assert_is_problem(client.post("/v1/plans", json=request_for(0)))["errors"][0]
    assert (error["code"], error["pointer"]) == ("limit-exceeded", pointer)
    assert "the limit of this service is" in error["what"]


@pytest.mark.parametrize(("path", "limit"), [("/v1/plans", "3600"), ("/v1/schedules", "60")])
def test_a_time_limit_that_no_document_may_have_names_that_of_the_service(
    client: TestClient, path: str, limit: str
) -> None:
    body = request_for(0, 1e5) if path.endswith("plans") else {"options": {"time_limit_s": 1e5}}
    errors = assert_is_problem(client.post(path, json=body))["errors"]
    (error,) = (one for one in errors if one["pointer"] == "/options/time_limit_s")
    assert error["allowed"] == f"at most {limit} s"
    assert "100000" in error["what"]


def test_unknown_paths_and_methods_are_problems_too(client: TestClient) -> None:
    assert client.get("/nowhere").json()["code"] == "not-found"
    answer = client.put("/v1/plans", json={})
    assert (answer.status_code, assert_is_problem(answer)["code"]) == (405, "method-not-allowed")
    assert answer.headers["allow"] == "GET, POST"
    assert client.put("/v1/plans/plan_0:cancel", json={}).headers["allow"] == "POST"
    assert client.put("/v1/plans/plan_0", json={}).headers["allow"] == "DELETE, GET"
    for path in ("/v1/questions/a%2fb:cancel", "/docs", "/static/desk/main.js"):
        refused = client.post(path)
        assert refused.status_code == 405
        assert "GET" in refused.headers["allow"]
        assert assert_is_problem(refused)["errors"][0]["allowed"] == refused.headers["allow"]
    assert client.get("/static/desk/main.js", headers={"Range": "lines=1"}).status_code == 200
    since = assert_is_problem(client.get("/v1/plans", params={"since": "2026"}))["errors"][0]
    assert "2026-01-31T12:00:00Z" in since["allowed"]
    assert client.get("/v1/plans", params={"limit": 0}).json()["errors"][0]["where"] == "query parameter limit"
    assert client.get("/v1/plans/..%2f..%2fetc").status_code in (400, 404)
    assert client.get("/v1/catalogue/gpus/H999").status_code == 404


def test_pointers_lead_to_the_object_that_a_message_names(client: TestClient) -> None:
    body = json.loads(json.dumps(request_for(0)))
    body["cluster"]["links"][0]["to_place"] = "north"
    problem = assert_is_problem(client.post("/v1/plans", json=body))
    assert problem["errors"][0]["pointer"] == "/cluster/links/0/to_place"
    body = json.loads(json.dumps(request_for(0)))
    pin = {"first_pipeline_rank": 0, "last_pipeline_rank": 0, "place": "north"}
    body["constraints"] = {"pins": [pin]}
    problem = assert_is_problem(client.post("/v1/plans", json=body))
    assert problem["errors"][0]["pointer"] == "/constraints/pins/0/place"


def test_names_with_control_characters_never_reach_a_log_line(client: TestClient) -> None:
    body = request_for(0)
    body["cluster"]["name"] = "a\nlevel=ERROR forged"
    assert_is_problem(client.post("/v1/plans", json=body))


def test_every_code_is_published(client: TestClient) -> None:
    published = {one["code"]: one["status"] for one in client.get("/v1/issue-types").json()}
    assert set(published) == set(ISSUE_TYPES)
    assert all(400 <= status < 600 for status in published.values())


def _outside_one_by_one(data: bytes) -> bytes:
    found, place, is_inside = b"", 0, False
    while place < len(data):
        here = data[place : place + 1]
        if here == b'"':
            is_inside = not is_inside
        elif not is_inside:
            found += here
        place += 2 if is_inside and here == b"\\" else 1
    return found


def test_a_text_read_in_blocks_has_the_marks_and_keys_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is some kilobytes, so that nothing keeps probes waiting; here it is a few bytes."""
    dice = random.Random(11)
    with_escapes = 0
    for _ in range(6000):
        monkeypatch.setattr(documents, "_BLOCK", dice.choice([1, 2, 3, 5, 8]))
        data = bytes(dice.choice(b'"\\\\"[]{},:a \n') for _ in range(dice.randrange(25)))
        outside = _outside_one_by_one(data)
        if b"\\" not in outside:  # there it is no JSON, whatever is counted
            assert b"".join(documents._outside_strings(data)) == outside, data  # noqa: SLF001
            with_escapes += b"\\" in data
        whole = len(re.findall(rb'"[ \t\r\n]*:', data))
        assert documents._num_keys(data) == whole, data  # noqa: SLF001
    assert with_escapes > 500


@pytest.mark.parametrize(
    ("num_objects", "num_keys", "limit"), [(1, MANY_KEYS, MAX_CROWDED_MEMBERS), (5000, 81, MAX_JSON_KEYS)]
)
def test_more_keys_than_any_document_has_are_refused_before_they_are_made(
    num_objects: int, num_keys: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parser makes an object of 740,000 distinct keys in half a second, in which nobody else runs."""
    monkeypatch.setattr(documents, "from_json", lambda *_, **__: pytest.fail("the keys are being made"))
    one = b"{" + b",".join(b'"k%d" : 1' % number for number in range(num_keys + 1)) + b"}"
    with pytest.raises(Refused) as refused:
        parse_json(b"[" + b",".join([one] * num_objects) + b"]")
    assert [(fault.code, fault.limit) for fault in refused.value.faults] == [("limit-exceeded", limit)]


def test_colons_in_texts_are_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "from_json", lambda *_, **__: {})
    assert parse_json(b'["' + b'\\":' * 2 * MAX_JSON_KEYS + b'"]') == {}
