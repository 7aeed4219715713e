"""What the how-to of the API calls is what the API has: paths, headers and codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.api.problems import methods_of
from app.faults import ISSUE_TYPES

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


@pytest.mark.parametrize("header", ["Prefer", "Idempotency-Key", "If-None-Match", "Last-Event-ID", "Isthmus-Priority"])
def test_a_header_is_one_of_the_api(header: str) -> None:
    assert header in TEXT
    assert header.lower() in _known_parameters()


@pytest.mark.parametrize("code", re.findall(r"4\d\d `([a-z-]+)`", TEXT))
def test_a_code_is_published(code: str) -> None:
    assert code in ISSUE_TYPES
