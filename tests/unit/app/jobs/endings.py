"""Searches that end without a last word, in every way there is; for the tests of who is said to have ended them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from models.outcome import NotFound, Outcome, Progress
from models.request import PlanRequest

STATUS = 1000  # options.seed above this: exit with the rest as status; below: a signal to itself
STARVED_S = 1.0
STILL = 64  # waits to be ended by the SIGTERM that it is sent, without a handler


def ends(request: PlanRequest, *, progress: Callable[[Progress], None], **_others: object) -> Outcome:
    """Ends as options.seed says."""
    progress(Progress(phase="search", elapsed_s=0.0))
    seed = request.options.seed
    if seed >= STATUS:
        os._exit(seed - STATUS)
    if seed == STILL:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(60.0)
    if seed:
        if seed != signal.SIGKILL:
            signal.signal(seed, signal.SIG_DFL)
        os.kill(os.getpid(), seed)
    return NotFound(lower_bound_s=0.0, detail="", elapsed_s=0.0)


def is_starved() -> str:
    """Answers late and hears no stop, as a process that gets no time on a machine with too much to do."""
    time.sleep(STARVED_S)
    return "late"
