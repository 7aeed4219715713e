"""A crew in this process: every errand is done when its news is asked for, and some bearers are made to vanish.

What goes in and out is pickled as between processes.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from solver.clock import Clock
from solver.search.tasks import Bench, Compare, Errand, Polish
from solver.search.worker_pool import News

Loses = Callable[[Errand], bool]


@dataclass
class ToyCrew:
    """`size` members who do their errands in turn. `loses` says of an errand that its bearer vanishes with it."""

    size: int
    clock: Clock
    loses: Loses = lambda _: False
    num_spares: int = 100
    given: list[Errand] = field(default_factory=list)
    begun: int = 0
    dismissed: int = 0
    _bench: Bench | None = None
    _todo: deque[tuple[int, Errand]] = field(default_factory=deque)

    @property
    def num_ready(self) -> int:
        """Members that are left."""
        return self.size if self._bench is not None else 0

    def room(self, queued: int, /) -> int:
        """So many errands each."""
        return max(queued * self.num_ready - len(self._todo), 0)

    @property
    def is_gone(self) -> bool:
        """All have vanished."""
        return self.size == 0

    def begin(self, brief: bytes, /) -> None:
        """All are ready at once."""
        self.begun += 1
        self._bench = pickle.loads(brief).bench(self.clock)

    def hand(self, number: int, errand: bytes, /, *, is_urgent: bool) -> None:
        """Kept until news is asked for."""
        assert is_urgent == isinstance(pickle.loads(errand)[1], Compare | Polish)
        told, one = pickle.loads(errand)
        assert told == number
        self.given.append(one)
        self._todo.append((number, one))

    def recall(self) -> int | None:
        """The first long one that waits."""
        found = next((one for one in list(self._todo)[1:] if isinstance(one[1], Compare | Polish)), None)
        if found is None:
            return None
        self._todo.remove(found)
        return found[0]

    def news(self, _wait_s: float, /) -> list[News]:
        """The oldest errand, done."""
        return list(self._done(*self._todo.popleft())) if self._todo else []

    def _done(self, number: int, errand: Errand) -> Iterator[News]:
        assert self._bench is not None
        if self.loses(errand):
            if self.num_spares:
                self.num_spares -= 1
            else:
                self.size -= 1
            yield News("lost", number)
            if not self.size:
                yield from (News("back", other) for other, _ in self._todo)
                self._todo.clear()
            return
        for piece in errand.do(self._bench):
            yield News("piece", number, pickle.dumps(piece))
        yield News("done", number, b"0.1")

    def dismiss(self) -> None:
        """Nobody is left."""
        self.dismissed += 1
        self._todo.clear()
