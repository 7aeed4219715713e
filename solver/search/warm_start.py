"""Where a search begins that is not the first: an earlier plan, timed anew, and what was known beside it."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from models.plan import Configuration, Plan, Route
from models.request import PlanRequest, choices_of
from models.schedule import PipelineProblem
from solver.configurations.enumerate import enumerate_space
from solver.configurations.framework import within_framework
from solver.context import Context
from solver.evaluation.candidate import Candidate, configuration_of
from solver.evaluation.evaluate import Evaluation, evaluate, evaluate_on_paths, other_paths
from solver.evaluation.scheduling import Scheduler, Schedulers, Timing, or_same_order, portfolio_timing, timing_of
from solver.placement.fill import PooledRoute
from solver.search.acceptance import Acceptance
from solver.search.saved import SavedSearch, restored
from solver.search.tasks import AlternativeTask, placed
from solver.transport.message_paths import MessagePaths


@dataclass(frozen=True)
class WarmStart:
    """An earlier `plan`, for this request or another one, and the `saved` search of this request, if it was kept.

    `why_anew` says why there is no saved search where somebody expects one; it is told in the new plan.
    """

    plan: Plan | None = None
    saved: SavedSearch | None = None
    why_anew: str = ""


COLD = WarmStart()


def timed_again(
    context: Context, plan: Plan, quick: Scheduler, stopped: Callable[[], bool] = lambda: False
) -> Iterator[Evaluation]:
    """The plan as it stands, where the request still has all of it; then its configuration wherever that may be.

    Its orders are kept where they fit and nothing quick is faster.
    """
    known = timings_of(plan)
    narrow = allowing_only(within_framework(context.request), choices_of(plan.configuration))
    if narrow is None:
        return
    own = Context(narrow, context.stack)
    candidate = candidate_of(context, plan.configuration, plan.placement.routes)
    if candidate is not None and _has(own, plan.configuration):
        divided = tuple(one.stagger_s > 0 for one in plan.timelines)
        others = list(other_paths(context, candidate)) if plan.message_splits else []
        for paths in others or [MessagePaths(context.topology)]:
            found = evaluate_on_paths(context, candidate, or_same_order(known, quick), paths, divided=divided)
            if found is not None:
                yield found
    yield from _anywhere(own, or_same_order(known, _adapted(context, quick)), stopped)


def timings_of(plan: Plan) -> list[Timing]:
    """The schedules of a plan's routes, to be taken over."""
    timings = (timing_of(one.problem, one.schedule) for one in plan.timelines)
    return [one for one in timings if one is not None]


def _anywhere(context: Context, scheduler: Scheduler, stopped: Callable[[], bool]) -> Iterator[Evaluation]:
    """Every configuration of a narrow request on each of its placements."""
    space, cutoff_s = enumerate_space(context.request), float("inf")
    for row in range(len(space)):
        for candidate in placed(context, configuration_of(context, space, row)):
            if stopped():
                return
            found = evaluate(context, candidate, scheduler, cutoff_s=cutoff_s)
            if found is not None:
                cutoff_s = min(cutoff_s, found.iteration_s)
                yield found


def _adapted(context: Context, quick: Scheduler) -> Scheduler:
    """The one generator that looks at delays: beside the orders carried over, others seldom do better."""

    def timing(problem: PipelineProblem) -> Timing | None:
        return portfolio_timing(problem, ("cross_greedy",)) or portfolio_timing(problem, None)

    return quick if context.request.constraints.framework else timing


def _has(context: Context, configuration: Configuration) -> bool:
    """The request has the configuration, but for how its layers are shared out, which depends on the placement."""
    space, layers = enumerate_space(context.request), {"layers_per_stage": configuration.layers_per_stage}
    rows = (configuration_of(context, space, row) for row in range(len(space)))
    whole = sum(configuration.layers_per_stage) == context.job.num_layers
    return whole and any(one.model_copy(update=layers) == configuration for one in rows)


