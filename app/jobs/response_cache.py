"""Answers kept in memory: plans that have ended change no more but can be removed; statuses and lists count briefly."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

BRIEFLY_S = 0.1  # for statuses and lists, whose plans may be running: a search tells news five times a second at most
FRESH_S = 1.0  # how long a plan may still be shown here after another process has removed it
MOST_BYTES = 64 * 1024 * 1024
MOST_ANSWERS = 10_000  # each takes half a kilobyte besides its text, and clients may ask for lists in many ways


@dataclass(frozen=True)
class CachedResponse:
    """One answer as it is sent: `headers` beside its type, length and tag, in small letters."""

    owner: str
    etag: str
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


class ResponseCache:
    """The answers that were asked for lately. Used by the event loop alone."""

    def __init__(self, *, fresh_s: float = FRESH_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._fresh_s = fresh_s
        self._clock = clock
        self._responses: OrderedDict[Hashable, tuple[float, CachedResponse]] = OrderedDict()
        self._num_bytes = 0
        self.num_changes = 0  # grows when everything is let go of: what was looked up before is not to be kept any more

    def get(self, plan_id: Hashable, owner: str | None) -> CachedResponse | None:
        """The answer, if it is fresh and the owner may see it; None stands for everybody's."""
        found = self._responses.get(plan_id)
        if found is None or self._clock() - found[0] > self._fresh_s or owner not in (None, found[1].owner):
            return None
        return found[1]

    def known(self, plan_id: str, owner: str | None) -> CachedResponse | None:
        """The answer, fresh or not, if the owner may see it: the database may confirm it by its tag alone."""
        found = self._responses.get(plan_id)
        return None if found is None or owner not in (None, found[1].owner) else found[1]

    def put(self, plan_id: Hashable, answer: CachedResponse) -> None:
        """Keep an answer that the database has just confirmed; the oldest go when there are too many."""
        self.forget(plan_id)
        self._responses[plan_id] = (self._clock(), answer)
        self._num_bytes += len(answer.body)
        while self._num_bytes > MOST_BYTES or len(self._responses) > MOST_ANSWERS:
            self.forget(next(iter(self._responses)))

    def renew(self, plan_id: str, etag: str) -> None:
        """Let an answer count again: the database has just told that this is its tag still."""
        found = self._responses.get(plan_id)
        if found is not None and found[1].etag == etag:
            self._responses[plan_id] = (self._clock(), found[1])

    def forget(self, plan_id: Hashable) -> None:
        """Let go of a plan that is being removed."""
        found = self._responses.pop(plan_id, None)
        if found is not None:
            self._num_bytes -= len(found[1].body)

    def clear(self) -> None:
        """Let go of everything."""
        self.num_changes += 1
        self._responses.clear()
        self._num_bytes = 0
