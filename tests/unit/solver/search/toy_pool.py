"""A worker pool in this process: a task is done when events are asked for, and some workers are made to vanish.

What goes in and out is pickled as between processes.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from solver.clock import Clock
from solver.search.dispatcher import URGENT
from solver.search.tasks import SearchTask, TaskContext
from solver.search.worker_pool import WorkerEvent

Loses = Callable[[SearchTask], bool]


@dataclass
class ToyPool:
    """`size` workers who do their tasks in turn. `loses` says of a task that its worker vanishes with it."""

    size: int
    clock: Clock
    loses: Loses = lambda _: False
    num_spares: int = 100
    given: list[SearchTask] = field(default_factory=list)
    begun: int = 0
    shut_down: int = 0
    _task_context: TaskContext | None = None
    _todo: deque[tuple[int, SearchTask]] = field(default_factory=deque)

    @property
    def num_ready(self) -> int:
        """Workers that are left."""
        return self.size if self._task_context is not None else 0

    def capacity(self, queued: int, /) -> int:
        """So many tasks each."""
        return max(queued * self.num_ready - len(self._todo), 0)

    @property
    def is_gone(self) -> bool:
        """All have vanished."""
        return self.size == 0

    def begin(self, init: bytes, /) -> None:
        """All are ready at once."""
        self.begun += 1
        self._task_context = pickle.loads(init).task_context(self.clock)

    def submit(self, number: int, task: bytes, /, *, is_urgent: bool) -> None:
        """Kept until events are asked for."""
        assert is_urgent == isinstance(pickle.loads(task)[1], URGENT)
        told, one = pickle.loads(task)
        assert told == number
        self.given.append(one)
        self._todo.append((number, one))

    def withdraw(self) -> int | None:
        """The first urgent one that waits."""
        found = next((one for one in list(self._todo)[1:] if isinstance(one[1], URGENT)), None)
        if found is None:
            return None
        self._todo.remove(found)
        return found[0]

    def events(self, _wait_s: float, /) -> list[WorkerEvent]:
        """The oldest task, done."""
        return list(self._done(*self._todo.popleft())) if self._todo else []

    def _done(self, number: int, task: SearchTask) -> Iterator[WorkerEvent]:
        assert self._task_context is not None
        if self.loses(task):
            if self.num_spares:
                self.num_spares -= 1
            else:
                self.size -= 1
            yield WorkerEvent("lost", number)
            if not self.size:
                yield from (WorkerEvent("back", other) for other, _ in self._todo)
                self._todo.clear()
            return
        for partial in task.do(self._task_context):
            yield WorkerEvent("partial", number, pickle.dumps(partial))
        yield WorkerEvent("done", number, b"0.1")

    def shutdown(self) -> None:
        """Nobody is left."""
        self.shut_down += 1
        self._todo.clear()
