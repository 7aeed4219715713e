"""A text with the way back to it: parsed values, and the line and column at which each of them stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from app.faults import Fault, Refused, from_validation
from app.yaml_values import Spot
from models.errors import PlannerError

MAX_SHOWN = 20  # faults of one file; the rest is counted

AnyModel = TypeVar("AnyModel", bound=BaseModel)


@dataclass(frozen=True)
class Document:
    """One document of a file: its plain value, and where the value of a JSON Pointer stands in the text."""

    name: str
    value: Any
    spots: Callable[[], Mapping[str, Spot]]

    def where(self, pointer: str = "") -> str:
        """File, line and column of a value, or of the nearest value around it."""
        known = self.spots()
        while pointer and pointer not in known:
            pointer = pointer.rpartition("/")[0]
        return place_of(self.name, known.get(pointer, Spot(1)))

    def refused(self, pointer: str, what: str, **more: str) -> Refused:
        """The fault of one value, with its line."""
        return refused(self.where(pointer), what, **more)


@dataclass(frozen=True)
class Here:
    """Where a value stands; the line is looked up when it is written."""

    document: Document
    pointer: str

    def __str__(self) -> str:
        return self.document.where(self.pointer)


def place_of(name: str, spot: Spot) -> str:
    """How a fault names a place.

    >>> place_of("overlay.yaml", Spot(3, 7))
    'overlay.yaml:3:7'
    """
    return f"{name}:{spot.line}:{spot.column}"


def refused(where: object, what: str, *, code: str = "invalid-request", allowed: str = "", remedy: str = "") -> Refused:
    """One fault at a place of a file."""
    return Refused((Fault(code, what, allowed=allowed, remedy=remedy or "Correct the value.", where=str(where)),))


def repeated(where: object, what: str, of: str, *, code: str = "contradiction") -> Refused:
    """The fault of a second one where each may be there once."""
    return refused(where, what, code=code, allowed=f"every {of} once", remedy="Remove one of the two.")


def beyond(where: object, what: str, limit: int, remedy: str, *, of: str = "") -> Refused:
    """The fault of more than is read."""
    return refused(where, what, code="limit-exceeded", allowed=f"at most {limit:,}{of}", remedy=remedy)


def from_error(where: object, error: PlannerError, *, allowed: str) -> Refused:
    """The fault that an error of our own states, with the place it arose from."""
    return refused(where, error.message, code=error.code, allowed=allowed, remedy=error.remedy)


def decoded(name: str, data: bytes, *, max_bytes: int) -> str:
    """The text of a file in UTF-8 of a bounded size."""
    if len(data) > max_bytes:
        what = f"has {len(data):,} bytes, the limit is {max_bytes:,}"
        raise beyond(name, what, max_bytes, "Leave out what the import does not use.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise refused(place_of(name, Spot(line)), f"byte {error.start} is not UTF-8", allowed="text in UTF-8",
                      remedy="Save the file as UTF-8.") from None  # fmt: skip


def validated(model: type[AnyModel], values: Mapping[str, Any], place: Callable[[Fault], object]) -> AnyModel:
    """Values that an import has put together as a `model`, or its faults, each where `place` says."""
    try:
        return model.model_validate(values)
    except ValidationError as failure:
        known = from_validation(failure, values)[:MAX_SHOWN]
        raise Refused([replace(one, pointer="", where=str(place(one))) for one in known]) from None


def read_at(model: type[AnyModel], document: Document, pointer: str = "", value: Any = None) -> AnyModel:
    """`value` (by default the whole document) as a `model`, or its faults with their lines."""
    value = document.value if value is None else value
    try:
        return model.model_validate(value)
    except ValidationError as failure:
        raise Refused(_placed(from_validation(failure, value), document, pointer)) from None


def _placed(faults: Iterable[Fault], document: Document, pointer: str) -> list[Fault]:
    faults = list(faults)
    placed = []
    for fault in faults[:MAX_SHOWN]:
        where = document.where(pointer + fault.pointer)
        inside = f" ({pointer}{fault.pointer})" if pointer + fault.pointer else ""
        remedy = fault.remedy.replace("; the schema at /openapi.json lists what exists", "")
        placed.append(replace(fault, pointer="", remedy=remedy, where=where + inside))
    if len(faults) > MAX_SHOWN:
        what = f"{len(faults) - MAX_SHOWN} more faults are not shown"
        placed.append(Fault("invalid-request", what, remedy="Correct these first.", where=document.name))
    return placed


def names_shown(names: Iterable[str], most: int = 8) -> str:
    """A few names for a message.

    >>> names_shown(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
