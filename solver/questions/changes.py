"""A request with changes made at JSON Pointers, refused where a pointer leads nowhere or two changes meet.

A pointer is one of RFC 6901; in a list it may also name the id of an element, which goes before a position, or * for
all of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from models.errors import InvalidRequest, LimitExceeded
from models.pointers import parts_of, pointer_to
from models.question_parts import Change
from models.request import PlanRequest

Path = tuple[str | int, ...]
# Places that the changes of one set may name altogether, `*` included: two of every pool of the largest cluster that a
# service takes are 20,000, and walking to 50,000 takes half a second.
MOST_PLACES = 50_000


def changed_document(request: PlanRequest, changes: Sequence[Change], where: str = "/changes") -> dict[str, Any]:
    """The request as plain values, every name of the catalogue spelt out, with all changes made.

    `where` is the pointer of the list of changes in the question, for messages. Raises InvalidRequest.
    """
    document: dict[str, Any] = request.model_dump(mode="json")
    met = _Met(changes, where)
    planned: list[tuple[Path, Change, int]] = []
    for number, change in enumerate(changes):
        for path in _paths(document, change.pointer, f"{where}/{number}/pointer", adds=change.op == "add"):
            met.check_apart(path, number)
            if change.op != "add":
                met.add(path, number)
            planned.append((path, change, number))
        if len(planned) > MOST_PLACES:
            raise LimitExceeded(
                f"the changes are of more than {MOST_PLACES:,} places together",
                pointer=f"{where}/{number}/pointer",
                remedy="change fewer places, or merge equal pools, places and links",
            )
    # Elements that go, go last and from behind, so that the numbers of the others stay what they were.
    for path, change, number in sorted(planned, key=_order):
        _make(document, path, change, f"{where}/{number}")
    return document


def _order(one: tuple[Path, Change, int]) -> tuple[bool, int]:
    path, change, _ = one
    last = path[-1]
    removes = change.op == "remove" and isinstance(last, int)
    return removes, -last if removes and isinstance(last, int) else 0


class _Met:
    """Places that changes have been made at: no two changes of one field, or of a field and what holds it."""

    def __init__(self, changes: Sequence[Change], where: str) -> None:
        self._changes, self._where = changes, where
        self._at: dict[Path, int] = {}
        self._above: dict[Path, int] = {}  # whatever holds one of these, with the first change inside it

    def add(self, path: Path, number: int) -> None:
        """A change has been made here."""
        self._at[path] = number
        for length in range(len(path)):
            self._above.setdefault(path[:length], number)

    def check_apart(self, path: Path, number: int) -> None:
        """Refuse a change of what another changes, holds or lies in; one with `*` changes many fields."""
        around = (self._at[path[:length]] for length in range(len(path)) if path[:length] in self._at)
        found = [before for before in (*around, self._above.get(path, number)) if before != number]
        if path in self._at:
            found.append(self._at[path])
        if found:
            before = min(found)
            raise InvalidRequest(
                f"changes {before} ({self._changes[before].pointer}) and {number} ({self._changes[number].pointer}) "
                f"both change {pointer_to(self._deepest(path, before))}",
                pointer=f"{self._where}/{number}",
                remedy="make one change of the two, or ask about them as two variants",
            )

    def _deepest(self, path: Path, before: int) -> Path:
        """The first place of an earlier change that is inside this one; this one where it lies in the other."""
        inside = (at for at, number in self._at.items() if number == before and at[: len(path)] == path)
        return next(inside, path)


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
