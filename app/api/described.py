"""The OpenAPI document of a running service: made once, beside the event loop, and sent as it was made."""

from __future__ import annotations

import json
import threading
from functools import cached_property
from typing import Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response

from app.api.openapi import document_of
from app.api.problems import methods_by_path

router = APIRouter(include_in_schema=False)
SOON_S = 1.0
MAKING = threading.Lock()  # the framework changes the filters of warnings while it makes routes and documents


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
