"""Which tasks of one search the worker pool has, and what becomes of those whose worker is gone.

Owns that account. Never decides what to do next and never looks into a result.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from solver.search.tasks import (
    BaselineTask,
    EvaluateTask,
    ImproveTask,
    PartialResult,
    RefineBoundTask,
    SearchTask,
    TaskContext,
    WorkerInit,
)
from solver.search.worker_pool import WorkerPool

REFINE_SHARE = 0.5  # of the time that exploring took is for sharper bounds
QUEUED, QUEUED_FOR_LONG = 2, 6  # tasks per worker: the running one, and those that it need not wait for
LONG = (BaselineTask, ImproveTask)
MOST_LOSSES = 2  # a task that brought down so many workers is not given to anybody again


class Defect(RuntimeError):
    """A task failed by a defect of this program; the message is the traceback of the process that did it."""


@dataclass
class TaskDispatcher:
    """Tasks by number, and how long those that are done took, by kind.

    `told` hears what users should know; `returned` gets a task that nobody does any more, and whether it
    brought down too many to be given away again.
    """

    worker_pool: WorkerPool
    told: Callable[[str], None]
    returned: Callable[[SearchTask, bool], None]
    spent_s: dict[str, float] = field(default_factory=dict)
    _has_begun: bool = False
    _underway: dict[int, SearchTask] = field(default_factory=dict)
    _losses: dict[object, int] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def begin(self, task_context: TaskContext) -> None:
        """Let the worker pool start, once."""
        if not self._has_begun:
            self._has_begun = True
            self.worker_pool.begin(pickle.dumps(WorkerInit.of(task_context)))

    def has_capacity(self, *, for_long: bool) -> bool:
        """Somebody would take another task; more of them where the search will not look for long."""
        return self.worker_pool.capacity(QUEUED_FOR_LONG if for_long else QUEUED) > 0

    @property
    def is_busy(self) -> bool:
        """Something is underway."""
        return bool(self._underway)

    @property
    def num_workers(self) -> int:
        """Workers that are at work."""
        return self.worker_pool.num_ready

    @property
    def num_long(self) -> int:
        """Long tasks underway."""
        return sum(isinstance(one, LONG) for one in self._underway.values())

    def share_s(self, num_tasks: int, seconds: float) -> float:
        """What each of so many long tasks gets of the seconds; the search does some where workers are few."""
        num_doers = self.num_workers + (num_tasks > self.num_workers)
        return max(seconds, 0.0) / -(-max(num_tasks, 1) // max(num_doers, 1))

    def num_underway(self, kind: type[SearchTask]) -> int:
        """Tasks of this kind that are not done yet."""
        return sum(isinstance(one, kind) for one in self._underway.values())

    def submit(self, task: SearchTask) -> None:
        """Give a task away; there has to be capacity."""
        number = next(self._numbers)
        self._underway[number] = task
        self.worker_pool.submit(number, pickle.dumps((number, task)), is_urgent=isinstance(task, LONG))

    def withdraw(self) -> SearchTask | None:
        """A long task that waits because there are more of them than workers."""
        number = self.worker_pool.withdraw() if self.num_long > self.num_workers else None
        return None if number is None else self._underway.pop(number)

    def spend(self, kind: type[SearchTask], seconds: float) -> None:
        """So much time went into tasks of this kind, here or elsewhere."""
        self.spent_s[kind.__name__] = self.spent_s.get(kind.__name__, 0.0) + seconds

    @property
    def refines_too_little(self) -> bool:
        """Bounds had less than their part of the time that went into exploring."""
        few = self.num_underway(RefineBoundTask) <= self.worker_pool.num_ready // 2
        return few and self.spent_s.get(RefineBoundTask.__name__, 0.0) < REFINE_SHARE * self.spent_s.get(
            EvaluateTask.__name__, 0.0
        )

    def results(self, wait_s: float = 0.0) -> Iterator[tuple[SearchTask, PartialResult]]:
        """Parts of results as they have come in; the rest is put into the account."""
        for one in self.worker_pool.events(wait_s):
            task = self._underway.get(one.number)
            if task is None:
                continue
            if one.kind == "partial":
                yield task, pickle.loads(one.content)
                continue
            del self._underway[one.number]
            if one.kind == "failed":
                raise Defect(one.content.decode())
            if one.kind == "done":
                self.spend(type(task), float(one.content))
            else:
                self._give_back(task, lost=one.kind == "lost")

    def _give_back(self, task: SearchTask, *, lost: bool) -> None:
        losses = self._losses[task.topic] = self._losses.get(task.topic, 0) + lost
        self.returned(task, losses >= MOST_LOSSES)
        if lost:
            goes_on = "the search goes on alone" if self.worker_pool.is_gone else "the others go on"
            self.told(f"a process of the search ended unexpectedly; {goes_on}")
