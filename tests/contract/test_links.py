"""Links of the OpenAPI document lead from whatever makes a thing to every operation on it, and really resolve."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from fastapi.testclient import TestClient

from app.api.links import path_parameters
from app.api.openapi import document_of
from app.main import create_app
from app.settings import Settings
from tests.unit.app import fake_solver
from tests.unit.app.programs import await_
from tests.unit.app.service_fixture import request_for, running, settings_for

EXPRESSION = re.compile(r"\$(response\.body#(?P<pointer>(/[^/]+)+)|request\.path\.(?P<name>\w+))")
MADE = {"201", "202"}  # statuses of answers with something new
# What a plan or study has only if it was asked for, and a stream.
ONLY_IF_ASKED = {"read_plan_losses", "read_plan_webhook", "read_study_webhook", "follow_plan"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The document of the running code."""
    return document_of(create_app(Settings()))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The service with the made-up planner."""
    with running(settings_for(tmp_path_factory.mktemp("links"))) as started:
        yield started


def operations(document: dict[str, Any]) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Method, path and description of every operation, by its id."""
    return {one["operationId"]: (method, path, one) for path, by_method in document["paths"].items()
            for method, one in by_method.items()}  # fmt: skip


def links(operation: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Status, name and value of every link of an operation."""
    for status, response in operation["responses"].items():
        for name, link in response.get("links", {}).items():
            yield status, name, link


def value_of(expression: str, body: Any, path_values: dict[str, str]) -> Any:
    """What a runtime expression stands for in an answer."""
    found = EXPRESSION.fullmatch(expression)
    assert found, expression
    if found["name"]:
        return path_values[found["name"]]
    for part in found["pointer"].split("/")[1:]:
        body = body[int(part)] if isinstance(body, list) else body[part]
    return body


def test_every_operation_on_a_thing_is_reached_by_a_link(document: dict[str, Any]) -> None:
    """From operations that themselves need no thing, or one that another makes; no link leads anywhere else."""
    known = operations(document)
    reached = {link["operationId"] for _, _, one in known.values() for _, _, link in links(one)}
    on_things = {name for name, (_, _, one) in known.items() if path_parameters(one)}
    assert len(on_things) > 20
    assert on_things == reached


def test_whatever_makes_a_thing_has_links_in_every_good_answer(document: dict[str, Any]) -> None:
    known = operations(document)
    answered = {name for name, (method, _, one) in known.items() if method == "post" and MADE & set(one["responses"])}
    made = answered - {"cancel_plan"}
    assert len(made) == 6
    for name in made:
        _, _, one = known[name]
        linked = {status for status, _, _ in links(one)}
        assert linked == {status for status in one["responses"] if status.startswith("2")}, name


def test_every_link_names_an_operation_and_its_parameters(document: dict[str, Any]) -> None:
    known = operations(document)
    for _, _, source in known.values():
        for _, name, link in links(source):
            assert set(link) == {"operationId", "description", "parameters"}
            assert name == link["operationId"]
            _, path, target = known[link["operationId"]]
            there = {one["name"]: one for one in target["parameters"]}
            assert set(link["parameters"]) <= set(there), path
            needed = {one for one, about in there.items() if about.get("required") and "enum" not in about["schema"]}
            assert needed <= set(link["parameters"]), path


def answers(client: TestClient, document: dict[str, Any]) -> dict[str, tuple[Any, dict[str, str]]]:
    """A real answer of every operation that has links, with the values in the path of its request."""
    known = operations(document)

    def shown(name: str) -> Any:
        content = known[name][2]["requestBody"]["content"]["application/json"]
        return next(iter(content["examples"].values()))["value"]

    def called(name: str, body: Any = None, **path_values: str) -> tuple[Any, dict[str, str]]:
        method, path, one = known[name]
        answer = client.request(method, path.format(**path_values), json=body, headers={"Prefer": "wait=30"})
        assert {status for status, _, _ in links(one)} >= {str(answer.status_code)}, answer.text
        return answer.json(), path_values

    plan = called("submit_plan", request_for(fake_solver.FINDS))
    plan_id = plan[0]["id"]
    await_(lambda: client.get(f"/v1/plans/{plan_id}/status").json()["finished_at"], "ended")
    return {
        "submit_plan": plan,
        "replan": called("replan", {"patch": {"options": {"time_limit_s": 9.0}}}, plan_id=plan_id),
        "resume": called("resume", {"time_limit_s": 9.0}, plan_id=plan_id),
        "submit_study": called("submit_study", shown("submit_study")),
        "submit_question": called("submit_question", shown("submit_question")),
        "create_calibration": called("create_calibration", shown("create_calibration")),
        "list_examples": called("list_examples"),
        "list_catalogue": called("list_catalogue", kind="models"),
    }


def test_every_expression_resolves_in_a_real_answer(client: TestClient, document: dict[str, Any]) -> None:
    """It gives a value that fits the parameter, and who follows a link that reads finds the operation and the thing."""
    known, real = operations(document), answers(client, document)
    assert set(real) == {name for name, (_, _, one) in known.items() if list(links(one))}
    read = set()
    for name, (body, path_values) in real.items():
        for _, _, link in links(known[name][2]):
            method, path, target = known[link["operationId"]]
            values = {one: value_of(text, body, path_values) for one, text in link["parameters"].items()}
            there = {one["name"]: one for one in target["parameters"]}
            for one, value in values.items():
                jsonschema.validate(value, there[one]["schema"])
            is_told = all(one in values for one, about in there.items() if about.get("required"))
            if method == "get" and is_told and link["operationId"] not in ONLY_IF_ASKED:
                query = {one: value for one, value in values.items() if there[one]["in"] == "query"}
                answer = client.get(path.format(**values), params=query)
                assert answer.status_code in (200, 409), (name, path, answer.text)
                read.add(link["operationId"])
    assert {"read_plan", "read_plan_comparison", "read_study", "read_question", "read_calibration", "read_example",
            "read_catalogue"} <= read  # fmt: skip
