"""The committed OpenAPI document is what the service says; a change of it is a decision, never an accident."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.main import create_app
from app.settings import Settings
from models.request import PlanRequest

COMMITTED = Path(__file__).parents[2] / "openapi.json"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The document of the running code."""
    return create_app(Settings()).openapi()


def test_the_committed_document_is_current(document: dict[str, Any]) -> None:
    committed = json.loads(COMMITTED.read_text(encoding="utf-8"))
    assert committed == json.loads(json.dumps(document)), "intended? then write it anew with make openapi"


def test_every_operation_has_a_summary_and_documents_its_problems(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["summary"]
            for status, response in operation["responses"].items():
                if status[0] in "45":
                    assert set(response["content"]) == {"application/problem+json"}, (path, status)


def test_every_reference_resolves(document: dict[str, Any]) -> None:
    def check(value: Any) -> None:
        if isinstance(value, dict):
            reference = value.get("$ref")
            if isinstance(reference, str):
                assert reference.rsplit("/", 1)[1] in document["components"]["schemas"], reference
            for inner in value.values():
                check(inner)
        elif isinstance(value, list):
            for inner in value:
                check(inner)

    check(document)


def test_the_examples_in_the_document_can_be_posted(document: dict[str, Any]) -> None:
    body = document["paths"]["/v1/plans"]["post"]["requestBody"]["content"]["application/json"]
    assert body["examples"]
    for example in body["examples"].values():
        PlanRequest.model_validate(example["value"])
