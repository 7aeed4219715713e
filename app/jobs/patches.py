"""Changes to JSON documents: merge patches (RFC 7396) and values put at JSON Pointers (RFC 6901)."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.documents import read_model
from app.faults import Fault, Refused, refused
from models.pointers import is_position, parts_of, value_at
from models.request import PlanRequest
from solver.questions.changes import changed_document
from solver.questions.losses import changes_of

_ABSENT = object()


def merged(document: Any, patch: Any) -> Any:
    """The document with a merge patch applied: null removes, objects merge, everything else replaces.

    >>> merged({"a": 1, "b": {"c": 2, "d": 3}}, {"a": None, "b": {"c": 5}})
    {'b': {'c': 5, 'd': 3}}
    """
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(document) if isinstance(document, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def without_places(request: PlanRequest, lost: Sequence[str]) -> PlanRequest:
    """The request after places are lost: they stay empty, and links that end in them are gone, as `what_now` has it.

    Raises Refused for a place that the request does not have.
    """
    return read_model(PlanRequest, changed_document(request, changes_of(request, lost, "place"), "/lost_places"))


def with_value(document: Any, pointer: str, value: Any) -> Any:
    """The document with `value` at a pointer, copied along the way to it; missing objects on the way are made.

    >>> with_value({"a": [{"b": 1}]}, "/a/0/b", 2)
    {'a': [{'b': 2}]}
    >>> with_value({}, "/a/b", 2)
    {'a': {'b': 2}}
    """
    if not pointer:
        return copy.deepcopy(value)
    if not pointer.startswith("/"):
        raise _misfit(pointer, "a JSON Pointer begins with /")
    parts = parts_of(pointer)
    root = here = copy.copy(document)
    for part in parts[:-1]:
        child = copy.copy(_child(here, part, pointer))
        here[part if isinstance(here, dict) else int(part)] = child  # a position: _child has looked
        here = child
    last = parts[-1]
    if isinstance(here, dict):
        here[last] = value
    elif isinstance(here, list) and is_position(last, len(here)):
        here[int(last)] = value
    else:
        raise _misfit(pointer, f"there is no {last!r} to put a value at")
    return root


def _child(here: Any, part: str, pointer: str) -> Any:
    if isinstance(here, dict):
        return here.setdefault(part, {})
    if isinstance(here, list) and is_position(part, len(here)):
        return here[int(part)]
    raise _misfit(pointer, f"there is no {part!r} on the way")


def told_of_patch(fault: Fault, patch: Any, where: str) -> Fault:
    """A fault of a changed request at the member of the patch that it is about; of the whole patch if it has none.

    >>> told_of_patch(Fault("out-of-range", "too many", "/a/b"), {"a": {"b": 9}}, "/patch").pointer
    '/patch/a/b'
    """
    if not fault.pointer:
        return fault
    if holds(patch, fault.pointer):
        return replace(fault, pointer=where + fault.pointer)
    return replace(fault, what=f"after the changes {fault.pointer} is refused: {fault.what}", pointer=where)


def holds(document: Any, pointer: str) -> bool:
    """Whether a pointer leads to a value, be it null."""
    return value_at(document, pointer, _ABSENT) is not _ABSENT


def grid(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of one value per pointer, the last axis turning fastest.

    >>> list(grid({"/a": [1, 2], "/b": [3]}))
    [{'/a': 1, '/b': 3}, {'/a': 2, '/b': 3}]
    """
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def in_words(changes: Any) -> str:
    """What is changed and to what, by the last parts of the way there; a place of a list with the list's name.

    >>> in_words({"/constraints/max_gpus": 64, "/cluster/links/0/latency_s": 0.005})
    'max_gpus 64, links 0 latency_s 0.005'
    >>> in_words({"workload": {"precision": "fp8"}, "constraints": {"max_gpus": None}})
    'precision fp8, max_gpus null'
    """
    return ", ".join(
        f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in _leaves(changes)
    )


def _leaves(changes: Any, way: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if isinstance(changes, Mapping) and changes:
        for key, value in changes.items():
            parts = parts_of(key) if key.startswith("/") else [key]
            yield from _leaves(value, (*way, *parts))
    elif way:
        is_listed = len(way) > 2 and way[-2].isdigit()
        yield " ".join(way[-3:] if is_listed else way[-1:]), changes


def _misfit(pointer: str, what: str) -> Refused:
    return refused("invalid-patch", f"{pointer!r} does not fit the request: {what}", pointer,
                   "a JSON Pointer into the base request", "Correct the pointer.")  # fmt: skip
