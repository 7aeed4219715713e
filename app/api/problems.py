"""Errors on the wire: RFC 9457 problem documents, one media type, published codes, a status per code.

Nothing else in the program chooses a status code of an error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any, TypeVar

import sqlalchemy as sa
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException

from app.csv_text import rows_of
from app.faults import MAX_FAULTS, Fault, Refused, from_errors, from_planner_error, refused
from app.jobs.access import Busy
from app.settings import Settings
from app.storage.outages import UNKNOWN, is_outage, outage_of
from app.wire import IssueType
from models.errors import PlannerError

LOG = logging.getLogger("isthmus.api")
MEDIA_TYPE = "application/problem+json"
Found = TypeVar("Found")

# Codes that problems carry, with the status of each; published, and never renamed.
ISSUE_TYPES: Mapping[str, IssueType] = {
    row["code"]: IssueType(code=row["code"], status=int(row["status"]), meaning=row["meaning"])
    for row in rows_of((files("app.api") / "issue_types.csv").read_text(encoding="utf-8"))
}
MEANINGS: Mapping[int, str] = {
    400: "The request, a parameter or a header is malformed.",
    401: "The service wants an API key, and there is none or not a living one.",
    403: "The API key may not do this.",
    404: "There is no such resource, or it belongs to another owner.",
    408: "The body did not arrive in time.",
    409: "Not now: the first request with this Idempotency-Key is still being answered, or the plan is not there yet.",
    412: "The plan is no longer what `If-Match` names.",
    413: "The body has more bytes than this service reads.",
    415: "The body is not declared as JSON, or has a content coding that is not known here.",
    421: "The Host header names something that this service is not called.",
    422: "Refused. Every fault is listed with its pointer into the body, what is allowed and what to do.",
    429: "As much is queued, running or waiting as may be. Send it again after the time in `Retry-After`.",
    500: "A defect of this program.",
    503: "The service cannot take this now. Send it again after the time in `Retry-After`.",
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What the OpenAPI document says of the errors of a route."""
    # Every route behind authentication can ask for a key, and refuses a head that two readers would read differently.
    known = sorted({400, 401, 403, 421, *statuses})
    return {status: {"description": MEANINGS[status], "content": {MEDIA_TYPE: _documented(status)}} for status in known}


