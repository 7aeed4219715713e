"""What belongs to others: their plans, their keys, their share of the service, the log."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack, suppress

import pytest

from tests.abuse.wire import MAX_WAITING, MAX_WAITING_PER_KEY, PATIENCE_S, Service, read_answer
from tests.unit.app.programs import HOST, await_
from tests.unit.models.bad_requests import good_request


@pytest.mark.parametrize("part", ["", "/status", "/request", "/events", "/moves", "/artifacts/report-html"])
def test_39_anothers_plan_is_one_that_does_not_exist(service: Service, plan: str, part: str) -> None:
    theirs = service.ask("GET", plan + part, who="mallory")
    assert theirs.refusal == (404, "not-found")


@pytest.mark.parametrize("method", ["DELETE", "POST"])
def test_40_anothers_plan_cannot_be_changed(service: Service, plan: str, method: str) -> None:
    for target in (plan,) if method == "DELETE" else (plan + ":cancel", plan + ":replan"):
        answer = service.ask(method, target, body=b"{}" if target.endswith("replan") else None, who="mallory")
        assert answer.refusal == (404, "not-found")
    assert service.ask("GET", plan).json()["cancel_requested"] is False


def test_41_anothers_plan_is_not_compared_with(service: Service, plan: str) -> None:
    listed = service.ask("GET", "/v1/plans?limit=200", who="mallory").json()["items"]
    assert plan not in [one["links"]["self"] for one in listed]
    assert service.ask("GET", f"/v1/plans?cursor={plan.rpartition('/')[2]}", who="mallory").status == 200


@pytest.mark.parametrize(
    ("who", "method", "target"),
    [
        ("reader", "POST", "/v1/plans"),
        ("reader", "DELETE", "/v1/plans/x"),
        ("sender", "GET", "/v1/plans"),
        ("sender", "GET", "/metrics"),
        ("reader", "PUT", "/v1/plans"),
    ],
)
def test_42_a_key_opens_what_its_scopes_name(service: Service, who: str, method: str, target: str) -> None:
    body = b"x" * 100 if method in ("POST", "PUT") else None
    assert service.ask(method, target, body=body, who=who).refusal == (403, "not-allowed")


@pytest.mark.parametrize(
    "key",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "Bearer isthmus_0_0",
        "Bearer " + "a" * 9000,
        "Bearer isthmus_%00",
        "Bearer isthmus_' OR 1=1",
        "bearer null",
        "Bearer \xff",
    ],
)
def test_43_a_key_that_is_none_opens_nothing(service: Service, key: str) -> None:
    answer = service.ask("GET", "/v1/plans", ("Authorization", key), who="")
    assert answer.status == 401
    assert answer.code in ("credentials-invalid", "credentials-missing")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    token = service.tokens["alice"]
    assert service.ask("GET", f"/v1/plans?key={token}&access_token={token}", who="").status == 401


@pytest.mark.parametrize("position", [8, 20, -1])
def test_44_every_character_of_a_key_counts(service: Service, position: int) -> None:
    letters = list(service.tokens["alice"])
    letters[position] = "0" if letters[position] != "0" else "1"
    answer = service.ask("GET", "/v1/plans", ("Authorization", f"Bearer {''.join(letters)}"), who="")
    assert answer.refusal == (401, "credentials-invalid")


def test_45_a_replayed_key_makes_nothing_new(service: Service) -> None:
    key = ("Idempotency-Key", "replayed-1")
    first = service.post("/v1/plans", good_request(), key)
    again = service.post("/v1/plans", good_request(), key)
    assert (first.json()["id"], again.headers["idempotency-replayed"]) == (again.json()["id"], "true")
    other = service.post("/v1/plans", {**good_request(), "options": {"seed": 2}}, key)
    assert other.refusal == (422, "idempotency-key-reused")
    assert service.post("/v1/plans", good_request(), key, who="mallory").json()["id"] != first.json()["id"]


@pytest.mark.parametrize("key", ["a" * 256, "\xe9", "", "a b"])
def test_46_a_key_of_odd_form_is_refused(service: Service, key: str) -> None:
    answer = service.post("/v1/plans", good_request(), ("Idempotency-Key", key))
    assert answer.refusal == (400, "idempotency-key-malformed")


def test_47_a_flood_of_streams_takes_no_more_than_its_share(service: Service, plan: str) -> None:
    def room(who: str, target: str) -> bool:
        with service.opened(target, who) as probe:
            return probe.recv(100).startswith(b"HTTP/1.1 200")

    await_(lambda: room("alice", plan + "/events"), "room for a stream")
    theirs = service.post("/v1/plans", good_request(), who="mallory").headers["location"]
    with ExitStack() as stack:
        answers = [stack.enter_context(service.opened(plan + "/events")).recv(100)[:12] for _ in range(MAX_WAITING + 2)]
        assert MAX_WAITING_PER_KEY - 1 <= answers.count(b"HTTP/1.1 200") <= MAX_WAITING_PER_KEY
        refused = service.ask("GET", plan + "/events")
        assert (refused.refusal, refused.headers["retry-after"]) == ((429, "too-many-waiting"), "10")
        assert room("mallory", theirs + "/events"), "another key has its own share"
        waits = service.post("/v1/plans", good_request(), ("Prefer", "wait=30"))
        assert (waits.status, waits.headers.get("preference-applied")) == (202, None), "a preference, not a right"
    await_(lambda: room("alice", plan + "/events"), "given back")


def test_48_a_flood_of_connections_is_turned_away(service: Service) -> None:
    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection((HOST, service.port), timeout=PATIENCE_S)) for _ in range(75)
        ]
        assert read_answer(connections[-1]).refusal == (503, "too-many-connections")
    await_(lambda: service.ask("GET", "/healthz/live", who="").status == 200, "room again")


def test_49_a_client_that_leaves_at_once_leaves_nothing_behind(service: Service) -> None:
    body = json.dumps(good_request()).encode()
    for _ in range(20):
        with socket.create_connection((HOST, service.port), timeout=PATIENCE_S) as connection:
            token = service.tokens["alice"]
            connection.sendall(
                f"POST /v1/plans HTTP/1.1\r\nHost: i\r\nAuthorization: Bearer {token}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body) + 5}\r\n\r\n".encode()
                + body
            )
    assert service.ask("GET", "/v1/plans").status == 200


@pytest.mark.parametrize("text", ["%1b%5b31mred", "%0a%7b%22level%22:%22ERROR%22%7d", "%e2%80%a8"])
def test_50_a_log_line_is_one_line_of_json(service: Service, text: str) -> None:
    service.ask("GET", f"/v1/plans/{text}")
    service.ask("GET", "/v1/plans", ("Authorization", f"Bearer {text}"), ("User-Agent", text), who="")
    service.raw(b"\x1b[31m\nERROR forged\r\n\r\n")
    for line in service.log.read_bytes().splitlines():
        assert line.isascii()
        assert b"\x1b" not in line
        if not line.startswith(b"http://"):
            assert json.loads(line)["level"]


def test_51_who_does_not_read_keeps_no_connection(service: Service) -> None:
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: isthmus\r\n"
    with socket.create_connection((HOST, service.port), timeout=PATIENCE_S) as slow:
        slow.sendall(asked + b"Connection: close\r\n\r\n")
        whole = _received(slow, pause_s=0.02)
    assert whole.endswith(b"}"), "who reads slowly gets everything"
    with socket.create_connection((HOST, service.port), timeout=PATIENCE_S) as silent:
        silent.sendall((asked + b"\r\n") * 100)  # more than the buffers of both ends hold
        time.sleep(3.0)  # as long again and more as the service waits for it
        assert len(_received(silent)) < 90 * len(whole)


def _received(connection: socket.socket, *, pause_s: float = 0.0) -> bytes:
    """Everything until the end of the connection."""
    received = bytearray()
    with suppress(ConnectionResetError):
        while chunk := connection.recv(65536):
            received += chunk
            time.sleep(pause_s)
    return bytes(received)
