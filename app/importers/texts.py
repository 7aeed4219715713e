"""JSON and YAML with lines: what is repeated, too deep, too large or no plain value is refused at its place.

The fast parsers do the work; a text is read again only for a fault, both kinds by the events of YAML's parser, of which
JSON is a part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any, NoReturn

import yaml

from app.documents import json_depth
from app.faults import Refused
from app.importers.source import Document, beyond, decoded, place_of, refused, repeated
from app.yaml_values import MAX_DEPTH, NotPlain, Spot, yaml_values

MAX_JSON_BYTES = 256 * 1024 * 1024  # as of any file that a command reads
MAX_YAML_BYTES = 64 * 1024 * 1024
# What JSON may have and YAML's parser refuses, or counts as the end of a line (YAML 1.1, 4.1 and 4.2).
_ONLY_JSON = re.compile(r"\\(?:u[dD][89a-fA-F]..|.)|[\t\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


class _Odd(ValueError):
    """What the standard library would let pass."""


def parse_json(name: str, data: bytes) -> Document:
    """The one document of a JSON text."""
    text = decoded(name, data, max_bytes=MAX_JSON_BYTES)
    if json_depth(data) > MAX_DEPTH:
        what = f"nests {json_depth(data)} levels deep, the limit is {MAX_DEPTH}"
        raise beyond(name, what, MAX_DEPTH, "Flatten the document.", of=" levels")
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_not_finite)
    except (ValueError, RecursionError) as error:
        raise _no_json(name, text, error) from None
    return Document(name, value, cache(partial(_spots_of_json, text)))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Odd("a key is repeated")
    return value


def _not_finite(text: str) -> NoReturn:
    raise _Odd(f"{text} is no JSON number")


def _no_json(name: str, text: str, error: Exception) -> Refused:
    if isinstance(error, json.JSONDecodeError):
        place = place_of(name, Spot(error.lineno, error.colno))
        return refused(place, f"not JSON: {error.msg}", code="invalid-json", allowed="one JSON document",
                       remedy="Correct the text at this line and column.")  # fmt: skip
    with suppress(yaml.YAMLError):
        try:
            list(yaml_values(_as_yaml(text)))
        except NotPlain as odd:
            if odd.key is not None:
                what = f"the key {odd.key!r} is repeated in its object"
                return repeated(place_of(name, odd.spot), what, "key", code="invalid-json")
    what = str(error) if isinstance(error, _Odd) else "a number has thousands of digits"
    return refused(name, f"not JSON: {what}", code="invalid-json", allowed="finite numbers of sensible length",
                   remedy="Give a finite number.")  # fmt: skip


def _as_yaml(text: str) -> str:
    """A JSON text with the same values at the same places as YAML's parser reads it."""
    return _ONLY_JSON.sub(lambda found: found[0] if len(found[0]) == 2 else " " * len(found[0]), text)


def _spots_of_json(text: str) -> Mapping[str, Spot]:
    """Where every value stands, up to what YAML's parser does not read, such as an endless key."""
    spots: list[dict[str, Spot]] = [{}]
    with suppress(yaml.YAMLError, NotPlain):
        list(yaml_values(_as_yaml(text), spots=spots))
    return spots[-1]


def parse_yaml(name: str, data: bytes) -> list[Document]:
    """Every document of a YAML text; empty documents are left out."""
    text = decoded(name, data, max_bytes=MAX_YAML_BYTES)
    return [
        Document(name, value, cache(partial(_spots_of_yaml, name, text, number)))
        for number, value in enumerate(_values(name, text))
        if value is not None
    ]


def only_document(name: str, data: bytes) -> Document:
    """The one document of a YAML text."""
    documents = parse_yaml(name, data)
    if not documents:
        raise refused(name, "is empty: it has no YAML document", code="missing-field", allowed="exactly one document",
                      remedy="Give the file with its contents; standard input can be read once.")  # fmt: skip
    if len(documents) != 1:
        raise refused(name, f"has {len(documents)} YAML documents", allowed="exactly one",
                      remedy="Give the documents as files of their own.")  # fmt: skip
    return documents[0]


def _spots_of_yaml(name: str, text: str, number: int) -> Mapping[str, Spot]:
    found: list[dict[str, Spot]] = []
    _values(name, text, found)
    return found[number]


def _values(name: str, text: str, spots: list[dict[str, Spot]] | None = None) -> list[Any]:
    try:
        return list(yaml_values(text, spots=spots))
    except NotPlain as fault:
        spot, what, remedy, code = fault.spot, fault.what, fault.remedy, fault.code
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        spot = Spot(1) if mark is None else Spot.of(mark)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
        what, remedy, code = f"not YAML: {problem}", "Correct the text at this line.", "invalid-request"
    raise refused(place_of(name, spot), what, code=code, allowed="plain YAML: text, numbers, lists, mappings",
                  remedy=remedy)  # fmt: skip
