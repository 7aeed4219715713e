"""The worker pool of a search: processes of their own that share its work, over one pipe each."""

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

from app.jobs.pool_worker import LEAVE, run_pool_worker
from app.jobs.processes import end, start
from solver.search.worker_pool import WorkerEvent

NUM_SPARES = 2  # workers that may take the place of those that are gone
SILENCE_S = 120.0  # a worker that has nothing to say for so long hangs
GIB = 2**30
MOST_WORKERS = 63  # of this machine
MOST_REMOTE = 255  # of a cluster: options.workers goes to 256
LEAST_LIMIT_S = 5.0  # a shorter search is over before others are of help


def worker_pool_size(request: bytes, most: int | None = None) -> int:
    """How many processes may help the search of this request, beside its own: none for a short or reproducible one.

    At most so many; left out, as this machine has cores for.

    >>> worker_pool_size(b'{"options": {"workers": 1, "time_limit_s": 60.0, "reproducible": false}}')
    0
    """
    options = json.loads(request)["options"]
    if options["reproducible"] or options["time_limit_s"] < LEAST_LIMIT_S:
        return 0
    return min(int(options["workers"]) - 1, min(num_cores() - 1, MOST_WORKERS) if most is None else most)


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerPipes:
    """Pipes for the workers of one pool, and those that were started; whoever makes them ends them all."""

    def __init__(self, size: int, memory_bytes: int) -> None:
        self._pipes = [Pipe() for _ in range(size + NUM_SPARES if size else 0)]
        self._memory_bytes = max(memory_bytes // max(size, 1), GIB)
        self._started: list[ForkServerProcess] = []

    @property
    def ends(self) -> list[Connection]:
        """The ends for the search."""
        return [ours for ours, _ in self._pipes]

    def start(self, index: int) -> None:
        """A worker at the other end of this pipe. Where none can be started, the search sees it gone."""
        with suppress(OSError, IndexError), self._pipes[index][1] as theirs:
            self._started.append(start(run_pool_worker, (theirs, self._memory_bytes)))

    def hand_over(self) -> None:
        """The search has its ends: a worker has to see them close with it."""
        for one in self.ends:
            one.close()

    def close(self) -> None:
        """End all workers. The ends for the search close with whoever reads them, who sees the others close first."""
        for _, theirs in self._pipes:
            theirs.close()
        for process in self._started:
            end(process, 0.0)
        self._pipes.clear()


@dataclass
class _PoolWorker:
    """What the search knows of one worker."""

    pipe: Connection
    outbox: SimpleQueue[bytes]
    pid: int = 0
    is_gone: bool = False
    running: int | None = None
    heard_s: float = 0.0

    @property
    def is_ready(self) -> bool:
        return self.pid > 0 and not self.is_gone

    def give(self, number: int, task: bytes) -> None:
        self.running, self.heard_s = number, time.monotonic()
        self.outbox.put(task)


class WorkerPool:
    """`size` workers at a time; `begin` has the worker at the other end of a pipe started.

    Tasks wait here, not with workers: whoever is free takes the next, also while the search is busy.
    """

    def __init__(
        self, pipes: Sequence[Connection], begin: Callable[[int], None], size: int, silence_s: float = SILENCE_S
    ) -> None:
        self._pipes = pipes
        self._begin = begin
        self._size = size
        self._silence_s = silence_s
        self._init = b""
        self._workers: list[_PoolWorker] = []
        self._urgent: deque[tuple[int, bytes]] = deque()
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._events: SimpleQueue[WorkerEvent] = SimpleQueue()
        self._lock = threading.Lock()

    @property
    def num_ready(self) -> int:
        """Workers that are at work or wait for a task."""
        return sum(one.is_ready for one in self._workers)

    def capacity(self, queued: int, /) -> int:
        """Tasks that would be taken now, if there may be so many for every worker, running ones included."""
        with self._lock:
            running = sum(one.running is not None for one in self._workers if one.is_ready)
            return queued * self.num_ready - running - len(self._urgent) - len(self._waiting)

    @property
    def is_gone(self) -> bool:
        """Nobody is left and nobody will come."""
        return len(self._workers) == len(self._pipes) and all(one.is_gone for one in self._workers)

    def begin(self, init: bytes, /) -> None:
        """Start all workers; those who come later are told the same."""
        self._init = init
        for _ in range(self._size):
            self._add()

    def _add(self) -> None:
        index = len(self._workers)
        if index == len(self._pipes):
            return
        worker = _PoolWorker(self._pipes[index], SimpleQueue())
        self._workers.append(worker)
        worker.outbox.put(self._init)
        # Starting waits for the fork server, which may have its imports before it; a large task for its reader.
        for work, argument in ((self._begin, index), (self._listen, worker), (_talk, worker)):
            threading.Thread(target=work, args=(argument,), daemon=True).start()

    def _listen(self, worker: _PoolWorker) -> None:
        try:
            while True:
                self._hear(worker, worker.pipe.recv_bytes())
        except (EOFError, OSError):
            self._on_worker_lost(worker)

    def _hear(self, worker: _PoolWorker, text: bytes) -> None:
        head, _, content = text.partition(b"\n")
        kind, number = head.decode().split()
        with self._lock:
            worker.heard_s = time.monotonic()
            if kind == "ready":
                worker.pid = int(number)
            else:
                self._events.put(WorkerEvent(kind, int(number), content))  # type: ignore[arg-type]
            if kind != "partial":
                worker.running = None
                self._give_next(worker)

    def _give_next(self, worker: _PoolWorker) -> None:
        if waiting := self._urgent or self._waiting:
            worker.give(*waiting.popleft())

    def _on_worker_lost(self, worker: _PoolWorker) -> None:
        """Its task is lost, and a spare worker takes over; where there is none, what waits is back."""
        with self._lock:
            worker.is_gone = True
            self._add()
            if worker.running is not None:
                self._events.put(WorkerEvent("lost", worker.running))
            self._return_if_gone()

    def _return_if_gone(self) -> None:
        while self.is_gone and (waiting := self._urgent or self._waiting):
            self._events.put(WorkerEvent("back", waiting.popleft()[0]))

    def submit(self, number: int, task: bytes, /, *, is_urgent: bool) -> None:
        """Give a task to whoever is free first; urgent ones before others."""
        with self._lock:
            (self._urgent if is_urgent else self._waiting).append((number, task))
            free = next((one for one in self._workers if one.is_ready and one.running is None), None)
            if free is not None:
                self._give_next(free)
            self._return_if_gone()

    def withdraw(self) -> int | None:
        """Take the first urgent task back that nobody has begun, if there is one."""
        with self._lock:
            return self._urgent.popleft()[0] if self._urgent else None

    def events(self, wait_s: float, /) -> list[WorkerEvent]:
        """What has come in; waits so long for something at most."""
        _end_silent(self._workers, self._silence_s)
        return come_in(self._events, wait_s)

    def shutdown(self) -> None:
        """End all workers; what they still do is dropped."""
        with self._lock:
            self._pipes = self._pipes[: len(self._workers)]
            self._urgent.clear()
            self._waiting.clear()
        for one in self._workers:
            one.outbox.put(LEAVE)
            if one.is_ready:
                _kill(one)


def come_in(events: SimpleQueue[WorkerEvent], wait_s: float) -> list[WorkerEvent]:
    """What has come in; waits so long for something at most."""
    found: list[WorkerEvent] = []
    with suppress(Empty):
        found.append(events.get(timeout=wait_s) if wait_s else events.get_nowait())
        while True:
            found.append(events.get_nowait())
    return found


def _talk(worker: _PoolWorker) -> None:
    with suppress(OSError, ValueError):
        while True:
            worker.pipe.send_bytes(worker.outbox.get())


def _end_silent(workers: Sequence[_PoolWorker], silence_s: float) -> None:
    """A worker with a task and nothing to say for so long hangs."""
    now = time.monotonic()
    for one in workers:
        if one.is_ready and one.running is not None and now - one.heard_s > silence_s:
            _kill(one)


def _kill(worker: _PoolWorker) -> None:
    with suppress(ProcessLookupError):
        os.kill(worker.pid, signal.SIGKILL)


@contextmanager
def worker_pool(size: int, memory_bytes: int = 8 * GIB) -> Iterator[WorkerPool | None]:
    """A worker pool for one search of this process, None for a size of 0; a script needs no `if __name__` block."""
    worker_pipes = WorkerPipes(size, memory_bytes)
    pool = WorkerPool(worker_pipes.ends, worker_pipes.start, size) if size else None
    try:
        yield pool
    finally:
        if pool is not None:
            pool.shutdown()
        worker_pipes.close()
