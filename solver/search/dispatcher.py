"""The crew at work for one search: which errands are underway, and what becomes of those whose bearer is gone.

Owns that account. Never decides what to do next and never looks into a piece of a result.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from solver.search.tasks import Bench, Brief, Compare, Errand, Explore, Piece, Polish, Sharpen
from solver.search.worker_pool import Crew

TIGHTEN_SHARE = 0.5  # of the time that exploring took is for sharper bounds
QUEUED, QUEUED_FOR_LONG = 2, 6  # errands per member: the one in hand, and those that it need not wait for
LONG = (Compare, Polish)
MOST_LOSSES = 2  # an errand that brought down so many members is not given to anybody again


class Defect(RuntimeError):
    """An errand failed by a defect of this program; the message is the traceback of the process that did it."""


@dataclass
class Team:
    """Errands by number, and how long those that are done took, by kind.

    `told` hears what users should know; `returned` gets an errand that nobody does any more, and whether it
    brought down too many to be given away again.
    """

    crew: Crew
    told: Callable[[str], None]
    returned: Callable[[Errand, bool], None]
    spent_s: dict[str, float] = field(default_factory=dict)
    _has_begun: bool = False
    _underway: dict[int, Errand] = field(default_factory=dict)
    _losses: dict[object, int] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def begin(self, bench: Bench) -> None:
        """Let the crew start, once."""
        if not self._has_begun:
            self._has_begun = True
            self.crew.begin(pickle.dumps(Brief.of(bench)))

    def has_room(self, *, for_long: bool) -> bool:
        """Somebody would take another errand; more of them where the search will not look for long."""
        return self.crew.room(QUEUED_FOR_LONG if for_long else QUEUED) > 0

    @property
    def is_busy(self) -> bool:
        """Something is underway."""
        return bool(self._underway)

    @property
    def num_members(self) -> int:
        """Members that are at work."""
        return self.crew.num_ready

    @property
    def num_long(self) -> int:
        """Long errands underway."""
        return sum(isinstance(one, LONG) for one in self._underway.values())

    def share_s(self, num_errands: int, seconds: float) -> float:
        """What each of so many long errands gets of the seconds; the search does some where members are few."""
        hands = self.num_members + (num_errands > self.num_members)
        return max(seconds, 0.0) / -(-max(num_errands, 1) // max(hands, 1))

    def num_underway(self, kind: type[Errand]) -> int:
        """Errands of this kind that are not done yet."""
        return sum(isinstance(one, kind) for one in self._underway.values())

    def hand(self, errand: Errand) -> None:
        """Give an errand away; there has to be room."""
        number = next(self._numbers)
        self._underway[number] = errand
        self.crew.hand(number, pickle.dumps((number, errand)), is_urgent=isinstance(errand, LONG))

    def recall(self) -> Errand | None:
        """A long errand that waits because there are more of them than members."""
        number = self.crew.recall() if self.num_long > self.num_members else None
        return None if number is None else self._underway.pop(number)

    def spend(self, kind: type[Errand], seconds: float) -> None:
        """So much time went into errands of this kind, here or elsewhere."""
        self.spent_s[kind.__name__] = self.spent_s.get(kind.__name__, 0.0) + seconds

    @property
    def sharpens_too_little(self) -> bool:
        """Bounds had less than their part of the time that went into exploring."""
        few = self.num_underway(Sharpen) <= self.crew.num_ready // 2
        return few and self.spent_s.get(Sharpen.__name__, 0.0) < TIGHTEN_SHARE * self.spent_s.get(Explore.__name__, 0.0)

    def news(self, wait_s: float = 0.0) -> Iterator[tuple[Errand, Piece]]:
        """Pieces of results as they have come in; the rest is put into the account."""
        for one in self.crew.news(wait_s):
            errand = self._underway.get(one.number)
            if errand is None:
                continue
            if one.kind == "piece":
                yield errand, pickle.loads(one.content)
                continue
            del self._underway[one.number]
            if one.kind == "failed":
                raise Defect(one.content.decode())
            if one.kind == "done":
                self.spend(type(errand), float(one.content))
            else:
                self._give_back(errand, lost=one.kind == "lost")

    def _give_back(self, errand: Errand, *, lost: bool) -> None:
        losses = self._losses[errand.topic] = self._losses.get(errand.topic, 0) + lost
        self.returned(errand, losses >= MOST_LOSSES)
        if lost:
            goes_on = "the search goes on alone" if self.crew.is_gone else "the others go on"
            self.told(f"a process of the search ended unexpectedly; {goes_on}")
