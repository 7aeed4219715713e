"""Processes of our own: where they come from, and how they end for certain."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from types import ModuleType

PRELOADED = (
    "app.jobs.child",
    "app.jobs.pool_worker",
    "solver.loaded",
    "solver.planner",
    "solver.verify.judge",
    "solver.pipeline.solve",
    "solver.pipeline.cpsat.horizon_search",  # with OR-Tools, which solves import when they need it
)
PR_SET_PDEATHSIG = 1
GONE = 255  # the status of a process whose fork server is gone, which ends its processes with SIGKILL
EXIT_S = 0.5  # a process that has answered leaves at once; one that has not is killed


def warm_up(modules: Sequence[str] = PRELOADED) -> None:
    """Start the fork server, which imports `modules` once, so that a process starts in milliseconds.

    A running fork server is left as it is. Forking this process itself would copy its threads' locks; the fork server
    has no threads.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    from multiprocessing import forkserver

    forkserver.ensure_running()


def start(target: Callable[..., None], args: tuple[object, ...]) -> ForkServerProcess:
    """A process of the fork server's that calls `target`. Where that one is killed meanwhile, the next one tries."""
    try:
        return _start(target, args)
    except (EOFError, ConnectionError):
        return _start(target, args)


def _start(target: Callable[..., None], args: tuple[object, ...]) -> ForkServerProcess:
    warm_up()
    process = multiprocessing.get_context("forkserver").Process(target=target, args=args, daemon=True)
    with _hidden_main():
        process.start()
    return process


def exit_status(process: ForkServerProcess, patience_s: float | None = None) -> int | None:
    """How a process ended: its status, minus a signal's number, or GONE; None when it has not within so long."""
    wait([process.sentinel], patience_s)
    with _PROCESSES:
        return process.exitcode


def end(process: ForkServerProcess, patience_s: float = EXIT_S) -> None:
    """Wait so long for a process, then kill it."""
    if process.pid is None:
        return
    if exit_status(process, patience_s) is None:
        kill(process.pid)
        exit_status(process)
    with _PROCESSES:
        process.close()


def kill(pid: int) -> None:
    """Kill a process with all that it started."""
    # The group first: it has the id of the process once that has called setsid.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def settle_in() -> None:
    """First in a new process: a group of its own, ended with the fork server, no Ctrl-C of the terminal."""
    os.setsid()
    # The fork server ends with the process that owns it; without this its children would live on.
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def limit_memory(num_bytes: int) -> None:
    """Let this process, and those that it starts from here on, have so much memory, or less where that is the rule.

    The hard limit stays: who may have more than this process asks for it later.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = num_bytes if hard == resource.RLIM_INFINITY else min(num_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


# A start looks at every process of this program; two threads that look at one would read its status once, and one of
# them would read GONE, or wait for what never comes.
_PROCESSES = threading.Lock()


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Keep multiprocessing from importing this program's main script into every process, which costs seconds.

    It looks the script up in `sys.modules`; what a process runs lives in modules of ours and needs nothing of it. So
    a script needs no guard around its main part.
    """
    with _PROCESSES:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main
