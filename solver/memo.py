"""Values that are asked for again and again, remembered by what they depend on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

Value = TypeVar("Value")


class Memo:
    """Values by what they depend on, each made once. Beyond `most` of them all are forgotten."""

    def __init__(self, most: int = sys.maxsize) -> None:
        self._most = most
        self._values: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self._values)

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, made where it is not known."""
        if key not in self._values:
            self._forget_if_full(1)
            self._values[key] = make()
        value: Value = self._values[key]
        return value

    def each(self, keys: Sequence[Hashable], make: Callable[[list[int]], Sequence[Value]]) -> list[Value]:
        """The value of every key; `make` makes those that are not known together, given their places among the keys."""
        new = {key: place for place, key in enumerate(keys) if key not in self._values}
        if new:
            if self._forget_if_full(len(new)):
                new = {key: place for place, key in enumerate(keys)}
            self._values.update(zip(new, make(list(new.values())), strict=True))
        return [self._values[key] for key in keys]

    def _forget_if_full(self, number: int) -> bool:
        """Forget all values where so many more would be too many; whether it had to."""
        is_full = len(self._values) + number > self._most
        if is_full:
            self._values.clear()
        return is_full
