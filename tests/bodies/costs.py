"""What reading a body costs: processor time and memory of a process that does it once, and what comes out."""

from __future__ import annotations

import os
import pickle
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MIB = 2**20


@dataclass(frozen=True)
class Cost:
    """Processor seconds and the growth of memory at its greatest, with what was answered."""

    cpu_s: float
    peak_bytes: int
    answer: Any


def cost_of(work: Callable[[], Any]) -> Cost:
    """The cost of `work` in a copy of this process, whose memory is measured from here on."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(ours)
            _do(work, theirs)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, "the process that read the body has ended badly"
    return Cost(*pickle.loads(text))


def _do(work: Callable[[], Any], pipe: int) -> None:
    held = _resident_bytes()
    began_s = time.process_time()
    answer = work()
    cpu_s = time.process_time() - began_s
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - held
    with os.fdopen(pipe, "wb") as file:
        file.write(pickle.dumps((cpu_s, peak, answer)))


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
