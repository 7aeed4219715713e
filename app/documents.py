"""Reads JSON documents as strictly as the API promises: bytes in, frozen models or faults out.

A document has limits of depth and size, no NaN, no repeated key and no text behind its end; a request also has limits
on what it may describe. Reading takes time in proportion to the text, whatever is in it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import SchemaValidator, from_json

from app.faults import Fault, Refused, escaped, from_validation, refuse_request, refused
from app.settings import Settings

if TYPE_CHECKING:
    from models.plan import Plan
    from models.request import PlanRequest

MAX_JSON_DEPTH = 201  # what the parser in use goes down to; a test holds it to that
# The largest document so far, a plan of 1,048,576 GPUs in 64 buildings, has 338,964 values; 30,267 hold others.
MAX_JSON_VALUES = 750_000  # twice that: the parser holds up everybody for 80 ms at most
MAX_JSON_CONTAINERS = 75_000
# A request of 8,000 pools with all defaults written out. Distinct keys are what the parser is slowest at: so many take
# it 90 ms on a busy machine, in a single object twice that, which is why objects are looked at from MANY_KEYS on.
MAX_JSON_KEYS, MANY_KEYS = 400_000, 100_000
# Wrong members are told one by one. An object of ours has at most 30 members.
CROWDED, MAX_CROWDED_MEMBERS = 100, 10_000

# A document of so many values is told all its faults; each value can have several, of which 100 are told in the end.
MOST_TOLD_VALUES = 10_000
_OPAQUE = ("cls", "metadata", "config", "serialization", "function", "default")  # parts of a core schema

_BLOCK = 65_536  # bytes that are looked at in one go: nobody else runs meanwhile
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_PLACE = re.compile(r"line (\d+) column (\d+)")
# How texts begin that Windows saves: with a mark (Unicode 15, 2.13), or as a brace in two bytes.
_OTHER_CODINGS = {b"\xef\xbb\xbf": "UTF-8 with a byte order mark", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16",
                  b"{\0": "UTF-16", b"\0{": "UTF-16"}  # fmt: skip
# How packed texts begin (RFC 1952, 2.3.1; RFC 8878, 3.1.1).
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_NOT_FINITE = re.compile(rb"-?(?:NaN|Infinity|inf)\b")

# A place in a document: the key or index, and the place of what holds it.
_Place = tuple[Any, str | int]

AnyModel = TypeVar("AnyModel", bound=BaseModel)


def parse_json(data: bytes, *, of_any_size: bool = False) -> Any:
    """The value of a JSON text.

    >>> parse_json(b'{"a": [1]}')
    {'a': [1]}
    """
    if not of_any_size:
        _check_size(data)
    try:
        document = from_json(data, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        raise _no_json(data, str(error)) from None
    _check_members(data, document)
    return document


def _check_size(data: bytes) -> None:
    """Refuse what would become too many objects in memory, before any of them is made."""
    # Counted in the whole text, in no time; marks inside strings are told apart only when that is too many.
    num_containers = data.count(b"[") + data.count(b"{")
    if num_containers > MAX_JSON_CONTAINERS or num_containers + data.count(b",") > MAX_JSON_VALUES:
        _check_values(data)
    if data.count(b":") > MANY_KEYS:
        _check_keys(data)


def _check_values(data: bytes) -> None:
    """Refuse more arrays, objects and values than any document has, as soon as there are."""
    num_values = num_containers = 0
    for outside in _outside_strings(data):
        opened = outside.count(b"[") + outside.count(b"{")
        num_containers, num_values = num_containers + opened, num_values + opened + outside.count(b",")
        if num_containers > MAX_JSON_CONTAINERS:
            # Who nests too deeply is told so, however much there is.
            is_deep = _deepest(islice(_brackets(data), MAX_JSON_CONTAINERS)) > MAX_JSON_DEPTH
            many = _too_many(MAX_JSON_CONTAINERS, "arrays and objects")
            raise _too_deep(f"more than {MAX_JSON_DEPTH}") if is_deep else many
        if num_values > MAX_JSON_VALUES:
            raise _too_many(MAX_JSON_VALUES, "values")


def _check_keys(data: bytes) -> None:
    """Refuse more members than any document has, and more than its objects could have if few of them were crowded."""
    num_keys = num_objects = 0
    for outside in _outside_strings(data):
        num_keys, num_objects = num_keys + outside.count(b":"), num_objects + outside.count(b"{")
        if num_keys > MAX_JSON_KEYS:
            raise _too_many(MAX_JSON_KEYS, "members of objects")
    if num_keys > CROWDED * num_objects + MAX_CROWDED_MEMBERS:
        raise _too_many_crowded()


def _outside_strings(data: bytes) -> Iterator[bytes]:
    """The text that stands outside strings, in pieces. No byte is looked at more than a few times, and none one by one.

    >>> b"".join(_outside_strings(rb'{"a\\" [": [1, "\\\\"]}'))
    b'{: [1, ]}'
    """
    carried, is_inside = b"", False
    for start in range(0, len(data), _BLOCK):
        block = (carried + data[start : start + _BLOCK]).replace(b"\\\\", b"")
        carried = b"\\" if block.endswith(b"\\") else b""
        parts = block.removesuffix(b"\\").replace(b'\\"', b"").split(b'"')
        yield b"".join(parts[is_inside::2])
        is_inside ^= len(parts) % 2 == 0


def _num_keys(data: bytes) -> int:
    """Strings that a colon follows."""
    pieces = (data[start : start + _BLOCK] for start in range(0, len(data), _BLOCK))
    return b"".join(one.translate(None, b" \t\r\n") for one in pieces).count(b'":')


def _too_many(limit: int, of_what: str) -> Refused:
    allowed = f"at most {limit:,} {of_what}"
    return refused("limit-exceeded", f"the document has more than {limit:,} {of_what}", "", allowed,
                   "Merge equal pools, places and links, or leave out what repeats a default.",
                   limit=limit)  # fmt: skip


def _too_many_crowded() -> Refused:
    return _too_many(MAX_CROWDED_MEMBERS, f"members in objects of more than {CROWDED}")


def _check_members(data: bytes, document: Any) -> None:
    """Refuse an object with a key twice, and objects that together have very many members."""
    num_members = num_crowded = 0
    pending = [document]
    while pending:
        here = pending.pop()
        if isinstance(here, dict):
            num_members += len(here)
            num_crowded += len(here) if len(here) > CROWDED else 0
            here = here.values()
        elif not isinstance(here, list):
            continue
        pending.extend(value for value in here if value.__class__ is dict or value.__class__ is list)
    if num_crowded > MAX_CROWDED_MEMBERS:
        raise _too_many_crowded()
    # As many members as keys: none came twice. A text with escaped quotes may seem to have more keys.
    if _num_keys(data) != num_members and (pointer := duplicate_key(data)) is not None:
        raise refused("duplicate-key", f"the key {pointer.rpartition('/')[2]!r} comes twice in one object", pointer,
                      "every key once", "Remove one of the two.")  # fmt: skip


class _Twice(dict[str, Any]):
    """An object in which a key came twice."""

    key = ""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    seen: set[str] = set()
    marked = _Twice(values)
    marked.key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return marked


def duplicate_key(data: bytes) -> str | None:
    """JSON Pointer of a key that comes twice in its object; readers differ on which of the two counts.

    >>> duplicate_key(b'{"a": [{"b": 1, "b": 2}]}')
    '/a/0/b'
    """
    pending: list[tuple[_Place | None, Any]] = [(None, json.loads(data, object_pairs_hook=_object, parse_int=float))]
    while pending:
        place, here = pending.pop()
        if isinstance(here, _Twice):
            return _pointer((place, here.key))
        inside = here.items() if isinstance(here, dict) else enumerate(here) if isinstance(here, list) else ()
        pending.extend(((place, key), value) for key, value in inside if isinstance(value, dict | list))
    return None


def _pointer(place: _Place | None) -> str:
    parts: list[str] = []
    while place is not None:
        place, key = place
        parts.append(escaped(str(key)))
    return "".join(f"/{part}" for part in reversed(parts))


def _no_json(data: bytes, message: str) -> Refused:
    if "recursion limit" in message:
        return _too_deep(str(json_depth(data)))
    coding = next((name for mark, name in _OTHER_CODINGS.items() if data.startswith(mark)), None)
    if coding is not None:
        return refused("invalid-json", f"not a JSON document: the text begins as {coding}", "",
                       "one JSON document in UTF-8, without a byte order mark",
                       "Save the text as UTF-8 without a byte order mark.")  # fmt: skip
    packed = next((name for mark, name in _PACKED.items() if data.startswith(mark)), None)
    if packed is not None:
        return refused("invalid-json", f"not a JSON document: it is packed with {packed}", "",
                       "one JSON document in UTF-8",
                       f"Unpack it, or send it with Content-Encoding: {packed}.")  # fmt: skip
    wants_value = message.startswith(("expected value", "invalid number"))
    if wants_value and _NOT_FINITE.match(data, _offset(data, message)):
        return refused("not-finite", f"NaN and Infinity are not JSON: {message}", "", "finite numbers",
                       "Give a finite number; leave an optional field out if the value is unknown.")  # fmt: skip
    return refused("invalid-json", f"not a JSON document: {message}", "", "one JSON document in UTF-8",
                   "Correct the text at the stated line and column.")  # fmt: skip


def _too_deep(depth: str) -> Refused:
    return refused("limit-exceeded", f"the document nests {depth} levels deep, the limit is {MAX_JSON_DEPTH}", "",
                   f"at most {MAX_JSON_DEPTH} levels of arrays and objects",
                   "Flatten the document; a plan request needs fewer than 10 levels.",
                   limit=MAX_JSON_DEPTH)  # fmt: skip


def _offset(data: bytes, message: str) -> int:
    """Where in the text the parser stopped: its columns count bytes from 1.

    >>> _offset(b"[\\n 1,]", "trailing comma at line 2 column 4")
    5
    """
    found = _PLACE.search(message)
    if found is None:
        return len(data)
    line, column = int(found.group(1)), int(found.group(2))
    start, num_before = 0, line - 1
    while num_before > (num_here := data.count(b"\n", start, start + _BLOCK)):
        start, num_before = start + _BLOCK, num_before - num_here
    for _ in range(num_before):
        start = data.find(b"\n", start) + 1
    return start + max(column, 1) - 1


def json_depth(data: bytes) -> int:
    """Deepest nesting of brackets outside strings.

    >>> json_depth(b'[{"a": "[["}]')
    2
    """
    return _deepest(_brackets(data))


def _brackets(data: bytes) -> Iterator[int]:
    """The brackets outside strings, in order."""
    return chain.from_iterable(outside.translate(None, _NOT_BRACKETS) for outside in _outside_strings(data))


def _deepest(brackets: Iterable[int]) -> int:
    depth = deepest = 0
    for bracket in brackets:
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def read_model(model: type[AnyModel], document: Any) -> AnyModel:
    """`document` as a validated `model`, or its faults: all of a small document, of a large one those met first."""
    try:
        return cast(AnyModel, _hasty(model).validate_python(document))
    except ValidationError as failure:
        if has_more_values(document, MOST_TOLD_VALUES):
            raise Refused(from_validation(failure, document)) from None
    try:
        return model.model_validate(document)
    except ValidationError as failure:
        raise Refused(from_validation(failure, document)) from None


@cache
def _hasty(model: type[BaseModel]) -> SchemaValidator:
    """The validator of a model, but that it leaves a list at its first wrong member.

    To tell all that is wrong with a long list takes a hundred times the memory of the document.
    """
    return SchemaValidator(_leaving_lists_early(model.__pydantic_core_schema__), _use_prebuilt=False)


def _leaving_lists_early(node: Any) -> Any:
    if isinstance(node, dict):
        changed = {key: value if key in _OPAQUE else _leaving_lists_early(value) for key, value in node.items()}
        return {**changed, "fail_fast": True} if node.get("type") in ("list", "tuple") else changed
    if isinstance(node, list | tuple):
        return type(node)(_leaving_lists_early(one) for one in node)
    return node


def has_more_values(document: Any, most: int) -> bool:
    """Whether a document has more values than that; looks no further.

    >>> has_more_values({"a": [1, 2]}, 4), has_more_values({"a": [1, 2]}, 3)
    (False, True)
    """
    return num_values(document, most) > most


def num_values(document: Any, most: int) -> int:
    """Values of a document, itself and what holds others included; counted no further than beyond `most`.

    >>> num_values({"a": [1, 2]}, 9)
    4
    """
    number, pending = 0, [document]
    while pending and number <= most:
        here = pending.pop()
        inside = here.values() if isinstance(here, dict) else here if isinstance(here, list) else ()
        number += 1
        pending.extend(islice(inside, most))
    return number


def read_plan(data: bytes) -> Plan:
    """A plan from its JSON text: bare, or inside an outcome or an answer of the service.

    Of any size: searches write it, and one of a million operations has five million values.
    """
    from models.plan import Plan

    document = parse_json(data, of_any_size=True)
    for wrapper in ("outcome", "plan"):
        if isinstance(document, dict) and isinstance(document.get(wrapper), dict):
            document = document[wrapper]
    refuse_request(document)
    return read_model(Plan, document)


def canonical(model: BaseModel) -> bytes:
    """The JSON text that stands for a document, however it was written."""
    return model.model_dump_json().encode()


def digest(data: bytes) -> str:
    """Digest that names a document.

    >>> digest(b"{}")[:14]
    'sha256:44136fa'
    """
    return "sha256:" + hashlib.sha256(data).hexdigest()


def check_request_limits(request: PlanRequest, settings: Settings) -> None:
    """Refuse what is larger than this service plans."""
    cluster = request.cluster
    num_gpus = sum(pool.num_hosts * pool.gpus_per_host for pool in cluster.pools)
    num_parts = len(cluster.places) + len(cluster.pools) + len(cluster.links)
    check_limits(
        ("/cluster/pools", "GPUs", num_gpus, settings.max_gpus),
        ("/cluster", "places, pools and links", num_parts, settings.max_cluster_parts),
        ("/options/time_limit_s", "seconds", request.options.time_limit_s, settings.max_time_limit_s),
    )


def check_limits(*stated: tuple[str, str, float, float]) -> None:
    """Refuse all that is beyond a limit of this service; each has a JSON Pointer, a unit, the value and the limit."""
    faults = [
        Fault(code="limit-exceeded", what=f"{value:,.10g} {unit}, the limit of this service is {limit:,.10g}",
              pointer=pointer, allowed=f"at most {limit:,.10g} {unit}",
              remedy="Lower the value, or ask whoever runs the service to raise its limit.", limit=limit, value=value)
        for pointer, unit, value, limit in stated
        if value > limit
    ]  # fmt: skip
    if faults:
        raise Refused(faults)
