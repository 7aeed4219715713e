"""The service below a path of a reverse proxy: requests come without it, headers and pages leave with it.

Paths in documents stay those of the API: they are below the server that /openapi.json names.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Prefix:
    """ASGI middleware, the outermost: takes the prefix from paths, if the proxy has not, and puts it on addresses."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on as if there were no prefix."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        own = scope["path"].removeprefix(self._prefix)
        if not own or (own != scope["path"] and own.startswith("/")):
            scope = {**scope, "path": own or "/"}

        async def addressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [(name, self._with_prefix(name, value)) for name, value in message["headers"]]
            await send(message)

        await self._app(scope, receive, addressed)

    def _with_prefix(self, name: bytes, value: bytes) -> bytes:
        if name.lower() == b"location":
            return self._prefix.encode() + value
        return value.replace(b"</", b"<" + self._prefix.encode() + b"/") if name.lower() == b"link" else value
