"""Shortens what a generated request may search for, so that thousands of cases end, and drops one false alarm.

Runs along the links begin with the examples of the document: a body made up from its schema is all but always refused,
and nothing can be followed from a refusal.
"""

from __future__ import annotations

import copy
from typing import Any

import schemathesis
from schemathesis.generation import GenerationMode
from schemathesis.generation.meta import TestPhase
from schemathesis.specs.openapi.checks import EnsureResourceAvailability

SHORT_S = 0.2
SMALL_CLUSTER = "cloud-zones-nic-per-host"  # of the first example: fewer GPUs than the service under test takes
LONGEST_S = 86_400.0  # what the schema allows; a value past it is left to be refused
ONLY_IF_ASKED = ("/webhook", "/losses")
UNKNOWN_HEADER = "x-schemathesis-unknown-property"


@schemathesis.hook
def filter_case(_context: Any, case: Any) -> bool:
    """Leave out headers that the API does not know: RFC 9110, 5.1 has them ignored, so none is refused.

    The tool knows that too, but not where another header of the same request is a number, which headers carry as text.
    """
    return UNKNOWN_HEADER not in (case.headers or {})


@schemathesis.hook
def filter_failure(_context: Any, failure: Any, case: Any, _response: Any) -> bool:
    """A new plan or study may lack what it has only if it was asked for, and 404 says so: nothing was lost."""
    return not (isinstance(failure, EnsureResourceAvailability) and case.operation.path.endswith(ONLY_IF_ASKED))


def begins_a_run(case: Any) -> bool:
    """Whether a case is the first of a run along the links, and is meant to be accepted."""
    meta = case.meta
    return (
        meta is not None
        and meta.phase.name == TestPhase.STATEFUL
        and meta.generation.mode == GenerationMode.POSITIVE
        and "{" not in case.operation.path
    )


def first_example(operation: dict[str, Any], media_type: str | None) -> Any:
    """The first body that an operation of the document shows for a media type; None where it shows none."""
    content = operation.get("requestBody", {}).get("content", {}).get(media_type, {})
    shown = [one["value"] for one in content.get("examples", {}).values()]
    return shown[0] if shown else content.get("example")


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: Any) -> None:
    """Begin a run along the links with an example; shorten the search that a body asks for; wrong limits stay wrong."""
    example = first_example(case.operation.definition.raw, case.media_type) if begins_a_run(case) else None
    if example is not None:
        case.body = copy.deepcopy(example)
        _make_small(case.body)
    if not isinstance(case.body, dict):
        return
    for request in _requests(case.body):
        _shorten(request)


def _requests(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Whatever in a body may be a request for a plan, or a part of one."""
    parts = (body, *(body.get(name) for name in ("request", "base", "patch")))
    return [one for one in parts if isinstance(one, dict)]


def _make_small(body: Any) -> None:
    """Put a cluster that the service takes in the place of one that is too large for it."""
    for request in _requests(body) if isinstance(body, dict) else ():
        if "cluster" in request:
            request["cluster"] = SMALL_CLUSTER


def _shorten(request: dict[str, Any]) -> None:
    options = request.get("options", {})
    if not {"workload", "num_microbatches", "options"} & set(request) or not isinstance(options, dict):
        return
    limit_s = options.get("time_limit_s", LONGEST_S)
    if type(limit_s) in (int, float) and SHORT_S < limit_s <= LONGEST_S:
        request["options"] = {**options, "time_limit_s": SHORT_S}
