"""Random draws for requests: chances, choices and numbers over orders of magnitude, from one seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """A seeded source of draws. The same seed gives the same draws on every machine."""

    def __init__(self, seed: str) -> None:
        self.random = Random(seed)

    def chance(self, probability: float) -> bool:
        """True so often."""
        return self.random.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        """One of them, all equally likely."""
        return self.random.choice(options)

    def some(self, options: Sequence[T], *, least: int = 1) -> list[T]:
        """A random subset in the order given, of at least so many."""
        wanted = self.random.randint(least, len(options))
        chosen = set(self.random.sample(range(len(options)), wanted))
        return [one for index, one in enumerate(options) if index in chosen]

    def whole(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return self.random.randint(low, high)

    def log(self, low: float, high: float, digits: int = 3) -> float:
        """A number whose logarithm is uniform, with few digits so that it can be read."""
        value = math.exp(self.random.uniform(math.log(low), math.log(high)))
        return min(max(float(f"{value:.{digits - 1}e}"), low), high)
