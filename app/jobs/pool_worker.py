"""One worker of a worker pool: does the tasks of a search, one after another, in a process of its own.

The pipe closing means that the search is gone, and ends the worker.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
import traceback
from multiprocessing.connection import Connection
from queue import SimpleQueue

from app.jobs.processes import limit_memory, settle_in

LEAVE = b""


def run_pool_worker(pipe: Connection, memory_bytes: int) -> None:
    """Take the initial message, say `ready`, then do tasks until there is nobody to do them for."""
    settle_in()
    inbox: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, inbox), daemon=True).start()
    limit_memory(memory_bytes)
    try:
        task_context = pickle.loads(inbox.get()).task_context(time.monotonic)
        _say(pipe, "ready", os.getpid())
        while True:
            number, task = pickle.loads(inbox.get())
            _do(pipe, number, task, task_context)
    finally:
        os._exit(4)


def _listen(pipe: Connection, inbox: SimpleQueue[bytes]) -> None:
    """Take what is sent. Leave at once when told so or when nobody is there any more, whatever is being done."""
    try:
        while (text := pipe.recv_bytes()) != LEAVE:
            inbox.put(text)
    except (EOFError, OSError):
        pass
    os._exit(0)


def _do(pipe: Connection, number: int, task: object, task_context: object) -> None:
    """Every partial result as it is found, then the end. Memory that runs out ends the worker: it may hold scraps."""
    began_s = time.monotonic()
    try:
        for partial in task.do(task_context):  # type: ignore[attr-defined]
            _say(pipe, "partial", number, pickle.dumps(partial))
        _say(pipe, "done", number, repr(time.monotonic() - began_s).encode())
    except (MemoryError, OSError):
        os._exit(4)
    except Exception:
        _say(pipe, "failed", number, traceback.format_exc(limit=20).encode())


def _say(pipe: Connection, kind: str, number: int, content: bytes = b"") -> None:
    pipe.send_bytes(f"{kind} {number}\n".encode() + content)
