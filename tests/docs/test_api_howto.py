"""What the how-to of the API calls is what the API has: paths, headers and codes."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from app.api.problems import ISSUE_TYPES, methods_of
from app.jobs.webhooks import signature

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/howto/use-the-api.md").read_text(encoding="utf-8")
API = json.loads((ROOT / "openapi.json").read_text(encoding="utf-8"))
CALLS = [
    (path, "POST" if "-d " in rest else "GET") for path, rest in re.findall(r"^curl .*?\$base(\S+)(.*)$", TEXT, re.M)
]
NAMED = [(path.partition("?")[0], method) for method, path in re.findall(r"`(GET|POST|DELETE) (/\S+?)`", TEXT)]


def _known_parameters() -> set[str]:
    operations = [operation for path in API["paths"].values() for operation in path.values()]
    return {one["name"].lower() for operation in operations for one in operation.get("parameters", ())}


def test_there_are_calls_to_check() -> None:
    assert len(CALLS) >= 9
    assert len(NAMED) >= 4


@pytest.mark.parametrize(("path", "method"), [*CALLS, *NAMED])
def test_a_call_is_one_of_the_api(path: str, method: str) -> None:
    assert method in methods_of(path, API["paths"]).split(", "), path


@pytest.mark.parametrize(
    "header", ["Prefer", "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", "Isthmus-Priority"]
)
def test_a_header_is_one_of_the_api(header: str) -> None:
    assert header in TEXT
    assert header.lower() in _known_parameters()


@pytest.mark.parametrize("code", re.findall(r"4\d\d `([a-z-]+)`", TEXT))
def test_a_code_is_published(code: str) -> None:
    assert code in ISSUE_TYPES


def test_the_verification_of_a_webhook_takes_what_the_service_signs_and_nothing_else() -> None:
    (source,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(source, "use-the-api.md", "exec"), names)
    secret, body, now_s = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"type":"plan.ended"}', int(time.time())
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(now_s)}
    headers["webhook-signature"] = signature(secret, "msg_1", now_s, body)
    is_genuine = names["is_genuine"]
    assert is_genuine(secret, headers, body)
    assert is_genuine(secret, {**headers, "webhook-signature": f"v1,x {headers['webhook-signature']}"}, body)
    assert not is_genuine(secret, headers, body + b" ")
    assert not is_genuine(secret, {**headers, "webhook-id": "msg_2"}, body)
    old = signature(secret, "msg_1", now_s - 3600, body)
    assert not is_genuine(
        secret, {**headers, "webhook-timestamp": str(now_s - 3600), "webhook-signature": old}, body
    ), "a message that was recorded cannot be sent again an hour later"
