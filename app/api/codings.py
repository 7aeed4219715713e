"""Content codings: bodies that come compressed, and answers that leave so.

Owns which codings there are and the limit on what a body becomes. Never knows what is compressed.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import OrderedDict

from anyio.to_thread import run_sync
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.faults import Fault, Refused

GZIP = 16 + zlib.MAX_WBITS  # zlib's number for the format of gzip
CODINGS = ("gzip",)
LEAST_BYTES = 1024  # shorter answers fit into one packet anyway
INLINE_BYTES = 16 * 1024  # compressed on the event loop: sooner done than handed to a thread
LEVEL = 5  # a plan of 3.3 MB becomes 0.4 MB in 50 ms; the levels above take long and gain little
MOST_KEPT_BYTES = 16 * 1024 * 1024
COMPRESSIBLE = re.compile(r"(?:text/(?!event-stream)|application/(?:json|yaml|problem\+json|javascript)|image/svg)")


def decompressed(body: bytes, coding: str, limit_bytes: int) -> bytes:
    """A body as it was before it was compressed; one that becomes larger than the limit is not unpacked further."""
    if coding not in CODINGS:
        raise Refused((Fault("unsupported-media-type", f"the body has the content coding {coding[:40]!r}", "",
                             f"{', '.join(CODINGS)}, or none", "Send the body uncompressed, or in one of these.",
                             "header Content-Encoding"),))  # fmt: skip
    unpacking = zlib.decompressobj(GZIP)
    try:
        text = unpacking.decompress(body, limit_bytes + 1)
    except zlib.error as error:
        raise Refused((_broken(coding, str(error)),)) from None
    if len(text) > limit_bytes:
        raise Refused((too_large(len(text), limit_bytes),))
    if not unpacking.eof:
        raise Refused((_broken(coding, "it ends too early"),))
    if unpacking.unused_data:
        raise Refused((_broken(coding, "something follows its end"),))
    return text


def _broken(coding: str, what: str) -> Fault:
    return Fault("invalid-coding", f"the body is not {coding}: {what}"[:400], "", f"one whole {coding} stream",
                 "Compress the body again, or send it uncompressed.", "header Content-Encoding")  # fmt: skip


def too_large(num_bytes: int, limit: int) -> Fault:
    """The fault of a body that has so many bytes or more."""
    return Fault("body-too-large", f"the body has {num_bytes:,} bytes or more, the limit is {limit:,}", "",
                 f"at most {limit:,} bytes", "Name catalogue entries instead of whole objects, or merge equal pools.",
                 limit=limit)  # fmt: skip


class Compress:
    """ASGI middleware: compresses whole answers for clients that take them so, and keeps those with an entity tag."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._num_kept_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on; where the client accepts it, look at what comes back."""
        if scope["type"] != "http" or not accepts_gzip(Headers(scope=scope).get("accept-encoding", "")):
            await self._app(scope, receive, send)
            return
        start: Message | None = None

        async def compressed(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            if start is None:
                await send(message)
                return
            head, start = start, None
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                message = {**message, "body": await self._packed(head, message.get("body", b""))}
            await send(head)
            await send(message)

        await self._app(scope, receive, compressed)

    async def _packed(self, head: Message, body: bytes) -> bytes:
        """The body as it is to be sent; the head is changed with it."""
        headers = MutableHeaders(raw=head["headers"])
        if head["status"] == 304:
            _weaken(headers)
            head["headers"] = headers.raw
            return body
        kind = headers.get("content-type", "")
        if len(body) < LEAST_BYTES or "content-encoding" in headers or not COMPRESSIBLE.match(kind):
            return body
        tag = headers.get("etag", "")
        packed = self._kept.get(tag) if tag else None
        if packed is None:
            packed = _packed(body) if len(body) <= INLINE_BYTES else await run_sync(_packed, body)
            self._keep(tag, packed)
        headers["content-encoding"] = "gzip"
        headers["content-length"] = str(len(packed))
        headers.add_vary_header("Accept-Encoding")
        _weaken(headers)
        head["headers"] = headers.raw
        return packed

    def _keep(self, tag: str, packed: bytes) -> None:
        if not tag or tag in self._kept:
            return
        self._kept[tag] = packed
        self._num_kept_bytes += len(packed)
        while self._num_kept_bytes > MOST_KEPT_BYTES:
            self._num_kept_bytes -= len(self._kept.popitem(last=False)[1])


def _weaken(headers: MutableHeaders) -> None:
    """The same document in other bytes has a weak tag."""
    tag = headers.get("etag", "")
    if tag.startswith('"'):
        headers["etag"] = f"W/{tag}"


def _packed(body: bytes) -> bytes:
    return gzip.compress(body, LEVEL, mtime=0)


def accepts_gzip(header: str) -> bool:
    """Whether a client takes gzip.

    >>> [accepts_gzip(one) for one in ("gzip, br", "*", "br", "gzip;q=0", "x-gzip;q=0.5", "identity")]
    [True, True, False, False, True, False]
    """
    if not header:
        return False
    stated: dict[str, float] = {}
    for part in header.lower().split(","):
        name, _, parameter = part.strip().partition(";")
        weight = parameter.strip().removeprefix("q=")
        stated[name.strip().removeprefix("x-")] = float(weight) if re.fullmatch(r"\d(?:\.\d{1,3})?", weight) else 1.0
    return stated.get("gzip", stated.get("*", 0.0)) > 0
