"""The OpenAPI document: what the framework derives from the routes, made fit for people and for code generators.

It is made once, beside the event loop, and sent as it was made.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import cached_property
from importlib.resources import files
from typing import Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response

from app.api.calibrations import CalibrationRequest
from app.api.examples import SHARED_EXAMPLES
from app.api.links import add_links
from app.api.problems import methods_by_path
from app.wire import Problem

router = APIRouter(include_in_schema=False)
SOON_S = 1.0
MAKING = threading.Lock()  # the framework changes the filters of warnings while it makes routes and documents
DESCRIPTION = (files("app.api") / "description.md").read_text(encoding="utf-8")
TAGS = [
    {"name": "plans", "description": "Searches that run in the background, and the plans that they find."},
    {"name": "direct", "description": "Computations that are answered at once; nothing is queued or stored."},
    {
        "name": "studies",
        "description": "Grids of what-ifs: many requests made from one, planned and read as one table.",
    },
    {
        "name": "questions",
        "description": "Why there is no plan, what changes are worth, what is the least, with proof.",
    },
    {"name": "calibrations", "description": "Stack profiles fitted to your own measured runs, for use in requests."},
    {"name": "catalogue", "description": "What ships with the service: names to use, requests to copy, error codes."},
    {"name": "operations", "description": "For whoever runs the service: probes and figures."},
]
KEY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key of `isthmus keys create`. Not needed where the service runs without authentication.",
}
REFERENCE = "#/components/schemas/{model}"


def document_of(app: FastAPI) -> dict[str, Any]:
    """The whole document of an application."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=DESCRIPTION,
        tags=TAGS,
        routes=app.routes,
        servers=[{"url": app.state.prefix}] if app.state.prefix else None,
        # One schema per document, also where a name may stand for it on the way in: generated clients want one class.
        separate_input_output_schemas=False,
    )
    _add_unrouted_schemas(document)
    document["components"]["examples"] = dict(SHARED_EXAMPLES)
    document["components"]["securitySchemes"] = {"key": KEY_SCHEME}
    document["security"] = [{}, {"key": []}]
    _drop_default_errors(document)
    _parameters_are_never_null(document)
    add_links(document)
    for schema in document["components"]["schemas"].values():
        _require_tags(schema)
    for field in _fields(document):
        _drop_empty_examples(field)
        _state_unit(field)
    return document


def _add_unrouted_schemas(document: dict[str, Any]) -> None:
    """Models that no route declares: that of every error, and the body that its route reads by itself (JSON or CSV)."""
    problem = Problem.model_json_schema(ref_template=REFERENCE)
    inner = problem.pop("$defs")
    rows = CalibrationRequest.model_json_schema(ref_template=REFERENCE)
    document["components"]["schemas"].update(inner, Problem=problem, CalibrationRequest=rows)


def _drop_default_errors(document: dict[str, Any]) -> None:
    """Remove the framework's own error form, which no route of this application sends."""
    for path in document["paths"].values():
        for operation in path.values():
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)


def _parameters_are_never_null(document: dict[str, Any]) -> None:
    """A parameter that may be left out is left out; there is no null in a URL or a header."""
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                schema = parameter["schema"]
                kinds = [one for one in schema.pop("anyOf", ()) if one != {"type": "null"}]
                schema.update(*kinds)


def _require_tags(schema: dict[str, Any]) -> None:
    """A field that tells one kind of object from others has to be sent, whatever its default says, and always comes.

    >>> schema = {"properties": {"ask": {"const": "worth"}, "of": {}}}
    >>> _require_tags(schema)
    >>> schema["required"]
    ['ask']
    """
    needed, fields = schema.get("required", []), schema.get("properties", {})
    tags = [name for name, field in fields.items() if "const" in field]
    if tags:
        schema["required"] = [name for name in fields if name in needed or name in tags]


def _fields(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every field of every schema."""
    for schema in document["components"]["schemas"].values():
        yield from schema.get("properties", {}).values()


def _drop_empty_examples(field: dict[str, Any]) -> None:
    """Let a page draw the example of an object from its own fields: an empty one in its place would hide them all."""
    if "$ref" in str(field) and all(example in (None, {}, [], [{}]) for example in field.get("examples", ())):
        field.pop("examples", None)


def _state_unit(field: dict[str, Any]) -> None:
    """Say the unit in the words, too: pages do not show the keyword `unit`.

    >>> field = {"description": "One-way delay.", "unit": "s"}
    >>> _state_unit(field)
    >>> field["description"]
    'One-way delay. Unit: s.'
    """
    kinds = (field, field.get("items", {}), *field.get("anyOf", ()))
    unit = next((kind["unit"] for kind in kinds if "unit" in kind), "1")
    if unit != "1" and "description" in field:
        field["description"] += f" Unit: {unit}."


class Description:
    """The document of one application. Making it takes a second of processor time."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    def document(self) -> dict[str, Any]:
        """The document as plain values."""
        with MAKING:
            return self._document

    def text(self) -> bytes:
        """The document as JSON text."""
        with MAKING:
            return self._text

    @cached_property
    def _document(self) -> dict[str, Any]:
        return document_of(self._app)

    @cached_property
    def _text(self) -> bytes:
        return json.dumps(self._document, separators=(",", ":")).encode()

    def begin(self, closing: threading.Event) -> None:
        """Make it soon, without waiting for it, unless the service closes before."""

        def make() -> None:
            if not closing.wait(SOON_S):
                self.text()

        threading.Thread(target=make, name="isthmus-openapi", daemon=True).start()

    def prepare_routes(self) -> None:
        """Let the framework make every route ready, which it would do at the first request."""
        with MAKING:
            methods_by_path(self._app)


def describe(app: FastAPI) -> Description:
    """Let an application show its document at /openapi.json."""
    description = Description(app)
    app.state.description = description
    app.openapi = description.document  # type: ignore[method-assign]
    app.include_router(router)
    return description


@router.get("/openapi.json")
async def openapi_document(request: Request) -> Response:
    """What there is to ask for."""
    return Response(await run_sync(request.app.state.description.text), media_type="application/json")
