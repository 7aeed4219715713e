"""Paths, queries, methods and headers that are meant to confuse."""

from __future__ import annotations

import json

import pytest

from tests.abuse.wire import Service
from tests.unit.models.bad_requests import good_request

NOBODYS = "/v1/plans/plan_" + "0" * 32


@pytest.mark.parametrize(
    "target",
    [
        "/static/../../../../etc/passwd",
        "/static/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/static/..%2f..%2f..%2fetc%2fpasswd",
        "/static/..%5c..%5cetc%5cpasswd",
        "/static//etc/passwd",
        "/static/docs.js%00.html",
        "/static/" + "a" * 5000,
        "/v1/examples/../../../etc/passwd",
        "/v1/examples/..%2f..%2f..%2fetc%2fpasswd",
        "/v1/catalogue/gpus/%2e%2e%2f%2e%2e%2fmodels",
        "/v1/plans/" + "%2e%2e%2f" * 10 + "etc/passwd",
        "/v1/plans/..;/admin",
    ],
)
def test_01_a_path_leads_nowhere_else(service: Service, target: str) -> None:
    answer = service.ask("GET", target)
    assert answer.status in (400, 404)
    assert answer.code in ("not-found", "invalid-parameter")
    assert b"root:" not in answer.body


@pytest.mark.parametrize(
    "name",
    [
        "plan_%00",
        "plan_\x1b[31m",
        "%ff%fe",
        "plan_" + "0" * 5000,
        "a'%20OR%201=1--",
        "$(id)",
        "%E2%80%AE",
        "__class__",
        "{plan_id}",
        "%0d%0aSet-Cookie:x=1",
    ],
)
def test_02_a_name_in_the_path_is_only_a_name(service: Service, name: str) -> None:
    answer = service.ask("GET", f"/v1/plans/{name}")
    assert answer.status in (400, 404)
    assert answer.code in ("not-found", "invalid-parameter", "invalid-http")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "OPTIONS", "PUT", "PATCH", "get", "A" * 300])
def test_03_a_method_that_is_not_offered_is_named(service: Service, method: str) -> None:
    answer = service.ask(method, "/v1/plans", *((("Content-Length", "0"),) if method in ("PUT", "PATCH") else ()))
    assert answer.status == 405
    assert answer.headers["allow"] == "GET, POST"
    assert answer.code == "method-not-allowed"


@pytest.mark.parametrize("header", ["X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method"])
def test_04_a_method_cannot_be_smuggled_in_a_header(service: Service, plan: str, header: str) -> None:
    assert service.ask("GET", plan, (header, "DELETE")).status == 200
    assert service.ask("GET", plan).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80@isthmus", "", "[::1", "a" * 8000])
@pytest.mark.parametrize("target", ["/", "/v1/plans/", "/static", "/docs/"])
def test_05_the_host_header_decides_nothing(service: Service, host: str, target: str) -> None:
    answer = service.ask("GET", target, ("Host", host), ("X-Forwarded-Host", "evil.example"))
    assert answer.headers.get("location", "/docs") == "/docs"
    assert b"evil" not in answer.body
    if answer.status >= 400:
        assert answer.code in ("not-found", "invalid-http")


def test_06_a_request_needs_a_host_and_only_one(service: Service) -> None:
    assert service.raw(b"GET /healthz/live HTTP/1.1\r\n\r\n").refusal == (400, "invalid-http")
    assert service.ask("GET", "/healthz/live", ("Host", "a"), ("Host", "b")).refusal in (
        (400, "invalid-http"), (400, "ambiguous-headers"),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["Content-Type", "Idempotency-Key", "Isthmus-Priority", "Content-Encoding"])
def test_07_a_header_that_counts_once_comes_once(service: Service, name: str) -> None:
    values = {"Content-Type": ("application/json", "text/csv"), "Idempotency-Key": ("a", "b"),
              "Isthmus-Priority": ("7", "1"), "Content-Encoding": ("identity", "gzip")}[name]  # fmt: skip
    twice = [(name, value) for value in values]
    assert service.post("/v1/plans", good_request(), *twice).refusal == (400, "ambiguous-headers")


def test_08_two_authorisations_are_none(service: Service) -> None:
    token = service.tokens["alice"]
    answer = service.ask("GET", "/v1/plans", ("Authorization", f"Bearer {token}"))
    assert answer.refusal == (401, "credentials-invalid"), "the helper sends one already"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ((("Content-Length", "5"), ("Content-Length", "6")), "invalid-http"),
        ((("Content-Length", "-1"),), "invalid-http"),
        ((("Content-Length", "0x10"),), "invalid-http"),
        ((("Content-Length", "9" * 30),), "invalid-http"),
        ((("Transfer-Encoding", "chunked"), ("Content-Length", "2")), "ambiguous-headers"),
        ((("Transfer-Encoding", "xchunked"),), "invalid-http"),
    ],
)
def test_09_a_body_has_one_length(service: Service, headers: tuple[tuple[str, str], ...], code: str) -> None:
    answer = service.ask("POST", "/v1/plans", *headers, body=b"0\r\n\r\n")
    if answer.status == 501:
        pytest.fail("a status that is not documented")
    assert answer.code in (code, "body-too-large")
    assert answer.status in (400, 413)


def test_10_what_follows_a_smuggled_body_is_not_answered(service: Service) -> None:
    smuggled = f"GET /v1/plans HTTP/1.1\r\nHost: i\r\nAuthorization: Bearer {service.tokens['alice']}\r\n\r\n"
    head = "POST /v1/plans HTTP/1.1\r\nHost: i\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"
    answer = service.raw((head + smuggled).encode())
    assert answer.body.count(b"HTTP/1.1") == 0
    assert answer.status in (400, 401)


