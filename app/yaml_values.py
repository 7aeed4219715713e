"""The plain values of a YAML text: no tags, no merge keys, no repeated keys; depth and what aliases repeat are bounded.

Read from the parser's events, so that nothing is constructed that was not looked at: PyYAML builds nested values by
calls that nest in C, and a deep text ends the whole process. Numbers and booleans are those of YAML 1.2 (`1e13` is a
number, `no` and `0:30` are text).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from models.pointers import escaped

MAX_DEPTH = 40  # levels of lists and mappings; a Kubernetes node needs 8
MAX_VALUES = 5_000_000  # values in all documents of a text, what aliases repeat included
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OF_VALUES = (yaml.NodeEvent, yaml.CollectionEndEvent)  # events between the marks of documents
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: Mapping[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


@dataclass(frozen=True)
class Spot:
    """A place in a text, counted from 1."""

    line: int
    column: int = 1

    @classmethod
    def of(cls, mark: Any) -> Spot:
        """The place of a mark of the parser, which counts from 0."""
        return cls(mark.line + 1, mark.column + 1)


class NotPlain(ValueError):
    """What is no plain YAML and where, the code of such a fault, what to do, and the key where one is repeated."""

    def __init__(
        self, what: str, event: Any, remedy: str, *, code: str = "invalid-request", key: str | None = None
    ) -> None:
        super().__init__(what)
        self.what, self.spot, self.remedy, self.code, self.key = what, Spot.of(event.start_mark), remedy, code, key


def word_value(text: str) -> Any:
    """What a text without quotes stands for if numbers are text, too."""
    return _WORDS.get(text, text)


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

    scalar: Callable[[str], Any]
    aliases: bool
    spots: dict[str, Spot] | None = None
    stack: list[_Frame] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    total: int = 0
    root: Any = None

    def take(self, event: Any) -> None:
        """One event of the parser."""
        if isinstance(event, yaml.CollectionEndEvent):
            frame = self.stack.pop()
            self.add(frame.value, frame.weight, frame.anchor)
        elif isinstance(event, yaml.AliasEvent):
            if not self.aliases:
                raise NotPlain(f"has an alias, *{event.anchor}", event, "Write the value out.")
            if event.anchor not in self.anchors:
                what = f"the alias *{event.anchor} has no finished anchor before it"
                raise NotPlain(what, event, "Correct the text at this line.")
            value, weight = self.anchors[event.anchor]
            self.begin(event, weight)
            self.add(value, weight, None)
        elif event.tag is not None:
            raise NotPlain(f"the tag {event.tag!r} is not accepted", event, "Remove the tag.")
        elif isinstance(event, yaml.CollectionStartEvent):
            self.open(event)
        elif self.wants_key():
            self.set_key(event)
        else:
            self.begin(event, 1)
            text = str(event.value)  # what is quoted is text
            self.add(self.scalar(text) if event.implicit[0] else text, 1, event.anchor)

    def wants_key(self) -> bool:
        """Whether the next scalar is a key."""
        return bool(self.stack) and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None

    def set_key(self, event: Any) -> None:
        """The key of the next value."""
        frame, key = self.stack[-1], str(event.value)
        if key == "<<" and event.implicit[0]:
            raise NotPlain("the merge keys (<<) are not accepted", event, "Write the fields out.")
        if key in frame.value:
            raise NotPlain(f"the key {key!r} is repeated in its mapping", event, "Remove one of the two.", key=key)
        frame.key = key
        self.note(event)

    def pointer(self) -> str:
        """JSON Pointer of the value that comes next."""
        if not self.stack:
            return ""
        frame = self.stack[-1]
        part = str(len(frame.value)) if frame.key is None else escaped(frame.key)
        return f"{frame.pointer}/{part}"

    def note(self, event: Any) -> None:
        """Where the value that comes next stands; a member of a mapping stands at its key."""
        if self.spots is not None:
            self.spots.setdefault(self.pointer(), Spot.of(event.start_mark))

    def open(self, event: Any) -> None:
        """A list or a mapping begins."""
        if self.wants_key():
            raise NotPlain("the key is a list or a mapping", event, "Use text as key.")
        if len(self.stack) >= MAX_DEPTH:
            what = f"nests more than {MAX_DEPTH} levels deep"
            raise NotPlain(what, event, "Flatten the document.", code="limit-exceeded")
        self.note(event)
        value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self.stack.append(_Frame(value, "" if self.spots is None else self.pointer(), event.anchor))

    def begin(self, event: Any, weight: int) -> None:
        """A value that is whole at once; aliases count as often as they repeat."""
        if self.wants_key():
            raise NotPlain("the key is an alias", event, "Use text as key.")
        self.total += weight
        if self.total > MAX_VALUES:
            remedy = "Leave out what the import does not use, and do not nest aliases."
            raise NotPlain(f"stands for more than {MAX_VALUES:,} values", event, remedy, code="limit-exceeded")
        self.note(event)

    def add(self, value: Any, weight: int, anchor: str | None) -> None:
        """A finished value goes into the container around it."""
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


def yaml_values(
    text: str,
    *,
    scalar: Callable[[str], Any] = plain_value,
    aliases: bool = True,
    spots: list[dict[str, Spot]] | None = None,
) -> Iterator[Any]:
    """The value of every document; raises NotPlain, or PyYAML's YAMLError for what is no YAML.

    `scalar` makes values of texts without quotes; without `aliases` they are refused, too. Where `spots` is given, it
    gets for every document the places of its values by JSON Pointer.
    """
    builder = _Builder(scalar, aliases)
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, _OF_VALUES):
            builder.take(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            builder = _Builder(scalar, aliases, None if spots is None else {}, total=builder.total)
            if spots is not None and builder.spots is not None:
                spots.append(builder.spots)
        elif isinstance(event, yaml.DocumentEndEvent):
            yield builder.root
