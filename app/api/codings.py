"""Content codings: bodies that come compressed, and answers that leave so.

Owns which codings there are and the limit on what a body becomes. Never knows what is compressed.
"""

from __future__ import annotations

import zlib

from app.faults import Fault, Refused

GZIP = 16 + zlib.MAX_WBITS  # zlib's number for the format of gzip
CODINGS = ("gzip",)


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
