"""What a request body must be before anything looks into it: small, in time, of a known type and coding."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from email.message import Message as MimeHeader

from anyio.to_thread import run_sync
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.authentication import CALLER
from app.api.codings import decompressed, too_large
from app.api.problems import problem
from app.faults import Fault, Refused, refused
from app.jobs.access import Busy, Shares
from app.settings import Settings

METHODS_WITH_BODY = ("POST", "PUT", "PATCH")
CSV_PATHS = ("/v1/calibrations",)
SINGLE_HEADERS = frozenset(
    (b"host", b"content-length", b"content-type", b"content-encoding", b"transfer-encoding", b"idempotency-key",
     b"isthmus-priority", b"last-event-id")
)  # fmt: skip


class BodyLimits:
    """Receives the body once, within limits, and decompresses it; the application behind it gets it whole."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the headers, and the body of a request that may have one; then hand on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with ExitStack() as held:
            try:
                _check_head(scope["http_version"], scope["headers"])
                if scope["method"] in METHODS_WITH_BODY:
                    body = await self._body(scope, receive, held)
                    if body is None:
                        return
                    receive = _replay([body], receive)
                    del body
            except (Refused, Busy) as refusal:
                await _refusal(scope["path"], refusal)(scope, receive, send)
                return
            await self._app(scope, receive, send)

    async def _body(self, scope: Scope, receive: Receive, held: ExitStack) -> bytes | None:
        """The checked body; None when the client went away. Its bytes are held until the request has been answered."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self._check_size(_declared_length(headers))
        shares, caller = scope["app"].state.service.body_bytes, scope[CALLER]

        def hold(num_bytes: int) -> None:
            if not shares.take(caller, num_bytes):
                raise _too_many_bytes(shares)
            held.callback(shares.give_back, caller, num_bytes)

        try:
            async with asyncio.timeout(self._settings.body_timeout_s):
                body = await self._read(receive, hold)
        except TimeoutError:
            limit_s = self._settings.body_timeout_s
            raise refused("body-too-slow", f"the body did not arrive within {limit_s:g} s", "",
                          f"at most {limit_s:g} s",
                          "Send the request again over a faster connection.") from None  # fmt: skip
        if not body:
            return body
        if not (scope["path"] in CSV_PATHS and _subtype(headers) == ("text", "csv")):
            _check_media_type(headers)
        coding = headers.get("content-encoding", "identity").strip().lower()
        if coding == "identity":
            return body
        body = await run_sync(decompressed, body, coding, self._settings.max_body_bytes)
        hold(len(body))
        return body

    async def _read(self, receive: Receive, hold: Callable[[int], None]) -> bytes | None:
        chunks: list[bytes] = []
        num_bytes = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            chunk = message.get("body", b"")
            num_bytes += len(chunk)
            self._check_size(num_bytes)
            if chunk:
                hold(len(chunk))
                chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)

    def _check_size(self, num_bytes: int) -> None:
        limit = self._settings.max_body_bytes
        if num_bytes > limit:
            raise too_large(num_bytes, limit)


def _refusal(path: str, refusal: Refused | Busy) -> JSONResponse:
    """The answer to a body that is not read to its end: the connection cannot be used again."""
    if isinstance(refusal, Refused):
        return problem(path, refusal.faults, headers={"Connection": "close"})
    headers = {"Connection": "close", "Retry-After": str(refusal.retry_after_s)}
    return problem(path, [refusal.fault], headers=headers)


def _too_many_bytes(shares: Shares) -> Busy:
    fault = Fault("too-busy", "the bodies of requests that are being read are as large together as may be", "",
                  f"{shares.total:,} bytes of this process, {shares.per_key:,} of one key",
                  "Send the request again after the time in Retry-After.", "the service")  # fmt: skip
    return Busy(fault, retry_after_s=2)


def _check_head(version: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse what two readers would understand differently, a proxy before this program being one of them."""
    if version not in ("1.0", "1.1"):
        raise refused("invalid-http", f"the request says that it is HTTP/{version}", "", "HTTP/1.1",
                      "Correct the client.", where="the connection")  # fmt: skip
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and name in SINGLE_HEADERS:
            raise _ambiguous(f"the header {name.decode('latin-1')} comes twice", name)
        seen.add(name)
    if b"content-length" in seen and b"transfer-encoding" in seen:
        what = "the body has a Content-Length and a Transfer-Encoding"
        raise _ambiguous(what, b"content-length")


def _ambiguous(what: str, name: bytes) -> Refused:
    return refused("ambiguous-headers", what, "", "each of these headers once", "Remove one of the two.",
                   where=f"header {name.decode('latin-1')}")  # fmt: skip


def _declared_length(headers: dict[str, str]) -> int:
    declared = headers.get("content-length", "0")
    return int(declared) if declared.isascii() and declared.isdigit() else 0


def _subtype(headers: dict[str, str]) -> tuple[str, str]:
    header = MimeHeader()
    header["content-type"] = headers.get("content-type", "application/octet-stream")
    return header.get_content_maintype(), header.get_content_subtype()


def _check_media_type(headers: dict[str, str]) -> None:
    main, subtype = _subtype(headers)
    if main == "application" and (subtype == "json" or subtype.endswith("+json")):
        return
    shown = headers.get("content-type", "no Content-Type")[:80]
    raise refused("unsupported-media-type", f"the body is declared as {shown!r}", "", "Content-Type: application/json",
                  "Send JSON, and say so in Content-Type.", where="header Content-Type")  # fmt: skip


def _replay(body: list[bytes], receive: Receive) -> Receive:
    """A receive that gives the body away, once, and then the connection's own messages."""

    async def replayed() -> Message:
        return {"type": "http.request", "body": body.pop(), "more_body": False} if body else await receive()

    return replayed
