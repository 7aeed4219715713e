"""The crew of a search: processes of their own that share its work, over one pipe each.

Owns who has which errand, and what counts as gone. Never looks into an errand or a result.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from queue import Empty, SimpleQueue

from app.jobs.pool_worker import LEAVE, run_member
from app.jobs.processes import end, start
from solver.search.worker_pool import News

NUM_SPARES = 2  # members that may take the place of those that are gone
SILENCE_S = 120.0  # a member that has nothing to say for so long hangs
GIB = 2**30
MOST_MEMBERS = 63
LEAST_LIMIT_S = 5.0  # a shorter search is over before others are of help


def crew_size(request: bytes) -> int:
    """How many processes may help the search of this request, beside its own: none for a short or reproducible one.

    >>> crew_size(b'{"options": {"workers": 1, "time_limit_s": 60.0, "reproducible": false}}')
    0
    """
    options = json.loads(request)["options"]
    if options["reproducible"] or options["time_limit_s"] < LEAST_LIMIT_S:
        return 0
    return min(int(options["workers"]), num_cores(), MOST_MEMBERS + 1) - 1


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Openings:
    """Pipes for the members of one crew, and those that were started; whoever makes them ends them all."""

    def __init__(self, size: int, memory_bytes: int) -> None:
        self._pipes = [Pipe() for _ in range(size + NUM_SPARES if size else 0)]
        self._memory_bytes = max(memory_bytes // max(size, 1), GIB)
        self._started: list[ForkServerProcess] = []

    @property
    def ends(self) -> list[Connection]:
        """The ends for the search."""
        return [ours for ours, _ in self._pipes]

    def start(self, index: int) -> None:
        """A member at the other end of this pipe. Where none can be started, the search sees it gone."""
        with suppress(OSError, IndexError), self._pipes[index][1] as theirs:
            self._started.append(start(run_member, (theirs, self._memory_bytes)))

    def hand_over(self) -> None:
        """The search has its ends: a member has to see them close with it."""
        for one in self.ends:
            one.close()

    def close(self) -> None:
        """End all members. The ends for the search close with whoever reads them, who sees the others close first."""
        for _, theirs in self._pipes:
            theirs.close()
        for process in self._started:
            end(process, 0.0)
        self._pipes.clear()


@dataclass
class _Member:
    """What the search knows of one member."""

    pipe: Connection
    outbox: SimpleQueue[bytes]
    pid: int = 0
    is_gone: bool = False
    in_hand: int | None = None
    heard_s: float = 0.0

    @property
    def is_ready(self) -> bool:
        return self.pid > 0 and not self.is_gone

    def give(self, number: int, errand: bytes) -> None:
        self.in_hand, self.heard_s = number, time.monotonic()
        self.outbox.put(errand)


class Crew:
    """`size` members at a time; `begin` has the member at the other end of a pipe started.

    Errands wait here, not with members: whoever is free takes the next, also while the search is busy.
    """

    def __init__(
        self, pipes: Sequence[Connection], begin: Callable[[int], None], size: int, silence_s: float = SILENCE_S
    ) -> None:
        self._pipes = pipes
        self._begin = begin
        self._size = size
        self._silence_s = silence_s
        self._brief = b""
        self._members: list[_Member] = []
        self._urgent: deque[tuple[int, bytes]] = deque()
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._news: SimpleQueue[News] = SimpleQueue()
        self._lock = threading.Lock()

    @property
    def num_ready(self) -> int:
        """Members that are at work or wait for an errand."""
        return sum(one.is_ready for one in self._members)

    def room(self, queued: int, /) -> int:
        """Errands that would be taken now, if there may be so many for every member, those in hand included."""
        with self._lock:
            in_hand = sum(one.in_hand is not None for one in self._members if one.is_ready)
            return queued * self.num_ready - in_hand - len(self._urgent) - len(self._waiting)

    @property
    def is_gone(self) -> bool:
        """Nobody is left and nobody will come."""
        return len(self._members) == len(self._pipes) and all(one.is_gone for one in self._members)

    def begin(self, brief: bytes, /) -> None:
        """Start all members; those who come later are told the same."""
        self._brief = brief
        for _ in range(self._size):
            self._add()

    def _add(self) -> None:
        index = len(self._members)
        if index == len(self._pipes):
            return
        member = _Member(self._pipes[index], SimpleQueue())
        self._members.append(member)
        member.outbox.put(self._brief)
        # Starting waits for the fork server, which may have its imports before it; a large errand for its reader.
        for work, argument in ((self._begin, index), (self._listen, member), (self._talk, member)):
            threading.Thread(target=work, args=(argument,), daemon=True).start()

    def _listen(self, member: _Member) -> None:
        try:
            while True:
                self._hear(member, member.pipe.recv_bytes())
        except (EOFError, OSError):
            self._bury(member)

    def _talk(self, member: _Member) -> None:
        with suppress(OSError, ValueError):
            while True:
                member.pipe.send_bytes(member.outbox.get())

    def _hear(self, member: _Member, text: bytes) -> None:
        head, _, content = text.partition(b"\n")
        kind, number = head.decode().split()
        with self._lock:
            member.heard_s = time.monotonic()
            if kind == "ready":
                member.pid = int(number)
            else:
                self._news.put(News(kind, int(number), content))  # type: ignore[arg-type]
            if kind != "piece":
                member.in_hand = None
                self._give_next(member)

    def _give_next(self, member: _Member) -> None:
        if waiting := self._urgent or self._waiting:
            member.give(*waiting.popleft())

    def _bury(self, member: _Member) -> None:
        """Its errand is lost, and a spare member takes over; where there is none, what waits is back."""
        with self._lock:
            member.is_gone = True
            self._add()
            if member.in_hand is not None:
                self._news.put(News("lost", member.in_hand))
            self._return_if_gone()

    def _return_if_gone(self) -> None:
        while self.is_gone and (waiting := self._urgent or self._waiting):
            self._news.put(News("back", waiting.popleft()[0]))

    def hand(self, number: int, errand: bytes, /, *, is_urgent: bool) -> None:
        """Give an errand to whoever is free first; urgent ones before others."""
        with self._lock:
            (self._urgent if is_urgent else self._waiting).append((number, errand))
            free = next((one for one in self._members if one.is_ready and one.in_hand is None), None)
            if free is not None:
                self._give_next(free)
            self._return_if_gone()

    def recall(self) -> int | None:
        """Take the first urgent errand back that nobody has begun, if there is one."""
        with self._lock:
            return self._urgent.popleft()[0] if self._urgent else None

    def news(self, wait_s: float, /) -> list[News]:
        """What has come in; waits so long for something at most."""
        self._end_the_silent()
        found: list[News] = []
        with suppress(Empty):
            found.append(self._news.get(timeout=wait_s) if wait_s else self._news.get_nowait())
            while True:
                found.append(self._news.get_nowait())
        return found

    def _end_the_silent(self) -> None:
        now = time.monotonic()
        for one in self._members:
            if one.is_ready and one.in_hand is not None and now - one.heard_s > self._silence_s:
                _kill(one)

    def dismiss(self) -> None:
        """End all members; what they still do is dropped."""
        with self._lock:
            self._pipes = self._pipes[: len(self._members)]
            self._urgent.clear()
            self._waiting.clear()
        for one in self._members:
            one.outbox.put(LEAVE)
            if one.is_ready:
                _kill(one)


def _kill(member: _Member) -> None:
    with suppress(ProcessLookupError):
        os.kill(member.pid, signal.SIGKILL)


@contextmanager
def hired(size: int, memory_bytes: int = 8 * GIB) -> Iterator[Crew | None]:
    """A crew for one search in this process; None for a size of 0. A script needs no guard around its main part."""
    openings = Openings(size, memory_bytes)
    crew = Crew(openings.ends, openings.start, size) if size else None
    try:
        yield crew
    finally:
        if crew is not None:
            crew.dismiss()
        openings.close()
