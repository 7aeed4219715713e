"""Runs a task of the command line in a child process; Ctrl-C ends it with the best that it has."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console

from app.documents import canonical
from app.faults import Fault, Refused
from app.jobs.child import Task, outcomes
from app.jobs.children import Ended, Limits, plan_task, run_in_child
from app.jobs.processes import warm_up
from app.jobs.warm_up import compile_once
from app.settings import Settings
from app.terminal.exits import Failed
from app.terminal.progress import ProgressLine

if TYPE_CHECKING:
    from app.storage.searches import KeptSearch
    from models.outcome import Outcome
    from models.request import PlanRequest

SHORT_TASK_S = 120.0


def run_task(
    task: Task, settings: Settings, limit_s: float, on_message: Callable[[str, bytes], None] = lambda _kind, _text: None
) -> Ended:
    """Run in a child; the first Ctrl-C asks it to stop and keep its best."""
    stop = threading.Event()
    limits = Limits.of(limit_s, settings)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_in_child, task, limits, on_message=on_message, stop_asked=stop.is_set)
        while not running.done():
            try:
                time.sleep(0.05)
            except KeyboardInterrupt:
                stop.set()
        return running.result()


def search(
    request: PlanRequest,
    settings: Settings,
    console: Console,
    *,
    earlier: KeptSearch | None = None,
    saved: Callable[[str, bytes], None] = lambda _kind, _text: None,
) -> Outcome:
    """The outcome of a request; a search that is killed gives the best that it had reported.

    It goes on from an `earlier` one; `saved` hears of every message too.
    """
    from app.jobs.resuming import documents_of
    from app.jobs.search import end_state_of  # which imports the database

    news: list[bytes] = []

    def take(kind: str, text: bytes) -> None:
        if kind == "progress":
            news[:] = [text]
        saved(kind, text)
        line.take(kind, text)

    compile_once(settings, partial(console.print))
    task = plan_task((canonical(request), *documents_of(earlier)), settings)
    with ProgressLine(console) as line:
        ended = run_task(task, settings, request.options.time_limit_s, take)
    check_refusal(ended)
    found = end_state_of(ended, best=ended.best, cancelled=False, progress=news[0] if news else None)
    if found.outcome is None:
        raise Failed(_words(ended))
    return outcomes().validate_json(found.outcome)


def answer_of(
    kind: str,
    function: str,
    documents: tuple[bytes, ...],
    settings: Settings,
    console: Console,
    *,
    limit_s: float = SHORT_TASK_S,
) -> bytes:
    """The answer of a task of a kind that has one, or Failed. Only what the task needs is imported for it."""
    task = Task(kind, function, documents, settings.child_memory_bytes)
    warm_up(("app.jobs.child", task.function.partition(":")[0]))
    compile_once(settings, partial(console.print))
    with ProgressLine(console) as line:
        ended = run_task(task, settings, limit_s, line.take)
    check_refusal(ended)
    if ended.ending == "answered":
        return ended.answer
    if ended.best is None:
        raise Failed(_words(ended))
    from app.jobs.search import fault_of

    console.print(f"{json.loads(fault_of(ended))['what']} This is the best it had found.")
    return ended.best


def check_refusal(ended: Ended) -> None:
    """Raise what the child found wrong with the input."""
    if ended.ending == "refused":
        raise Refused((Fault(**json.loads(ended.detail)),))


def _words(ended: Ended) -> str:
    from app.jobs.search import fault_of

    fault = json.loads(fault_of(ended))
    detail = json.loads(ended.detail).get("traceback", "") if ended.detail else ""
    return f"{fault['what']} {fault['remedy']}\n{detail}".strip()
