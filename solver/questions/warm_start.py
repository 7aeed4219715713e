"""A plan carried over into a changed request: its configuration placed and timed anew, its orders kept where they fit.

Owns the first plan of a what-if, which costs a few evaluations instead of a search. Proves no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from models.outcome import Planned
from models.plan import Plan, Proof
from models.request import PlanRequest
from models.schedule import PipelineProblem
from models.statements import PROVEN
from solver.bounds.work import memory_needs, speed_of_light_s
from solver.clock import Clock
from solver.configurations.enumerate import enumerate_space
from solver.configurations.framework import within_framework
from solver.context import Context, stack_for
from solver.evaluation.candidate import configuration_of
from solver.evaluation.evaluate import Evaluation, evaluate
from solver.evaluation.scheduling import Schedulers, Timing, or_same_order, portfolio_timing, timing_of
from solver.objective import Goal
from solver.search.incumbent import Incumbent
from solver.search.tasks import placed


def carried_over(
    request: PlanRequest, plan: Plan, clock: Clock, stopped: Callable[[], bool] = lambda: False
) -> Planned | None:
    """The best judged plan with the configuration of another request's plan; None where it has none here."""
    began_s = clock()
    narrow = with_configuration(within_framework(request), plan)
    if narrow is None:
        return None
    context = Context(narrow, stack_for(narrow))
    space = enumerate_space(narrow)
    if not len(space) or not memory_needs(context, space)[0].any():
        return None
    best = Incumbent(context, Goal.of(context))
    for found in _evaluations(context, plan, clock, stopped):
        value = best.value_of(found)
        if value < best.value:
            best.submit(found, value, _unproven(context, found))
    return None if best.plan is None else Planned(plan=best.plan, complete=False, elapsed_s=max(clock() - began_s, 0.0))


def with_configuration(request: PlanRequest, plan: Plan) -> PlanRequest | None:
    """The request narrowed to a plan's configuration, where it allows all of it; None where it does not."""
    configuration = plan.configuration
    values = {**dict(configuration.degrees), "micro_batch_sequences": configuration.micro_batch_sequences,
              "sharding": configuration.sharding, "recompute": configuration.recompute,
              "family": configuration.family, "layer_split": configuration.layer_split}  # fmt: skip
    allowed = request.constraints.allowed
    stated = {name: getattr(allowed, name) for name in values}
    if any(stated[name] is not None and value not in stated[name] for name, value in values.items()):
        return None
    narrow = allowed.model_copy(update={name: (value,) for name, value in values.items()})
    return request.model_copy(update={"constraints": request.constraints.model_copy(update={"allowed": narrow})})


def _evaluations(context: Context, plan: Plan, clock: Clock, stopped: Callable[[], bool]) -> Iterator[Evaluation]:
    """The configuration on each of its placements, with the orders of the plan or better ones."""
    timings = [timing_of(line.problem, line.schedule) for line in plan.timelines]
    plain = Schedulers(context, clock, stopped).quick if context.request.constraints.framework else _adapted
    scheduler = or_same_order([one for one in timings if one is not None], plain)
    space, cutoff_s = enumerate_space(context.request), float("inf")
    for row in range(len(space)):
        for candidate in placed(context, configuration_of(context, space, row)):
            found = evaluate(context, candidate, scheduler, cutoff_s=cutoff_s)
            if found is not None:
                cutoff_s = min(cutoff_s, found.iteration_s)
                yield found
            if stopped():
                return


def _adapted(problem: PipelineProblem) -> Timing | None:
    """The one generator that looks at delays: beside the orders carried over, others seldom do better."""
    return portfolio_timing(problem, ("cross_greedy",)) or portfolio_timing(problem, None)


def _unproven(context: Context, found: Evaluation) -> Proof:
    """What is known without a search: the speed of light."""
    least_s = min(speed_of_light_s(context), found.iteration_s)
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
