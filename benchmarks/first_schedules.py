"""The best schedule of the generators alone, without a search: what searches start from and are measured against."""

import time
from collections.abc import Callable

from models.schedule import PipelineProblem, PipelineSchedule
from solver.pipeline.assemble import assemble
from solver.pipeline.bounds import lower_bound
from solver.pipeline.portfolio import best_of, candidates
from solver.pipeline.problem import shape_of


def quick_schedule(
    problem: PipelineProblem, names: tuple[str, ...] | None = None, *, clock: Callable[[], float] = time.monotonic
) -> PipelineSchedule:
    """The best schedule of the named generators (all by default, and the policy grid), with its bound."""
    began_s, bound_s = clock(), lower_bound(problem)
    best = best_of(candidates(shape_of(problem), problem.objective, names), bound_s)
    if best is None:
        raise ValueError(f"none of {', '.join(names or ())} applies to this layout within its memory budgets")
    seconds = max(clock() - began_s, 0.0)
    return assemble(problem, best.order, generator=best.name, lower_bound_s=bound_s, seconds=seconds)
