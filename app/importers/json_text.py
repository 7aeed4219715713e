"""JSON with lines: repeated keys, NaN, depth and size refused, each with its place in the text.

The fast parser of the standard library does the work; the text is walked again only for a fault.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NoReturn

from app.documents import json_depth
from app.faults import Refused
from app.importers.source import MAX_DEPTH, Document, Spot, beyond, decoded, place_of, refused, repeated
from models.pointers import escaped

MAX_BYTES = 256 * 1024 * 1024
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)


class _Odd(ValueError):
    """What the standard library would let pass."""


def parse_json(name: str, data: bytes) -> Document:
    """The one document of a JSON text."""
    text = decoded(name, data, max_bytes=MAX_BYTES)
    if json_depth(data) > MAX_DEPTH:
        what = f"nests {json_depth(data)} levels deep, the limit is {MAX_DEPTH}"
        raise beyond(name, what, MAX_DEPTH, "Flatten the document.", of=" levels")
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_not_finite)
    except (ValueError, RecursionError) as error:
        raise _fault(name, text, error) from None
    return Document(name, value, cache(lambda: _walk(text).spots))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Odd("a key is repeated")
    return value


def _not_finite(text: str) -> NoReturn:
    raise _Odd(f"{text} is no JSON number")


def _fault(name: str, text: str, error: Exception) -> Refused:
    if isinstance(error, json.JSONDecodeError):
        place = place_of(name, Spot(error.lineno, error.colno))
        return refused(place, f"not JSON: {error.msg}", code="invalid-json", allowed="one JSON document",
                       remedy="Correct the text at this line and column.")  # fmt: skip
    walk = _walk(text)
    if walk.repeated:
        key, spot = walk.repeated[0]
        return repeated(place_of(name, spot), f"the key {key!r} is repeated in its object", "key", code="invalid-json")
    what = str(error) if isinstance(error, _Odd) else "a number has thousands of digits"
    return refused(name, f"not JSON: {what}", code="invalid-json", allowed="finite numbers of sensible length",
                   remedy="Give a finite number.")  # fmt: skip


@dataclass
class _Frame:
    """A container that is being walked."""

    pointer: str
    is_object: bool
    seen: set[str] = field(default_factory=set)
    next_key: str | None = None
    index: int = 0


@dataclass
class _Walk:
    spots: dict[str, Spot] = field(default_factory=dict)
    repeated: list[tuple[str, Spot]] = field(default_factory=list)


def _walk(text: str) -> _Walk:
    """Where every value of a JSON text stands; a member of an object stands at its key."""
    walk, stack = _Walk(), [_Frame("", is_object=False)]
    line, line_start, last = 1, 0, 0
    for found in _TOKEN.finditer(text):
        line += text.count("\n", last, found.start())
        line_start = max(line_start, text.rfind("\n", last, found.start()) + 1)
        last = found.start()
        _take(found.group(), Spot(line, found.start() - line_start + 1), walk, stack)
    return walk


def _take(token: str, spot: Spot, walk: _Walk, stack: list[_Frame]) -> None:
    frame = stack[-1]
    if token in ":,":
        frame.index += token == ","
    elif token in "]}":
        if len(stack) > 1:
            stack.pop()
    elif frame.is_object and frame.next_key is None and token.startswith('"'):
        key = str(json.loads(token, strict=False))
        if key in frame.seen:
            walk.repeated.append((key, spot))
        frame.seen.add(key)
        frame.next_key = key
        walk.spots[_inner(frame, key)] = spot
    else:
        pointer = _inner(frame, frame.next_key) if frame.is_object else _element(frame, len(stack))
        frame.next_key = None
        walk.spots.setdefault(pointer, spot)
        if token in "[{":
            stack.append(_Frame(pointer, is_object=token == "{"))


def _element(frame: _Frame, depth: int) -> str:
    return "" if depth == 1 else f"{frame.pointer}/{frame.index}"


def _inner(frame: _Frame, key: str | None) -> str:
    return f"{frame.pointer}/{escaped(key or '')}"
