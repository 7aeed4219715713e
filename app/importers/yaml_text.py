"""YAML with lines: plain values only, no tags, no merge keys, no repeated keys; size, depth and aliases bounded.

Read from the parser's events, so that nothing is constructed that was not looked at. Numbers and booleans
are those of YAML 1.2 (`1e13` is a number, `no` and `0:30` are text).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import yaml

from app.faults import Refused
from app.importers.source import MAX_DEPTH, Document, Spot, decoded, place_of, refused
from models.pointers import escaped

MAX_BYTES = 64 * 1024 * 1024
MAX_VALUES = 5_000_000  # values in all documents of a file, what aliases repeat included
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: Mapping[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


@dataclass
class _Frame:
    """A list or mapping that is being filled."""

    value: dict[str, Any] | list[Any]
    pointer: str
    anchor: str | None
    key: str | None = None
    weight: int = 1


@dataclass
class _Builder:
    """Values from events, with the weight of what aliases repeat."""

    name: str
    spots: dict[str, Spot] | None = None
    stack: list[_Frame] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    total: int = 0
    root: Any = None

    def take(self, event: Any) -> None:
        """One event of the parser."""
        spot = Spot(event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise self.refused(spot, f"the alias *{event.anchor} has no finished anchor before it")
            self.add(*self.anchors[event.anchor], None, spot)
        elif isinstance(event, yaml.ScalarEvent):
            self.check_tag(event, spot)
            if self.wants_key():
                self.set_key(event, spot)
            else:
                self.add(_scalar(event), 1, event.anchor, spot)
        elif isinstance(event, yaml.CollectionStartEvent):
            self.check_tag(event, spot)
            self.open(event, spot)
        elif isinstance(event, yaml.CollectionEndEvent):
            frame = self.stack.pop()
            self.add(frame.value, frame.weight, frame.anchor, None)

    def refused(self, spot: Spot, what: str, *, code: str = "invalid-request", remedy: str = "") -> Refused:
        """A fault of the text."""
        return refused(place_of(self.name, spot), what, code=code, allowed="plain YAML: text, numbers, lists, mappings",
                       remedy=remedy or "Correct the text at this line.")  # fmt: skip

    def check_tag(self, event: Any, spot: Spot) -> None:
        """No value says what it is."""
        if event.tag is not None:
            raise self.refused(spot, f"the tag {event.tag!r} is not accepted", remedy="Remove the tag.")

    def wants_key(self) -> bool:
        """Whether the next scalar is a key."""
        return bool(self.stack) and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None

    def set_key(self, event: Any, spot: Spot) -> None:
        """The key of the next value."""
        frame, key = self.stack[-1], str(event.value)
        if key == "<<" and event.implicit[0]:
            raise self.refused(spot, "merge keys (<<) are not accepted", remedy="Write the fields out.")
        if key in frame.value:
            raise self.refused(spot, f"the key {key!r} is repeated in its mapping", remedy="Remove one of the two.")
        frame.key = key
        if self.spots is not None:
            self.spots[self.pointer()] = spot

    def pointer(self) -> str:
        """JSON Pointer of the value that comes next."""
        if not self.stack:
            return ""
        frame = self.stack[-1]
        part = str(len(frame.value)) if frame.key is None else escaped(frame.key)
        return f"{frame.pointer}/{part}"

    def open(self, event: Any, spot: Spot) -> None:
        """A list or a mapping begins."""
        if self.wants_key():
            raise self.refused(spot, "a key is a list or a mapping", remedy="Use text as key.")
        if len(self.stack) >= MAX_DEPTH:
            raise self.refused(spot, f"nests more than {MAX_DEPTH} levels deep", code="limit-exceeded",
                               remedy="Flatten the document.")  # fmt: skip
        pointer = self.pointer()
        if self.spots is not None:
            self.spots.setdefault(pointer, spot)
        value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self.stack.append(_Frame(value, pointer, event.anchor))

    def add(self, value: Any, weight: int, anchor: str | None, spot: Spot | None) -> None:
        """A finished value goes into the container around it."""
        if spot is not None:
            if self.wants_key():
                raise self.refused(spot, "a key is an alias", remedy="Use text as key.")
            self.count(weight, spot)
            if self.spots is not None:
                self.spots.setdefault(self.pointer(), spot)
        if anchor is not None:
            self.anchors[anchor] = (value, weight)
        if not self.stack:
            self.root = value
            return
        frame = self.stack[-1]
        frame.weight += weight
        if isinstance(frame.value, dict):
            frame.value[frame.key or ""], frame.key = value, None
        else:
            frame.value.append(value)

    def count(self, weight: int, spot: Spot) -> None:
        """Aliases count as often as they repeat."""
        self.total += weight
        if self.total > MAX_VALUES:
            raise self.refused(spot, f"stands for more than {MAX_VALUES:,} values", code="limit-exceeded",
                               remedy="Leave out what the import does not use, and do not nest aliases.")  # fmt: skip


def _scalar(event: Any) -> Any:
    """The value of a scalar; what is quoted is text."""
    text = str(event.value)
    return plain_value(text) if event.implicit[0] else text


def plain_value(text: str) -> Any:
    """What a text without quotes stands for by the core schema of YAML 1.2.

    >>> [plain_value(text) for text in ("12", "1e13", "true", "no", "")]
    [12, 10000000000000.0, True, 'no', None]
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) and len(text) < 40 else text


def parse_yaml(name: str, data: bytes) -> list[Document]:
    """Every document of a YAML text; empty documents are left out."""
    text = decoded(name, data, max_bytes=MAX_BYTES)
    values = list(_values(name, text, None))
    return [
        Document(name, value, cache(partial(_spots, name, text, number)))
        for number, value in enumerate(values)
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


def _values(name: str, text: str, spots: list[dict[str, Spot]] | None) -> Iterator[Any]:
    builder, total = _Builder(name), 0
    try:
        for event in yaml.parse(text, Loader=LOADER):
            if isinstance(event, yaml.DocumentStartEvent):
                builder = _Builder(name, None if spots is None else {}, total=total)
                if spots is not None and builder.spots is not None:
                    spots.append(builder.spots)
            elif isinstance(event, yaml.DocumentEndEvent):
                total = builder.total
                yield builder.root
            elif isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
                builder.take(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        spot = Spot(mark.line + 1, mark.column + 1) if mark is not None else Spot(1)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
        raise builder.refused(spot, f"not YAML: {problem}") from None


def _spots(name: str, text: str, number: int) -> Mapping[str, Spot]:
    found: list[dict[str, Spot]] = []
    for _ in _values(name, text, found):
        pass
    return found[number]
