"""The fields of a Hugging Face configuration, read strictly, with a record of which were read and which were absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.faults import Refused
from app.importers.source import Document

Values = dict[str, Any]
MAX_COUNT = 10_000_000  # ten times the widest model and the longest vocabulary


class Config:
    """The fields of a configuration, or of an object in it; `null` is the same as absent."""

    def __init__(self, document: Document, model_type: str, fields: Mapping[str, Any], pointer: str = "") -> None:
        self._document = document
        self._fields = {name: value for name, value in fields.items() if value is not None}
        self._nulls = {name for name, value in fields.items() if value is None}
        self._pointer = pointer
        self.model_type = model_type
        self.used: list[str] = []
        self.notes: list[str] = []
        self.assumed: dict[str, float | str] = {}  # what was taken for absent fields

    def has(self, name: str) -> bool:
        """Whether a field says something."""
        return name in self._fields

    def count(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number; refused where it is absent and has no default."""
        return _checked_count(self, name, self._value(name, default), least)

    def count_or_null(self, name: str, null: int, *, least: int = 1) -> int:
        """A whole number that the file has to state, because its family has a default of its own; `null` is `null`."""
        if self._is_null(name):
            return null
        return self.count(name, least=least)

    def same_count(self, name: str) -> int:
        """A whole number, or a list of one per layer that are all the same."""
        value = self._value(name, None)
        if isinstance(value, list):
            if any(one != value[0] for one in value):
                raise self.refused(name, f"{name} differs between layers", "the same number for every layer")
            value = value[0] if value else value
        return _checked_count(self, name, value, 1)

    def number(
        self, name: str, default: float | None = None, *, null: float | None = None, positive: bool = True
    ) -> float:
        """A number; a default that is taken for an absent one is recorded, `null` is what `null` means."""
        if null is not None and self._is_null(name):
            return null
        if default is not None and not self.has(name):
            self.assumed[name] = default
        value = self._value(name, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= MAX_COUNT or (positive and value == 0):
            least = "above 0" if positive else "from 0"
            raise self.refused(name, f"{name} is {shown(value)}", f"a number {least} to {MAX_COUNT:,}")
        return float(value)

    def word(self, name: str, default: str) -> str:
        """A word; a default that is taken for an absent one is recorded."""
        if not self.has(name):
            self.assumed[name] = default
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.refused(name, f"{name} is {shown(value)}", "a word")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.refused(name, f"{name} is {shown(value)}", "true or false")
        return value

    def counts(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers, empty where it is absent."""
        value = self._value(name, [])
        if not isinstance(value, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
            raise self.refused(name, f"{name} is {shown(value)}", "a list of whole numbers")
        return tuple(value)

    def words(self, name: str) -> tuple[str, ...]:
        """A list of words, empty where it is absent."""
        value = self._value(name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.refused(name, f"{name} is {shown(value)}", "a list of words")
        return tuple(value)

    def part(self, name: str) -> Config:
        """The object under a name, without fields where it is absent."""
        value = self._value(name, {})
        if not isinstance(value, dict):
            raise self.refused(name, f"{name} is {shown(value)}", "an object")
        return Config(self._document, self.model_type, value, f"{self._pointer}/{name}")

    def unread(self) -> Values:
        """Fields that say something and were not read."""
        return {name: value for name, value in self._fields.items() if name not in self.used}

    def refused(self, name: str, what: str, allowed: str) -> Refused:
        """The fault of one field."""
        return self._document.refused(f"{self._pointer}/{name}", what, code="out-of-range", allowed=allowed,
                                      remedy="Correct the field.")  # fmt: skip

    def _is_null(self, name: str) -> bool:
        if name not in self._nulls:
            return False
        self.used += [name] if name not in self.used else []
        return True

    def _value(self, name: str, default: Any) -> Any:
        if name in self._fields:
            self.used += [name] if name not in self.used else []
            return self._fields[name]
        if default is None:
            raise self._document.refused(self._pointer,
                                         f"the field {name!r} of a {self.model_type} configuration is missing",
                                         code="missing-field", allowed="a value",
                                         remedy="Add the field: sizes are not guessed. AutoConfig.from_pretrained of "
                                                "transformers has them all.")  # fmt: skip
        return default


def _checked_count(config: Config, name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_COUNT:
        raise config.refused(name, f"{name} is {shown(value)}", f"a whole number from {least} to {MAX_COUNT:,}")
    return value


def shown(value: Any) -> str:
    """A value as a message tells it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
