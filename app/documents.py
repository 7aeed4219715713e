"""Reads JSON documents as strictly as the API promises: bytes in, frozen models or faults out.

Owns what counts as a JSON document (depth, NaN, trailing text) and the limits on what a request may describe.
Never opens a file.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from app.faults import Fault, Refused, escaped, from_validation
from app.settings import Settings
from models.plan import Plan
from models.request import PlanRequest
from models.schedule import PipelineProblem

MAX_JSON_DEPTH = 201  # what the parser in use goes down to; a test holds it to that
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_NOT_FINITE = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?(?:NaN|Infinity|inf))')

AnyModel = TypeVar("AnyModel", bound=BaseModel)


def parse_json(data: bytes) -> Any:
    """The value of a JSON text.

    >>> parse_json(b'{"a": [1]}')
    {'a': [1]}
    """
    try:
        document = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise Refused((_syntax_fault(data, str(error)),)) from None
    pointer = duplicate_key(data)
    if pointer is not None:
        raise Refused((_duplicate_fault(pointer),))
    return document


class _Twice(dict[str, Any]):
    """An object in which a key came twice."""

    key = ""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    seen: set[str] = set()
    marked = _Twice(values)
    marked.key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return marked


def duplicate_key(data: bytes) -> str | None:
    """JSON Pointer of the first key that comes twice in its object; readers differ on which of the two counts.

    >>> duplicate_key(b'{"a": [{"b": 1, "b": 2}]}')
    '/a/0/b'
    """
    pending: list[tuple[str, Any]] = [("", json.loads(data, object_pairs_hook=_object, parse_int=float))]
    while pending:
        pointer, here = pending.pop()
        if isinstance(here, _Twice):
            return f"{pointer}/{escaped(here.key)}"
        inside = here.items() if isinstance(here, dict) else enumerate(here) if isinstance(here, list) else ()
        pending.extend((f"{pointer}/{escaped(str(key))}", value) for key, value in inside
                       if isinstance(value, dict | list))  # fmt: skip
    return None


def _duplicate_fault(pointer: str) -> Fault:
    return Fault(
        code="duplicate-key",
        what=f"the key {pointer.rpartition('/')[2]!r} comes twice in one object",
        pointer=pointer,
        allowed="every key once",
        remedy="Remove one of the two.",
    )


def _syntax_fault(data: bytes, message: str) -> Fault:
    if "recursion limit" in message:
        return Fault(
            code="limit-exceeded",
            what=f"the document nests {json_depth(data)} levels deep, the limit is {MAX_JSON_DEPTH}",
            allowed=f"at most {MAX_JSON_DEPTH} levels of arrays and objects",
            remedy="Flatten the document; a plan request needs fewer than 10 levels.",
        )
    if any(found.group(1) for found in _NOT_FINITE.finditer(data)):
        return Fault(
            code="not-finite",
            what=f"NaN and Infinity are not JSON: {message}",
            allowed="finite numbers",
            remedy="Give a finite number; leave an optional field out if the value is unknown.",
        )
    return Fault(
        code="invalid-json",
        what=f"not a JSON document: {message}",
        allowed="one JSON document in UTF-8",
        remedy="Correct the text at the stated line and column.",
    )


def json_depth(data: bytes) -> int:
    """Deepest nesting of brackets outside strings.

    >>> json_depth(b'[{"a": "[["}]')
    2
    """
    depth = deepest = 0
    for token in _TOKENS.finditer(data):
        if token.group() in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif token.group() in (b"]", b"}"):
            depth -= 1
    return deepest


def read_model(model: type[AnyModel], document: Any) -> AnyModel:
    """`document` as a validated `model`, or every fault it has."""
    try:
        return model.model_validate(document)
    except ValidationError as failure:
        raise Refused(from_validation(failure, document)) from None


def read_request(data: bytes) -> PlanRequest:
    """A plan request from its JSON text."""
    return read_model(PlanRequest, parse_json(data))


def read_plan(data: bytes) -> Plan:
    """A plan from its JSON text: bare, or inside an outcome or an answer of the service."""
    document = parse_json(data)
    for wrapper in ("outcome", "plan"):
        if isinstance(document, dict) and isinstance(document.get(wrapper), dict):
            document = document[wrapper]
    return read_model(Plan, document)


def canonical(model: BaseModel) -> bytes:
    """The JSON text that stands for a document, however it was written."""
    return model.model_dump_json().encode()


def digest(data: bytes) -> str:
    """Digest that names a document.

    >>> digest(b"{}")[:14]
    'sha256:44136fa'
    """
    return "sha256:" + hashlib.sha256(data).hexdigest()


def check_request_limits(request: PlanRequest, settings: Settings) -> None:
    """Refuse what is larger than this service plans, with the limit and the value."""
    faults: list[Fault] = []
    num_gpus = sum(pool.num_hosts * pool.gpus_per_host for pool in request.cluster.pools)
    if num_gpus > settings.max_gpus:
        faults.append(_limit("/cluster/pools", "GPUs", num_gpus, settings.max_gpus))
    cluster = request.cluster
    num_parts = len(cluster.places) + len(cluster.pools) + len(cluster.links)
    if num_parts > settings.max_cluster_parts:
        faults.append(_limit("/cluster", "places, pools and links", num_parts, settings.max_cluster_parts))
    wanted_s = request.options.time_limit_s
    if wanted_s > settings.max_time_limit_s:
        faults.append(_limit("/options/time_limit_s", "seconds", wanted_s, settings.max_time_limit_s))
    if faults:
        raise Refused(faults)


def check_schedule_limits(problem: PipelineProblem, settings: Settings) -> None:
    """Refuse a schedule that is too large or may take too long to be answered directly."""
    faults: list[Fault] = []
    if problem.num_operations > settings.max_pipeline_operations:
        faults.append(
            _limit("/num_microbatches", "operations", problem.num_operations, settings.max_pipeline_operations)
        )
    wanted_s = problem.options.time_limit_s
    if wanted_s > settings.max_schedule_time_limit_s:
        faults.append(_limit("/options/time_limit_s", "seconds", wanted_s, settings.max_schedule_time_limit_s))
    if faults:
        raise Refused(faults)


def _limit(pointer: str, unit: str, value: float, limit: float) -> Fault:
    return Fault(
        code="limit-exceeded",
        what=f"{value:,.10g} {unit}, the limit of this service is {limit:,.10g}",
        pointer=pointer,
        allowed=f"at most {limit:,.10g} {unit}",
        remedy="Lower the value, or ask whoever runs the service to raise its limit.",
        limit=limit,
        value=value,
    )
