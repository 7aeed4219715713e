"""The shortest way to a plan, its status or a list: what is kept is sent before the framework looks for the route.

Whatever is not cached, or not fresh, goes on to the route, which keeps it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from types import SimpleNamespace
from typing import TypeVar, cast

from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.authentication import CALLER
from app.api.headers import matches
from app.jobs.access import Caller
from app.jobs.response_cache import CachedResponse
from app.jobs.service import PlanService

FOLDER = "/v1/plans/"
STATUS = "/status"
ROUTE = SimpleNamespace(path="/v1/plans/{plan_id}")  # under which the request is counted
LISTS = "/v1/plans"
LIST_ROUTE = SimpleNamespace(path=LISTS)
STATUS_ROUTE = SimpleNamespace(path="/v1/plans/{plan_id}/status")
Answer = TypeVar("Answer")


class _Look:
    """One look on behalf of all who asked before it began."""

    def __init__(self, before: _Look | None) -> None:
        self._before = before
        self.has_begun = False
        self.task: asyncio.Task[object]

    async def take(self, question: Hashable, look_up: Callable[[], Awaitable[object]]) -> object:
        if self._before is not None:
            await asyncio.wait([self._before.task])
            self._before = None
        self.has_begun = True
        try:
            return await look_up()
        finally:
            if _LOOKS.get(question) is self:
                del _LOOKS[question]


_LOOKS: dict[Hashable, _Look] = {}


async def together(question: Hashable, look_up: Callable[[], Awaitable[Answer]]) -> Answer:
    """The answer to a question that several may be asking at this moment; it is looked up once for all of them.

    A look that has begun may miss what the asker has just done. So whoever comes meanwhile waits for the next one, with
    all others who do.
    """
    look = _LOOKS.get(question)
    if look is None or look.has_begun:
        look = _LOOKS[question] = _Look(look)
        look.task = asyncio.ensure_future(look.take(question, look_up))
    return cast(Answer, await asyncio.shield(look.task))


class Shortcut:
    """ASGI middleware, the innermost: who asks is known, and the head has been checked."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer from memory, or hand on."""
        found = _cached(scope) if scope["type"] == "http" and scope["method"] == "GET" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        cached, scope["route"] = found
        status, body, headers = _answer(scope, cached)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _cached(scope: Scope) -> tuple[CachedResponse, SimpleNamespace] | None:
    """What is kept for this request, and the route that it stands for."""
    path, query = scope["path"], scope["query_string"]
    if path != LISTS and not path.startswith(FOLDER):
        return None
    service: PlanService = scope["app"].state.service
    caller: Caller = scope[CALLER]
    if path == LISTS:
        cached, route = service.list_responses.get((caller.sees, query), caller.sees), LIST_ROUTE
    elif query:
        return None  # a query is for the route to refuse
    elif path.endswith(STATUS):
        cached, route = service.status_responses.get(path[len(FOLDER) : -len(STATUS)], caller.sees), STATUS_ROUTE
    else:
        cached, route = service.responses.get(path[len(FOLDER) :], caller.sees), ROUTE
    return None if cached is None else (cached, route)


def _answer(scope: Scope, cached: CachedResponse) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    tag = [(b"etag", cached.etag.encode())] if cached.etag else []
    given = b", ".join(value for name, value in scope["headers"] if name == b"if-none-match") if tag else b""
    if given and matches(given.decode("latin-1"), cached.etag):
        return 304, b"", tag
    fixed = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(cached.body))]
    return 200, cached.body, [*tag, *fixed, *cached.headers]
