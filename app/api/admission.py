"""What a request body must be before anything looks at its meaning: small, in time, JSON, strict.

Owns the ASGI middleware that reads bodies. Never knows what a body describes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from email.message import Message as MimeHeader

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.problems import problem
from app.documents import parse_json
from app.faults import Fault, Refused
from app.settings import Settings

METHODS_WITH_BODY = ("POST", "PUT", "PATCH")
CSV_PATHS = ("/v1/calibrations",)
SINGLE_HEADERS = frozenset(
    (b"host", b"content-length", b"content-type", b"content-encoding", b"transfer-encoding", b"idempotency-key",
     b"isthmus-priority", b"last-event-id")
)  # fmt: skip


class Admission:
    """Reads the body once, within limits; the application behind it gets it whole."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the headers, and the body of a request that may have one; then hand on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            _check_head(scope["http_version"], scope["headers"])
            if scope["method"] in METHODS_WITH_BODY:
                body = await self._body(scope, receive)
                if body is None:
                    return
                receive = _replay(body, receive)
        except Refused as refusal:
            await problem(scope["path"], refusal.faults, headers={"Connection": "close"})(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The checked body; None when the client went away."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self._check_size(_declared_length(headers))
        try:
            async with asyncio.timeout(self._settings.body_timeout_s):
                body = await self._read(receive)
        except TimeoutError:
            limit_s = self._settings.body_timeout_s
            raise Refused((Fault("body-too-slow", f"the body did not arrive within {limit_s:g} s", "",
                                 f"at most {limit_s:g} s", "Send the request again over a faster connection."),
                           )) from None  # fmt: skip
        if body and not (scope["path"] in CSV_PATHS and _subtype(headers) == ("text", "csv")):
            _check_media_type(headers)
            await asyncio.to_thread(parse_json, body)
        return body

    async def _read(self, receive: Receive) -> bytes | None:
        chunks: list[bytes] = []
        num_bytes = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            chunk = message.get("body", b"")
            num_bytes += len(chunk)
            self._check_size(num_bytes)
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)

    def _check_size(self, num_bytes: int) -> None:
        limit = self._settings.max_body_bytes
        if num_bytes > limit:
            raise Refused((Fault("body-too-large", f"the body has {num_bytes:,} bytes or more, the limit is {limit:,}",
                                 "", f"at most {limit:,} bytes",
                                 "Name catalogue entries instead of whole objects, or merge equal pools."),
                           ))  # fmt: skip


def _check_head(version: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse what two readers would understand differently, a proxy before this program being one of them."""
    if version not in ("1.0", "1.1"):
        raise Refused((Fault("invalid-http", f"the request says that it is HTTP/{version}", "", "HTTP/1.1",
                             "Correct the client.", "the connection"),))  # fmt: skip
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and name in SINGLE_HEADERS:
            raise Refused((_ambiguous(f"the header {name.decode('latin-1')} comes twice", name),))
        seen.add(name)
    if b"content-length" in seen and b"transfer-encoding" in seen:
        what = "the body has a Content-Length and a Transfer-Encoding"
        raise Refused((_ambiguous(what, b"content-length"),))


def _ambiguous(what: str, name: bytes) -> Fault:
    return Fault("ambiguous-headers", what, "", "each of these headers once", "Remove one of the two.",
                 f"header {name.decode('latin-1')}")  # fmt: skip


def _declared_length(headers: dict[str, str]) -> int:
    declared = headers.get("content-length", "0")
    return int(declared) if declared.isascii() and declared.isdigit() else 0


def _subtype(headers: dict[str, str]) -> tuple[str, str]:
    header = MimeHeader()
    header["content-type"] = headers.get("content-type", "application/octet-stream")
    return header.get_content_maintype(), header.get_content_subtype()


def _check_media_type(headers: dict[str, str]) -> None:
    main, subtype = _subtype(headers)
    is_json = main == "application" and (subtype == "json" or subtype.endswith("+json"))
    if is_json and headers.get("content-encoding", "identity") == "identity":
        return
    shown = headers.get("content-type", "no Content-Type")[:80]
    raise Refused(
        (
            Fault(
                "unsupported-media-type",
                f"the body is declared as {shown!r}, content encoding {headers.get('content-encoding', 'none')[:40]!r}",
                allowed="Content-Type: application/json without Content-Encoding",
                remedy="Send JSON, uncompressed, and say so in Content-Type.",
                where="header Content-Type",
            ),
        )
    )


def _replay(body: bytes, receive: Receive) -> Receive:
    """A receive that gives the body once and then the connection's own messages."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
