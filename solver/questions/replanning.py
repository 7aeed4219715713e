"""A plan adapted to a changed world: few moves first, then the fastest plan there is, and what bounds say of both.

The moves of a configuration are least over all its placements (`least_moves.py`); no configuration that takes no longer
than a time has fewer moves than the least among those whose bound is not above it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, reduce
from math import inf

import numpy as np

from models.outcome import Outcome, Planned
from models.plan import Configuration, Plan
from models.request import Objective, PlanRequest
from solver.bounds.work import light_bound_s
from solver.configurations.framework import within_framework
from solver.configurations.unusual import covering
from solver.context import Context
from solver.evaluation.candidate import Candidate, bundle_of
from solver.evaluation.evaluate import Evaluation, evaluate
from solver.evaluation.scheduling import Scheduler, Schedulers, Timing, or_same_order
from solver.placement.problem import RouteCount
from solver.questions.carried_over import judged, no_other
from solver.questions.least_moves import (
    MinimumMoves,
    MoveProblem,
    chained_routes,
    least_moves,
    move_problem,
    whole_routes,
)
from solver.questions.move_bounds import MoveBounds
from solver.questions.row_bounds import PRICED, RowBounds
from solver.questions.searches import SearchRuns
from solver.questions.slots import SlotPlacement, settled
from solver.questions.standing import Standing, standing_of
from solver.questions.state_moves import StateMoves, state_moves
from solver.search.warm_start import allowing_only, timed_again, timings_of

ROWS_PER_SIZE = 12  # configurations of one number of replicas that are timed at most, the likeliest first
MODEL_SHARE, MOST_S = 0.05, 5.0  # of the time left, and seconds at most, for one count of the fewest moves
RoutesOf = Callable[[Configuration], Iterator[tuple[int, tuple[RouteCount, ...]]]]  # with how many groups move


@dataclass(frozen=True)
class ReplanCase:
    """The plan that something happens to, in its own world, of which no plan takes less than `bound_s`.

    Read once for all that may happen to it.
    """

    plan: Plan
    context: Context
    bound_s: float = 0.0

    @cached_property
    def timings(self) -> list[Timing]:
        """Its orders, to be taken over."""
        return timings_of(self.plan)

    @cached_property
    def end_s(self) -> dict[int, float]:
        """When the last operation of every replica ends."""
        ends = {timeline.route: timeline.end_s for timeline in self.plan.timelines}
        return {
            route.first_replica + i: ends[route.id]
            for route in self.plan.placement.routes
            for i in range(route.num_replicas)
        }


@dataclass(frozen=True)
class ReplanSolution:
    """One judged plan of the changed world, what of the old one remains in it, and what has to be fetched."""

    plan: Plan
    settled: SlotPlacement
    state: StateMoves

    @property
    def num_moved(self) -> int:
        """Stage groups that are set up anew."""
        return self.settled.num_moved

    @property
    def iteration_s(self) -> float:
        """Its iteration time."""
        return self.plan.metrics.iteration_s


def timed_only(request: PlanRequest) -> PlanRequest:
    """The request with the iteration time as its objective: what a replan weighs moves against."""
    return request.model_copy(update={"objective": Objective()})


@dataclass
class ReplanFrontier:
    """The Pareto set of moves and time: of `points`, fewest moves first, none has fewer moves and less time."""

    points: list[ReplanSolution] = field(default_factory=list)

    def offer(self, adapted: ReplanSolution) -> ReplanSolution:
        """A plan that is faster than all with no more moves."""
        retained = [
            one for one in self.points if one.num_moved < adapted.num_moved or one.iteration_s < adapted.iteration_s
        ]
        self.points = sorted([*retained, adapted], key=lambda one: one.num_moved)
        return adapted

    def cutoff_s(self, num_moved: int) -> float:
        """The fastest plan with no more moves: only less than its time is of use."""
        return min((one.iteration_s for one in self.points if one.num_moved <= num_moved), default=inf)


@dataclass
class ReplanSearch:
    """One change of one plan, under way."""

    before: ReplanCase
    searches: SearchRuns
    stopped: Callable[[], bool]
    frontier: ReplanFrontier = field(default_factory=ReplanFrontier)
    best: Outcome | None = None
    bounds: MoveBounds | None = None
    inherited_s: float = 0.0

    def __post_init__(self) -> None:
        self.request = within_framework(self.searches.base)
        self.context = Context.of(self.request)
        self.standing: Standing = standing_of(self.before.plan, self.before.context, self.context)
        if self.context.pools:
            self.inherited_s = light_bound_s(self.context)
        self._known: dict[tuple[object, ...], list[MinimumMoves]] = {}
        self._num_evaluated = 0
        self._quick = Schedulers(self.context, self.searches.hooks.clock, self.stopped).quick
        self._scheduler = or_same_order(self.before.timings, self._quick)

    def keep_degrees(self, stopped: Callable[[], bool]) -> Iterator[ReplanSolution]:
        """Plans that keep tensor, context, expert and pipeline degrees, so that groups can stay where they are.

        Replicas that stand whole come first, in any case one plan of them: it is there soonest, and only the end of all
        the time, not `stopped`, ends the search for it.
        """
        like = self.before.plan.configuration
        narrow = _with_degrees(self.request, like)
        if narrow is None or not self.context.pools:
            return
        rows = RowBounds(narrow, self.searches.hooks.clock)

        def late() -> bool:
            return self.stopped() or (stopped() and bool((rows.state == PRICED).any()))

        rows.price(np.ones(len(rows), dtype=np.bool_), inf, late)
        for routes_of in (self._whole_routes, self._least_routes):
            for row in _likeliest(rows):
                if self.stopped() or (self._num_evaluated and stopped()):
                    return
                found = _same_layers(rows.configuration(row), like)
                yield from self._placed(found, float(rows.seconds[row]), self._scheduler, routes_of)

    def _placed(
        self, configuration: Configuration, bound_s: float, scheduler: Scheduler, routes_of: RoutesOf
    ) -> Iterator[ReplanSolution]:
        """A configuration on routes with few moves, wherever it is faster than what moves no more."""
        for num_moved, routes in routes_of(configuration):
            if bound_s < self.frontier.cutoff_s(num_moved):
                adapted = self.adapted(configuration, routes, scheduler)
                if adapted is not None:
                    yield adapted

    def _whole_routes(self, configuration: Configuration) -> Iterator[tuple[int, tuple[RouteCount, ...]]]:
        """Routes of replicas that stand whole, where they are enough."""
        problem = move_problem(self.context, configuration, self.standing)
        whole = _whole(self.before, self.standing, configuration)
        yield from ((0, routes) for routes in whole_routes(problem, whole))

    def _least_routes(self, configuration: Configuration) -> Iterator[tuple[int, tuple[RouteCount, ...]]]:
        """Routes with the fewest moves that the model finds, then with the fewest changes of building."""
        problem = move_problem(self.context, configuration, self.standing)
        for one in self._least(configuration, problem):
            yield one.num_moved, chained_routes(problem, one.counts, _whole(self.before, self.standing, configuration))

    def search_degrees(self, limit_s: float) -> Iterator[ReplanSolution]:
        """Better schedules for the degrees that are kept: those that a search of them alone finds."""
        like = self.before.plan.configuration
        narrow = _with_degrees(self.request, like)
        if narrow is None or not self.context.pools:
            return
        outcome = self.searches.searched(narrow, limit_s, begin=self.before.plan)
        if isinstance(outcome, Planned):
            found = _same_layers(outcome.plan.configuration, like)
            scheduler = or_same_order(timings_of(outcome.plan), self._scheduler)
            for routes_of in (self._whole_routes, self._least_routes):
                yield from self._placed(found, 0.0, scheduler, routes_of)
            adapted = self.take(outcome.plan)
            if adapted is not None:
                yield adapted

    def _least(self, configuration: Configuration, problem: MoveProblem) -> list[MinimumMoves]:
        """Placements of a configuration by moves, then by changes of building; the first has the bound."""
        key = (configuration.degrees, bundle_of(configuration), configuration.layers_per_stage, configuration.family)
        if key not in self._known:
            limit_s = min(MOST_S, MODEL_SHARE * max(self.searches.hooks.left_s, 1.0))
            first = least_moves(problem, limit_s=limit_s)
            found = [] if first is None else [first]
            if first is not None and first.num_moved:
                straight = least_moves(problem, limit_s=limit_s, straight_first=True)
                found += [] if straight is None or straight.counts == first.counts else [straight]
            self._known[key] = found
        return self._known[key]

    def adapted(
        self, configuration: Configuration, routes: tuple[RouteCount, ...], scheduler: Scheduler
    ) -> ReplanSolution | None:
        """Routes over pools on slots, timed and judged; None where they are slower than what moves no more."""
        found = settled(self.context, configuration, routes, self.standing)
        if found is None:
            return None
        self._num_evaluated += 1
        candidate = Candidate(configuration, found.routes)
        cutoff_s = self.frontier.cutoff_s(found.num_moved)
        evaluation = evaluate(self.context, candidate, scheduler, cutoff_s=cutoff_s)
        if evaluation is None or evaluation.iteration_s >= cutoff_s:
            return None
        plan = judged(self.context, evaluation)
        if plan is None:
            return None
        state = state_moves(self.context, configuration, found, self.standing)
        return self.frontier.offer(ReplanSolution(plan, found, state))

    def search(self, limit_s: float, *, first: bool) -> ReplanSolution | None:
        """The fastest plan that a search finds, whatever moves; its groups then stay where they can."""
        self.best = self.searches.searched(self.request, limit_s, first=first, begin=self.before.plan)
        return self.take(self.best.plan) if isinstance(self.best, Planned) else None

    def carry_over(self, plan: Plan, stopped: Callable[[], bool]) -> ReplanSolution | None:
        """The configuration of a plan of another changed world, placed and timed in this one."""
        fastest: Evaluation | None = None
        for found in timed_again(self.context, plan, self._quick, stopped):
            if found.iteration_s < (self.fastest_s if fastest is None else fastest.iteration_s):
                fastest = found
        if fastest is None:
            return None
        routes = tuple(RouteCount(route.pools, route.num_replicas) for route in fastest.candidate.routes)
        return self.adapted(fastest.candidate.configuration, routes, or_same_order(fastest.timings, no_other))

    def take(self, plan: Plan) -> ReplanSolution | None:
        """A plan of the changed world, its replicas put where most of them stay."""
        index = {pool.id: number for number, pool in enumerate(self.context.pools)}
        routes = tuple(
            RouteCount(tuple(index[pool] for pool in route.pools), route.num_replicas)
            for route in plan.placement.routes
        )
        found = settled(self.context, plan.configuration, routes, self.standing)
        if found is None or plan.metrics.iteration_s >= self.frontier.cutoff_s(found.num_moved):
            return None
        return self.adapted(plan.configuration, routes, or_same_order(timings_of(plan), no_other))

    def covering(self) -> PlanRequest:
        """The changed request with every degree where a plan of it has one that a search leaves out."""
        return reduce(covering, (one.plan.configuration for one in self.frontier.points), self.request)

    @property
    def fastest_s(self) -> float:
        """Iteration time of the fastest plan known in the changed world."""
        found = [one.iteration_s for one in self.frontier.points]
        if isinstance(self.best, Planned):
            found.append(self.best.plan.metrics.iteration_s)
        return min(found, default=inf)

    def least_moved(self, within_s: float, known: int) -> int:
        """No plan within this time moves fewer groups."""
        return min(known, 0 if self.bounds is None else self.bounds.least_moved(within_s))

    def least_s(self, num_moved: int, known_s: float) -> float:
        """No plan with at most so many moves takes less."""
        least_s = max(self.inherited_s, 0.0 if self.bounds is None else self.bounds.least_s(num_moved))
        if isinstance(self.best, Planned):
            least_s = max(least_s, self.best.plan.proof.lower_bound_s)
        return min(known_s, least_s)


def _likeliest(rows: RowBounds) -> Iterator[int]:
    """Configurations that fit, the likeliest of each number of replicas."""
    num_seen: Counter[int] = Counter()
    for row in np.argsort(rows.guess_s, kind="stable").tolist():
        dp = int(rows.space.columns.dp[row])
        if num_seen[dp] < ROWS_PER_SIZE and rows.seconds[row] < inf:
            num_seen[dp] += 1
            yield row


def _whole(before: ReplanCase, standing: Standing, configuration: Configuration) -> list[tuple[int, ...]]:
    """Pools by rank of the replicas that stand whole in the ranks of a configuration, the fastest first."""
    if standing.ranks_retained(configuration) != tuple(range(configuration.degrees.pp)):
        return []
    replicas = sorted(standing.whole, key=before.end_s.__getitem__)
    return [tuple(slot.pool for slot in standing.whole[replica]) for replica in replicas]


def _with_degrees(request: PlanRequest, configuration: Configuration) -> PlanRequest | None:
    """The request with the degrees of a configuration that say which group holds what; None where it forbids them."""
    fixed = {name: getattr(configuration.degrees, name) for name in ("tp", "cp", "ep", "pp", "vpp")}
    return allowing_only(request, fixed | {"family": configuration.family, "layer_split": configuration.layer_split})


def _same_layers(configuration: Configuration, like: Configuration) -> Configuration:
    return configuration.model_copy(update={"layers_per_stage": like.layers_per_stage})
