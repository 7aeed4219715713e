"""Errands that say who does them, or end badly; and searches that give them. For the tests of crews."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from models.outcome import NotFound, Outcome, Progress
from models.request import PlanRequest
from solver.search.worker_pool import Crew, News


@dataclass(frozen=True)
class Brief:
    """The bench of these errands is the name that is stated here."""

    name: str = "bench"

    def bench(self, _clock: Callable[[], float]) -> str:
        """The name."""
        return self.name


@dataclass(frozen=True)
class Chore:
    """Yields the bench, the process and what it was asked for, unless told to misbehave."""

    what: str = ""

    def do(self, bench: str) -> Iterator[tuple[str, int, str]]:
        """One piece, or a bad end."""
        if self.what == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.what == "hangs":
            time.sleep(1e6)
        if self.what == "eats":
            bytearray(2**40)
        if self.what == "fails":
            raise ZeroDivisionError(self.what)
        yield bench, os.getpid(), self.what


def hand_all(crew: Crew, chores: list[Chore], *, until: int) -> list[News]:
    """Give all chores as soon as somebody is there, and wait for so many news."""
    left, found = list(enumerate(chores)), list[News]()
    give_up_s = time.monotonic() + 60.0
    while len(found) < until and time.monotonic() < give_up_s:
        while left and crew.room(2):
            number, chore = left.pop(0)
            crew.hand(number, pickle.dumps((number, chore)), is_urgent=False)
        found += crew.news(0.05)
    return found


def begins(
    request: PlanRequest,
    *,
    progress: Callable[[Progress], None],
    cancelled: Callable[[], bool],
    crew: Crew,
    **_others: object,
) -> Outcome:
    """A search that names its process and its members', then does as options.seed says: ends, or hangs with them."""
    crew.begin(pickle.dumps(Brief()))
    found = hand_all(crew, [Chore("a"), Chore("b")], until=4)
    members = sorted({pickle.loads(one.content)[1] for one in found if one.kind == "piece"})
    progress(Progress(phase="members", elapsed_s=0.0, message=" ".join(map(str, [os.getpid(), *members]))))
    if request.options.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if request.options.seed == 2:
        for number in (2, 3):
            crew.hand(number, pickle.dumps((number, Chore("hangs"))), is_urgent=False)
        while not cancelled():
            time.sleep(0.01)
        crew.dismiss()
    return NotFound(lower_bound_s=0.0, detail="", elapsed_s=0.0)
