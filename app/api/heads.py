"""HEAD for everything that answers GET: the same head, and no body."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Heads:
    """ASGI middleware: asks for the whole and leaves the body out."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Turn HEAD into GET, or hand on."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        has_head = False
        inner = {**scope, "method": "GET"}

        async def without_body(message: Message) -> None:
            nonlocal has_head
            if message["type"] == "http.response.start":
                has_head = True
                scope["route"] = inner.get("route")  # now, because the request is counted with its head
                await send(message)
                await send({"type": "http.response.body", "body": b""})

        async def gone_after_head() -> Message:
            # An event stream ends when its client has left; this one has what it came for.
            return {"type": "http.disconnect"} if has_head else await receive()

        await self._app(inner, gone_after_head, without_body)
