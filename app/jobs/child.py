"""What runs inside a child process: one task, its news and its answer as JSON over one pipe.

The parent's end of the pipe closing means that the parent is gone, and ends the child.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, TypeAdapter

from app.faults import Fault, Refused, from_planner_error
from app.jobs.processes import limit_memory, settle_in
from app.jobs.worker_pool import WorkerPool
from models.errors import PlannerError

if TYPE_CHECKING:
    from app.jobs.cluster_pool import ClusterPool
    from models.outcome import Outcome
    from solver.search.warm_start import WarmStart

OUT_OF_MEMORY = 5  # the exit status of a child that has not even the memory to say so
REQUEST, PLAN = "models.request:PlanRequest", "models.plan:Plan"


class Task(NamedTuple):
    """What a child is to do: a function by name, its documents as JSON text, memory, and helping processes."""

    kind: str
    function: str
    documents: tuple[bytes, ...]
    memory_bytes: int
    num_pool_workers: int = 0
    search_pool: tuple[str, int] | None = None  # the address of a cluster that helps instead, and its share of workers


class Channel:
    """The child's end of the pipe: sends `kind` and a JSON text; notices that it should stop."""

    def __init__(self, pipe: Connection, pool_ends: Sequence[Connection] = ()) -> None:
        self._pipe = pipe
        self._pool_ends = pool_ends
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def send(self, kind: str, text: bytes) -> None:
        """One message to the parent."""
        with self._lock:
            self._pipe.send_bytes(kind.encode() + b"\n" + text)

    def telling(self, kind: str) -> Callable[[BaseModel], None]:
        """What sends documents as messages of a kind."""
        return lambda document: self.send(kind, _json(document))

    def cancelled(self) -> bool:
        """Whether the search should end now with the best it has."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Ask the search to end."""
        self._stop.set()

    def worker_pool(self, task: Task) -> WorkerPool | ClusterPool | None:
        """Who helps: workers of a cluster, or processes that the parent starts when they are asked for, or nobody."""
        if task.search_pool is not None:
            from app.jobs.cluster_pool import ClusterPool  # which imports the database

            return ClusterPool(*task.search_pool)
        if not task.num_pool_workers:
            return None
        return WorkerPool(
            self._pool_ends, lambda index: self.send("worker", str(index).encode()), task.num_pool_workers
        )

    def watch_parent(self) -> None:
        """Take the parent's stop message; leave at once when the parent has gone."""
        try:
            while True:
                self._pipe.recv_bytes()
                self.stop()
        except (EOFError, OSError):
            os._exit(3)


def run_child(task: Task, pipe: Connection, pool_ends: Sequence[Connection] = ()) -> None:
    """Do `task`, then end this process; every way out but a kill sends `answer` or `fault` first."""
    settle_in()
    channel = Channel(pipe, pool_ends)
    signal.signal(signal.SIGTERM, lambda _number, _frame: channel.stop())
    threading.Thread(target=channel.watch_parent, daemon=True).start()
    try:
        limit_memory(task.memory_bytes)
        channel.send("started", b"{}")
        channel.send(*_result(task, channel))
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    # Threads of a solver that ignores its limit must not keep this process alive.
    os._exit(0)


def _result(task: Task, channel: Channel) -> tuple[str, bytes]:
    """What the child says last."""
    try:
        return "answer", TASKS[task.kind](task, channel)
    except PlannerError as error:
        return "refused", _refusal(from_planner_error(error))
    except Refused as refused:
        return "refused", _refusal(refused.faults[0])
    except MemoryError:
        return "memory", b"{}"
    except Exception:
        return "crashed", _text({"traceback": traceback.format_exc(limit=20)})


def _refusal(fault: Fault) -> bytes:
    return _text({"code": fault.code, "what": fault.what, "pointer": fault.pointer, "allowed": fault.allowed,
                  "remedy": fault.remedy})  # fmt: skip


def _text(values: dict[str, str]) -> bytes:
    return TypeAdapter(dict[str, str]).dump_json(values)


def _json(document: BaseModel) -> bytes:
    return document.model_dump_json().encode()


def load(path: str) -> Any:
    """The function, class or type that `module:name` names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


@cache
def outcomes() -> TypeAdapter[Outcome]:
    """What reads and writes outcomes; only those who do import all that is in a plan."""
    from models.outcome import Outcome

    return TypeAdapter(Outcome)


def _read(task: Task, *models: str) -> list[Any]:
    """The documents of a task, as far as models are named for them; only those are imported."""
    return [TypeAdapter(load(model)).validate_json(text) for model, text in zip(models, task.documents, strict=False)]


def _searching(channel: Channel) -> dict[str, Any]:
    """What every search takes: whom to tell, when to stop, and the time."""
    told = {"progress": channel.telling("progress"), "incumbent": channel.telling("incumbent")}
    return {**told, "cancelled": channel.cancelled, "clock": time.monotonic}


def _plan(task: Task, channel: Channel) -> bytes:
    outcome = load(task.function)(
        *_read(task, REQUEST),
        **_searching(channel),
        worker_pool=channel.worker_pool(task),
        keep=lambda state: channel.send("state", state),
        **_warm_start(*task.documents[1:]),
    )
    return outcomes().dump_json(outcome)


def _warm_start(*earlier: bytes) -> dict[str, WarmStart]:
    """What the search begins with, if it is not the first: an outcome, a state, and why there is no state."""
    if not earlier:
        return {}
    from models.outcome import Planned
    from solver.search.saved import SavedSearch  # which imports the solver; only this child needs it
    from solver.search.warm_start import WarmStart

    text, state, why_anew = earlier
    outcome = outcomes().validate_json(text) if text else None
    try:
        saved = SavedSearch.from_bytes(state) if state else None
    except ValueError as error:
        saved, why_anew = None, str(error).encode()
    plan = outcome.plan if isinstance(outcome, Planned) else None
    return {"begin_with": WarmStart(plan, saved, why_anew.decode())}


def _ask(task: Task, channel: Channel) -> bytes:
    found, (question,) = channel.telling("incumbent"), _read(task, "models.questions:Question")
    return _json(load(task.function)(question, found=found, cancelled=channel.cancelled, clock=time.monotonic))


def _schedule(task: Task, channel: Channel) -> bytes:
    (problem,) = _read(task, "models.schedule:PipelineProblem")
    return _json(load(task.function)(problem, **_searching(channel)))


def _check(task: Task, _channel: Channel) -> bytes:
    """What is said of a request, and of its plan if there is one."""
    return _json(load(task.function)(*_read(task, REQUEST, PLAN)))


def _time(task: Task, _channel: Channel) -> bytes:
    """The iteration time of a plan by replay alone; null when the plan is too broken to be replayed."""
    documents = _read(task, REQUEST, PLAN)
    try:
        return json.dumps(load(task.function)(*documents).iteration_s).encode()
    except (LookupError, ArithmeticError, ValueError):
        return b"null"


def _compute(task: Task, _channel: Channel) -> bytes:
    return json.dumps(load(task.function)(**json.loads(task.documents[0]))).encode()


TASKS: dict[str, Callable[[Task, Channel], bytes]] = {
    "plan": _plan,
    "ask": _ask,
    "validate": _check,
    "evaluate": _check,
    "time": _time,
    "compute": _compute,
    "schedule": _schedule,
}
