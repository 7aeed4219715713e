"""Content codings: bodies that come compressed, and answers that leave so."""

from __future__ import annotations

import gzip
import re
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from anyio.to_thread import run_sync
from backports import zstd
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.faults import Refused, refused

GZIP = 16 + zlib.MAX_WBITS  # zlib's number for the format of gzip
LEAST_BYTES = 1024  # shorter answers fit into one packet anyway
INLINE_BYTES = 16 * 1024  # compressed on the event loop: sooner done than handed to a thread
LEVEL = 5  # a plan of 3.3 MB becomes 0.4 MB in 50 ms; the levels above take long and gain little
ZSTD_LEVEL = 3  # the same plan becomes as small in a third of the time
ZSTD_WINDOW_LOG = 23  # 8 MiB: the most that RFC 9659 asks of who unpacks, and so the memory that a body can claim
MOST_KEPT_BYTES = 16 * 1024 * 1024
COMPRESSIBLE = re.compile(r"(?:text/(?!event-stream)|application/(?:json|yaml|problem\+json|javascript)|image/svg)")


class _Unpacking(Protocol):
    """What reads one compressed stream, no further than it is asked to."""

    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""

    @property
    def unused_data(self) -> bytes:
        """What followed its end."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """So many bytes of the text at most."""


@dataclass(frozen=True)
class Coding:
    """One content coding, both ways."""

    pack: Callable[[bytes], bytes]
    unpacking: Callable[[], _Unpacking]


# The first that a client likes as well as any other is used.
CODINGS: Mapping[str, Coding] = {
    "zstd": Coding(
        lambda body: zstd.compress(body, ZSTD_LEVEL),
        lambda: zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG}),
    ),
    "gzip": Coding(lambda body: gzip.compress(body, LEVEL, mtime=0), lambda: zlib.decompressobj(GZIP)),
}


def decompressed(body: bytes, coding: str, limit_bytes: int) -> bytes:
    """A body as it was before it was compressed; one that becomes larger than the limit is not unpacked further."""
    if coding not in CODINGS:
        raise refused("unsupported-media-type", f"the body has the content coding {coding[:40]!r}", "",
                      f"{', '.join(CODINGS)}, or none", "Send the body uncompressed, or in one of these.",
                      where="header Content-Encoding")  # fmt: skip
    unpacking = CODINGS[coding].unpacking()
    try:
        text = unpacking.decompress(body, limit_bytes + 1)
    except (zlib.error, zstd.ZstdError) as error:
        raise _broken(coding, str(error)) from None
    if len(text) > limit_bytes:
        raise too_large(len(text), limit_bytes)
    if not unpacking.eof:
        raise _broken(coding, "it ends too early")
    if unpacking.unused_data:
        raise _broken(coding, "something follows its end")
    return text


def _broken(coding: str, what: str) -> Refused:
    return refused("invalid-coding", f"the body is not {coding}: {what}"[:400], "", f"one whole {coding} stream",
                   "Compress the body again, or send it uncompressed.", where="header Content-Encoding")  # fmt: skip


def too_large(num_bytes: int, limit: int) -> Refused:
    """A body that has so many bytes or more is refused."""
    return refused("body-too-large", f"the body has {num_bytes:,} bytes or more, the limit is {limit:,}", "",
                   f"at most {limit:,} bytes", "Name catalogue entries instead of whole objects, or merge equal pools.",
                   limit=limit)  # fmt: skip


class Compress:
    """ASGI middleware: compresses whole answers for clients that take them so, and keeps those with an entity tag."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._kept: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._num_kept_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on; where the client accepts it, look at what comes back."""
        stated = Headers(scope=scope).get("accept-encoding", "") if scope["type"] == "http" else ""
        coding = chosen_coding(stated)
        if coding is None:
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
                message = {**message, "body": await self._packed(head, message.get("body", b""), coding)}
            await send(head)
            await send(message)

        await self._app(scope, receive, compressed)

    async def _packed(self, head: Message, body: bytes, coding: str) -> bytes:
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
        packed = self._kept.get((tag, coding)) if tag else None
        if packed is None:
            pack = CODINGS[coding].pack
            packed = pack(body) if len(body) <= INLINE_BYTES else await run_sync(pack, body)
            self._keep(tag, coding, packed)
        headers["content-encoding"] = coding
        headers["content-length"] = str(len(packed))
        headers.add_vary_header("Accept-Encoding")
        _weaken(headers)
        head["headers"] = headers.raw
        return packed

    def _keep(self, tag: str, coding: str, packed: bytes) -> None:
        if not tag or (tag, coding) in self._kept:
            return
        self._kept[tag, coding] = packed
        self._num_kept_bytes += len(packed)
        while self._num_kept_bytes > MOST_KEPT_BYTES:
            self._num_kept_bytes -= len(self._kept.popitem(last=False)[1])


def _weaken(headers: MutableHeaders) -> None:
    """The same document in other bytes has a weak tag."""
    tag = headers.get("etag", "")
    if tag.startswith('"'):
        headers["etag"] = f"W/{tag}"


def chosen_coding(header: str) -> str | None:
    """The coding of an answer to a client with this Accept-Encoding; None: none.

    >>> [chosen_coding(one) for one in ("gzip, br", "gzip, zstd", "zstd;q=0.5, gzip", "*", "x-gzip;q=0.5")]
    ['gzip', 'zstd', 'gzip', 'gzip', 'gzip']
    >>> [chosen_coding(one) for one in ("br", "gzip;q=0", "identity", "zstd;q=0, *;q=0")]
    [None, None, None, None]
    """
    if not header:
        return None
    stated: dict[str, float] = {}
    for part in header.lower().split(","):
        name, _, parameter = part.strip().partition(";")
        weight = parameter.strip().removeprefix("q=")
        stated[name.strip().removeprefix("x-")] = float(weight) if re.fullmatch(r"\d(?:\.\d{1,3})?", weight) else 1.0
    # Anything at all is said by clients who know what everybody has: gzip.
    weights = {"gzip": stated.get("*", 0.0)} | {name: stated[name] for name in CODINGS if name in stated}
    best = max(weights, key=lambda name: (weights[name], name == "zstd"))
    return best if weights[best] > 0 else None