def _documented(status: int) -> dict[str, Any]:
    typical = {"$ref": f"#/components/examples/{example_name(status)}"}
    return {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": {"typical": typical}}


def example_name(status: int) -> str:
    """Name of the typical problem of a status among the examples of the OpenAPI document."""
    return f"problem-{status}"


LISTED: Mapping[str, str] = {
    "plan": "GET /v1/plans lists",
    "study": "GET /v1/studies lists",
    "question": "POST /v1/questions gave",
    "calibration": "GET /v1/calibrations lists",
}


def gone(kind: str, name: str, *, pointer: str = "") -> Refused:
    """The 404 of something that was submitted; another owner's is answered as one that does not exist."""
    return not_found(f"there is no {kind} {name!r}", f"Use an id that {LISTED[kind]}.", pointer=pointer)


def existing(kind: str, name: str, found: Found | None) -> Found:
    """What was found under a name; the 404 where nothing was."""
    if found is None:
        raise gone(kind, name)
    return found


def not_found(what: str, remedy: str, *, pointer: str = "") -> Refused:
    """The 404 for something named in the path, or at a place of the body."""
    return refused("not-found", what, pointer, "what the list shows", remedy, where="" if pointer else "path")


def problem(path: str, faults: Sequence[Fault], *, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The response for one or more faults; the first decides the status."""
    body = problem_body(path, [fault.to_dict() for fault in faults])
    return JSONResponse(body, status_code=body["status"], media_type=MEDIA_TYPE, headers=dict(headers or {}))


def problem_body(path: str, items: Sequence[Mapping[str, str | float]]) -> dict[str, Any]:
    """The document for the faults of one request, as plain values."""
    issue = ISSUE_TYPES[str(items[0]["code"])]
    more = " or more" if len(items) == MAX_FAULTS else ""
    count = "" if len(items) == 1 else f"{len(items)}{more} faults; first: "
    return {
        "type": f"/v1/issue-types#{issue.code}",
        "title": issue.meaning,
        "status": issue.status,
        "detail": f"{count}{items[0]['what']}",
        "instance": path,
        "code": issue.code,
        "errors": items,
    }


def install(app: FastAPI) -> None:
    """Let every error of the application leave as a problem document."""
    handlers: dict[Any, Any] = {
        Refused: _refused,
        Busy: _busy,
        PlannerError: lambda request, error: problem(request.url.path, [from_planner_error(error)]),
        RequestValidationError: _invalid,
        HTTPException: _http,
        sa.exc.SQLAlchemyError: _database,
        MemoryError: _no_memory,
        Exception: _defect,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, _as_async(handler))


def _as_async(handler: Any) -> Any:
    async def handle(request: Request, error: Exception) -> JSONResponse:
        response: JSONResponse = handler(request, error)
        return response

    return handle


def _refused(request: Request, error: Refused) -> JSONResponse:
    return problem(request.url.path, [_of_this_service(request, fault) for fault in error.faults])


def _of_this_service(request: Request, fault: Fault) -> Fault:
    """A time limit above that of any document, told with the lower one of the service, which would be refused next."""
    if fault.code != "out-of-range" or not fault.pointer.endswith("/time_limit_s") or "at most" not in fault.allowed:
        return fault
    settings: Settings = request.app.state.service.settings
    is_schedule = request.url.path.endswith("/schedules")
    limit_s = settings.max_schedule_time_limit_s if is_schedule else settings.max_time_limit_s
    what = f"{fault.what}; the limit of this service is {limit_s:,.10g} s"
    return replace(fault, what=what, allowed=f"at most {limit_s:g} s", remedy="Lower the value.")


def _busy(request: Request, error: Busy) -> JSONResponse:
    return problem(request.url.path, [error.fault], headers={"Retry-After": str(error.retry_after_s)})


def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    # A name in a path may match a longer path of other methods: GET /v1/plans/x:cancel is no plan called x:cancel.
    allowed = methods_of(request.url.path, methods_by_path(request.app))
    if allowed and request.method not in allowed.split(", "):
        return _http(request, HTTPException(405))
    body_errors = [one for one in error.errors() if one["loc"][0] == "body"]
    if body_errors and error.body is None and body_errors[0]["type"] == "missing":
        nothing = Fault("missing-field", "the request has no body", "", "one JSON document",
                        "Send it, with Content-Type: application/json.")  # fmt: skip
        return problem(request.url.path, [nothing])
    if body_errors:
        located = [{**one, "loc": one["loc"][1:]} for one in body_errors]
        return problem(request.url.path, from_errors(located, error.body))
    faults = [_parameter_fault(one) for one in error.errors()]
    return problem(request.url.path, faults)


def _parameter_fault(error: Mapping[str, Any]) -> Fault:
    kind, *name = error["loc"]
    (fault,) = from_errors([{**error, "loc": ()}], None)
    where = f"{kind} parameter {'.'.join(map(str, name))}"
    return Fault("invalid-parameter", f"{where}: {fault.what}", "", fault.allowed, fault.remedy, where)


def _http(request: Request, error: HTTPException) -> JSONResponse:
    # Paths that the document does not show, and those that only the framework takes for one of a template, it knows.
    allowed = methods_of(request.url.path, methods_by_path(request.app)) or (error.headers or {}).get("Allow", "")
    if error.status_code == 405:
        fault = Fault("method-not-allowed", f"{request.method} is not a method of this resource", "", allowed,
                      "Use a method that the OpenAPI document lists for this path.", "method")  # fmt: skip
    elif error.status_code == 404:
        fault = Fault("not-found", "no such path", "", "the paths of /openapi.json", "Correct the path.", "path")
    else:
        fault = Fault("invalid-json", str(error.detail), "", "one JSON document", "Correct the body.")
    headers = {"Allow": allowed} if error.status_code == 405 else error.headers
    return problem(request.url.path, [fault], headers=headers)


def methods_by_path(app: FastAPI) -> Mapping[str, frozenset[str]]:
    """The methods of every path template; found once, and much sooner than the OpenAPI document is made."""
    known: Mapping[str, frozenset[str]] | None = getattr(app.state, "methods_by_path", None)
    if known is None:
        found: dict[str, set[str]] = {}
        for route in iter_route_contexts(app.routes):
            if getattr(route, "include_in_schema", False):
                found.setdefault(str(route.path), set()).update(route.methods or ())
        known = app.state.methods_by_path = {path: frozenset(methods) for path, methods in found.items()}
    return known


def methods_of(path: str, paths: Mapping[str, Iterable[str]]) -> str:
    """Every method of a path, for Allow; the framework names only those of the first route that matches.

    >>> methods_of("/plans/a:cancel", {"/plans/{id}": {"GET"}, "/plans/{id}:cancel": {"POST"}})
    'POST'
    """
    methods: set[str] = set()
    for template, known in paths.items():
        pattern = re.sub(r"\\{\w+\\}", "[^/:]+", re.escape(template))
        if re.fullmatch(pattern, path):
            methods.update(name.upper() for name in known)
    return ", ".join(sorted(methods))


def _database(request: Request, error: sa.exc.SQLAlchemyError) -> JSONResponse:
    return no_database(request.url.path, error) if is_outage(error) else _defect(request, error)


def no_database(path: str, error: sa.exc.SQLAlchemyError) -> JSONResponse:
    """The answer while the database does not answer, or cannot write."""
    outage = outage_of(error) or UNKNOWN
    LOG.error("the database does not answer", extra={"path": path, "detail": str(error)[:500], "remedy": outage.remedy})
    fault = Fault("not-ready", f"the database of the service: {outage.what}", "", "",
                  "Send the request again after the time in Retry-After.", "the service")  # fmt: skip
    return problem(path, [fault], headers={"Retry-After": "5"})


def _no_memory(request: Request, error: MemoryError) -> JSONResponse:
    LOG.error("the service has no memory left", exc_info=error, extra={"path": request.url.path})
    fault = Fault("not-ready", "the service has no memory left for this request", "", "",
                  "Send the request again after the time in Retry-After.")  # fmt: skip
    return problem(request.url.path, [fault], headers={"Retry-After": "5"})


def _defect(request: Request, error: Exception) -> JSONResponse:
    LOG.error("a request ended by a defect", exc_info=error, extra={"path": request.url.path})
    fault = Fault("internal-error", "a defect of this program", "", "",
                  "Report the time and the path of the request to whoever runs the service.")  # fmt: skip
    return problem(request.url.path, [fault])
