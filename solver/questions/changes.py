"""A request with changes made at JSON Pointers, refused where a pointer leads nowhere or two changes meet.

A pointer is one of RFC 6901; in a list it may also name the id of an element, which goes before a position, or * for
all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from models.errors import InvalidRequest
from models.pointers import parts_of, pointer_to
from models.question_parts import Change
from models.request import PlanRequest

Path = tuple[str | int, ...]


def changed_document(request: PlanRequest, changes: Sequence[Change], where: str = "/changes") -> dict[str, Any]:
    """The request as plain values, every name of the catalogue spelt out, with all changes made.

    `where` is the pointer of the list of changes in the question, for messages. Raises InvalidRequest.
    """
    document: dict[str, Any] = request.model_dump(mode="json")
    met: list[tuple[Path, int]] = []
    planned: list[tuple[Path, Change, int]] = []
    for number, change in enumerate(changes):
        for path in _paths(document, change.pointer, f"{where}/{number}/pointer", adds=change.op == "add"):
            _check_apart(path, number, met, changes, where)
            if change.op != "add":
                met.append((path, number))
            planned.append((path, change, number))
    # Elements that go, go last and from behind, so that the numbers of the others stay what they were.
    for path, change, number in sorted(planned, key=_order):
        _make(document, path, change, f"{where}/{number}")
    return document


def _order(one: tuple[Path, Change, int]) -> tuple[bool, int]:
    path, change, _ = one
    last = path[-1]
    removes = change.op == "remove" and isinstance(last, int)
    return removes, -last if removes and isinstance(last, int) else 0


def _check_apart(
    path: Path, number: int, met: Sequence[tuple[Path, int]], changes: Sequence[Change], where: str
) -> None:
    """No two changes of one field, or of a field and what holds it."""
    for other, before in met:
        shared = min(len(path), len(other))
        if path[:shared] == other[:shared] and (before != number or path == other):
            raise InvalidRequest(
                f"changes {before} ({changes[before].pointer}) and {number} ({changes[number].pointer}) both change "
                f"{pointer_to(path if len(path) >= len(other) else other)}",
                pointer=f"{where}/{number}",
                remedy="make one change of the two, or ask about them as two variants",
            )


def _paths(document: Any, pointer: str, where: str, *, adds: bool) -> list[Path]:
    parts = parts_of(pointer)
    if parts[0] == "options":
        raise InvalidRequest(
            f"{pointer!r} changes how the search is made, not what is planned",
            pointer=where,
            remedy="set the options of the request itself: all plans of a question are made the same way",
        )
    if adds and parts[-1] == "-":
        parts.pop()
    found = list(_walk(document, parts, (), pointer, where))
    if not found:
        raise InvalidRequest(f"{pointer!r} matches nothing: the list is empty", pointer=where, remedy="leave it out")
    return found


def _walk(here: Any, parts: Sequence[str], behind: Path, pointer: str, where: str) -> Iterator[Path]:
    if not parts:
        yield behind
        return
    for key in _keys(here, parts[0], behind, pointer, where):
        yield from _walk(here[key], parts[1:], (*behind, key), pointer, where)


def _keys(here: Any, part: str, behind: Path, pointer: str, where: str) -> list[Any]:
    """The members that one part of a pointer names."""
    known: Sequence[str]
    if isinstance(here, Mapping):
        if part in here:
            return [part]
        known = sorted(here)
    elif isinstance(here, list):
        ids = [str(one["id"]) for one in here if isinstance(one, Mapping) and "id" in one]
        if part in ids:  # whatever an element is called, also by a number
            return [ids.index(part)]
        if part == "*":
            return list(range(len(here)))
        if part in map(str, range(len(here))):
            return [int(part)]
        known = ids or [str(number) for number in range(len(here))]
    else:
        known = ()
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    raise InvalidRequest(
        f"{pointer!r} leads nowhere: there is no {part!r} in {pointer_to(behind) or 'the request'}",
        pointer=where,
        remedy=f"use one of {shown}" if shown else f"end the pointer at {pointer_to(behind)}",
    )


def _make(document: Any, path: Path, change: Change, where: str) -> None:
    """One change, in place."""
    holder = document
    for part in path[:-1]:
        holder = holder[part]
    key, old = path[-1], holder[path[-1]]
    if change.op == "remove":
        if isinstance(key, int):
            del holder[key]
        else:
            holder[key] = None
    elif change.op == "add":
        if not isinstance(old, list):
            raise _unfit(change, "is no list", where, "use replace")
        old.append(change.value)
    elif change.op == "replace":
        holder[key] = change.value
    else:
        if not isinstance(old, int | float) or isinstance(old, bool):
            raise _unfit(change, "is null" if old is None else "is no number", where, "use replace with the new value")
        holder[key] = old + change.value if change.op == "increase" else old * change.value
    if key == "distance_km" and holder.get("latency_s") is not None:
        raise _unfit(change, "counts only where latency_s is null", where, "change latency_s instead")


def _unfit(change: Change, what: str, where: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(f"{change.op} does not fit {change.pointer}, which {what}", pointer=where, remedy=remedy)
