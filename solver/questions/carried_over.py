"""A plan carried over into a changed request without a search: its configuration placed and timed anew, and judged.

Proves no bound.
"""

from collections.abc import Callable
from math import inf

from models.outcome import Planned
from models.plan import Plan, Proof
from models.request import PlanRequest
from models.statements import PROVEN
from solver.bounds.work import light_bound_s, speed_of_light_s
from solver.clock import Clock
from solver.configurations.framework import framework_reasons, within_framework
from solver.context import Context
from solver.evaluation.evaluate import Evaluation
from solver.evaluation.scheduling import Schedulers
from solver.lint import lint
from solver.objective import Goal
from solver.search.incumbent import Incumbent
from solver.search.warm_start import candidate_of, timed_again


def carried_over(
    request: PlanRequest,
    plan: Plan,
    clock: Clock,
    stopped: Callable[[], bool] = lambda: False,
    *,
    as_it_stands: bool = False,
) -> Planned | None:
    """The best judged plan with the configuration of another request's plan; None where it has none here, or where
    arithmetic alone refuses the request.

    `as_it_stands`: with its own places and orders alone, wherever else it may be.
    """
    began_s = clock()
    if is_refused(request):
        return None
    request = within_framework(request)
    context = Context.of(request)
    best = Incumbent(context, Goal.of(context))
    scheduler = no_other if as_it_stands else Schedulers(context, clock, stopped).quick
    own = candidate_of(context, plan.configuration, plan.placement.routes)
    weighed: list[tuple[float, Evaluation]] = []
    for found in timed_again(context, plan, scheduler, stopped):
        if as_it_stands and found.candidate != own:
            break
        weighed.append((best.value_of(found), found))
        if as_it_stands:
            break
    for value, found in sorted(weighed, key=lambda one: one[0]):
        if value < inf and best.submit(found, value, unproven(context, found)).accepted:
            break
    return None if best.plan is None else Planned(plan=best.plan, complete=False, elapsed_s=max(clock() - began_s, 0.0))


def is_refused(request: PlanRequest) -> bool:
    """Whether arithmetic alone shows that there is no plan, as where nothing joins buildings: timing looks for none."""
    return bool(lint(request) or framework_reasons(request))


def no_other(_problem: object) -> None:
    """A scheduler that finds nothing: only orders that are known already are used."""


def judged(context: Context, found: Evaluation) -> Plan | None:
    """The plan of an evaluation, if it meets every wish and the judge takes it; nothing is proven of it."""
    best = Incumbent(context, Goal.of(context))
    value = best.value_of(found)
    if value < best.value:
        best.submit(found, value, unproven(context, found))
    return best.plan


def unproven(context: Context, found: Evaluation) -> Proof:
    """What is known without a search: the speed of light."""
    least_s = min(light_bound_s(context), found.iteration_s)
    return Proof(
        lower_bound_s=least_s,
        relative_gap=1.0 - least_s / found.iteration_s,
        status="feasible",
        speed_of_light_s=speed_of_light_s(context),
        num_configurations=1,
        num_pruned=0,
        num_explored=1,
        proven=PROVEN[context.request.objective.kind],
    )
