"""The world as a search sees it: whom to tell, when to stop, and what counts as time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from models.outcome import Planned, Progress
from solver.clock import Clock, WorkClock

WORK_TO_BEGIN_S = 1.5  # compiled kernels are read, the request is looked at


@dataclass(frozen=True)
class Hooks:
    """Who hears of progress, whether to stop, the clock with the moment of the start, and who keeps the state."""

    progress: Callable[[Progress], None]
    incumbent: Callable[[Planned], None]
    cancelled: Callable[[], bool]
    clock: Clock
    started_s: float
    keep: Callable[[bytes], None] | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.started_s

    def counting_work(self, limit_s: float) -> Hooks:
        """The hooks with counted work for a clock: the wall clock is left as a cap alone."""
        work = WorkClock(self.clock, self.started_s + limit_s)
        work.charge(WORK_TO_BEGIN_S)
        return replace(self, clock=work, started_s=0.0, cancelled=lambda: self.cancelled() or work.left_s <= 0)
