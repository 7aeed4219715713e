"""The worker pool of a search on other machines: the workers of a Dask cluster, which somebody else runs.

Dask owns its workers, how they are reached, and who does the task of a lost one.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import threading
import time
import traceback
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from app.jobs.program import program
from app.jobs.worker_pool import come_in
from solver.search.worker_pool import WorkerEvent

LOG = logging.getLogger("isthmus.cluster")
LOOK_S = 1.0  # between two looks at who is there
PATIENCE_S = 10.0  # for the scheduler to answer; searches go on alone meanwhile
LEAVE_S = 2.0  # for the news that nothing more is wanted to be sent


@dataclass(frozen=True)
class TaskResult:
    """What came of a task: `done` or `failed`, or `misfit` where the worker runs another version of this program."""

    kind: str
    worker: str
    parts: tuple[bytes, ...] = ()
    seconds: float = 0.0


class ClusterPool:
    """At most `size` workers of the cluster whose scheduler has this address.

    Tasks wait here, not with the cluster: whoever is free takes the next, and what waits can be taken back.
    """

    def __init__(self, address: str, size: int) -> None:
        self._address, self._size = address, size
        self._init = b""
        self._client: Any = None
        self._slots: dict[str, int] = {}
        self._misfits: set[str] = set()
        self._urgent: deque[tuple[int, bytes]] = deque()
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._running: dict[int, Any] = {}
        self._events: SimpleQueue[WorkerEvent] = SimpleQueue()
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._keep_watch, name="isthmus-cluster", daemon=True)

    @property
    def num_ready(self) -> int:
        """Workers that this search may use."""
        return min(self._size, sum(self._slots.values()))

    @property
    def is_gone(self) -> bool:
        """There is no cluster any more, or none was found."""
        return self._ended.is_set()

    def capacity(self, queued: int, /) -> int:
        """Tasks that would be taken now, if there may be so many for every worker, running ones included."""
        with self._lock:
            return queued * self.num_ready - len(self._running) - len(self._urgent) - len(self._waiting)

    def begin(self, init: bytes, /) -> None:
        """Look for the cluster in the background; every task brings the initial message along."""
        self._init = init
        self._watch.start()

    def submit(self, number: int, task: bytes, /, *, is_urgent: bool) -> None:
        """Give a task to whoever is free first; urgent ones before others."""
        with self._lock:
            (self._urgent if is_urgent else self._waiting).append((number, task))
            self._give()

    def withdraw(self) -> int | None:
        """Take the first urgent task back that nobody has begun, if there is one."""
        with self._lock:
            return self._urgent.popleft()[0] if self._urgent else None

    def events(self, wait_s: float, /) -> list[WorkerEvent]:
        """What has come in; waits so long for something at most."""
        return come_in(self._events, wait_s)

    def shutdown(self) -> None:
        """Nothing more is wanted: workers hear of it at their next look at whether they should go on."""
        self._ended.set()
        with self._lock:
            self._urgent.clear()
            self._waiting.clear()
        if self._watch.is_alive():
            self._watch.join(LEAVE_S)

    def _keep_watch(self) -> None:
        """Connect, then see again and again who is there, until nothing more is wanted or the scheduler is gone."""
        try:
            from distributed import Client  # half a second of a core, which no small search has to spend

            self._client = Client(self._address, timeout=PATIENCE_S, set_as_default=False, name="isthmus")
            while not self._ended.is_set() and self._client.status == "running":
                self._see_who_is_there(self._client.nthreads())
                self._ended.wait(LOOK_S)
        except Exception as error:  # of connections, certificates, versions: each leaves the search alone
            LOG.warning("no search pool at %s: %s", self._address, error)
        finally:
            self._ended.set()
            with self._lock:
                self._slots = {}
                self._lose_all()
            if self._client is not None:
                with suppress(Exception):  # it may be gone already, in any of many ways
                    self._client.close(timeout=LEAVE_S)

    def _see_who_is_there(self, threads: dict[str, int]) -> None:
        with self._lock:
            self._slots = {one: number for one, number in threads.items() if one not in self._misfits}
            if not self._slots:
                self._lose_all()
            self._give()

    def _give(self) -> None:
        while not self._ended.is_set() and len(self._running) < self.num_ready:
            waiting = self._urgent or self._waiting
            if not waiting:
                return
            number, task = waiting.popleft()
            order = (program(), self._init, task, time.monotonic())
            fit = list(self._slots) if self._misfits else None
            future = self._client.submit(do_task, *order, pure=False, workers=fit)
            self._running[number] = future
            future.add_done_callback(lambda one, number=number: self._hear(number, one))

    def _hear(self, number: int, future: Any) -> None:
        """A task is over, one way or another."""
        found: TaskResult | None = None
        with suppress(Exception):  # not the task's own, which would have been told: its workers died, or the scheduler
            found = future.result()
        with self._lock:
            if self._running.pop(number, None) is None:
                return
            if found is None:  # whoever keeps watch gives the next, if anybody is still there
                self._events.put(WorkerEvent("lost" if future.status == "error" else "back", number))
            else:
                self._take(number, found)
                self._give()

    def _take(self, number: int, found: TaskResult) -> None:
        if found.kind == "misfit":
            LOG.warning("a worker of the search pool runs another version", extra={"worker": found.worker})
            self._misfits.add(found.worker)
            self._slots.pop(found.worker, None)
            self._events.put(WorkerEvent("back", number))
        elif found.kind == "failed":
            self._events.put(WorkerEvent("failed", number, found.parts[0]))
        else:
            for part in found.parts:
                self._events.put(WorkerEvent("partial", number, part))
            self._events.put(WorkerEvent("done", number, repr(found.seconds).encode()))

    def _lose_all(self) -> None:
        """Nobody is there: what they had is lost, and what waits is back."""
        for number, future in list(self._running.items()):
            del self._running[number]
            future.cancel()
            self._events.put(WorkerEvent("lost", number))
        for waiting in (self._urgent, self._waiting):
            while waiting:
                self._events.put(WorkerEvent("back", waiting.popleft()[0]))


class _SearchOfThread(threading.local):
    """What a thread of a worker remembers of the search that it worked for last."""

    digest: bytes = b""
    context: Any = None
    ahead_s: float = 0.0
    is_wanted: Any = None

    def clock(self) -> float:
        """The clock of the search, as it was when the task was given."""
        return time.monotonic() + self.ahead_s

    def unwanted(self) -> bool:
        """Whether the search has ended, or given up this task."""
        return not self.is_wanted()


_SEARCH = _SearchOfThread()


def do_task(version: str, init: bytes, task: bytes, now_s: float) -> TaskResult:
    """Runs on a worker: a task as its search pickled it, by the clock of the search, which shows `now_s` seconds."""
    from distributed import get_worker

    worker = get_worker()
    if version != program():
        return TaskResult("misfit", worker.address)
    state = worker.state.tasks[worker.get_current_task()]
    began_s = time.monotonic()
    _SEARCH.ahead_s, _SEARCH.is_wanted = now_s - began_s, lambda: state.state not in ("cancelled", "resumed")
    digest = hashlib.sha256(init).digest()
    if _SEARCH.digest != digest:
        _SEARCH.context = pickle.loads(init).task_context(_SEARCH.clock, _SEARCH.unwanted)
        _SEARCH.digest = digest
    parts: list[bytes] = []
    try:
        for part in pickle.loads(task)[1].do(_SEARCH.context):
            parts.append(pickle.dumps(part))
            if _SEARCH.unwanted():
                break
    except (MemoryError, OSError):
        raise
    except Exception:
        return TaskResult("failed", worker.address, (traceback.format_exc(limit=20).encode(),))
    return TaskResult("done", worker.address, tuple(parts), time.monotonic() - began_s)
