"""Starts child processes and stops them for certain: soft limit, SIGTERM, SIGKILL, and what was left behind.

Owns the watch over one child. Never decides what an ended child means for a plan.
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
from typing import Literal

from app.jobs.child import Task, run_child
from app.jobs.crew import Openings
from app.jobs.processes import end, kill, start
from app.settings import Settings

POLL_S = 0.05

Ending = Literal["answered", "refused", "memory", "crashed", "killed", "timed_out"]


STARTING_S = 60.0  # a busy machine may need many seconds to import this program; the search has not begun by then
OVERRUN_SHARE = 0.1  # of a long time limit may pass before a child is killed, however short the graces are


@dataclass(frozen=True)
class Limits:
    """When a child is told to stop, and when it is killed; counted from when it says that it has started."""

    soft_s: float
    term_grace_s: float
    kill_grace_s: float
    memory_bytes: int

    @classmethod
    def of(cls, limit_s: float, settings: Settings) -> Limits:
        """A time limit with the graces of the settings, which grow with a long limit: overrun <= max(graces, 10 %).

        >>> Limits.of(2.0, Settings()).overrun_s, Limits.of(60.0, Settings()).overrun_s
        (1.0, 6.0)
        """
        graces_s = settings.soft_grace_s + settings.kill_grace_s
        more = max(1.0, OVERRUN_SHARE * limit_s / graces_s) if graces_s > 0 else 1.0
        return cls(limit_s, more * settings.soft_grace_s, more * settings.kill_grace_s, settings.child_memory_bytes)

    @property
    def overrun_s(self) -> float:
        """From the time limit to the kill."""
        return self.term_grace_s + self.kill_grace_s


@dataclass(frozen=True)
class Ended:
    """How a child ended, its answer if it gave one, the best it had reported, and what it said of its failure."""

    ending: Ending
    answer: bytes = b""
    detail: bytes = b""
    elapsed_s: float = 0.0
    best: bytes | None = None


def run_in_child(
    task: Task,
    limits: Limits,
    *,
    on_message: Callable[[str, bytes], None] = lambda _kind, _text: None,
    stop_asked: Callable[[], bool] = lambda: False,
    patience_s: Callable[[], float] | None = None,
) -> Ended:
    """Run `task` in a process of its own and return how it ended, at the latest all three limits after it has started.

    `on_message` gets every progress and incumbent as it arrives. Once `stop_asked` is true the child has
    `patience_s`, by default `kill_grace_s`, to answer with the best it has.
    """
    started = time.monotonic()
    with _child(task) as (pid, pipe, openings):
        watch = _Watch(pid, pipe, limits, started, patience_s=patience_s)

        def relay(kind: str, text: bytes) -> None:
            if kind == "member":
                openings.start(int(text))
            else:
                on_message(kind, text)

        return watch.until_ended(relay, stop_asked)


@contextmanager
def _child(task: Task) -> Iterator[tuple[int, Connection, Openings]]:
    ours, theirs = Pipe()
    openings = Openings(task.num_members, task.memory_bytes)
    process = None
    try:
        process = start(run_child, (task, theirs, openings.ends))
        theirs.close()
        openings.hand_over()
        assert process.pid is not None
        yield process.pid, ours, openings
    except BaseException:
        if process is not None and process.pid is not None and process.is_alive():
            kill(process.pid)
        raise
    finally:
        if process is not None:
            end(process)
        openings.close()
        ours.close()


class _Watch:
    """The watch over one child: relays its messages, tells it to stop, kills it."""

    def __init__(
        self, pid: int, pipe: Connection, limits: Limits, started: float, *, patience_s: Callable[[], float] | None
    ) -> None:
        self._pid = pid
        self._pipe = pipe
        self._limits = limits
        self._started = started
        self._told_at: float | None = None
        self._patience_s = patience_s or (lambda: limits.kill_grace_s)
        self._last: tuple[str, bytes] = ("killed", b"")
        self._best: bytes | None = None
        self._begun_at: float | None = None
        # A timer of its own, because a child that hangs in the middle of a message blocks the reader.
        self._timer = threading.Timer(STARTING_S, self._kill_late)
        self._timed_out = False

    def until_ended(self, on_message: Callable[[str, bytes], None], stop_asked: Callable[[], bool]) -> Ended:
        """Relay until the child has answered or is gone."""
        self._timer.daemon = True
        self._timer.start()
        try:
            while not self._received(on_message):
                self._stop_in_time(stop_asked)
        except (EOFError, OSError):
            # OSError: the child was killed in the middle of a message.
            self._last = ("timed_out" if self._timed_out else "killed", b"")
        finally:
            self._timer.cancel()
        return self._ended()

    def _received(self, on_message: Callable[[str, bytes], None]) -> bool:
        """Take one message if there is one; true when it was the last."""
        if not self._pipe.poll(POLL_S):
            return False
        kind, _, text = self._pipe.recv_bytes().partition(b"\n")
        if kind in (b"answer", b"refused", b"memory", b"crashed"):
            self._last = (kind.decode(), text)
            return True
        if kind == b"incumbent":
            self._best = text
        if kind == b"started":
            self._begin()
        on_message(kind.decode(), text)
        return False

    def _begin(self) -> None:
        """The child has imported what it needs: its limits count from here."""
        self._begun_at = time.monotonic()
        self._timer.cancel()
        self._timer = threading.Timer(self._limits.soft_s + self._limits.overrun_s, self._kill_late)
        self._timer.daemon = True
        self._timer.start()

    def _stop_in_time(self, stop_asked: Callable[[], bool]) -> None:
        now = time.monotonic()
        if self._told_at is None:
            begun_at = now if self._begun_at is None else self._begun_at
            is_late = now - begun_at > self._limits.soft_s + self._limits.term_grace_s
            if is_late:
                self._patience_s = lambda: self._limits.kill_grace_s
            if is_late or stop_asked():
                self._told_at = now
                self._tell()
        elif now - self._told_at > self._patience_s():
            self._kill_late()

    def _tell(self) -> None:
        with suppress(ProcessLookupError, OSError):
            self._pipe.send_bytes(b"stop")
            os.kill(self._pid, signal.SIGTERM)

    def _kill_late(self) -> None:
        self._timed_out = True
        kill(self._pid)

    def _ended(self) -> Ended:
        kind, text = self._last
        elapsed_s = time.monotonic() - self._started
        if kind == "answer":
            return Ended("answered", answer=text, elapsed_s=elapsed_s, best=self._best)
        endings: dict[str, Ending] = {"refused": "refused", "memory": "memory", "crashed": "crashed",
                                      "timed_out": "timed_out"}  # fmt: skip
        return Ended(endings.get(kind, "killed"), detail=text, elapsed_s=elapsed_s, best=self._best)
