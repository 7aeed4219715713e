"""The OpenAPI document of a running service: made once, beside the event loop, and sent as it was made.

Owns when it is made and how it is sent. What it says is in `openapi`.
"""

from __future__ import annotations

import json
import threading
from functools import cached_property
from typing import Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response

from app.api.openapi import document_of

router = APIRouter(include_in_schema=False)


class Description:
    """The document of one application. Making it takes a second of processor time."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._lock = threading.Lock()

    def document(self) -> dict[str, Any]:
        """The document as plain values."""
        with self._lock:
            return self._document

    def text(self) -> bytes:
        """The document as JSON text."""
        with self._lock:
            return self._text

    @cached_property
    def _document(self) -> dict[str, Any]:
        return document_of(self._app)

    @cached_property
    def _text(self) -> bytes:
        return json.dumps(self._document, separators=(",", ":")).encode()

    def begin(self) -> None:
        """Make it now, without waiting for it."""
        threading.Thread(target=self.text, name="isthmus-openapi", daemon=True).start()


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
