"""The schedulers that candidates are timed with: a quick portfolio while searching, the exact search when polishing.

Owns the choice of generators by size and the cache of problems already scheduled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from models.schedule import PipelineProblem, PipelineSchedule
from solver.context import Context
from solver.cpsat.solve import solve_pipeline
from solver.schedules.portfolio import quick_schedule

ONE_WAY = ("one_f_one_b", "eager_one_f_one_b", "zb_h1", "greedy", "cross_greedy")
CHUNKED = ("greedy", "interleaved", "flexible_limited", "cross_greedy")


@dataclass
class Schedulers:
    """Schedulers of one search."""

    context: Context
    clock: Callable[[], float]
    deadline_s: float
    cancelled: Callable[[], bool]
    _known: dict[PipelineProblem, PipelineSchedule] = field(default_factory=dict)

    def quick(self, problem: PipelineProblem) -> PipelineSchedule:
        """The best of a few generators; every problem is scheduled once."""
        if problem not in self._known:
            self._known[problem] = quick_schedule(problem, ONE_WAY if problem.layout == "one_way" else CHUNKED)
        return self._known[problem]

    def thorough(self, problem: PipelineProblem, time_limit_s: float) -> PipelineSchedule:
        """Portfolio, CP-SAT and improvement within `time_limit_s`."""
        options = problem.options.model_copy(
            update={"time_limit_s": max(time_limit_s, 0.1), "workers": self.context.request.options.workers}
        )
        limited = problem.model_copy(update={"options": options})
        return solve_pipeline(limited, cancelled=self.cancelled, clock=self.clock)
