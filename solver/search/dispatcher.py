"""Runs tasks of one search, here and in its worker pool, and says what comes of them: one stream of events."""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from solver.search.params import DEFAULTS, SearchParams
from solver.search.tasks import (
    AlternativeTask,
    BaselineTask,
    BreakTieTask,
    ImproveTask,
    PartialResult,
    RefineBoundTask,
    ReorderTask,
    SearchTask,
    TaskContext,
    WorkerInit,
    topic_of,
)
from solver.search.worker_pool import WorkerEvent, WorkerPool

URGENT = (AlternativeTask, BaselineTask, BreakTieTask, ImproveTask, ReorderTask)  # what a phase waits for


class Defect(RuntimeError):
    """A task failed by a defect of this program; the message is the traceback of the process that did it."""


@dataclass(frozen=True)
class Done:
    """All of the task is done."""


@dataclass(frozen=True)
class Returned:
    """Nobody does the task any more. `lost` says what users should know of the process that did it, if it was begun;
    a harmful task took too many of them with it to be given away again.
    """

    lost: str = ""
    is_harmful: bool = False


TaskEvent = tuple[SearchTask, PartialResult | Done | Returned]


@dataclass
class TaskDispatcher:
    """Tasks by number, and how long those that are done took, by kind."""

    worker_pool: WorkerPool
    task_context: TaskContext
    params: SearchParams = DEFAULTS
    _spent_s: dict[type, float] = field(default_factory=dict)
    _has_begun: bool = False
    _underway: dict[int, SearchTask] = field(default_factory=dict)
    _losses: dict[object, int] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def begin(self) -> None:
        """Let the worker pool start, once."""
        if not self._has_begun:
            self._has_begun = True
            self.worker_pool.begin(pickle.dumps(WorkerInit.of(self.task_context)))

    @property
    def has_capacity(self) -> bool:
        """Somebody would take another task."""
        return self.worker_pool.capacity(self.params.queued) > 0

    @property
    def num_workers(self) -> int:
        """Workers that are at work, beside this process."""
        return self.worker_pool.num_ready

    def num_underway(self, *kinds: type[SearchTask]) -> int:
        """Tasks of these kinds, or of all, that others have and that are not done yet."""
        return sum(not kinds or isinstance(one, kinds) for one in self._underway.values())

    def share_s(self, num_tasks: int, seconds: float) -> float:
        """What each of so many long tasks gets of the seconds; this process does some where workers are few."""
        num_doers = self.num_workers + (num_tasks > self.num_workers)
        return max(seconds, 0.0) / -(-max(num_tasks, 1) // max(num_doers, 1))

    @property
    def refines_too_little(self) -> bool:
        """Bounds had less than their part of all time, and are less than half of what others are to do."""
        few = self.num_underway(RefineBoundTask) < self.num_workers * self.params.queued // 2
        spent_s = self._spent_s.get(RefineBoundTask, 0.0)
        return few and spent_s <= self.params.refine_share * sum(self._spent_s.values())

    def submit(self, task: SearchTask) -> None:
        """Give a task away."""
        number = next(self._numbers)
        self._underway[number] = task
        self.worker_pool.submit(number, pickle.dumps((number, task)), is_urgent=isinstance(task, URGENT))

    def withdraw(self) -> SearchTask | None:
        """An urgent task that waits because there are more of them than workers."""
        number = self.worker_pool.withdraw() if self.num_underway(*URGENT) > self.num_workers else None
        return None if number is None else self._underway.pop(number)

    def do_here(self, task: SearchTask) -> Iterator[TaskEvent]:
        """Do a task in this process; what the others find is told in between."""
        began_s = self.task_context.clock()
        for part in task.do(self.task_context):
            yield task, part
            yield from self.events()
        self._spend(task, self.task_context.clock() - began_s)
        yield task, Done()

    def events(self, wait_s: float = 0.0) -> Iterator[TaskEvent]:
        """What has come in from the others; waits so long for something at most."""
        for one in self.worker_pool.events(wait_s):
            if one.number in self._underway:
                task = self._underway[one.number] if one.kind == "partial" else self._underway.pop(one.number)
                yield task, self._told(task, one)

    def _told(self, task: SearchTask, event: WorkerEvent) -> PartialResult | Done | Returned:
        if event.kind == "partial":
            part: PartialResult = pickle.loads(event.content)
            return part
        if event.kind == "failed":
            raise Defect(event.content.decode())
        if event.kind == "done":
            self._spend(task, float(event.content))
            return Done()
        if event.kind == "back":
            return Returned()
        topic = topic_of(task)
        losses = self._losses[topic] = self._losses.get(topic, 0) + 1
        goes_on = "the search goes on alone" if self.worker_pool.is_gone else "the others go on"
        return Returned(
            f"a process of the search ended unexpectedly; {goes_on}", is_harmful=losses >= self.params.most_losses
        )

    def _spend(self, task: SearchTask, seconds: float) -> None:
        self._spent_s[type(task)] = self._spent_s.get(type(task), 0.0) + seconds