def allowing_only(request: PlanRequest, values: Mapping[str, object]) -> PlanRequest | None:
    """The request with one value left of each of these choices; None where it does not allow one of them."""
    allowed = request.constraints.allowed
    stated = {name: getattr(allowed, name) for name in values}
    if any(stated[name] is not None and value not in stated[name] for name, value in values.items()):
        return None
    narrow = allowed.model_copy(update={name: (value,) for name, value in values.items()})
    return request.with_constraints(allowed=narrow)


def candidate_of(context: Context, configuration: Configuration, routes: Sequence[Route]) -> Candidate | None:
    """The candidate behind stated routes; None where a pool is gone, or too small, or holds another place's GPUs, or
    where no path joins their places any more.

    The stage groups of a route lie side by side in each pool, in the order of routes and ranks, as `fill` has them.
    """
    index_of = {(pool.id, pool.place): number for number, pool in enumerate(context.pools)}
    taken: Counter[int] = Counter()
    found = []
    for route in routes:
        pools = [index_of.get(key) for key in zip(route.pools, route.places, strict=True)]
        known = tuple(pool for pool in pools if pool is not None)
        if len(known) < len(pools):
            return None
        first = []
        for pool in known:
            first.append(taken[pool])
            taken[pool] += route.num_replicas
        found.append(PooledRoute(known, route.num_replicas, tuple(first)))
    group = configuration.degrees.gpus_per_stage_group
    if any(count * group > context.pools[pool].num_free_gpus for pool, count in taken.items()):
        return None
    candidate = Candidate(configuration, tuple(found))
    return candidate if candidate.is_connected(context) else None


@dataclass
class Resumption:
    """What a search takes over from its warm_start: the state at once, the plan when it is told to begin."""

    warm_start: WarmStart
    acceptance: Acceptance
    schedulers: Schedulers

    def __post_init__(self) -> None:
        result, saved = self.acceptance.result, self.warm_start.saved
        self.goes_on = restored(saved, result.frontier)
        if saved is not None and self.goes_on:
            result.best.bound = saved.bound

    def begin(self) -> None:
        """Have the plan timed and judged again, before anything else is tried."""
        result, plan = self.acceptance.result, self.warm_start.plan
        result.update_bound()  # the judge takes no proof below the speed of light
        result.begun_from = self._told()
        if plan is not None:
            if self.goes_on:
                result.comparison.before = tuple(one for one in plan.baselines if one.iteration_s is not None)
            for found in timed_again(result.context, plan, self.schedulers.quick, self._late):
                self.acceptance.consider(found, "begin")
                if result.best.iteration_s <= plan.metrics.iteration_s:
                    break
        if result.begun_from:
            result.update_bound()
            result.tell("begin", result.begun_from[:300])

    def alternatives(self) -> list[AlternativeTask]:
        """What came second in the earlier search."""
        if not self.goes_on or self.warm_start.plan is None:
            return []
        context, others = self.acceptance.result.context, self.warm_start.plan.alternatives
        known = (candidate_of(context, one.configuration, one.routes) for one in others if one.configuration)
        return [AlternativeTask(candidate) for candidate in known if candidate is not None]

    def _told(self) -> str:
        """What the new plan says of it; nothing where a plan alone was given to begin with."""
        plan, why_anew = self.warm_start.plan, self.warm_start.why_anew
        if self.goes_on:
            before = (
                "no plan"
                if plan is None
                else f"{plan.metrics.iteration_s:.6g} s with a gap of {100 * plan.proof.relative_gap:.3g} %"
            )
            return f"this search goes on where an earlier one had ended: {before}"
        if self.warm_start.saved is not None:
            why_anew = why_anew or "they are of another request"
        return f"begun with the plan of an earlier search, without its bounds: {why_anew}" if why_anew else ""

    def _late(self) -> bool:
        phases = self.acceptance.phases
        return phases.hooks.cancelled() or phases.hooks.clock() >= phases.deadline(phases.params.explore_share)
