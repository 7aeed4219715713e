"""Routes that take what they declare and nothing else: query parameters by name, a body as a model.

The framework would parse and validate on the event loop, where one large body holds up everybody, and would write down
every error before the first is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator
from functools import partial
from typing import Any, TypeVar, cast

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from app.documents import parse_json, read_model
from app.faults import Refused, refused

INLINE_BYTES = 4 * 1024  # a request that names its cluster; read in 0.2 ms, a thread takes as long to begin
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


class StrictRoute(APIRoute):
    """A route that refuses unknown query parameters, and whose body, if it declares one, arrives as a model."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The framework's handler, behind the reading."""
        handle = super().get_route_handler()
        known = frozenset(query_names(self.dependant))
        if self.body_field is None:

            async def check_and_handle(request: Request) -> Response:
                check_query(request, known)
                return await handle(request)

            return check_and_handle
        model = cast(type[BaseModel], self.body_field.field_info.annotation)

        async def read_and_handle(request: Request) -> Response:
            check_query(request, known)
            body = await whole_body(request)
            read = ReadRequest(request.scope, request.receive)
            if body:
                read.model = await in_time(request, len(body), partial(_read, model, body))
            del body  # the answer may wait for a plan
            return await handle(read)

        return read_and_handle


def query_names(dependant: Dependant) -> Iterator[str]:
    """The query parameters of a route and of all that it depends on."""
    yield from (one.alias for one in dependant.query_params)
    for inner in dependant.dependencies:
        yield from query_names(inner)


def check_query(request: Request, known: Collection[str]) -> None:
    """Refuse a query parameter that does nothing here: who sends it believes that it does."""
    if not request.scope["query_string"]:
        return
    for name, number in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name not in known:
            allowed = ", ".join(sorted(known)) or "no query parameter"
            raise _parameter(name, "there is no such query parameter here", allowed)
        if number > 1:
            raise _parameter(name, "the query parameter comes twice", "every parameter once")


def _parameter(name: str, what: str, allowed: str) -> Refused:
    return refused("invalid-parameter", f"{what}: {name[:80]!r}", "", allowed, "Remove it, or correct its name.",
                   where=f"query parameter {name[:80]}")  # fmt: skip


def _read(model: type[AnyModel], body: bytes) -> AnyModel:
    return read_model(model, parse_json(body))


async def whole_body(request: Request) -> bytes:
    """The body, without keeping it in the request."""
    return b"".join([chunk async for chunk in request.stream()])


async def in_time(request: Request, num_bytes: int, read: Callable[[], AnyModel]) -> AnyModel:
    """What `read` returns, in a thread unless the body is tiny; few large ones at once, for the sake of memory."""
    if num_bytes <= INLINE_BYTES:
        return read()
    limiter: CapacityLimiter | None = request.app.state.large_readers if num_bytes > LARGE_BYTES else None
    return await run_sync(read, limiter=limiter)
