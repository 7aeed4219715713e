"""Links of the OpenAPI document: from every operation that makes or lists a thing to the operations on that thing.

Who has an answer finds in it what the next request needs: `$response.body#/id` of a submission is the `plan_id` in the
path of whatever can be done with the plan. Source: OpenAPI 3.1.1, 4.8.20 (Link Object) and 4.8.20.3 (runtime
expressions).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ID = "$response.body#/id"

# By operation that answers with a thing: where its answer (or request) has the parameters of operations on the thing.
SOURCES: Mapping[str, Mapping[str, str]] = {
    "submit_plan": {"plan_id": ID},
    "replan": {"plan_id": ID, "other": "$response.body#/parent_id"},
    "resume": {"plan_id": ID, "other": "$response.body#/parent_id"},
    "submit_study": {"study_id": ID},
    "submit_question": {"question_id": ID},
    "create_calibration": {"calibration_id": ID},
    "list_catalogue": {"kind": "$request.path.kind", "name": "$response.body#/0"},
    "list_examples": {"name": "$response.body#/0/id"},
}
ON_CHILDREN = frozenset({"read_plan_moves"})  # asked of a plan that was not made from another it is always refused


def add_links(document: dict[str, Any]) -> None:
    """Give every answer with a thing (2xx of an operation in `SOURCES`) one link to each operation on the thing.

    Parameters:
        document: an OpenAPI document; its responses get `links`, each under the id of the operation that it leads to.
            Things of one kind lie under one path: `/v1/plans` and all that begins with it.
    """
    operations = [(path, one) for path, by_method in document["paths"].items() for one in by_method.values()]
    for path, source in operations:
        known = SOURCES.get(source["operationId"])
        if known is None:
            continue
        beside = [one for other, one in operations if _collection(other) == _collection(path)]
        for status, response in source["responses"].items():
            if status.startswith("2"):
                response["links"] = {one["operationId"]: _link(one, known) for one in beside if _is_reached(one, known)}


def _collection(path: str) -> str:
    """What a path is about.

    >>> _collection("/v1/plans"), _collection("/v1/plans/{plan_id}:replan")
    ('plans', 'plans')
    """
    return path.split("/")[2] if path.startswith("/v1/") else path


def path_parameters(operation: Mapping[str, Any]) -> set[str]:
    """Names of the parameters in the path that name a thing; one of a few fixed words (`kind`, `form`) names none.

    >>> plan = {"name": "plan_id", "in": "path", "schema": {"type": "string"}}
    >>> form = {"name": "form", "in": "path", "schema": {"type": "string", "enum": ["table", "picture"]}}
    >>> wait = {"name": "prefer", "in": "header", "schema": {"type": "string"}}
    >>> path_parameters({"parameters": [plan, form, wait]})
    {'plan_id'}
    """
    parameters = operation.get("parameters", ())
    return {one["name"] for one in parameters if one["in"] == "path" and "enum" not in one["schema"]}


def _is_reached(operation: Mapping[str, Any], known: Mapping[str, str]) -> bool:
    """Whether an operation is on a thing and all it must be told is known, but fixed words, which clients choose."""
    parameters = operation.get("parameters", ())
    needed = {one["name"] for one in parameters if one.get("required") and "enum" not in one["schema"]}
    if operation["operationId"] in ON_CHILDREN:
        needed.add("other")
    return bool(path_parameters(operation)) and needed <= set(known)


def _link(operation: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    """A Link Object: the operation, and an expression for every parameter of it that is known."""
    names = (one["name"] for one in operation.get("parameters", ()))
    parameters = {name: known[name] for name in names if name in known}
    return {
        "operationId": operation["operationId"],
        "description": f"{operation['summary']}.",
        "parameters": parameters,
    }
