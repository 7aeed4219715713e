"""What no plan of a request falls below, without looking for one: bounds alone, the least refined first.

Prices what may hold the least bound, then refines it, until time is up or the cutoff is reached.
"""

from collections.abc import Callable

from models.request import PlanRequest
from solver.bounds.relaxation import refined_bound_s
from solver.configurations.enumerate import enumerate_space
from solver.configurations.framework import within_framework
from solver.context import Context
from solver.objective import Goal
from solver.search.choice import alike_configurations
from solver.search.frontier import Frontier


def least_bound_s(request: PlanRequest, cutoff_s: float, stopped: Callable[[], bool]) -> float:
    """Least iteration time of any configuration that beats `cutoff_s`, and at most that.

    Only for requests whose objective is the iteration time.
    """
    request = within_framework(request)
    context, space = Context.of(request), enumerate_space(request)
    if not len(space):
        return cutoff_s
    frontier = Frontier(context, space, Goal.of(context), late=lambda: True)  # no guesses: no plan is sought
    while not stopped() and frontier.least_bound < cutoff_s:
        if not frontier.load(cutoff_s, planned=True) and not _refined(frontier, cutoff_s):
            break
    return min(frontier.least_bound, cutoff_s)


def _refined(frontier: Frontier, cutoff_s: float) -> bool:
    """Replace the least bound that is not refined yet by the pipeline's own; false when none is below the cutoff."""
    for indices in frontier.unrefined(cutoff_s, 1):
        one = alike_configurations(frontier, indices, cutoff_s)
        frontier.set_refined(indices)
        bound_s = refined_bound_s(
            frontier.context, one.configurations, one.target_bound_s, quick=one.quick, effort=one.effort
        )
        for index in indices:
            frontier.raise_bound(index, bound_s)
        return True
    return False
