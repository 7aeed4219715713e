"""Other processes that share the work of one search, as the search sees them.

Owns what a search may ask of them. Starting, watching and ending processes is left to whoever owns processes: a search
that is given none works alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

NewsKind = Literal["piece", "done", "failed", "back", "lost"]


@dataclass(frozen=True)
class News:
    """What became of an errand, by its number: a piece of its result; done; failed by a defect, whose traceback is
    given; back untouched, or lost half done, because whoever had it is gone.
    """

    kind: NewsKind
    number: int
    content: bytes = b""


class Crew(Protocol):
    """Processes that do errands. They share the clock of the search. None is needed: all may be gone at any time."""

    @property
    def num_ready(self) -> int:
        """Members that are at work or wait for an errand."""
        ...

    def room(self, queued: int, /) -> int:
        """Errands that would be taken now, if every member may have so many, the one in hand included."""
        ...

    @property
    def is_gone(self) -> bool:
        """Nobody is left and nobody will come."""
        ...

    def begin(self, brief: bytes, /) -> None:
        """Start, in the background; every member is told the brief first."""
        ...

    def hand(self, number: int, errand: bytes, /, *, is_urgent: bool) -> None:
        """Give an errand to whoever is free first; urgent ones before others."""
        ...

    def recall(self) -> int | None:
        """Take the first urgent errand back that nobody has begun, if there is one."""
        ...

    def news(self, wait_s: float, /) -> list[News]:
        """What has come in; waits so long for something at most."""
        ...

    def dismiss(self) -> None:
        """End all members; what they still do is dropped."""
        ...


class NoCrew:
    """Nobody: the search works alone."""

    num_ready = 0
    is_gone = True

    def room(self, _queued: int, /) -> int:
        """None."""
        return 0

    def begin(self, _brief: bytes, /) -> None:
        """Nobody to tell."""

    def hand(self, _number: int, _errand: bytes, /, *, is_urgent: bool) -> None:
        """Never asked: there is no room."""
        raise AssertionError(f"there is nobody to do it, {is_urgent=}")

    def recall(self) -> int | None:
        """Nothing was given."""
        return None

    def news(self, _wait_s: float, /) -> list[News]:
        """None."""
        return []

    def dismiss(self) -> None:
        """Nobody to dismiss."""
