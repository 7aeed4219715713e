"""Counts and times every request, and puts the security headers on every response.

Labels are route templates, never paths: a path is the client's text.
"""

from __future__ import annotations

import time
from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Swagger UI sets style attributes and draws its icons from data: URLs; scripts come from this origin only.
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'"
)
SECURITY_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class Observe:
    """ASGI middleware: figures and headers."""

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self._app = app
        labels = ("method", "route", "status")
        requests = Counter("isthmus_http_requests", "Requests answered.", labels, registry=registry)
        seconds = Histogram(
            "isthmus_http_request_seconds", "Time to the first byte of the answer.", ("route",), registry=registry
        )
        # There are few labels, and finding the series of one takes longer than counting.
        self._counter = lru_cache(lambda method, route, status: requests.labels(method, route, str(status)))
        self._histogram = lru_cache(lambda route: seconds.labels(route))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on, and look at what comes back."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(one for one in SECURITY_HEADERS if one[0] not in given)]
                self._count(scope, message["status"], time.perf_counter() - started)
            await send(message)

        await self._app(scope, receive, observed)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in ("GET", "POST", "DELETE") else "other"
        self._counter(method, route, status).inc()
        self._histogram(route).observe(seconds)
