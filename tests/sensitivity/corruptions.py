"""A generator of corruptions: every leaf and every list of a plan document, forged in the ways that a liar would try.

It walks over the document by the fields of its models and knows no rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from random import Random
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from models.plan import Plan

Path = tuple[str | int, ...]
NOTHING = 1e-15  # of any unit: what rounding leaves of a difference, which is no lie when it is said to be 0


class Corruption(NamedTuple):
    """One forged value: where (JSON Pointer), how, and the plan, or None where the vocabulary itself refuses it."""

    pointer: str
    kind: str
    how: str
    plan: Plan | None


def corruptions(plan: Plan, random: Random, *, places_per_kind: int, ways_per_place: int) -> Iterator[Corruption]:
    """Of every kind of field some places, of every place some ways, drawn at random."""
    document = plan.model_dump(mode="json")
    del document["verdict"]
    kinds: dict[str, list[Path]] = {}
    for path in _paths(document):
        kinds.setdefault(kind_of(path), []).append(path)
    for kind, paths in kinds.items():
        for path in random.sample(paths, min(places_per_kind, len(paths))):
            ways = list(_forgeries(_at(document, path), _members(path)))
            for how, new in random.sample(ways, min(ways_per_place, len(ways))):
                yield Corruption("/" + "/".join(map(str, path)), kind, how, _forged(plan, document, path, new))


def kind_of(path: Path) -> str:
    """The pointer with every index as a star."""
    return "/" + "/".join("*" if isinstance(step, int) else step for step in path)


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every leaf and every list."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _paths(one, (*path, key))
        return
    if path:
        yield path
    if isinstance(value, list):
        for index, one in enumerate(value):
            yield from _paths(one, (*path, index))


def _at(document: Any, path: Path) -> Any:
    for step in path:
        document = document[step]
    return document


def _forgeries(value: Any, members: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """What a value may be replaced with; never by itself."""
    if isinstance(value, bool):
        yield "not", not value
    elif isinstance(value, int | float):
        steps = {"x10": value * 10, "/10": value / 10, "0": 0, "+1%": value * 1.01, "+1": value + 1}
        if isinstance(value, int):
            steps |= {"/10": value // 10, "+1%": value - 1}
        changed = ((how, new) for how, new in steps.items() if abs(new - value) > max(1e-5 * abs(value), NOTHING))
        yield from ((how, new) for how, new in changed if new >= 0)
        yield "null", None
    elif isinstance(value, str):
        yield from (("other member", one) for one in members if one != value)
        if not members:
            yield "other text", value + "x"
            yield from ((how, new) for how, new in (("no text", ""),) if new != value)
    elif isinstance(value, list):
        yield from _of_list(value)
    elif value is None:
        yield "something", 1.0


def _of_list(value: list[Any]) -> Iterator[tuple[str, Any]]:
    if value:
        yield "first dropped", value[1:]
        yield "last dropped", value[:-1]
        yield "last twice", [*value, value[-1]]
        yield "emptied", []
    if len(value) > 1 and value[0] != value[1]:
        yield "swapped", [value[1], value[0], *value[2:]]


def _forged(plan: Plan, document: Any, path: Path, new: Any) -> Plan | None:
    copy = json.loads(json.dumps(document))
    at = _at(copy, path[:-1])
    at[path[-1]] = new
    try:
        return Plan.model_validate(copy | {"verdict": plan.verdict.model_dump(mode="json")})
    except ValidationError:
        return None


def _members(path: Path) -> tuple[Any, ...]:
    """Values that the field at a path may have, where they are an enumeration."""
    return _enumerations(Plan).get(tuple("*" if isinstance(step, int) else step for step in path), ())


@cache
def _enumerations(model: type[BaseModel]) -> dict[Path, tuple[Any, ...]]:
    found: dict[Path, tuple[Any, ...]] = {}
    for name, field in model.model_fields.items():
        for path, members in _of_type(field.annotation):
            found[(name, *path)] = members
    return found


def _of_type(annotation: Any) -> Iterator[tuple[Path, tuple[Any, ...]]]:
    origin = get_origin(annotation)
    if origin is Literal:
        yield (), get_args(annotation)
    elif origin is tuple:
        for path, members in _of_type(get_args(annotation)[0]):
            yield ("*", *path), members
    elif origin is Annotated:
        yield from _of_type(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for one in get_args(annotation):
            yield from _of_type(one)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from _enumerations(annotation).items()
