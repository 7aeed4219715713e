"""What a user did wrong, said the same way by the API and the command line: what, where, allowed, what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError

    from models.errors import PlannerError
    from models.outcome import Reason

MAX_FAULTS = 100  # of one document that are told; who has corrected these asks again
MAX_TEXT = 2000  # characters of each text of a fault: some hold what the client sent, which may be megabytes
MAX_KEY = 200  # characters of a key in a pointer: a hundred faults are told in one answer


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, and how to put it right."""

    code: str
    what: str
    pointer: str = ""
    allowed: str = ""
    remedy: str = ""
    where: str = ""
    limit: float | None = None
    value: float | None = None

    def to_dict(self) -> dict[str, str | float]:
        """Plain values for JSON; `limit` and `value` where a number is too great."""
        numbers = {"limit": self.limit, "value": self.value}
        texts = {
            "where": self.where or self.pointer or "the whole document",
            "pointer": self.pointer,
            "what": self.what,
            "allowed": self.allowed,
            "remedy": self.remedy,
        }
        return {
            "code": self.code,
            **{name: text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..." for name, text in texts.items()},
            **{name: number for name, number in numbers.items() if number is not None},
        }


class Refused(Exception):
    """The input has faults; nothing was started."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(fault.what for fault in faults))
        self.faults = tuple(faults)


@contextmanager
def retold(told: Callable[[Fault], Fault]) -> Iterator[None]:
    """What is refused inside, each fault as `told` has it: where the client can see what is wrong."""
    try:
        yield
    except Refused as refusal:
        raise Refused([told(fault) for fault in refusal.faults]) from None


def refused(
    code: str, what: str, pointer: str = "", allowed: str = "", remedy: str = "", *,
    where: str = "", limit: float | None = None, value: float | None = None,
) -> Refused:  # fmt: skip
    """An input with one fault."""
    return Refused((Fault(code, what, pointer, allowed, remedy, where, limit, value),))


def refuse_request(document: Any) -> None:
    """Refuse a request that was given where a plan is wanted."""
    if isinstance(document, dict) and "workload" in document:
        remedy = "Plan it with `isthmus plan REQUEST.json --out PLAN.json`, and give PLAN.json."
        raise refused("invalid-plan", "the document is a request, not a plan", "", "a plan", remedy)


def refuse_plan(document: Any, wanted: str = "a request") -> None:
    """Refuse a plan, or another outcome of a search, that was given where a request is wanted."""
    if not isinstance(document, dict) or "workload" in document or "ask" in document:
        return
    if (
        "outcome" in document
        or {"status", "elapsed_s"} <= document.keys()
        or {"configuration", "proof"} <= document.keys()
    ):
        remedy = "Give the request that it was found for; `isthmus show` prints what a search ended with."
        raise refused("invalid-request", f"the document is a plan, not {wanted}", "", wanted, remedy)


def from_planner_error(error: PlannerError) -> Fault:
    """The fault that a PlannerError states."""
    return Fault(code=error.code, what=error.message, pointer=error.pointer, allowed=_named(error.remedy),
                 remedy=error.remedy or "Change the value that the message names.")  # fmt: skip


def from_reason(reason: Reason) -> Fault:
    """The fault that a reason of infeasibility states."""
    remedy = "; or ".join(reason.remedies) or "Change the value that the message names."
    return Fault(code=reason.code, what=reason.detail, pointer=reason.pointer, remedy=remedy)


def from_validation(failure: ValidationError, document: Any) -> tuple[Fault, ...]:
    """One fault per pydantic error, with a JSON Pointer into `document`."""
    return from_errors(failure.errors(include_url=False), document)


def from_errors(errors: Iterable[Mapping[str, Any]], document: Any) -> tuple[Fault, ...]:
    """The faults of a document, from errors that pydantic has already turned into dictionaries."""
    told = (error for error in errors if not _only_members_are_wrong(error))
    faults = [_fault(error, document) for error in islice(told, MAX_FAULTS)]
    return tuple(dict.fromkeys(faults))


def _only_members_are_wrong(error: Mapping[str, Any]) -> bool:
    """A list that is long enough and called too short, because its wrong members, told elsewhere, were left out."""
    given = error.get("input")
    return error["type"] == "too_short" and isinstance(given, list) and len(given) >= error["ctx"]["min_length"]


_CODES: Mapping[str, str] = {
    "missing": "missing-field",
    "extra_forbidden": "unknown-field",
    "finite_number": "not-finite",
    "literal_error": "not-an-option",
    "enum": "not-an-option",
    "union_tag_invalid": "not-an-option",
    "union_tag_not_found": "missing-field",
    "string_pattern_mismatch": "bad-pattern",
    "value_error": "contradiction",
    "json_invalid": "invalid-json",
}
# What a writer of JSON calls what the validator calls a dictionary, an instance or a tuple.
_MESSAGES: Mapping[str, str] = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "Input should be an object"),
    **dict.fromkeys(("list_type", "tuple_type"), "Input should be an array"),
}
_LITERALS: Mapping[bool | None, str] = {True: "true", False: "false", None: "null"}  # of JSON
# What is allowed where the message does not say.
_OTHER_TYPES: Mapping[str, str] = {
    "finite_number": "a finite number",
    "int_parsing_size": "a valid integer",
    "timezone_aware": "a time with its zone, such as 2026-01-31T12:00:00Z",
}
_RANGE = ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "multiple_of")
_LENGTH = ("too_short", "too_long", "string_too_short", "string_too_long")
_BOUNDS: Mapping[str, str] = {
    "gt": "more than {}",
    "ge": "at least {}",
    "lt": "less than {}",
    "le": "at most {}",
    "min_length": "length at least {}",
    "max_length": "length at most {}",
    "expected": "{}",
    "expected_tags": "{}",
    "pattern": "text of the form {}",
}
_REMEDIES: Mapping[str, str] = {
    "missing-field": "Add the field.",
    "unknown-field": "Remove the field or correct its name; the schema at /openapi.json lists what exists.",
    "not-finite": "Give a finite number; leave an optional field out if the value is unknown.",
    "wrong-type": "Give a value of the type that is allowed.",
    "out-of-range": "Give a value in the allowed range, in the unit that the field name states.",
    "bad-length": "Give a value of the allowed length.",
    "not-an-option": "Use one of the allowed values.",
    "bad-pattern": "Give text of the allowed form; control characters are refused.",
    "contradiction": "Change one of the values that the message names.",
    "invalid-json": "Send one JSON document in UTF-8.",
}


def _code(kind: str) -> str:
    if kind in _RANGE:
        return "out-of-range"
    if kind in _LENGTH:
        return "bad-length"
    return _CODES.get(kind, "wrong-type")


def _fault(error: Mapping[str, Any], document: Any) -> Fault:
    kind = str(error["type"])
    code = _code(kind)
    message = _MESSAGES.get(kind, str(error["msg"]).removeprefix("Value error, "))
    pointer = pointer_of(error["loc"], document, is_missing=kind == "missing")
    if kind.startswith("union_tag"):
        message, pointer = _of_tag(error, pointer)
    if kind == "value_error":
        pointer = _sharper_pointer(pointer, message, document)
        if "entry is called" in message:
            code = "unknown-name"
    context = error.get("ctx", {})
    allowed = ", ".join(text.format(context[key]) for key, text in _BOUNDS.items() if context.get(key) is not None)
    what, remedy = _with_value(message, error, code), ""
    if kind == "value_error" and ": " in message:
        what, _, remedy = message.rpartition(": ")  # our own messages end in what to do
        allowed = allowed or _named(remedy)
    return Fault(code=code, what=what[:800], pointer=pointer, allowed=(allowed or _expected_type(kind, message))[:400],
                 remedy=(remedy or _REMEDIES.get(code, "Correct the value."))[:800])  # fmt: skip


def _named(remedy: str) -> str:
    """What is allowed, where what to do names it.

    >>> _named("use one of east, west")
    'one of east, west'
    """
    return remedy.removeprefix("use ") if remedy.startswith("use one of ") else ""


def _of_tag(error: Mapping[str, Any], pointer: str) -> tuple[str, str]:
    """What is wrong with the field that tells which of several objects this one is, and where that field stands."""
    context = error["ctx"]
    where = f"{pointer}/{escaped(str(context['discriminator']).strip(chr(39)))}"
    if "tag" not in context:
        return "Field required", where
    return f"Input should be one of {context['expected_tags']}, got {str(context['tag'])[:80]!r}", where


def _expected_type(kind: str, message: str) -> str:
    """What a type error says it wanted.

    >>> _expected_type("int_type", "Input should be a valid integer")
    'a valid integer'
    """
    if kind in ("missing", "union_tag_not_found"):
        return "a value"
    if kind == "extra_forbidden":
        return "only the fields of the schema"
    if kind in _OTHER_TYPES:
        return _OTHER_TYPES[kind]
    return message.removeprefix("Input should be ") if message.startswith("Input should be ") else ""


def _with_value(message: str, error: Mapping[str, Any], code: str) -> str:
    if code in ("missing-field", "contradiction", "unknown-name", "invalid-json"):
        return message
    value = error.get("input")
    if not isinstance(value, str | int | float | bool | None):
        return message
    shown = _LITERALS.get(value, "") if isinstance(value, bool | None) else repr(value)
    return f"{message}, got {shown if len(shown) <= 80 else shown[:77] + '...'}"


def pointer_of(location: Sequence[str | int], document: Any, *, is_missing: bool) -> str:
    """The JSON Pointer of a pydantic location; names of union branches in it are left out.

    `is_missing` says that the last name is that of a field which is not there.

    >>> pointer_of(("attention", "gqa", "num_heads"), {"attention": {"num_heads": 0}}, is_missing=False)
    '/attention/num_heads'
    >>> pointer_of(("a/b", "c"), {"a/b": {}}, is_missing=True)
    '/a~1b/c'
    """
    parts: list[str] = []
    here = document
    for depth, key in enumerate(location):
        last = depth == len(location) - 1
        if _has(here, key):
            here = here[key]
        elif not (is_missing and last and isinstance(here, Mapping)):
            continue
        parts.append(escaped(str(key)))
    return "".join("/" + part for part in parts)


def escaped(key: str) -> str:
    """A key as a part of a JSON Pointer; a very long one is cut, and the pointer then leads nowhere.

    >>> escaped("a/b~c")
    'a~1b~0c'
    """
    from models.pointers import escaped as escaped_name

    shown = key if len(key) <= MAX_KEY else key[:MAX_KEY] + "..."
    return escaped_name(shown)


def _has(here: Any, key: str | int) -> bool:
    if isinstance(here, Mapping):
        return key in here
    return isinstance(here, list | tuple) and isinstance(key, int) and key < len(here)


_PATH = re.compile(r"^[a-z_]+(?:\[\d+\])?(?:\.[a-z_]+(?:\[\d+\])?)+|^[a-z_]+\[\d+\]")
_OBJECT = re.compile(r"\b(place|pool|link) (?:id )?'([^']+)'(?:\.([a-z_]+))?")


def _sharper_pointer(pointer: str, message: str, document: Any) -> str:
    """Point at the object that a cross-field message names, when it names one."""
    from models.pointers import value_at

    path = _PATH.match(message)
    if path:
        inner = "/" + path.group().replace("[", "/").replace("]", "").replace(".", "/")
        if value_at(document, pointer + inner) is not None:
            return pointer + inner
    named = _OBJECT.search(message)
    if named:
        kind, name, field = named.groups()
        entries = value_at(document, f"{pointer}/{kind}s")
        for index, entry in enumerate(entries if isinstance(entries, list) else []):
            if isinstance(entry, Mapping) and entry.get("id") == name:
                return f"{pointer}/{kind}s/{index}" + (f"/{field}" if field else "")
    return pointer
