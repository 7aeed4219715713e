"""Starts child processes and stops them for certain: soft limit, SIGTERM, SIGKILL, and what was left behind.

How a child ended is told by what it said last, or else by its exit status and by what this process did to it. A slow
child is not taken for a killed one.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Literal

from app.jobs.child import OUT_OF_MEMORY, Task, run_child
from app.jobs.processes import GONE, end, exit_status, kill, start
from app.jobs.worker_pool import MOST_REMOTE, WorkerPipes, worker_pool_size
from app.settings import Settings

POLL_S = 0.05
START_S = 60.0  # a child starts in milliseconds; on a machine with ten times too much to do it took seconds
STATUS_S = 10.0  # the exit status comes from the fork server, which may be as slow
DEFECTS = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}  # nobody sends these

Ending = Literal["answered", "refused", "memory", "crashed", "killed", "timed_out"]


OVERRUN_SHARE = 0.1  # of a long time limit may pass before a child is killed, however short the graces are


@dataclass(frozen=True)
class Limits:
    """When a child is told to stop, and when it is killed; counted from when it says that it has started."""

    soft_s: float
    term_grace_s: float
    kill_grace_s: float
    memory_bytes: int
    empty_grace_s: float = 0.0  # more, as long as nothing was reported: what was starved is not worth a failure

    @classmethod
    def of(cls, limit_s: float, settings: Settings) -> Limits:
        """A time limit with the graces of the settings, which grow with a long limit: overrun <= max(graces, 10 %).

        >>> [one.term_grace_s + one.kill_grace_s for one in (Limits.of(2.0, Settings()), Limits.of(60.0, Settings()))]
        [1.0, 6.0]
        """
        graces_s = settings.soft_grace_s + settings.kill_grace_s
        more = max(1.0, OVERRUN_SHARE * limit_s / graces_s) if graces_s > 0 else 1.0
        return cls(limit_s, more * settings.soft_grace_s, more * settings.kill_grace_s, settings.child_memory_bytes)


@dataclass(frozen=True)
class Ended:
    """How a child ended, its answer if it gave one, the best it had reported, and what it said of its failure."""

    ending: Ending
    answer: bytes = b""
    detail: bytes = b""
    elapsed_s: float = 0.0
    best: bytes | None = None


def plan_task(documents: tuple[bytes, ...], settings: Settings) -> Task:
    """The search of a request (the first document), with who helps it: a cluster, if one is named, or this machine."""
    task = Task("plan", settings.solvers.plan, documents, settings.child_memory_bytes)
    if settings.search_pool:
        size = worker_pool_size(documents[0], MOST_REMOTE)
        return task._replace(search_pool=(settings.search_pool, size)) if size else task
    return task._replace(num_pool_workers=worker_pool_size(documents[0]))


def run_in_child(
    task: Task,
    limits: Limits,
    *,
    on_message: Callable[[str, bytes], None] = lambda _kind, _text: None,
    stop_asked: Callable[[], bool] = lambda: False,
    patience_s: Callable[[], float] | None = None,
) -> Ended:
    """Run `task` in a process of its own and return how it ended, at the latest after all three limits.

    `on_message` gets every progress and incumbent as it arrives. Once `stop_asked` is true the child has
    `patience_s`, by default `kill_grace_s`, to answer with the best it has.
    """
    with _child(task) as (process, pipe, worker_pipes):
        watch = _Watch(process, pipe, limits, patience_s=patience_s)

        def relay(kind: str, text: bytes) -> None:
            if kind == "started":
                watch.start_clock()
            if kind == "worker":
                worker_pipes.start(int(text))
            else:
                on_message(kind, text)

        return watch.until_ended(relay, stop_asked)


@contextmanager
def _child(task: Task) -> Iterator[tuple[ForkServerProcess, Connection, WorkerPipes]]:
    ours, theirs = Pipe()
    worker_pipes = WorkerPipes(task.num_pool_workers, task.memory_bytes)
    process = None
    try:
        process = start(run_child, (task, theirs, worker_pipes.ends))
        theirs.close()
        worker_pipes.hand_over()
        yield process, ours, worker_pipes
    except BaseException:
        if process is not None and process.pid is not None and exit_status(process, 0.0) is None:
            kill(process.pid)
        raise
    finally:
        if process is not None:
            end(process)
        worker_pipes.close()
        ours.close()


class _Watch:
    """The watch over one child: relays its messages, tells it to stop, kills it."""

    def __init__(
        self, process: ForkServerProcess, pipe: Connection, limits: Limits, *, patience_s: Callable[[], float] | None
    ) -> None:
        assert process.pid is not None
        self._process = process
        self._pid = process.pid
        self._pipe = pipe
        self._limits = limits
        self._began = time.monotonic()
        self._late_at = self._began + START_S
        self._told_at: float | None = None
        self._patience_s = patience_s or (lambda: limits.kill_grace_s)
        self._best: bytes | None = None
        self._was_killed_by_us = False
        # A timer of its own, because a child that hangs in the middle of a message blocks the reader.
        self._timer = self._timer_of(START_S + limits.kill_grace_s)

    def start_clock(self) -> None:
        """The child has started: its limits count from now on."""
        limits = self._limits
        self._timer.cancel()
        self._late_at = time.monotonic() + limits.soft_s + limits.term_grace_s
        self._timer = self._timer_of(limits.soft_s + limits.term_grace_s + limits.kill_grace_s + limits.empty_grace_s)

    def until_ended(self, on_message: Callable[[str, bytes], None], stop_asked: Callable[[], bool]) -> Ended:
        """Relay until the child has answered or is gone."""
        try:
            while (said := self._next(on_message))[0] not in _SAID:
                self._stop_in_time(stop_asked)
        except (EOFError, OSError):
            # OSError: the child ended in the middle of a message.
            return self._ending_of_the_silent()
        finally:
            self._timer.cancel()
        kind, text = said
        if kind == "answer":
            return Ended("answered", answer=text, elapsed_s=time.monotonic() - self._began, best=self._best)
        return self._ended(_SAID[kind], text)

    def _next(self, on_message: Callable[[str, bytes], None]) -> tuple[str, bytes]:
        """The next message, if there is one soon; the last one is not passed on."""
        if not self._pipe.poll(POLL_S):
            return "", b""
        kind, _, text = self._pipe.recv_bytes().partition(b"\n")
        said = kind.decode()
        if said == "incumbent":
            self._best = text
        if said not in _SAID:
            on_message(said, text)
        return said, text

    def _stop_in_time(self, stop_asked: Callable[[], bool]) -> None:
        now = time.monotonic()
        if self._told_at is None:
            is_late = now > self._late_at
            if is_late:
                self._patience_s = self._patience_of_late
            if is_late or stop_asked():
                self._told_at = now
                self._tell()
        elif now - self._told_at > self._patience_s():
            self._kill_late()

    def _patience_of_late(self) -> float:
        """How long a child that is past its limit may take for its last word: longer if it would be its first."""
        limits = self._limits
        return limits.kill_grace_s + (limits.empty_grace_s if self._best is None else 0.0)

    def _tell(self) -> None:
        with suppress(ProcessLookupError, OSError):
            self._pipe.send_bytes(b"stop")
            os.kill(self._pid, signal.SIGTERM)

    def _timer_of(self, seconds: float) -> threading.Timer:
        timer = threading.Timer(seconds, self._kill_late)
        timer.daemon = True
        timer.start()
        return timer

    def _kill_late(self) -> None:
        self._was_killed_by_us = True
        kill(self._pid)

    def _ending_of_the_silent(self) -> Ended:
        """How a child ended that closed its pipe without a last word."""
        status = exit_status(self._process, STATUS_S)
        if self._was_killed_by_us or (self._told_at is not None and status == -signal.SIGTERM):
            return self._ended("timed_out")
        if status == OUT_OF_MEMORY:
            return self._ended("memory")
        if status == GONE or (status is not None and status < 0 and -status not in DEFECTS):
            return self._ended("killed")
        return self._ended("crashed", b'{"traceback":"no last word, exit status %d"}' % (status or 0))

    def _ended(self, ending: Ending, detail: bytes = b"") -> Ended:
        return Ended(ending, detail=detail, elapsed_s=time.monotonic() - self._began, best=self._best)


# What a child says last, and how it ended then.
_SAID: dict[str, Ending] = {"answer": "answered", "refused": "refused", "memory": "memory", "crashed": "crashed"}
