"""Compiles, once on a machine, what searches run compiled: no client's time limit is spent on it.

It is due until it has succeeded for the present sources, versions and machine; an empty file says that it has.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import os
import platform
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from app.jobs.child import Task
from app.jobs.children import Limits, run_in_child
from app.jobs.worker_pool import num_cores
from app.settings import Settings

LOG = logging.getLogger("isthmus.warm_up")
LIMIT_S = 900.0  # a minute and a half of two cores, three minutes of one; a busy or small machine takes longer
MOST_PARTS = 2  # side by side: three minutes of one core, a tenth more on two, where both compile some
NOTICE = "compiling what is compiled once on a machine: a minute and a half on two cores, three on one"


def compile_once(
    settings: Settings, told: Callable[[str], None] = LOG.info, *, stop_asked: Callable[[], bool] = lambda: False
) -> None:
    """Compile unless that was done; `told` hears of it first. A failure is logged and left to the first search.

    Once `stop_asked` is true it ends soon, and is due again: the end of a process waits for the threads in it.
    """
    done = remembered(settings.solvers.warm_up)
    if done.exists():
        return
    told(NOTICE)
    endings = _compiled(settings, min(num_cores(), MOST_PARTS), stop_asked)
    if endings != {"answered"}:
        if stop_asked():
            return
        LOG.warning("the warm-up ended without an answer", extra={"endings": sorted(endings)})
        return
    done.parent.mkdir(parents=True, exist_ok=True)
    done.touch()


def _compiled(settings: Settings, num_parts: int, stop_asked: Callable[[], bool]) -> set[str]:
    """How the children ended that each compile a part, side by side; whoever interrupts this ends them, too."""
    interrupted = threading.Event()
    limits = Limits(LIMIT_S, settings.soft_grace_s, settings.kill_grace_s, settings.child_memory_bytes)

    def is_unwanted() -> bool:
        return interrupted.is_set() or stop_asked()

    def compiled(part: int) -> str:
        order = json.dumps({"part": part, "num_parts": num_parts}).encode()
        task = Task("compute", settings.solvers.warm_up, (order,), settings.child_memory_bytes)
        return run_in_child(task, limits, stop_asked=is_unwanted, patience_s=lambda: 0.0).ending

    with ThreadPoolExecutor(num_parts) as threads:
        try:
            return set(threads.map(compiled, range(num_parts)))
        finally:
            interrupted.set()


def remembered(function: str) -> Path:
    """The file that says it was done: beside the sources where they may be written, else in the user's cache."""
    module = function.partition(":")[0]
    spec = find_spec(module.partition(".")[0])
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    sources = [(str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(root.rglob("*.py"))]
    versions = (platform.python_version(), platform.node(), importlib.metadata.version("numba"))
    digest = hashlib.sha256(repr((function, versions, sources)).encode()).hexdigest()[:16]
    beside = root / "__pycache__"
    folder = beside if os.access(beside if beside.exists() else root, os.W_OK) else Path.home() / ".cache" / "isthmus"
    return folder / f"warmed-up-{digest}"
