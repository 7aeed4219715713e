"""Which tasks are worth doing next: functions from the state of the search to tasks."""

import numpy as np

from solver.baselines.policies import POLICIES
from solver.baselines.run import promising
from solver.search.comparison import Comparison
from solver.search.frontier import Frontier, is_first_bound
from solver.search.incumbent import Incumbent
from solver.search.params import SearchParams
from solver.search.tasks import AlikeConfigurations, BaselineTask, BreakTieTask, EvaluateTask, RefineBoundTask


def next_evaluation(frontier: Frontier, best: Incumbent) -> EvaluateTask | None:
    """Evaluate the most promising configuration; None when each is explored or ruled out.

    Every few times that is the one with the least refined bound instead of the one with the best guess: it holds the
    bound of the search, and guesses err.
    """
    cutoff, planned = best.cutoff, best.plan is not None
    is_due = planned and len(frontier.explored) % frontier.params.least_bound_every == 0
    index = least_refined(frontier, cutoff) if is_due else None
    index = frontier.next(cutoff, planned=planned) if index is None else index
    if index is None:
        return None
    target_s = None if index in frontier.refined or not planned else target_bound_s(frontier, index, cutoff)
    configuration = frontier.configuration(index)
    return EvaluateTask(index, configuration, cutoff, target_s, frontier.num_timed.get(index, 0))


def least_refined(frontier: Frontier, cutoff: float) -> int | None:
    """The configuration with the least bound of those refined, alone or together, that are open and not yet explored.

    Those of a pipeline shape that was explored before are penalised as guesses are.
    """
    refined = frontier.refined | frontier.refined_together
    waiting = sorted(index for index in refined - frontier.explored if frontier.bound[index] < cutoff)
    if not waiting:
        return None
    explored = list(frontier.explored)
    shapes = frontier.space.take(frontier.rows[explored + waiting]).pipeline_shapes()
    _, shape = np.unique(shapes, axis=0, return_inverse=True)
    times = np.bincount(shape.ravel()[: len(explored)], minlength=int(shape.max()) + 1)
    penalty = 1.0 + frontier.params.repeat_penalty * times[shape.ravel()[len(explored) :]]
    return waiting[int(np.argmin(frontier.bound[waiting] * penalty))]


def next_refinement(frontier: Frontier, best: Incumbent, most: int) -> RefineBoundTask | None:
    """Refine the least bounds, at most so many; None when none is left below the cutoff."""
    cutoff = best.cutoff
    chosen = tuple(alike_configurations(frontier, indices, cutoff) for indices in frontier.unrefined(cutoff, most))
    return RefineBoundTask(chosen) if chosen else None


def alike_configurations(frontier: Frontier, indices: tuple[int, ...], cutoff: float) -> AlikeConfigurations:
    """What to bound together: the configurations at these places, which are alike."""
    configurations = tuple(frontier.configuration(index) for index in indices)
    target_s = target_bound_s(frontier, indices[0], cutoff)
    effort = frontier.params.refine_longer if frontier.refined.issuperset(indices) else 1
    return AlikeConfigurations(indices, configurations, target_s, is_first_bound(frontier, indices), effort)


def target_bound_s(frontier: Frontier, index: int, cutoff: float) -> float:
    """A configuration's bound need not go much beyond this."""
    size = float(frontier.unpriced.size[frontier.rows[index]])
    return min(frontier.goal.seconds(cutoff, size), frontier.params.unplanned * frontier.fastest_s)


def tie_breaks(frontier: Frontier, best: Incumbent, params: SearchParams) -> list[BreakTieTask]:
    """Where time only has to reach a target: of the configurations that are as good, those that may be faster."""
    if best.plan is None or not best.goal.has_target:
        return []
    alike = np.flatnonzero(frontier.bound == best.value)
    fastest_first = alike[np.argsort(frontier.pace_s[alike], kind="stable")].tolist()
    tied = [index for index in fastest_first if index not in frontier.explored]
    return [BreakTieTask(one, frontier.configuration(one), best.iteration_s) for one in tied[: params.most_tied]]


def baselines(comparison: Comparison, until_s: float, step_s: float) -> list[BaselineTask]:
    """Try each baseline on what is priced and fits: no plan is then worse than that of a baseline.

    A step of the search takes `step_s`.
    """
    frontier, best = comparison.frontier, comparison.best
    priced = frontier.space.take(frontier.rows)
    spare_s = 0.0 if best.plan is None else step_s
    tasks = (
        BaselineTask(
            number, promising(frontier.context, policy, priced, frontier.pace_s), best.cutoff, spare_s, until_s
        )
        for number, policy in enumerate(POLICIES)
        if not comparison.is_known(policy)
    )
    return [task for task in tasks if len(task.space)]
