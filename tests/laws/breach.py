"""What a law finds against itself, and how close numbers have to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.laws.trial import Trial

SLACK = 1.0 + 1e-9  # between numbers of one computation
CLOSE = 1e-6  # between numbers of two searches: the tolerance of the judge


class Breach(NamedTuple):
    """What breaks a law: in a word that groups breaches alike, in figures, and another request where it takes two."""

    what: str
    detail: str
    other: dict[str, Any] | None = None


Law = Callable[[Trial], Iterator[Breach]]
