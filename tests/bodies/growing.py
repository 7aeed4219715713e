"""Bodies made from examples by growing, breaking and repeating parts of them, each from a seed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from app.api.calibrations import CalibrationRequest
from app.api.examples import (
    BUNDLE_EXAMPLES,
    CALIBRATION_EXAMPLES,
    EVALUATION_EXAMPLES,
    HOSTS_EXAMPLES,
    IMPORT_EXAMPLES,
    REPLAN_EXAMPLES,
    REQUEST_EXAMPLES,
    RESUME_EXAMPLES,
    SCHEDULE_EXAMPLES,
    STUDY_EXAMPLES,
)
from app.api.exports import Hosts
from app.api.imports import ImportRequest
from app.api.replans import Replan, Resume
from app.api.studies import StudyRequest
from app.exporters.launch.options import Launch
from app.settings import Settings
from app.wire import EvaluationRequest
from models.request import PlanRequest
from models.schedule import PipelineProblem
from tests.unit.models.bad_requests import good_request

MOST_BYTES = Settings().max_body_bytes


@dataclass(frozen=True)
class Door:
    """A route that takes a body: its path, what it reads and what may be sent to it."""

    path: str
    model: type[BaseModel]
    examples: tuple[Any, ...]


def _values(examples: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(one["value"] for one in examples.values())


DOORS = (
    Door("/v1/plans", PlanRequest, (good_request(), *_values(REQUEST_EXAMPLES))),
    Door("/v1/plans:evaluate", EvaluationRequest, _values(EVALUATION_EXAMPLES)),
    Door("/v1/schedules", PipelineProblem, _values(SCHEDULE_EXAMPLES)),
    Door("/v1/studies", StudyRequest, _values(STUDY_EXAMPLES)),
    Door("/v1/calibrations", CalibrationRequest, _values(CALIBRATION_EXAMPLES)),
    Door("/v1/plans/plan_0:resume", Resume, _values(RESUME_EXAMPLES)),
    Door("/v1/imports", ImportRequest, _values(IMPORT_EXAMPLES)),
    Door("/v1/plans/plan_0:replan", Replan, _values(REPLAN_EXAMPLES)),
    Door("/v1/plans/plan_0/artifacts/slurm-hostfile", Hosts, _values(HOSTS_EXAMPLES)),
    Door("/v1/plans/plan_0/bundle", Launch, _values(BUNDLE_EXAMPLES)),
)


@dataclass(frozen=True)
class Body:
    """One body and the way it was made."""

    door: Door
    how: str
    data: bytes


# What a part of a document is replaced by, `size` being roughly the bytes wanted.
GROWTHS: Mapping[str, Callable[[Any, int], bytes]] = {
    "empty objects": lambda _, size: _list(b"{}", size),
    "empty arrays": lambda _, size: _list(b"[]", size),
    "nulls": lambda _, size: _list(b"null", size),
    "numbers": lambda _, size: _list(b"1.5", size),
    "copies": lambda old, size: _list(json.dumps(old).encode(), size),
    "copies of what holds nothing": lambda old, size: _list(json.dumps(_emptied(old)).encode(), size),
    "numbered copies": lambda old, size: _numbered(old, size),
    "one long text": lambda _, size: b'"' + b"a" * size + b'"',
    "a text of accents": lambda _, size: b'"' + b"e\\u0301\\u0323" * (size // 13) + b'"',
    "a text of commas": lambda _, size: b'"' + b"," * size + b'"',
    "texts of brackets": lambda _, size: _list(b'"[{"', size),
    "escaped quotes": lambda _, size: b'"' + b'\\"' * (size // 2) + b'"',
    "an open text": lambda _, size: b'"' + b'\\"' * (size // 2),
    "an open text that ends in a backslash": lambda _, size: b'"' + b'\\"' * (size // 2) + b"\\",
    "many keys": lambda _, size: b"{" + b",".join(b'"k%d":1' % n for n in range(size // 12)) + b"}",
    "one key, many times": lambda _, size: b"{" + b",".join([b'"k":1'] * (size // 6)) + b"}",
    "objects of distinct keys": lambda _, size: b"[" + b",".join(b'{"k%d":1}' % n for n in range(size // 14)) + b"]",
    "a long key around": lambda _, size: b'{"' + b"k" * (size // 2) + b'":' + _list(b'{"a":1,"a":2}', size // 2) + b"}",
    "long keys": lambda _, size: b"{" + b",".join(b'"%s%d":{}' % (b"k" * 9999, n) for n in range(size // 10010)) + b"}",
    "deep": lambda _, size: b"[" * (size // 2) + b"]" * (size // 2),
    "deep objects": lambda _, size: b'{"a":' * (size // 6) + b"1" + b"}" * (size // 6),
    "digits": lambda _, size: b"9" * size,
    "space": lambda _, size: b" " * size + b"1",
    "lines": lambda _, size: b"\n" * size + b"nul",
    "not a number, far down": lambda _, size: b"\n" * size + b"NaN",
}  # fmt: skip


def _list(member: bytes, size: int) -> bytes:
    return b"[" + b",".join([member] * max(1, size // (len(member) + 1))) + b"]"


def _numbered(old: Any, size: int) -> bytes:
    """Copies that differ in their id, so that no two are the same thing."""
    text = json.dumps({**old, "id": "@"} if isinstance(old, dict) else [old, "@"])
    number = max(1, size // (len(text) + 8))
    return b"[" + b",".join(text.replace("@", f"x{n}").encode() for n in range(number)) + b"]"


def _emptied(old: Any) -> Any:
    """The shape of a value without what its lists and objects hold one level down."""
    if isinstance(old, dict):
        return {key: type(value)() if isinstance(value, dict | list) else value for key, value in old.items()}
    return [_emptied(one) for one in old] if isinstance(old, list) else old


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from _places(one, (*path, key))


def grown(seed: int, most_bytes: int = MOST_BYTES) -> Body:
    """One body of a seed: an example in which one or two places have grown, sometimes cut or begun twice."""
    chance = random.Random(seed)
    door = chance.choice(DOORS)
    document = copy.deepcopy(chance.choice(door.examples))
    size = int(most_bytes / chance.choice((1.02, 1.02, 4, 50, 1000)))
    marks: dict[str, bytes] = {}
    told = []
    for number in range(chance.choice((1, 1, 2))):
        path = chance.choice(list(_places(document)))
        how = chance.choice(sorted(GROWTHS))
        mark = f"@grown-{number}@"
        old, document = _replaced(document, path, mark)
        marks[mark] = GROWTHS[how](old, size // (number + 1) // 2 if number else size)
        told.append(f"{how} at /{'/'.join(map(str, path))}")
    data = json.dumps(document).encode()
    for mark, text in marks.items():
        data = data.replace(json.dumps(mark).encode(), text)
    if chance.random() < 0.1:
        data, told = data[: len(data) * 9 // 10], [*told, "cut"]
    return Body(door, f"seed {seed}, {door.path}: {'; '.join(told)}, {size:,} bytes", data[:most_bytes])


def _replaced(document: Any, path: tuple[Any, ...], value: Any) -> tuple[Any, Any]:
    if not path:
        return document, value
    here = document
    for key in path[:-1]:
        here = here[key]
    old, here[path[-1]] = here[path[-1]], value
    return old, document


LISTED = (
    "empty objects", "empty arrays", "numbers", "copies", "copies of what holds nothing", "numbered copies",
    "texts of brackets", "objects of distinct keys", "many keys",
)  # fmt: skip


def everywhere() -> Iterator[tuple[Door, str, tuple[Any, ...]]]:
    """Every growth in the place of a whole body, and those that can be a list in the first list of every door."""
    yield from ((DOORS[0], how, ()) for how in GROWTHS)
    for door in DOORS:
        lists = [path for path in _places(door.examples[0]) if isinstance(_at(door.examples[0], path), list)]
        yield from ((door, how, path) for how in LISTED for path in lists[:1])


def largest(door: Door, how: str, path: tuple[Any, ...]) -> Body:
    """The first example of a door in which one place has grown as far as the limit on bodies allows."""
    old, document = _replaced(copy.deepcopy(door.examples[0]), path, "@grown@")
    first = old[0] if isinstance(old, list) and old else old
    data = json.dumps(document).encode().replace(b'"@grown@"', GROWTHS[how](first, MOST_BYTES - 100_000))
    return Body(door, f"{door.path}: {how} at /{'/'.join(map(str, path))}", data[:MOST_BYTES])


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document