@pytest.mark.parametrize("value", ["a\r\nX-Injected: 1", "\x00", "a\x0bb"])
def test_11_a_header_value_ends_at_its_line(service: Service, value: str) -> None:
    answer = service.post("/v1/plans", good_request(), ("Idempotency-Key", value))
    assert "x-injected" not in answer.headers
    assert answer.status in (202, 400)
    if answer.status == 400:
        assert answer.code in ("invalid-http", "idempotency-key-malformed")


def test_12_a_head_has_a_size(service: Service) -> None:
    padding = [(f"X-{number}", "a" * 1000) for number in range(200)]
    assert service.ask("GET", "/v1/plans", *padding).refusal == (400, "invalid-http")
    assert service.ask("GET", "/v1/plans?" + "a" * 200_000).refusal == (400, "invalid-http")


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET\r\n\r\n",
                                  b"GET / HTTP/9.9\r\nHost: i\r\n\r\n", b"\x00" * 100 + b"\r\n\r\n",
                                  b"GET /\xff\xfe HTTP/1.1\r\nHost: i\r\n\r\n", b"EHLO isthmus\r\n\r\n"])  # fmt: skip
def test_13_what_is_not_http_is_told_so(service: Service, data: bytes) -> None:
    assert service.raw(data).refusal in ((400, "invalid-http"), (401, "credentials-missing"))


@pytest.mark.parametrize(
    "query",
    [
        "limit=" + "9" * 5000, "limit=NaN", "limit=-1", "limit=1e1", "limit=0", "limit=201", "limit=%00",
        "cursor=" + "f" * 5000, "cursor=plan_" + "g" * 32, "cursor=../../etc", "cursor='%20OR%201=1", "cursor=%1b[31m",
        "state=__class__", "state=queued'--",
    ],
)  # fmt: skip
def test_14_a_query_is_checked(service: Service, query: str) -> None:
    assert service.ask("GET", f"/v1/plans?{query}").refusal == (400, "invalid-parameter")


@pytest.mark.parametrize("event", ["9" * 5000, "-1", "NaN", "1e9", "\xb2", "0x1", ""])
def test_15_the_last_event_is_a_number_of_twelve_digits(service: Service, plan: str, event: str) -> None:
    assert service.ask("GET", f"{plan}/events", ("Last-Event-ID", event)).refusal == (400, "invalid-parameter")
    assert service.ask("GET", f"{plan}/events?after={event or 'x'}").refusal in ((400, "invalid-parameter"),
                                                                                (400, "invalid-http"))  # fmt: skip


def test_16_an_event_of_the_far_future_is_waited_for_in_vain(service: Service, plan: str) -> None:
    with service.opened(f"{plan}/events?after={10**12 - 1}") as stream:
        assert stream.recv(4096).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("tags", ["*", ",".join(f'"{n}"' for n in range(5000)), '"', 'W/"' + "a" * 9000, "\x7f"])
def test_17_entity_tags_are_only_compared(service: Service, tags: str) -> None:
    answer = service.ask("GET", NOBODYS, ("If-None-Match", tags))
    assert answer.refusal in ((404, "not-found"), (400, "invalid-http"))


@pytest.mark.parametrize(
    "prefer", ["wait=" + "9" * 5000, "wait=-1", "wait=NaN", "respond-async, wait=1e9", "wait", ";;;"]
)
def test_18_a_preference_that_is_none_is_ignored(service: Service, prefer: str) -> None:
    answer = service.post("/v1/plans", good_request(), ("Prefer", prefer))
    assert answer.status == 202 or answer.refusal == (400, "invalid-parameter")


@pytest.mark.parametrize("priority", ["9" * 5000, "-1", "8", "1.5", "NaN", "\u00b2"])
def test_19_a_priority_is_checked(service: Service, priority: str) -> None:
    answer = service.post("/v1/plans", good_request(), ("Isthmus-Priority", priority))
    assert answer.refusal == (400, "invalid-parameter")


def test_20_urgency_zero_is_for_administrators(service: Service) -> None:
    answer = service.post("/v1/plans", good_request(), ("Isthmus-Priority", "0"))
    assert answer.refusal == (403, "not-allowed")


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ((("Content-Type", "text/plain"),), "unsupported-media-type"),
        ((("Content-Type", "application/x-www-form-urlencoded"),), "unsupported-media-type"),
        ((("Content-Type", "multipart/form-data; boundary=x"),), "unsupported-media-type"),
        ((("Content-Type", "application/json;" + "a" * 5000),), ""),
        ((("Content-Type", "\xff/\xfe"),), "unsupported-media-type"),
        ((("Content-Encoding", "br"),), "unsupported-media-type"),
        ((("Content-Encoding", "br, gzip"),), "unsupported-media-type"),
    ],
)
def test_21_a_body_is_json_and_says_so(service: Service, headers: tuple[tuple[str, str], ...], code: str) -> None:
    answer = service.ask("POST", "/v1/plans", *headers, body=json.dumps(good_request()).encode())
    assert answer.refusal == (415, code) if code else answer.status == 202


def test_22_an_upgrade_is_not_taken(service: Service) -> None:
    upgrade = (
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    )
    answer = service.ask("GET", "/v1/plans", *upgrade)
    assert answer.status in (200, 404)
