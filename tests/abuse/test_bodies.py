"""Bodies that are slow, huge, packed, deep or full of what is no number and no name."""

from __future__ import annotations

import copy
import gzip
import json
import socket
from typing import Any

import pytest

from tests.abuse.wire import MAX_BODY_BYTES, PATIENCE_S, Service, read_answer
from tests.unit.app.programs import HOST
from tests.unit.models.bad_requests import good_request

CHUNK = b"10000\r\n" + b"[" * 0x10000 + b"\r\n"


def head(service: Service, *lines: str) -> bytes:
    """The head of a submission with an open body."""
    token = f"Authorization: Bearer {service.tokens['alice']}"
    wanted = ["POST /v1/plans HTTP/1.1", "Host: i", token, "Content-Type: application/json", *lines, "", ""]
    return "\r\n".join(wanted).encode()


def test_23_a_slow_body_is_given_up(service: Service) -> None:
    with socket.create_connection((HOST, service.port), timeout=PATIENCE_S) as connection:
        connection.sendall(head(service, "Content-Length: 1000") + b'{"a":')
        assert service.ask("GET", "/v1/plans").status == 200, "nobody else waits for it"
        assert read_answer(connection).refusal == (408, "body-too-slow")


def test_24_a_slow_head_is_given_up(service: Service) -> None:
    with socket.create_connection((HOST, service.port), timeout=PATIENCE_S) as connection:
        connection.sendall(b"GET /v1/plans HTTP/1.1\r\nHost: i\r\n")
        assert read_answer(connection).refusal == (408, "head-too-slow")


def test_25_a_chunked_body_beyond_the_limit_is_cut_off(service: Service) -> None:
    with socket.create_connection((HOST, service.port), timeout=PATIENCE_S) as connection:
        connection.sendall(head(service, "Transfer-Encoding: chunked"))
        for _ in range(MAX_BODY_BYTES // 0x10000 + 1):
            connection.sendall(CHUNK)
        assert read_answer(connection).refusal == (413, "body-too-large")


def test_26_a_body_that_only_says_that_it_is_huge_is_not_awaited(service: Service) -> None:
    answer = service.raw(head(service, "Content-Length: 99999999999"))
    assert answer.refusal == (413, "body-too-large")
    (error,) = answer.json()["errors"]
    assert str(f"{MAX_BODY_BYTES:,}") in error["allowed"]


def test_27_a_packed_body_is_unpacked_as_far_as_the_limit(service: Service) -> None:
    bomb = gzip.compress(b"[" * 10_000_000)
    answer = service.ask("POST", "/v1/plans", ("Content-Encoding", "gzip"), body=bomb)
    assert answer.refusal == (413, "body-too-large")
    assert service.ask("POST", "/v1/plans", body=bomb).refusal == (400, "invalid-json")
    for broken in (bomb[:-9], bomb + b"x", b"\x1f\x8b" + bomb, b"{}"):
        answer = service.ask("POST", "/v1/plans", ("Content-Encoding", "gzip"), body=broken)
        assert answer.refusal in ((400, "invalid-coding"), (413, "body-too-large"))


@pytest.mark.parametrize(
    "chunk", [b"zz\r\n{}\r\n", b"-1\r\n{}\r\n", b"FFFFFFFFFFFFFFFFFFFF\r\n{}\r\n", b"2;" + b"a" * 99999]
)
def test_28_a_chunk_that_is_none_ends_the_request(service: Service, chunk: bytes) -> None:
    answer = service.raw(head(service, "Transfer-Encoding: chunked") + chunk, timeout_s=PATIENCE_S)
    assert answer.code in ("invalid-http", "body-too-large", "body-too-slow")


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("depth", [1_000, 30_000])
@pytest.mark.parametrize(
    "path", ["/v1/plans", "/v1/studies", "/v1/schedules", "/v1/calibrations", "/v1/imports", "/v1/plans:evaluate"]
)
def test_29_deep_json_is_refused(service: Service, path: str, depth: int, opening: bytes, closing: bytes) -> None:
    answer = service.ask("POST", path, body=opening * depth + b"1" + closing * depth)
    assert answer.refusal == (422, "limit-exceeded")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 5000, "-" + "9" * 5000,
                                    "0x10", "1_000", "01", "+1", ".5", "\u0663"])  # fmt: skip
@pytest.mark.parametrize("field", ["time_limit_s", "seed", "workers"])
def test_30_a_number_is_a_number_of_its_range(service: Service, field: str, number: str) -> None:
    document = json.dumps({**good_request(), "options": {field: "@"}}).replace('"@"', number)
    answer = service.ask("POST", "/v1/plans", body=document.encode())
    assert answer.status in (400, 422), answer.body
    assert answer.code in (
        "not-finite",
        "invalid-json",
        "out-of-range",
        "wrong-type",
        "limit-exceeded",
        "unknown-field",
    )


