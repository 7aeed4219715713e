"""Tasks that say who does them, or end badly; and searches that give them. For the tests of worker pools."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from models.outcome import NotFound, Outcome, Progress
from models.request import PlanRequest
from solver.search.worker_pool import WorkerEvent, WorkerPool


@dataclass(frozen=True)
class WorkerInit:
    """The context of these tasks is the name that is stated here."""

    name: str = "context"

    def task_context(self, _clock: Callable[[], float]) -> str:
        """The name."""
        return self.name


@dataclass(frozen=True)
class Chore:
    """Yields the context, the process and what it was asked for, unless told to misbehave."""

    what: str = ""

    def do(self, task_context: str) -> Iterator[tuple[str, int, str]]:
        """One partial result, or a bad end."""
        if self.what == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.what == "hangs":
            time.sleep(1e6)
        if self.what == "eats":
            bytearray(2**40)
        if self.what == "fails":
            raise ZeroDivisionError(self.what)
        yield task_context, os.getpid(), self.what


def submit_all(worker_pool: WorkerPool, chores: list[Chore], *, until: int) -> list[WorkerEvent]:
    """Give all chores as soon as somebody is there, and wait for so many events."""
    left, found = list(enumerate(chores)), list[WorkerEvent]()
    give_up_s = time.monotonic() + 60.0
    while len(found) < until and time.monotonic() < give_up_s:
        while left and worker_pool.capacity(2):
            number, chore = left.pop(0)
            worker_pool.submit(number, pickle.dumps((number, chore)), is_urgent=False)
        found += worker_pool.events(0.05)
    return found


def begins(
    request: PlanRequest,
    *,
    progress: Callable[[Progress], None],
    cancelled: Callable[[], bool],
    worker_pool: WorkerPool,
    **_others: object,
) -> Outcome:
    """A search that names its process and its workers', then does as options.seed says: ends, or hangs with them."""
    worker_pool.begin(pickle.dumps(WorkerInit()))
    found = submit_all(worker_pool, [Chore("a"), Chore("b")], until=4)
    workers = sorted({pickle.loads(one.content)[1] for one in found if one.kind == "partial"})
    progress(Progress(phase="workers", elapsed_s=0.0, message=" ".join(map(str, [os.getpid(), *workers]))))
    if request.options.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if request.options.seed == 2:
        for number in (2, 3):
            worker_pool.submit(number, pickle.dumps((number, Chore("hangs"))), is_urgent=False)
        while not cancelled():
            time.sleep(0.01)
        worker_pool.shutdown()
    return NotFound(lower_bound_s=0.0, detail="", elapsed_s=0.0)
