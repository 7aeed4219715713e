"""The committed OpenAPI document is what the service says; a change of it is a decision, never an accident."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from app.api.calibrations import CalibrationRequest
from app.api.examples import MEASURED_RUNS_CSV, REPLAN_EXAMPLES
from app.api.exports import Hosts
from app.api.imports import ImportRequest
from app.api.problems import ISSUE_TYPES
from app.api.replans import Replan, Resume
from app.api.studies import StudyRequest
from app.exporters.launch.options import Launch
from app.jobs.patches import grid, merged, with_value
from app.main import create_app
from app.settings import Settings
from app.wire import EvaluationRequest, PlanEnvelope, Problem
from models.catalogue import named_entry
from models.questions import AnyQuestion
from models.request import PlanRequest
from models.schedule import PipelineProblem
from solver.calibration.fit_rows import calibrate_rows

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
                _, components, kind, name = reference.split("/")
                assert name in document[components][kind], reference
            for inner in value.values():
                check(inner)
        elif isinstance(value, list):
            for inner in value:
                check(inner)

    check(document)


BODIES: dict[str, type[BaseModel]] = {
    "/v1/plans": PlanRequest,
    "/v1/plans:validate": PlanRequest,
    "/v1/plans:evaluate": EvaluationRequest,
    "/v1/plans/{plan_id}:replan": Replan,
    "/v1/plans/{plan_id}:resume": Resume,
    "/v1/plans/{plan_id}/artifacts/{kind}": Hosts,
    "/v1/plans/{plan_id}/bundle": Launch,
    "/v1/schedules": PipelineProblem,
    "/v1/studies": StudyRequest,
    "/v1/questions": AnyQuestion,
    "/v1/calibrations": CalibrationRequest,
    "/v1/imports": ImportRequest,
}


def _examples(document: dict[str, Any], path: str) -> list[Any]:
    body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    return [example["value"] for example in body.get("examples", {}).values()]


def test_every_body_comes_with_an_example_that_can_be_sent(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        if "requestBody" not in operations.get("post", {}):
            continue
        assert _examples(document, path), path
        for example in _examples(document, path):
            BODIES[path].model_validate(example)


def test_every_member_of_the_example_studies_is_a_request(document: dict[str, Any]) -> None:
    for study in (StudyRequest.model_validate(one) for one in _examples(document, "/v1/studies")):
        members = [merged(study.base, patch) for patch in study.patches]
        for point in grid(study.axes) if study.axes else ():
            member = study.base
            for pointer, value in point.items():
                member = with_value(member, pointer, value)
            members.append(member)
        assert len(members) > 1
        assert all(PlanRequest.model_validate(member) for member in members)


def test_a_place_of_the_example_replans_exists_in_the_example_that_it_is_about() -> None:
    places = {place["id"] for place in named_entry("clusters", "two-buildings")["places"]}
    lost = [place for example in REPLAN_EXAMPLES.values() for place in example["value"].get("lost_places", [])]
    assert lost
    assert set(lost) <= places


def test_the_example_table_of_runs_is_enough_for_a_fit() -> None:
    fitted = calibrate_rows(list(csv.DictReader(MEASURED_RUNS_CSV.splitlines())), name="example")
    assert fitted.num_rows == 10
    assert fitted.fit_median_abs_pct < 5.0


def test_every_answer_says_what_it_is(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                assert response["description"] not in ("", "Successful Response"), (path, status)


def test_every_parameter_and_every_field_is_described(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                assert parameter.get("description"), (path, parameter["name"])
    for name, schema in document["components"]["schemas"].items():
        for field, one in schema.get("properties", {}).items():
            assert one.get("description") or "$ref" in one, (name, field)


def test_a_quantity_says_its_unit_in_words(document: dict[str, Any]) -> None:
    link = document["components"]["schemas"]["Link"]["properties"]
    assert link["capacity_bytes_per_s"]["description"].endswith("Unit: B/s.")
    assert link["latency_s"]["description"].endswith("Unit: s.")
    assert "Unit" not in link["planes"]["description"]


def test_a_field_that_tells_kinds_of_objects_apart_is_required(document: dict[str, Any]) -> None:
    told = [one["discriminator"] for one in _parts(document) if "mapping" in one.get("discriminator", {})]
    assert {one["propertyName"] for one in told} == {"ask", "kind", "status"}
    for one in told:
        for reference in one["mapping"].values():
            schema = document["components"]["schemas"][reference.rpartition("/")[2]]
            assert one["propertyName"] in schema["required"]


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside a document."""
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _parts(one)


def test_no_empty_example_hides_the_fields_of_an_object(document: dict[str, Any]) -> None:
    for name, schema in document["components"]["schemas"].items():
        for field, one in schema.get("properties", {}).items():
            if "$ref" in json.dumps(one) and "examples" in one:
                assert any(example not in (None, {}, [], [{}]) for example in one["examples"]), (name, field)


def test_a_typical_problem_of_every_status_is_shown(document: dict[str, Any]) -> None:
    shown = {name: one for name, one in document["components"]["examples"].items() if name.startswith("problem-")}
    for name, example in shown.items():
        problem = Problem.model_validate(example["value"])
        assert name == f"problem-{problem.status}"
        assert problem.code in ISSUE_TYPES
    stated = {int(status) for operations in document["paths"].values() for operation in operations.values()
              for status in operation["responses"] if status[0] in "45"}  # fmt: skip
    assert stated == {example["value"]["status"] for example in shown.values()}


def test_the_example_of_a_plan_is_one(document: dict[str, Any]) -> None:
    shown = PlanEnvelope.model_validate(document["components"]["examples"]["planned"]["value"])
    assert shown.outcome is not None
    assert shown.outcome.status == "planned"


def test_examples_of_a_request_go_from_small_to_large_and_say_how_large(document: dict[str, Any]) -> None:
    content = document["paths"]["/v1/plans"]["post"]["requestBody"]["content"]["application/json"]
    described = [one["description"] for one in content["examples"].values()]
    sizes = [int(text.partition(" GPUs")[0].rpartition(" ")[2].replace(",", "")) for text in described]
    assert sizes == sorted(sizes)
    assert sizes[0] <= 2048 < sizes[-1]