@pytest.mark.parametrize("kind", ["number", "string"])
def test_31_five_thousand_digits_anywhere(service: Service, kind: str) -> None:
    digits: str = "9" * 5000 if kind == "number" else '"' + "9" * 5000 + '"'
    base = json.dumps(good_request())
    for path, text in (
        ("/v1/plans", '{"workload":%s}'), ("/v1/studies", '{"base":%s,"axes":{"/options/seed":[%s]}}'),
        ("/v1/studies", f'{{"base":{base},"patches":[{{"options":{{"seed":%s}}}}]}}'),
        ("/v1/schedules", '{"num_microbatches":%s}'), ("/v1/calibrations", '{"rows":[{"tp":%s}],"name":"x"}'),
        ("/v1/plans:evaluate", '{"request":%s,"plan":%s}'),
    ):  # fmt: skip
        answer = service.ask("POST", path, body=text.replace("%s", digits).encode())
        assert answer.status in (400, 422), (path, answer.status)
        assert answer.code != "internal-error"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b'"x"',
        b"1",
        b"{}",
        b"{} {}",
        b"{'a':1}",
        b"\xff\xfe{\x00}\x00",
        b"\xef\xbb\xbf{}",
        b'{"a":1,"a":2}',
        b'{"a":"\\ud800"}',
        b'{"a":"\xed\xa0\x80"}',
        b"{/**/}",
        b'{"a":1,}',
        b"!!python/object/apply:os.system [id]",
        b"&a [*a]",
    ],
)
@pytest.mark.parametrize(
    "path", ["/v1/plans", "/v1/studies", "/v1/schedules", "/v1/calibrations", "/v1/imports", "/v1/plans:validate"]
)
def test_32_what_is_no_document_is_refused(service: Service, path: str, body: bytes) -> None:
    answer = service.ask("POST", path, body=body)
    assert answer.status in (400, 422), answer.body
    assert answer.code


def _named(name: str) -> dict[str, Any]:
    document = copy.deepcopy(good_request())
    document["cluster"]["pools"][0]["id"] = name
    return document


@pytest.mark.parametrize(
    "name",
    [
        "a\x00b",
        "a\x1b[31mred",
        "a\r\nX: 1",
        "a\x07",
        "a\x7f",
        "a\x9b31m",
        "a\u2028b",
        "a\u202egpj",
        "a\u2066b",
        "",
        "x" * 121,
        "e\u0301",
        "\u1112\u1161\u11ab",
    ],
)
def test_33_a_name_holds_no_control_and_one_form_of_every_letter(service: Service, name: str) -> None:
    answer = service.post("/v1/plans", _named(name))
    assert answer.status == 422
    assert answer.code in ("bad-pattern", "bad-length", "contradiction")
    assert not any(ord(letter) < 32 for letter in answer.body.decode())
    study = {"name": name or "\x1b", "base": good_request(), "axes": {"/options/seed": [1, 2]}}
    assert service.post("/v1/studies", study).status == (202 if name in ("e\u0301", "\u1112\u1161\u11ab") else 422)


@pytest.mark.parametrize(
    "name",
    [
        '=cmd|"/C calc"!A0',
        "+1+1",
        "@SUM(A1)",
        "-2+3",
        "!!python/name:os.system",
        "*a",
        "&a b",
        "a: b",
        "# c",
        "{{7*7}}",
        "${jndi:ldap://x}",
        "<script>alert(1)</script>",
        "'; DROP TABLE isthmus_plans; --",
        "`id`",
        "$(id)",
        "../../etc",
        "\u00e9",
        "\U0001f600",
    ],
)
def test_34_a_name_with_a_meaning_elsewhere_comes_back_as_it_is(service: Service, name: str) -> None:
    answer = service.post("/v1/plans", _named(name))
    assert answer.status == 202, answer.body
    request = service.ask("GET", answer.headers["location"] + "/request").json()
    assert request["cluster"]["pools"][0]["id"] == name


@pytest.mark.parametrize(
    "rows",
    [
        b"a,b\n1\n",
        b"=1+1,b\n1,2\n",
        b'"\n',
        b"\x00,\x1b\n1,2\n",
        b"a" * 150_000,
        b"\xff\n1\n",
        b"gpu,tp\n" + b"=cmd,1\n" * 30,
    ],
)
def test_35_measured_rows_that_are_none_are_refused(service: Service, rows: bytes) -> None:
    answer = service.ask("POST", "/v1/calibrations", ("Content-Type", "text/csv"), body=rows)
    assert answer.status in (400, 413, 422), answer.body
    assert answer.code


@pytest.mark.parametrize(
    "patch",
    [
        {"__proto__": {"admin": True}}, {"__class__": "os"}, {"cluster": "../../etc/passwd"},
        {"cluster": "http://169.254.169.254/latest"}, {"cluster": "file:///etc/passwd"},
        {"options": {"stack_profile": "cal_" + "0" * 32}}, {"options": {"stack_profile": "../../x"}},
        {"workload": {"architecture": "\u0000"}},
    ],
)  # fmt: skip
def test_36_nothing_is_looked_up_outside_the_catalogue(service: Service, patch: dict[str, Any]) -> None:
    answer = service.post("/v1/plans", {**good_request(), **patch})
    assert answer.status == 422
    assert answer.code in (
        "unknown-field",
        "unknown-name",
        "wrong-type",
        "missing-field",
        "bad-pattern",
        "contradiction",
    )


def test_37_a_study_cannot_grow_without_end(service: Service) -> None:
    axes = {f"/options/x{number}": list(range(500)) for number in range(8)}
    assert service.post("/v1/studies", {"base": good_request(), "axes": axes}).refusal == (422, "limit-exceeded")
    pointers = ["/cluster/places/99999999999999999999/id", "/options/~2", "/" + "a/" * 500]
    for pointer in pointers:
        answer = service.post("/v1/studies", {"base": good_request(), "axes": {pointer: [1, 2]}})
        assert answer.status == 422, pointer


def test_38_a_thousand_faults_are_answered_briefly(service: Service) -> None:
    document = {**good_request(), **{f"field_{number}": {} for number in range(9000)}}
    answer = service.post("/v1/plans", document)
    assert answer.refusal == (422, "unknown-field")
    assert len(answer.body) < MAX_BODY_BYTES
