"""One member of a crew: does the errands of a search, one after another, in a process of its own.

Owns the entry point and what is said over the pipe. The pipe closing means that the search is gone, and
ends the member.
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


def run_member(pipe: Connection, memory_bytes: int) -> None:
    """Take the brief, say `ready`, then do errands until there is nobody to do them for."""
    settle_in()
    inbox: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, inbox), daemon=True).start()
    limit_memory(memory_bytes)
    try:
        bench = pickle.loads(inbox.get()).bench(time.monotonic)
        _say(pipe, "ready", os.getpid())
        while True:
            number, errand = pickle.loads(inbox.get())
            _do(pipe, number, errand, bench)
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


def _do(pipe: Connection, number: int, errand: object, bench: object) -> None:
    """Every piece as it is found, then that it is done. Memory that runs out ends the member: it may hold scraps."""
    began_s = time.monotonic()
    try:
        for piece in errand.do(bench):  # type: ignore[attr-defined]
            _say(pipe, "piece", number, pickle.dumps(piece))
        _say(pipe, "done", number, repr(time.monotonic() - began_s).encode())
    except (MemoryError, OSError):
        os._exit(4)
    except Exception:
        _say(pipe, "failed", number, traceback.format_exc(limit=20).encode())


def _say(pipe: Connection, kind: str, number: int, content: bytes = b"") -> None:
    pipe.send_bytes(f"{kind} {number}\n".encode() + content)
