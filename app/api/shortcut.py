"""The shortest way to a finished plan: an answer that is kept is sent before the framework looks for its route.

Owns that one way. Whatever is not kept, or not fresh, goes on to the route, which keeps it.
"""

from __future__ import annotations

from types import SimpleNamespace

from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.guard import CALLER
from app.api.headers import matches
from app.jobs.access import Caller
from app.jobs.kept import Kept
from app.jobs.service import PlanService

FOLDER = "/v1/plans/"
ROUTE = SimpleNamespace(path="/v1/plans/{plan_id}")  # under which the request is counted


class Shortcut:
    """ASGI middleware, the innermost: who asks is known, and the head has been checked."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer from memory, or hand on."""
        kept = _kept(scope)
        if kept is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = ROUTE
        tags = b", ".join(value for name, value in scope["headers"] if name == b"if-none-match")
        headers = [(b"etag", kept.etag.encode())]
        body = kept.body
        if tags and matches(tags.decode("latin-1"), kept.etag):
            status, body = 304, b""
        else:
            status = 200
            headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _kept(scope: Scope) -> Kept | None:
    if scope["type"] != "http" or scope["method"] != "GET" or not scope["path"].startswith(FOLDER):
        return None
    if scope["query_string"]:  # which the route refuses
        return None
    service: PlanService = scope["app"].state.service
    caller: Caller = scope[CALLER]
    return service.kept.get(scope["path"][len(FOLDER) :], caller.sees)
