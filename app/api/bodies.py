"""Reads the body of a request as the model that its route declares, outside the event loop.

Owns the way from bytes to a model. The framework would parse and validate on the event loop, where one large body
holds up everybody, and would write down every error before the first is told.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar, cast

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from app.documents import parse_json, read_model

LARGE_BYTES = 64 * 1024
LARGE_AT_ONCE = 2  # reading one can take 200 MiB for a second
AnyModel = TypeVar("AnyModel", bound=BaseModel)


class ReadRequest(Request):
    """A request whose body has been read already."""

    model: BaseModel | None = None

    async def body(self) -> bytes:
        """Something if there was a body, so that the framework asks for the document."""
        return b"" if self.model is None else b"-"

    async def json(self) -> Any:
        """The model, which the framework takes as it is."""
        return self.model


class BodyRoute(APIRoute):
    """A route whose body, if it declares one, arrives as a model or is refused with its faults."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The framework's handler, behind the reading."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        model = cast(type[BaseModel], self.body_field.field_info.annotation)

        async def read_and_handle(request: Request) -> Response:
            body = await whole_body(request)
            read = ReadRequest(request.scope, request.receive)
            if body:
                read.model = await in_time(request, len(body), partial(_read, model, body))
            del body  # the answer may wait for a plan
            return await handle(read)

        return read_and_handle


def _read(model: type[AnyModel], body: bytes) -> AnyModel:
    return read_model(model, parse_json(body))


async def whole_body(request: Request) -> bytes:
    """The body, without keeping it in the request."""
    return b"".join([chunk async for chunk in request.stream()])


async def in_time(request: Request, num_bytes: int, read: Callable[[], AnyModel]) -> AnyModel:
    """What `read` returns, in a thread; few large bodies are read at once, so that they cannot take all memory."""
    limiter: CapacityLimiter | None = request.app.state.large_readers if num_bytes > LARGE_BYTES else None
    return await run_sync(read, limiter=limiter)
