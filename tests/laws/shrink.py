"""The least request that still breaks a law: delta debugging over the JSON document.

Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE TSE 28 (2002): drop what can be
dropped, then make what is left plainer, and begin again until nothing helps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]
Path = tuple[str | int, ...]
KEPT = {"id", "name", "kind", "place", "from_place", "to_place", "layer_kind", "reproducible", "level", "source"}


def shrunk(document: Json, fails: Callable[[Json], bool], *, goes_on: Callable[[], bool]) -> Json:
    """The plainest document found on which `fails` still holds, looking for as long as `goes_on`."""
    best, again = document, True
    while again and goes_on():
        again = False
        for plainer in _plainer(best):
            if not goes_on():
                break
            if plainer != best and fails(plainer):
                best, again = plainer, True
                break
    return best


def _plainer(document: Json) -> Iterator[Json]:
    """Documents with something dropped or made plainer, the largest steps first."""
    for part in ("objective", "constraints"):
        if part in document:
            yield _without(document, (part,))
    yield from _with_fewer_places(document)
    yield from _with_shorter_lists(document)
    for path in _paths(document, object):
        if isinstance(path[-1], str) and path[-1] not in KEPT:
            yield _without(document, path)
    for path in _paths(document, int | float):
        for plain in _plainer_numbers(_at(document, path)):
            yield _with(document, path, plain)


def _with_shorter_lists(document: Json) -> Iterator[Json]:
    """Half of every long list, and every list without one of its entries."""
    for path in _paths(document, list):
        entries = _at(document, path)
        middle = len(entries) // 2
        if middle > 1:
            yield _with(document, path, entries[:middle])
            yield _with(document, path, entries[middle:])
        for index in range(len(entries)):
            yield _with(document, path, [*entries[:index], *entries[index + 1 :]])


def _with_fewer_places(document: Json) -> Iterator[Json]:
    """Without a place and all that lies in it or leads to it."""
    for place in document["cluster"]["places"]:
        smaller = copy.deepcopy(document)
        hardware, gone = smaller["cluster"], {place["id"]}
        for one in hardware["places"]:
            if one.get("parent") in gone:
                gone.add(one["id"])
        hardware["places"] = [one for one in hardware["places"] if one["id"] not in gone]
        hardware["pools"] = [one for one in hardware["pools"] if one["place"] not in gone]
        hardware["links"] = [
            one for one in hardware.get("links", []) if not gone & {one["from_place"], one["to_place"]}
        ]
        if hardware["pools"]:
            yield smaller


def _plainer_numbers(value: float) -> Iterator[float]:
    """Zero, one, half, and fewer digits."""
    if isinstance(value, bool):
        return
    whole = isinstance(value, int)
    if value not in (0, 1):
        yield 1 if whole else 1.0
        if value >= 2:
            yield value // 2 if whole else value / 2.0
            yield value - 1 if whole else float(f"{value:.0e}")
    if not whole and value:
        short = float(f"{value:.0e}")
        if short != value:
            yield short


def _paths(value: Any, kind: Any, path: Path = ()) -> Iterator[Path]:
    """Every path to a value of a kind, the shortest first along each branch."""
    if path and isinstance(value, kind):
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _paths(inner, kind, (*path, key))


def _at(document: Json, path: Path) -> Any:
    value: Any = document
    for key in path:
        value = value[key]
    return value


def _with(document: Json, path: Path, value: Any) -> Json:
    changed = copy.deepcopy(document)
    _at(changed, path[:-1])[path[-1]] = value
    return changed


def _without(document: Json, path: Path) -> Json:
    changed = copy.deepcopy(document)
    del _at(changed, path[:-1])[path[-1]]
    return changed
