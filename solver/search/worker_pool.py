"""Other processes that share the work of one search, as the search sees them.

Starting, watching and ending processes is left to whoever owns processes: a search that is given none works alone.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

WorkerEventKind = Literal["partial", "done", "failed", "back", "lost"]


@dataclass(frozen=True)
class WorkerEvent:
    """What became of a task, by its number: a part of its result; done; failed by a defect, whose traceback is
    given; back untouched, or lost half done, because whoever had it is gone.
    """

    kind: WorkerEventKind
    number: int
    content: bytes = b""


class WorkerPool(Protocol):
    """Processes that do tasks. They share the clock of the search. None is needed: all may be gone at any time."""

    @property
    def num_ready(self) -> int:
        """Workers that are at work or wait for a task."""
        ...

    def capacity(self, queued: int, /) -> int:
        """Tasks that would be taken now, if every worker may have so many, the running one included."""
        ...

    @property
    def is_gone(self) -> bool:
        """Nobody is left and nobody will come."""
        ...

    def begin(self, init: bytes, /) -> None:
        """Start, in the background; every worker is told the initial message first."""
        ...

    def submit(self, number: int, task: bytes, /, *, is_urgent: bool) -> None:
        """Give a task to whoever is free first; urgent ones before others."""
        ...

    def withdraw(self) -> int | None:
        """Take the first urgent task back that nobody has begun, if there is one."""
        ...

    def events(self, wait_s: float, /) -> list[WorkerEvent]:
        """What has come in; waits so long for something at most."""
        ...

    def shutdown(self) -> None:
        """End all workers; what they still do is dropped."""
        ...


class NoWorkerPool:
    """Nobody: the search works alone."""

    num_ready = 0
    is_gone = True

    def capacity(self, _queued: int, /) -> int:
        """0: there is no worker to take a task."""
        return 0

    def begin(self, _init: bytes, /) -> None:
        """Does nothing: there is no worker to tell."""

    def submit(self, _number: int, _task: bytes, /, *, is_urgent: bool) -> None:
        """Never asked: there is no capacity."""
        raise AssertionError(f"there is nobody to do it, {is_urgent=}")

    def withdraw(self) -> int | None:
        """None: no task was ever given."""
        return None

    def events(self, _wait_s: float, /) -> list[WorkerEvent]:
        """Nothing: there is no worker that could report."""
        return []

    def shutdown(self) -> None:
        """Does nothing: there is no worker to end."""
